// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/load"
)

// Of a server that is offered more than it can do: what its requests take, how many it works on at once, and how long
// somebody may wait.
const (
	takes  = 20 * time.Millisecond
	few    = 4
	target = 500 * time.Millisecond
)

// target: an open loop, so that nobody comes later for having waited. The wait of who is served is what an answer takes
// beyond the server's time.
func (b suite) target(ctx context.Context) (figures []bench.Figure, err error) {
	st, err := b.stage("target")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	var sources []netip.Addr
	for n := 66; n < 76; n++ {
		a, err := bench.Addresses(st.rig.Client, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(n), 0}), 24), 1)
		if err != nil {
			return nil, err
		}
		sources = append(sources, a...)
	}
	for _, times := range []int{2, 10} {
		c := load.Open{Client: st.Client(st.rig, sources, load.MaxDuration), Rate: float64(times) * few / takes.Seconds(), MaxOpen: 20_000}
		c.Path = fmt.Sprintf("/wait?ms=%d", takes.Milliseconds())
		f, err := b.bounded(ctx, times, c, st)
		if figures = append(figures, f...); err != nil {
			return figures, err
		}
	}
	return figures, nil
}

// bounded measures clients with the target and without.
func (b suite) bounded(ctx context.Context, times int, c load.Open, st *stage) ([]bench.Figure, error) {
	t := bench.NewTable(*runs,
		bench.Figure{What: fmt.Sprintf("%d times the load: median wait of who is served, of the target", times), Wanted: bench.AtMost(1)},
		bench.Figure{What: "  p99", Wanted: bench.AtMost(2)},
		bench.Figure{What: "  median wait without a target, of that"},
		bench.Figure{What: "  requests served, of those without a target", Wanted: bench.AtLeast(0.98)},
	)
	for t.Next() {
		got := map[string]*bench.Sample{}
		for _, queue := range bench.Turned(t, "{target: 500ms}", "{}") {
			var err error
			if got[queue], err = st.under(ctx, 6*time.Second, fmt.Sprintf("concurrency: %d, queue: %s", few, queue), "none", c); err != nil {
				return t.Done(), err
			}
			st.Progress("  %d times, queue %s: %s/s, p99 %s ms", times, queue, bench.Number(got[queue].Reports[0].Rate()), bench.Number(bench.Milliseconds(got[queue].Reports[0].Quantile(0.99))))
		}
		waits := func(queue string, quantile float64) float64 {
			return float64(got[queue].Reports[0].Quantile(quantile)-takes) / float64(target)
		}
		bounded, free := "{target: 500ms}", "{}"
		t.Add(waits(bounded, 0.5), waits(bounded, 0.99), waits(free, 0.5), got[bounded].Reports[0].Rate()/got[free].Reports[0].Rate())
	}
	return t.Done(), nil
}
