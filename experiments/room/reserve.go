// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/load"
)

// reserve: a share of the admissions is bronze clients', and within a class it is first come,
// first served.
func (b suite) reserve(ctx context.Context) (figures []bench.Figure, err error) {
	c, err := b.contest("reserve", 2*time.Millisecond)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	c.room.bronze = "reserve: 10%"
	t := bench.NewTable(*runs,
		bench.Figure{What: "bronze share of the admissions, 10 % reserved", Unit: "%", Wanted: bench.Always(9, 11)},
		bench.Figure{What: "bronze share of the answers", Unit: "%"},
		bench.Figure{What: "gold requests that failed", Wanted: bench.Always(0, 0)},
		// Those in service together may end in either order.
		bench.Figure{What: "most later gold requests answered before one", Wanted: bench.Always(0, 2*inService)},
		bench.Figure{What: "most later bronze requests answered before one", Wanted: bench.Always(0, 2*inService)},
	)
	for t.Next() {
		s, share, err := c.admissions(ctx)
		if err != nil {
			return t.Done(), err
		}
		if t.Refuse(invalid(s, true)) {
			continue
		}
		gold, bronze := s.Reports[0], s.Reports[1]
		t.Add(100*share, 100*bronze.Rate()/s.Rate(), float64(bench.Failed(gold)), mostOvertakers(gold.Events), mostOvertakers(bronze.Events))
	}
	return t.Done(), nil
}

// admissions measures both kinds of clients, and the bronze ones' share of the admissions by
// Narthex's own count.
func (c *contest) admissions(ctx context.Context) (s *bench.Sample, share float64, err error) {
	n, err := c.narthex(ctx, c.room)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	gold, bronze := c.goldClients(), c.bronzeClients()
	gold.Record, bronze.Record = true, true
	clients, err := bench.Gather(ctx, load.Closed{Client: gold, Clients: goldCount}, load.Closed{Client: bronze, Clients: bronzeCount})
	if err != nil {
		return nil, 0, err
	}
	defer clients.End()
	if err := bench.Sleep(ctx, warmUp); err != nil {
		return nil, 0, err
	}
	before, err := readRoom(ctx, n)
	if err != nil {
		return nil, 0, err
	}
	if s, err = c.Measure(ctx, clients, 0, length()); err != nil {
		return nil, 0, err
	}
	after, err := readRoom(ctx, n)
	if err != nil {
		return nil, 0, err
	}
	g, b := after["gold"].let()-before["gold"].let(), after["bronze"].let()-before["bronze"].let()
	c.Progress("  admissions: gold %d, bronze %d; gold: %s; bronze: %s", g, b, bench.Outcomes(s.Reports[0]), bench.Outcomes(s.Reports[1]))
	return s, float64(b) / float64(g+b), nil
}

// mostOvertakers returns how many requests at most were sent later than another one and
// answered before it. A client sends its request as soon as it is connected.
func mostOvertakers(events []load.Event) (most float64) {
	events = slices.DeleteFunc(slices.Clone(events), func(e load.Event) bool { return e.Outcome != load.OK })
	slices.SortStableFunc(events, func(a, b load.Event) int { return cmp.Compare(a.Connected, b.Connected) })
	for i, e := range events {
		n := 0
		for _, later := range events[i+1:] {
			if later.Ended < e.Ended {
				n++
			}
		}
		most = max(most, float64(n))
	}
	return most
}
