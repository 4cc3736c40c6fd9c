// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/load"
)

// shift is how long the same clients are at work, which may not be for ever; others relieve them.
const shift = load.MaxDuration - time.Minute

// drift: what becomes of the limit in a long overload, before a server that needs one that is
// high enough for a drift to show.
func (b suite) drift(ctx context.Context) (figures []bench.Figure, err error) {
	s := serverNamed("sleep")
	st, err := b.prepare(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	most, err := st.most(ctx, s.clients, fixed(64))
	if err != nil {
		return nil, err
	}
	if err := st.set(ctx, auto); err != nil {
		return nil, err
	}
	whole := pick(*drifts, 40*time.Second)
	c, err := bench.Gather(ctx, st.closed(s.clients, 0))
	if err != nil {
		return nil, err
	}
	defer func() { c.End() }()
	if err := bench.Sleep(ctx, settle()); err != nil {
		return nil, err
	}
	w := st.watch(ctx, 250*time.Millisecond, "drift")
	defer func() { err = errors.Join(err, w.end()) }()
	var shares []float64 // of what the server can do
	for left := whole; left > 0; left -= shift {
		if left < whole {
			relief, err := bench.Gather(ctx, st.closed(s.clients, 0))
			if err != nil {
				return nil, err
			}
			c.End()
			c = relief
		}
		m, err := st.measure(ctx, c, 0, min(left, shift))
		if err != nil {
			return nil, err
		}
		shares = append(shares, m.reports.Rate()/most)
		st.Progress("  %v to go: %s/s, others %.2f", max(0, left-shift).Round(time.Second), bench.Number(m.reports.Rate()), m.others)
	}
	if err := w.end(); err != nil {
		return nil, err
	}
	first, last := medianLimit(w.between(0, whole/10)), medianLimit(w.between(whole*9/10, whole))
	drifted := bench.Figure{What: "limit, last tenth / first tenth, off 1", Unit: "%", Wanted: bench.AtMost(20), Note: fmt.Sprintf("%v of overload", whole)}
	if off := 100 * math.Abs(last/first-1); !math.IsNaN(off) && !math.IsInf(off, 1) { // there was a limit
		drifted.Samples = []float64{off}
	}
	return []bench.Figure{
		drifted,
		{What: "limit in the first tenth, 0 for none", Samples: []float64{finite(first)}},
		{What: "limit in the last tenth", Samples: []float64{finite(last)}},
		{What: "answers / with a good fixed limit", Samples: shares, Wanted: bench.AtLeast(worth)},
	}, nil
}

// finite is a limit as figures have it, 0 for none: JSON has no infinity.
func finite(limit float64) float64 {
	if math.IsInf(limit, 1) {
		return 0
	}
	return limit
}
