// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Both cases of an overhead take turns many times and for a short time each: the machine is noisy.
const (
	OverheadSettle = 100 * time.Millisecond // after Narthex came or went, and after the clients came
	OverheadSlice  = 150 * time.Millisecond // that is measured
)

// Overhead compares for how long the server's core is at work per request, process and softirq, with
// Narthex and without.
type Overhead struct {
	Pairs  int     // how often
	Others float64 // share of the core's time from which on, taken by others on the machine, a pair does not count

	Start func(context.Context) (*Narthex, error)

	// Measure has clients come, which keep their connections or do not, and measures them for
	// OverheadSlice: the work per request in microseconds, and the share of the core that others took.
	Measure func(ctx context.Context, keepAlive bool) (cost, others float64, err error)
}

// Manner says how clients use connections.
func Manner(keepAlive bool) string {
	if keepAlive {
		return "connections kept"
	}
	return "one request per connection"
}

// Figures are that of a control, without Narthex in either half, and that of the overhead.
func (o Overhead) Figures(ctx context.Context, b *Bench, keepAlive bool, wanted *Bound) (figures []Figure, err error) {
	for _, c := range []struct {
		what    string
		control bool
		wanted  *Bound
	}{
		{"control, " + Manner(keepAlive), true, nil},
		{Manner(keepAlive) + ", with / without", false, wanted},
	} {
		f, err := o.compare(ctx, keepAlive, c.control)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", c.what, err)
		}
		f.What, f.Wanted = c.what, c.wanted
		b.Progress("  %s: × %s (quartiles %s); %s", f.What, Number(f.Median()), f.Spread(), f.Note)
		figures = append(figures, f)
	}
	return figures, nil
}

// compare returns how much more work the server's core has per request with Narthex than
// without. The control has Narthex come and go again before the one half.
func (o Overhead) compare(ctx context.Context, keepAlive, control bool) (f Figure, err error) {
	var costs [2][]float64 // per request in microseconds, without and with
	disturbed := 0
	for i := 0; len(f.Samples) < o.Pairs && disturbed < o.Pairs; i++ {
		var cost, others [2]float64
		for _, with := range []int{i % 2, 1 - i%2} {
			if cost[with], others[with], err = o.half(ctx, keepAlive, with == 1, control); err != nil {
				return f, err
			}
		}
		if max(others[0], others[1]) > o.Others {
			disturbed++
			continue
		}
		for with := range costs {
			costs[with] = append(costs[with], cost[with])
		}
		f.Samples = append(f.Samples, cost[1]/cost[0])
	}
	f.Note = fmt.Sprintf("%s µs per request without and %s µs with; %d pairs not counted, as others took more than %.0f %% of the core",
		Number(Median(costs[0])), Number(Median(costs[1])), disturbed, 100*o.Others)
	return f, nil
}

// half measures one half of a pair.
func (o Overhead) half(ctx context.Context, keepAlive, with, control bool) (cost, others float64, err error) {
	if with {
		n, err := o.Start(ctx)
		if err != nil {
			return 0, 0, err
		}
		stop := n.Stop
		if control {
			if err := n.Stop(); err != nil {
				return 0, 0, err
			}
			stop = func() error { return nil }
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	if err := Sleep(ctx, OverheadSettle); err != nil {
		return 0, 0, err
	}
	return o.Measure(ctx, keepAlive)
}
