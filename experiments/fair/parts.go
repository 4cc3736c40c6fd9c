// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"narthex/experiments/internal/bench"
	"narthex/internal/load"
)

// orders are by prefix and by arrival.
var orders = []string{"{v4: 24, v6: 48}", "none"}

// contest measures a few clients alone, and beside others in each order.
func (b suite) contest(ctx context.Context, purpose string, few, others load.Closed, st *stage, figures []bench.Figure, add func(t *bench.Table, alone, fair, none *bench.Sample)) ([]bench.Figure, error) {
	t := bench.NewTable(*runs, figures...)
	for t.Next() {
		alone, err := st.with(ctx, orders[0], few)
		if err != nil {
			return t.Done(), err
		}
		beside := map[string]*bench.Sample{}
		for _, order := range bench.Turned(t, slices.Clone(orders)...) {
			if beside[order], err = st.with(ctx, order, few, others); err != nil {
				return t.Done(), err
			}
			r := beside[order].Reports
			st.Progress("  %s, fair %s: %s/s beside %s/s, median %s ms", purpose, order, bench.Number(r[0].Rate()), bench.Number(r[1].Rate()), bench.Number(bench.Milliseconds(r[0].Median())))
		}
		add(t, alone, beside[orders[0]], beside[orders[1]])
	}
	return t.Done(), nil
}

// beside: 32 connections want more than half of the places, so half is their max-min share.
func (b suite) beside(ctx context.Context) (figures []bench.Figure, err error) {
	st, few, rest, err := b.crowds("beside", quick, 32, quick, 3200, []int{67})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	return b.contest(ctx, "beside", few, rest, st, []bench.Figure{
		{What: "32 connections beside 3,200: requests, of half of all, fair", Wanted: bench.AtLeast(0.95)},
		{What: "  in order of arrival"},
		{What: "  all requests, fair / in order of arrival", Wanted: bench.AtLeast(0.95)},
	}, func(t *bench.Table, _, fair, none *bench.Sample) {
		all := func(s *bench.Sample) float64 { return s.Reports[0].Rate() + s.Reports[1].Rate() }
		share := func(s *bench.Sample) float64 { return 2 * s.Reports[0].Rate() / all(s) }
		t.Add(share(fair), share(none), all(fair)/all(none))
	})
}

// many: a source beside many others like it. The share of each is the same.
func (b suite) many(ctx context.Context) (figures []bench.Figure, err error) {
	var others []int
	for n := 2; n < 252; n++ {
		if n != 66 {
			others = append(others, n)
		}
	}
	st, few, rest, err := b.crowds("many", quick, 4, quick, 4*len(others), others)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	return b.contest(ctx, "many", few, rest, st, []bench.Figure{
		{What: "a source beside 249 others like it: of its share, fair", Wanted: bench.AtLeast(0.9)},
		{What: "  in order of arrival"},
	}, func(t *bench.Table, _, fair, none *bench.Sample) {
		share := func(s *bench.Sample) float64 {
			return s.Reports[0].Rate() * float64(len(others)) / s.Reports[1].Rate()
		}
		t.Add(share(fair), share(none))
	})
}

// crowds starts the server and prepares clients of one source and of others.
func (b suite) crowds(purpose, path string, connections int, otherPath string, otherConnections int, others []int) (st *stage, few, rest load.Closed, err error) {
	if st, err = b.stage(purpose); err != nil {
		return nil, few, rest, err
	}
	if few, err = st.clients(path, connections, 66); err == nil {
		rest, err = st.clients(otherPath, otherConnections, others...)
	}
	if err != nil {
		return nil, few, rest, errors.Join(err, st.close())
	}
	return st, few, rest, nil
}

// lone: one connection, whose next request waits each time until a place is free. Its own went to somebody else when its
// answer came.
func (b suite) lone(ctx context.Context) (figures []bench.Figure, err error) {
	st, one, rest, err := b.crowds("lone", quick, 1, quick, 100, []int{67})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	return b.contest(ctx, "lone", one, rest, st, []bench.Figure{
		{What: "1 connection beside 100: p99, of that alone, fair", Wanted: bench.AtMost(2)},
		{What: "  in order of arrival"},
		{What: "  requests, of those alone, fair"},
		{What: "  in order of arrival"},
	}, func(t *bench.Table, alone, fair, none *bench.Sample) {
		rate := func(s *bench.Sample) float64 { return s.Reports[0].Rate() / alone.Reports[0].Rate() }
		late := func(s *bench.Sample) float64 {
			return float64(s.Reports[0].Quantile(0.99)) / float64(alone.Reports[0].Quantile(0.99))
		}
		t.Add(late(fair), late(none), rate(fair), rate(none))
	})
}

// costs: shares are of time, so a source of slow requests has as much of it as one of quick ones.
func (b suite) costs(ctx context.Context) (figures []bench.Figure, err error) {
	for _, ms := range []int{40, 200} {
		st, slow, fast, err := b.crowds("costs", fmt.Sprintf("/wait?ms=%d", ms), 50, quick, 50, []int{67})
		if err != nil {
			return figures, err
		}
		f, err := b.contest(ctx, "costs", slow, fast, st, []bench.Figure{
			{What: fmt.Sprintf("share of time of requests of %d ms beside those of 10 ms, fair", ms), Wanted: bench.Always(0.4, 0.6)},
			{What: "  in order of arrival"},
		}, func(t *bench.Table, _, fair, none *bench.Sample) {
			share := func(s *bench.Sample) float64 {
				slow, fast := s.Reports[0].Rate()*float64(ms), s.Reports[1].Rate()*10
				return slow / (slow + fast)
			}
			t.Add(share(fair), share(none))
		})
		figures = append(figures, f...)
		if err = errors.Join(err, st.close()); err != nil {
			return figures, err
		}
	}
	return figures, nil
}
