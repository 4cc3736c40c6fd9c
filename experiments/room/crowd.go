// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/load"
)

// crowds are the numbers of bronze clients.
var crowds = []int{10, 100, 1000}

// crowd: one gold client beside ever more bronze ones, as in Banga, Druschel and Mogul,
// Resource Containers, OSDI 1999, figure 11.
func (b suite) crowd(ctx context.Context) (figures []bench.Figure, err error) {
	c, err := b.contest("crowd", 2*time.Millisecond)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	list := []bench.Figure{{What: "gold median beside 1,000 / beside 10, with Narthex", Wanted: bench.AtMost(1.2)}}
	for _, v := range []string{"with Narthex", "without"} {
		for _, n := range crowds {
			list = append(list, bench.Figure{What: fmt.Sprintf("gold median beside %d, %s", n, v), Unit: "ms"})
		}
	}
	for _, n := range crowds {
		list = append(list, bench.Figure{What: fmt.Sprintf("gold p99 beside %d, with Narthex", n), Unit: "ms"})
	}
	t := bench.NewTable(*runs, list...)
	for t.Next() {
		medians, tails, why, err := c.beside(ctx, bench.Turned(t, nothing, narthex))
		if err != nil {
			return t.Done(), err
		}
		if t.Refuse(why...) {
			continue
		}
		with := medians[narthex]
		t.Add(slices.Concat([]float64{with[len(with)-1] / with[0]}, with, medians[nothing], tails)...)
	}
	return t.Done(), nil
}

// beside measures the gold client beside each number of bronze clients, with and without
// Narthex. Times are in milliseconds.
func (c *contest) beside(ctx context.Context, order []variant) (medians [variants][]float64, tails []float64, why []string, err error) {
	for _, v := range order {
		for _, n := range crowds {
			s, err := c.one(ctx, v, n)
			if err != nil {
				return medians, nil, nil, err
			}
			gold := s.Reports[0]
			c.Progress("  %d bronze, Narthex %t: gold median %s ms; gold: %s; bronze: %s", n, v == narthex,
				bench.Number(bench.Milliseconds(gold.Median())), bench.Outcomes(gold), bench.Outcomes(s.Reports[1]))
			why = append(why, invalid(s, true))
			if gold.Outcomes[load.OK] == 0 {
				why = append(why, fmt.Sprintf("no answer for gold beside %d", n))
			}
			medians[v] = append(medians[v], bench.Milliseconds(gold.Median()))
			if v == narthex {
				tails = append(tails, bench.Milliseconds(gold.Quantile(0.99)))
			}
		}
	}
	return medians, tails, why, nil
}

// one measures one gold client beside so many bronze ones.
func (c *contest) one(ctx context.Context, v variant, bronze int) (s *bench.Sample, err error) {
	settle, length := warmUp, length()
	if v == narthex {
		n, err := c.narthex(ctx, c.room)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, n.Stop()) }()
	} else {
		// A turn of all clients, and two more to measure: 2 ms each.
		turn := time.Duration(bronze) * 2 * time.Millisecond
		settle, length = max(settle, turn*5/4), max(length, turn*5/2)
	}
	return c.Once(ctx, settle, length,
		load.Closed{Client: c.goldClients(), Clients: 1},
		load.Closed{Client: c.bronzeClients(), Clients: bronze})
}
