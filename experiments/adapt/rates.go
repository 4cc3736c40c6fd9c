// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab/origin"
	"narthex/internal/load"
)

// rated is a rule whose rate is a number, or sets itself: the scenes of figures 5 and 9 of Voigt et al.,
// USENIX ATC 2001, in short.
type rated struct {
	name   string
	policy string // with the rate, and the address of the service before it
	path   string // of everybody else's requests
	// So many others ask again so soon after an answer: one that is refused by an answer comes back at once, and to
	// make so many clients busy takes more than the server.
	clients int
	think   time.Duration
}

var rateds = []rated{
	{"connections, as in figure 5", `version: 1
services: [{name: web, listen: ["%[2]s"], xdp: off, protocol: tcp}]
connections: [{name: others, from: 10.77.66.0/24, rate: %[1]s}]
`, "/", 250, 10 * time.Millisecond},
	{"requests, as in figure 9", `version: 1
services: [{name: web, listen: ["%[2]s"], xdp: off, concurrency: unlimited}]
requests: [{name: others, path: /dynamic, rate: %[1]s}]
`, "/dynamic", 100, 100 * time.Millisecond},
}

const (
	ratedGold   = 0.2             // of what the server can do
	ratedSettle = 5 * time.Second // until a rate that sets itself is measured
)

// ratedShares are the rates that are tried, in what the server can do.
var ratedShares = []float64{0.6, 0.7, 0.75, 0.8, 0.9}

// rates: rates that set themselves in place of numbers, while the server's capacity halves and doubles.
func (b suite) rates(ctx context.Context) (figures []bench.Figure, err error) {
	for _, r := range rateds {
		f, err := b.rate(ctx, r)
		figures = append(figures, f...)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return figures, nil
}

// outcome is what the preferred client and all together got, per second.
type outcome struct{ gold, all float64 }

func (b suite) rate(ctx context.Context, r rated) (figures []bench.Figure, err error) {
	st, err := b.stage("rates")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if st.server, err = st.origin(origin.Config{Work: 2 * time.Millisecond, Workers: 50, NoKeepAlive: true, NoMPTCP: true}); err != nil {
		return nil, err
	}
	capacity, alone, err := st.ratedAlone(ctx)
	if err != nil {
		return nil, err
	}
	best, err := st.bestRate(ctx, r, capacity, alone)
	if err != nil {
		return nil, err
	}
	figures = []bench.Figure{
		{What: r.name + ": preferred, of alone", Wanted: bench.AtLeast(0.9)},
		{What: r.name + ": all, of the best fixed rate", Wanted: bench.AtLeast(0.95)},
		{What: r.name + ": preferred, at half the capacity", Wanted: bench.AtLeast(0.9)},
		{What: r.name + ": all, at half the capacity", Wanted: bench.AtLeast(0.95)},
		{What: r.name + ": preferred, at the capacity of before again", Wanted: bench.AtLeast(0.9)},
		{What: r.name + ": all, at the capacity of before again", Wanted: bench.AtLeast(0.95)},
	}
	figures[0].Note, err = repeat(func(int) (string, error) {
		return "", st.ratedAuto(ctx, r, func(i int, o outcome) {
			factor := []float64{1, 0.5, 1}[i]
			figures[2*i].Samples = append(figures[2*i].Samples, o.gold/alone)
			figures[2*i+1].Samples = append(figures[2*i+1].Samples, o.all/(best.all*factor))
		}, capacity)
	})
	return figures, err
}

// ratedAlone is what the server can do, and what the preferred client gets alone, in answers/s.
func (st *stage) ratedAlone(ctx context.Context) (capacity, alone float64, err error) {
	all, err := st.ratedRun(ctx, settle(), length(), st.closed(8, 0))
	if err != nil {
		return 0, 0, err
	}
	capacity = all.Rate()
	gold, err := st.ratedRun(ctx, time.Second, length(), st.gold(ratedGold*capacity))
	if err != nil {
		return 0, 0, err
	}
	st.Progress("  the server does %.0f/s, the preferred client gets %.0f/s", capacity, gold.Rate())
	return capacity, gold.Rate(), nil
}

func (st *stage) ratedRun(ctx context.Context, settle, length time.Duration, clients ...bench.Starter) (bench.Reports, error) {
	c, err := bench.Gather(ctx, clients...)
	if err != nil {
		return nil, err
	}
	defer c.End()
	m, err := st.measure(ctx, c, settle, length)
	if err != nil {
		return nil, err
	}
	return m.reports, nil
}

// ratedCrowd is everybody else.
func (st *stage) ratedCrowd(r rated) load.Closed {
	others := st.closed(r.clients, r.think)
	others.Path = r.path
	return others
}

// bestRate is the highest total of the rates that leave the preferred client nine tenths.
func (st *stage) bestRate(ctx context.Context, r rated, capacity, alone float64) (best outcome, err error) {
	n, err := st.Enforce(ctx, st.rig.Server, fmt.Sprintf(r.policy, "10/s", bench.Web(st.rig)))
	if err != nil {
		return best, err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	table := "connections"
	if r.path != "/" {
		table = "requests"
	}
	for _, share := range ratedShares {
		if err := n.Set(ctx, table+".others.rate", fmt.Sprintf("%.0f/s", share*capacity)); err != nil {
			return best, err
		}
		got, err := st.ratedRun(ctx, pick(3*time.Second, time.Second), length(), st.gold(ratedGold*capacity), st.ratedCrowd(r))
		if err != nil {
			return best, err
		}
		o := outcome{got[0].Rate(), got.Rate()}
		st.Progress("  at %.0f/s: preferred %.2f of alone, all %.0f/s, median %.1f ms", share*capacity, o.gold/alone, o.all, bench.Milliseconds(got[0].Quantile(0.5)))
		if o.gold >= 0.9*alone && o.all > best.all {
			best = o
		}
	}
	return best, nil
}

// ratedAuto measures with a rate that sets itself: from its fifth second on, at half the capacity, and at the whole again.
func (st *stage) ratedAuto(ctx context.Context, r rated, tell func(int, outcome), capacity float64) (err error) {
	n, err := st.Enforce(ctx, st.rig.Server, fmt.Sprintf(r.policy, "auto", bench.Web(st.rig)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	c, err := bench.Gather(ctx, st.gold(ratedGold*capacity), st.ratedCrowd(r))
	if err != nil {
		return err
	}
	defer c.End()
	for i, slower := range []string{"", "work=2", ""} {
		if err := st.pace(ctx, slower); err != nil {
			return err
		}
		m, err := st.measure(ctx, c, ratedSettle, length())
		if err != nil {
			return err
		}
		gold := m.reports[0]
		st.Progress("  auto, phase %d: preferred %.0f/s, all %.0f/s, median %.1f ms, p99 %.1f ms", i+1, gold.Rate(), m.reports.Rate(), bench.Milliseconds(gold.Quantile(0.5)), bench.Milliseconds(gold.Quantile(0.99)))
		tell(i, outcome{gold.Rate(), m.reports.Rate()})
	}
	return nil
}
