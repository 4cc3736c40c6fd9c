// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/load"
)

// Gold clients ask for a tenth of what the server can do. Everybody else asks for two tenths, and
// then for ten times that.
const (
	stepGold, stepOthers = 0.1, 0.2
	stepTimes            = 10
	stepBefore           = 3 * time.Second // of which the last two are measured
	stepDuring           = 2 * time.Second // measured from the step on
	stepAfter            = 3 * time.Second // measured when that is over
	stepWatch            = 50 * time.Millisecond
)

// stepOpen is how many connections are open at most: twice what the server can do for as long as
// requests may wait, and then some.
const stepOpen = 8192

// step: ten times the load from one moment to the next.
func (b suite) step(ctx context.Context) (figures []bench.Figure, err error) {
	st, err := b.prepare(ctx, serverNamed("go"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	capacity, err := st.most(ctx, crowded, fixed(4))
	if err != nil {
		return nil, err
	}
	figures = []bench.Figure{
		{What: "time until the limit is settled", Unit: "s", Wanted: bench.AtMost(1)},
		{What: "gold p99 in the first 2 s / before the step", Wanted: bench.AtMost(3)},
		{What: "gold p99 in the first 2 s / later, with the same load", Wanted: bench.AtMost(3)},
		{What: "gold p99 before the step", Unit: "ms"},
		{What: "gold p99 in the first 2 s", Unit: "ms"},
		{What: "gold p99 later", Unit: "ms"},
		{What: "limit in the end, 0 for none"},
		{What: "answers to all later / what the server can do", Wanted: bench.AtLeast(worth)},
	}
	figures[0].Note, err = repeat(func(round int) (invalid string, err error) {
		total := &stepped{}
		for i := range pick(5, 1) {
			s, err := st.once(ctx, capacity, fmt.Sprintf("step %d %d", round+1, i+1))
			if err != nil {
				return "", err
			}
			total.add(s)
		}
		if invalid = total.invalid; invalid != "" {
			return invalid, nil
		}
		gold := func(i int) float64 { return bench.Quantile(total.gold[i], 0.99, patience) }
		for i, v := range []float64{
			bench.Median(total.settled), gold(1) / gold(0), gold(1) / gold(2), gold(0), gold(1), gold(2),
			finite(total.limit), total.later / capacity / float64(len(total.settled)),
		} {
			figures[i].Samples = append(figures[i].Samples, v)
		}
		return "", nil
	})
	return figures, err
}

// most is what the server can do, in requests/s.
func (st *stage) most(ctx context.Context, clients int, l limit) (rate float64, err error) {
	if err := st.set(ctx, l); err != nil {
		return 0, err
	}
	c, err := bench.Gather(ctx, st.closed(clients, 0))
	if err != nil {
		return 0, err
	}
	defer func() { c.End(); err = errors.Join(err, st.rest(ctx)) }()
	s, err := st.measure(ctx, c, settle(), length())
	if err != nil {
		return 0, err
	}
	st.Progress("  the server answers %s/s", bench.Number(s.reports.Rate()))
	return s.reports.Rate(), nil
}

// stepped is what was measured of some steps.
type stepped struct {
	settled []float64       // seconds
	gold    [3]*load.Report // before, in the first seconds, later
	limit   float64
	later   float64 // answers/s to all, summed up
	invalid string
}

func (s *stepped) add(o *stepped) {
	s.settled = append(s.settled, o.settled...)
	s.limit, s.later = o.limit, s.later+o.later
	for i, r := range o.gold {
		if s.gold[i] == nil {
			s.gold[i] = r
		} else {
			s.gold[i].Add(r)
		}
	}
	if s.invalid == "" {
		s.invalid = o.invalid
	}
}

// once does one step, from a server that nobody has used before.
func (st *stage) once(ctx context.Context, capacity float64, name string) (s *stepped, err error) {
	if err := st.set(ctx, auto); err != nil {
		return nil, err
	}
	few, many := st.open(stepOthers*capacity, 1), st.open(stepOthers*capacity*(stepTimes-1), 1)
	many.MaxOpen = stepOpen
	c, err := bench.Gather(ctx, st.gold(stepGold*capacity), few)
	if err != nil {
		return nil, err
	}
	defer func() { c.End(); err = errors.Join(err, st.rest(ctx)) }()
	w := st.watch(ctx, stepWatch, name)
	defer func() { err = errors.Join(err, w.end()) }()

	before, err := st.measure(ctx, c, stepBefore-stepDuring, stepDuring)
	if err != nil {
		return nil, err
	}
	at := time.Since(w.begun)
	if err := c.Add(many); err != nil {
		return nil, err
	}
	during, err := st.measure(ctx, c, 0, stepDuring)
	if err != nil {
		return nil, err
	}
	later, err := st.measure(ctx, c, 0, stepAfter)
	if err != nil {
		return nil, err
	}
	end := time.Since(w.begun)
	if err := w.end(); err != nil {
		return nil, err
	}
	after, final := w.settled(at, end)
	s = &stepped{settled: []float64{after.Seconds()}, limit: final, later: later.reports.Rate()}
	for i, m := range []*sample{before, during, later} {
		s.gold[i] = m.reports[0]
		if s.invalid == "" {
			s.invalid = m.invalid()
		}
	}
	st.Progress("  settled at %s after %s s; gold p99 %s, %s, %s ms; later %s/s in all", limitText(final), bench.Number(after.Seconds()),
		bench.Number(bench.Quantile(s.gold[0], 0.99, patience)), bench.Number(bench.Quantile(s.gold[1], 0.99, patience)), bench.Number(bench.Quantile(s.gold[2], 0.99, patience)), bench.Number(later.reports.Rate()))
	return s, nil
}
