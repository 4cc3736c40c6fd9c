// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	"narthex/experiments/internal/bench"
)

// compare measures the finalists, auto and no limit in turn.
func (st *stage) compare(ctx context.Context, s server, capacity float64, found []point) ([]bench.Figure, error) {
	limits := append(finalists(found), auto, unlimited)
	all := map[limit][]point{}
	gold := capacity / 10
	note, err := repeat(func(round int) (invalid string, err error) {
		order := slices.Clone(limits)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		points := map[limit]point{}
		for _, l := range order {
			p, err := st.with(ctx, s, l, gold, fmt.Sprintf("round-%d", round+1), s.settle(), goldTime(gold))
			if err != nil {
				return "", err
			}
			// That nothing limits the server shows in its accept queue.
			if why := p.sample.invalid(); why != "" && (l != unlimited || p.sample.overflows == 0) {
				invalid = fmt.Sprintf("limit %s: %s", l, why)
			}
			points[l] = p
		}
		if invalid == "" {
			for l, p := range points {
				all[l] = append(all[l], p)
			}
		}
		return invalid, nil
	})
	return verdict(s, found, limits, all, note), err
}

// verdict makes the table from what was measured in the same rounds.
func verdict(s server, found []point, limits []limit, all map[limit][]point, note string) []bench.Figure {
	var medians []point
	for _, l := range limits {
		if l != auto && l != unlimited && len(all[l]) > 0 {
			medians = append(medians, point{limit: l, rate: bench.Median(rates(all[l])), p99: bench.Median(tails(all[l]))})
		}
	}
	figures := []bench.Figure{
		{What: "goodput, auto / the highest with a fixed limit", Wanted: bench.AtLeast(0.95), Note: note},
		{What: "gold p99, auto / with the best fixed limit", Wanted: bench.AtMost(1.3)},
	}
	if len(medians) == 0 {
		return figures
	}
	top, b := all[highest(medians).limit], best(medians)
	chosen := all[b.limit]
	for i, p := range all[auto] {
		figures[0].Samples = append(figures[0].Samples, p.rate/top[i].rate)
		figures[1].Samples = append(figures[1].Samples, p.p99/chosen[i].p99)
	}
	figures = append(figures, bench.Figure{
		What: "best fixed limit", Samples: []float64{float64(number(b.limit))},
		Note: fmt.Sprintf("%s; requests/s and gold p99 in the sweep: %s", s.what, text(found)),
	})
	figures = append(figures, bench.Figure{What: "limit with auto, 0 for none", Samples: inForce(all[auto])})
	for _, v := range []struct {
		name   string
		points []point
	}{{"the best fixed limit", chosen}, {"auto", all[auto]}, {"no limit", all[unlimited]}} {
		figures = append(figures,
			bench.Figure{What: "goodput with " + v.name, Unit: "/s", Samples: rates(v.points)},
			bench.Figure{What: "gold median with " + v.name, Unit: "ms", Samples: each(v.points, func(p point) float64 { return p.p50 })},
			bench.Figure{What: "gold p99 with " + v.name, Unit: "ms", Samples: tails(v.points)},
			bench.Figure{What: "gold requests that failed with " + v.name, Samples: each(v.points, func(p point) float64 { return p.goldFails })},
		)
	}
	return figures
}

func each(points []point, of func(point) float64) (values []float64) {
	for _, p := range points {
		values = append(values, of(p))
	}
	return values
}

func rates(points []point) []float64 { return each(points, func(p point) float64 { return p.rate }) }
func tails(points []point) []float64 { return each(points, func(p point) float64 { return p.p99 }) }

// inForce are the limits that were in force, 0 where there was none.
func inForce(points []point) []float64 {
	return each(points, func(p point) float64 { return finite(p.inForce) })
}
