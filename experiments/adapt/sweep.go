// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"narthex/experiments/internal/bench"
)

// tie is how far below the highest throughput one is that counts as good.
const tie = 0.97

// point is what was measured with one limit.
type point struct {
	limit     limit
	rate      float64 // requests/s, of all clients
	p50, p99  float64 // of gold clients, in milliseconds
	inForce   float64 // the limit's median during the measurement
	sample    *sample
	goldFails float64 // requests of gold clients
}

// sweep compares auto with the best fixed limit, and with none, before one server.
func (b suite) sweep(ctx context.Context, s server) (figures []bench.Figure, err error) {
	st, err := b.prepare(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	capacity, promising, err := st.capacity(ctx, s)
	if err != nil {
		return nil, err
	}
	found, err := st.refine(ctx, s, capacity, promising)
	if err != nil {
		return nil, err
	}
	return st.compare(ctx, s, capacity, found)
}

// with measures gold and other clients with a limit.
func (st *stage) with(ctx context.Context, s server, l limit, gold float64, name string, settle, length time.Duration) (p point, err error) {
	if err := st.set(ctx, l); err != nil {
		return p, err
	}
	c, err := bench.Gather(ctx)
	if err != nil {
		return p, err
	}
	defer func() { c.End(); err = errors.Join(err, st.rest(ctx)) }()
	if gold > 0 {
		if err := c.Add(st.gold(gold)); err != nil {
			return p, err
		}
	}
	w := st.watch(ctx, 100*time.Millisecond, fmt.Sprintf("%s %s %s", s.name, name, l))
	defer func() { err = errors.Join(err, w.end()) }()
	if err := st.gather(ctx, s, c); err != nil {
		return p, err
	}
	from := time.Since(w.begun) + settle
	got, err := st.measure(ctx, c, settle, length)
	if err != nil {
		return p, err
	}
	if err := w.end(); err != nil {
		return p, err
	}
	p = point{limit: l, rate: got.reports.Rate(), sample: got, inForce: medianLimit(w.between(from, time.Hour))}
	others, about := got.reports, ""
	if gold > 0 {
		r := got.reports[0]
		p.p50, p.p99, p.goldFails = bench.Quantile(r, 0.5, patience), bench.Quantile(r, 0.99, patience), float64(bench.Failed(r))
		others = others[1:]
		about = fmt.Sprintf(", gold %s and %s ms (%s)", bench.Number(p.p50), bench.Number(p.p99), bench.Outcomes(r))
	}
	st.Progress("  %s, limit %s (%s): %s/s%s, cores %.0f %% and %.0f %%, others %.2f; %s", s.name, l, limitText(p.inForce),
		bench.Number(p.rate), about, 100*got.serverBusy, 100*got.clientBusy, got.others, outcomes(others))
	return p, nil
}

// gather has everybody who is not gold come, at once or in batches.
func (st *stage) gather(ctx context.Context, s server, c *bench.Crowd) error {
	if s.batches == 0 {
		return c.Add(st.closed(s.clients, 0))
	}
	for i := range s.batches {
		if err := c.Add(st.closed(s.clients*(i+1)/s.batches-s.clients*i/s.batches, 0)); err != nil {
			return err
		}
		if err := bench.Sleep(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// capacity is the highest throughput at any of the limits tried, without gold clients, and the
// limits that are worth a second look.
func (st *stage) capacity(ctx context.Context, s server) (most float64, promising []int, err error) {
	rates, hopeless := map[int]float64{}, 0
	for n := 1; n <= s.top && hopeless < 2; n *= pick(2, 4) {
		p, err := st.with(ctx, s, fixed(n), 0, "capacity", settle()/2, pick(1500*time.Millisecond, time.Second))
		if err != nil {
			return 0, nil, err
		}
		rates[n] = p.rate
		if most = max(most, p.rate); p.rate < 0.7*most {
			hopeless++
		} else {
			hopeless = 0
		}
	}
	for n, rate := range rates {
		if rate >= 0.5*most {
			promising = append(promising, n)
		}
	}
	slices.Sort(promising)
	if most == 0 {
		err = fmt.Errorf("%s does not answer", s.what)
	}
	return most, promising, err
}

// goldTime is how long is measured, so that gold clients' p99 means something.
func goldTime(rate float64) time.Duration {
	return max(length(), min(3*length(), time.Duration(400/rate*float64(time.Second))))
}

// refine measures with gold clients, at limits between the best ones, too.
func (st *stage) refine(ctx context.Context, s server, capacity float64, limits []int) (points []point, err error) {
	gold := capacity / 10
	look := func(limits []int) error {
		for _, n := range limits {
			p, err := st.with(ctx, s, fixed(n), gold, "sweep", settle(), goldTime(gold)*2/3)
			if err != nil {
				return err
			}
			points = append(points, p)
		}
		return nil
	}
	if err := look(limits); err != nil || *quick {
		return points, err
	}
	center := number(best(points).limit)
	var between []int
	for _, n := range []int{center * 5 / 8, center * 3 / 4, center * 5 / 4, center * 3 / 2} {
		if n > 0 && n <= s.top && !slices.Contains(limits, n) && !slices.Contains(between, n) {
			between = append(between, n)
		}
	}
	err = look(between)
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(number(a.limit), number(b.limit)) })
	return points, err
}

func number(l limit) (n int) {
	_, _ = fmt.Sscan(string(l), &n)
	return n
}

// highest is the point of the highest throughput.
func highest(points []point) point {
	return slices.MaxFunc(points, func(a, b point) int { return cmp.Compare(a.rate, b.rate) })
}

// best is the point with the shortest p99 of those with about the highest throughput.
func best(points []point) point {
	most := highest(points).rate
	good := slices.DeleteFunc(slices.Clone(points), func(p point) bool { return p.rate < tie*most })
	return slices.MinFunc(good, func(a, b point) int { return cmp.Compare(a.p99, b.p99) })
}

// finalists are the limits that are measured again: what is best, what has the highest
// throughput, and the next below the best.
func finalists(points []point) (limits []limit) {
	add := func(p point) {
		if !slices.Contains(limits, p.limit) {
			limits = append(limits, p.limit)
		}
	}
	b := best(points)
	add(b)
	add(highest(points))
	for _, p := range slices.Backward(points) {
		if number(p.limit) < number(b.limit) {
			add(p)
			break
		}
	}
	return limits
}

// text lists points for a note.
func text(points []point) string {
	var list []string
	for _, p := range points {
		list = append(list, fmt.Sprintf("%s: %s/s, %s ms", p.limit, bench.Number(p.rate), bench.Number(p.p99)))
	}
	return strings.Join(list, "; ")
}
