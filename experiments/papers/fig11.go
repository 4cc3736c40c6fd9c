// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/evidence"
	"narthex/internal/load"
)

// Loads of figure 11 as multiples of the rate that the server can do, and those at which not all
// of the curve is measured.
var (
	thrashLoads = []float64{0.5, 0.7, 0.9, 1.4, 2.5, 5}
	thrashFew   = []float64{0.9, 2.5, 5}
)

// What figure 11 is about, at each load.
const (
	completed = "completed" // requests/s that were answered in full
	answered  = "median"    // response time of those, in ms
)

// fig11: a server that gets slower the more of it is asked, until it hardly does anything.
func (s *suite) fig11(ctx context.Context) (r *evidence.Result, err error) {
	t, err := s.thrashing()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	able, err := t.able(ctx)
	if err != nil {
		return nil, err
	}
	xs := times(able, thrashLoads)
	variants := append(t.variants(able), t.peers(able)...)
	for i := range variants {
		if v := &variants[i]; !v.ours && v.name != alone {
			v.xs = times(able, thrashFew)
		}
	}
	got, err := s.sweep(ctx, s.thin(xs...), variants...)
	if err != nil {
		return nil, err
	}
	return t.result(got, variants, able, s.thin(xs...)), nil
}

// result is what follows from the samples.
func (t *thrashing) result(got *swept, variants []variant, able float64, xs []float64) *evidence.Result {
	r := &evidence.Result{
		ID: "fig11", Title: "A server that thrashes: requests completed against requests offered",
		Source: "Voigt et al., USENIX ATC 2001, figure 11",
		Then:   "Without control the server peaks at 63 requests/s, then collapses to 40; with a limit of (60, 10) it stays at 60 up to 150 offered. Dropping SYNs of who was reset delays the collapse further.",
		Setup: fmt.Sprintf("Apache prefork with 150 processes runs a CGI program (Perl) that goes through 8 MiB of memory and answers with 29 KB. "+
			"The programs share %d MiB; what has no room is swapped to a file. An open loop asks from %d addresses, one request per connection. "+
			"Before each point the servers start anew; %v pass, then %v are measured. In a closed loop of 4 clients the server does %.0f requests/s; limits of a rate are at %.0f/s, burst 10; limits of how many are served at once at %d.",
			thrashMemory>>20, thrashSources, t.settle, t.length, able, thrashRate(able), thrashAtOnce),
		Repeated: got.repeated, Invalid: got.invalid,
		Notes: []string{"Rates are those of this machine: loads are multiples of what the server does with 4 clients.",
			"The curve of SYN policing corresponds to the one with control then. The limit that sets itself did not exist."},
	}
	curves := evidence.Plot{Title: "Requests completed", X: evidence.Axis{Label: "offered requests/s"}, Y: evidence.Axis{Label: "completed requests/s"}}
	slow := evidence.Plot{Name: "fig11-times", Title: "Response time of completed requests", X: curves.X, Y: evidence.Axis{Label: "median response time, ms", Log: true}}
	for _, v := range variants {
		curves.Series = append(curves.Series, got.series(v, completed))
		slow.Series = append(slow.Series, got.series(v, answered))
	}
	r.Plots = []evidence.Plot{curves, slow}
	peak := got.best(alone, completed)
	highest := xs[len(xs)-1]
	r.Claims = []evidence.Claim{evidence.AtMost(evidence.Shape, fmt.Sprintf("uncontrolled at %.1f times what the server can do, of its peak", highest/able), "", 0.7, over(got.at(alone, highest, completed), peak)...)}
	for _, v := range variants {
		if !v.ours {
			continue
		}
		for _, x := range xs {
			r.Claims = append(r.Claims, evidence.AtLeast(evidence.Shape, fmt.Sprintf("%s at %.1f times, of what is offered or the uncontrolled peak", v.name, x/able), "", 0.9,
				over(got.at(v.name, x, completed), upTo(x, peak))...))
		}
	}
	for _, v := range variants {
		if v.name == alone || v.ours {
			continue
		}
		for _, x := range times(able, thrashFew[1:]) {
			for _, our := range []string{thrashAuto, thrashPoliced} {
				r.Ratios = append(r.Ratios, evidence.Ratio{What: fmt.Sprintf("completed at %.1f times what the server can do, %s", x/able, our), Peer: v.name,
					Samples: over(got.at(our, x, completed), got.at(v.name, x, completed))})
			}
		}
	}
	return r
}

// upTo is the samples, but no more than a bound.
func upTo(most float64, samples []float64) (bounded []float64) {
	for _, v := range samples {
		bounded = append(bounded, min(v, most))
	}
	return bounded
}

// best is a variant's highest sample of each round, whatever the load.
func (a *swept) best(variant, what string) (highest []float64) {
	for _, values := range a.values[variant] {
		for round, v := range values[what] {
			if round == len(highest) {
				highest = append(highest, v)
			}
			highest[round] = max(highest[round], v)
		}
	}
	return highest
}

// times are multiples of a rate, in whole requests/s.
func times(rate float64, loads []float64) (xs []float64) {
	for _, x := range loads {
		xs = append(xs, float64(int(x*rate)))
	}
	return xs
}

// able is what the server can do when few ask at once.
func (t *thrashing) able(ctx context.Context) (rate float64, err error) {
	if err := t.restart(); err != nil {
		return 0, err
	}
	c, err := bench.Gather(ctx, load.Closed{Client: t.from(t.middle, t.path), Clients: 4})
	if err != nil {
		return 0, err
	}
	defer c.End()
	s, err := t.Measure(ctx, c, time.Second, 3*time.Second)
	if err != nil {
		return 0, err
	}
	rate = s.Reports[0].Rate()
	t.Progress("  the server can do %.0f requests/s", rate)
	if rate == 0 {
		return 0, errors.New("the server does not answer")
	}
	return rate, nil
}

// at measures an open loop before a server that has just begun.
func (t *thrashing) at(ctx context.Context, x float64) (o outcome, err error) {
	if err := t.restart(); err != nil {
		return o, err
	}
	c, err := bench.Gather(ctx, load.Open{Client: t.from(t.middle, t.path), Rate: x})
	if err != nil {
		return o, err
	}
	defer c.End()
	s, err := t.Measure(ctx, c, t.settle, t.length)
	if err != nil {
		return o, err
	}
	r := s.Reports[0]
	o.values = map[string]float64{completed: r.Rate(), answered: bench.Milliseconds(r.Median())}
	o.invalid = check{}.invalid(s)
	if begun := float64(r.Begun) / r.Elapsed.Seconds(); o.invalid == "" && begun < 0.95*x {
		o.invalid = fmt.Sprintf("%.0f requests/s were offered in place of %.0f", begun, x)
	}
	return o, nil
}

// restart starts the server anew, with nobody in its queue and all its memory free.
func (t *thrashing) restart() (err error) {
	if err := t.stop(); err != nil {
		return err
	}
	if t.servers, err = t.start(); err != nil {
		return err
	}
	return t.group.Add(t.servers[0])
}

// stop ends the servers, what is before them first, and their programs.
func (t *thrashing) stop() (err error) {
	for _, s := range slices.Backward(t.servers) {
		err = errors.Join(err, s.Close())
	}
	t.servers = nil
	return errors.Join(err, t.group.Clear())
}
