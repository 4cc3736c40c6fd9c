// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab/origin"
	"narthex/internal/load"
)

// holdAllClients are enough for somebody always to wait where holdAllLimit at a time are let
// in. That is more than one, so that the server finds its next request when it has done with
// one: with one at a time it sleeps and wakes for each, which it does not without Narthex, and
// which is no cost of holding.
const (
	holdAllClients = 64
	holdAllLimit   = 8
)

// holdAll: every request is held and released, before a server that has nothing to do.
func (b suite) holdAll(ctx context.Context) (figures []bench.Figure, err error) {
	st, err := b.stage("holdall")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if _, err := st.origin(origin.Config{}); err != nil {
		return nil, err
	}
	t := bench.NewTable(*runs,
		bench.Figure{What: "requests/s, all held / without Narthex", Wanted: bench.AtLeast(0.88)},
		bench.Figure{What: "held, of all requests", Unit: "%", Wanted: bench.AtLeast(95)},
		bench.Figure{What: "requests that failed", Wanted: bench.Always(0, 0)},
		bench.Figure{What: "requests/s with", Unit: "/s"},
		bench.Figure{What: "requests/s without", Unit: "/s"},
		bench.Figure{What: "the server's core was busy with", Unit: "%"},
		bench.Figure{What: "the server's core was busy without", Unit: "%"},
	)
	for t.Next() {
		var without, with *bench.Sample
		var held float64
		for _, gated := range bench.Turned(t, false, true) {
			if gated {
				with, held, err = st.allHeld(ctx)
			} else {
				without, err = st.Once(ctx, warmUp, length(), st.many())
			}
			if err != nil {
				return t.Done(), err
			}
		}
		st.Progress("  %s/s without, %s/s with, %.1f %% held; %s; busy %.0f and %.0f %%, clients %.0f and %.0f %%",
			bench.Number(without.Rate()), bench.Number(with.Rate()), 100*held, bench.Outcomes(with.Reports[0]),
			100*without.ServerBusy, 100*with.ServerBusy, 100*without.ClientBusy, 100*with.ClientBusy)
		if t.Refuse(invalid(without, true), invalid(with, false)) {
			continue
		}
		t.Add(with.Rate()/without.Rate(), 100*held, float64(bench.Failed(with.Reports[0])), with.Rate(), without.Rate(),
			100*with.ServerBusy, 100*without.ServerBusy)
	}
	return t.Done(), nil
}

func (st *stage) many() load.Closed {
	return load.Closed{Client: st.goldClients(), Clients: holdAllClients}
}

// allHeld measures clients of whom a few at a time are let in, and the share of requests that
// were held.
func (st *stage) allHeld(ctx context.Context) (s *bench.Sample, held float64, err error) {
	n, err := st.narthex(ctx, room{concurrency: holdAllLimit})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	c, err := bench.Gather(ctx, st.many())
	if err != nil {
		return nil, 0, err
	}
	defer c.End()
	before, err := readRoom(ctx, n)
	if err != nil {
		return nil, 0, err
	}
	if s, err = st.Measure(ctx, c, warmUp, length()); err != nil {
		return nil, 0, err
	}
	after, err := readRoom(ctx, n)
	if err != nil {
		return nil, 0, err
	}
	g := after["gold"]
	return s, float64(g.Held-before["gold"].Held) / float64(g.Arrived-before["gold"].Arrived), nil
}
