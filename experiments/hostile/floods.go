// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab/origin"
)

const (
	floodHeld = 20      // requests
	rushRate  = 100_000 // connections per second
	rushTime  = 3 * time.Second
)

// floods: requests that are held while connections are opened as fast as can be.
func (b suite) floods(ctx context.Context) (figures []bench.Figure, err error) {
	for _, c := range []struct {
		name     string
		complete bool
	}{{"SYN flood", false}, {"idle-connect flood", true}} {
		t := bench.NewTable(*runs,
			bench.Figure{What: c.name + ": held requests that were answered", Wanted: bench.Always(floodHeld, floodHeld)},
			bench.Figure{What: "  of these, in order", Wanted: bench.Always(floodHeld, floodHeld)},
			bench.Figure{What: "  SYNs/s meanwhile", Unit: "/s", Wanted: bench.AtLeast(0.95 * rushRate)},
			bench.Figure{What: "  handshakes completed/s", Unit: "/s"},
			bench.Figure{What: "  in service, waiting, gathering and slots taken after it", Wanted: bench.Always(0, 0)},
			bench.Figure{What: "  the next request took", Unit: "ms", Wanted: bench.Always(0, 100)},
		)
		for t.Next() {
			samples, err := b.rush(ctx, c.complete)
			if err != nil {
				return append(figures, t.Done()...), fmt.Errorf("%s: %w", c.name, err)
			}
			b.Progress("  %s: %.0f answered, %.0f in order, %s SYNs/s, %s handshakes/s, %.0f left, next request %s ms", c.name, samples[0], samples[1],
				bench.Number(samples[2]), bench.Number(samples[3]), samples[4], bench.Number(samples[5]))
			t.Add(samples...)
		}
		figures = append(figures, t.Done()...)
	}
	return figures, nil
}

// rush measures one flood.
func (b suite) rush(ctx context.Context, complete bool) (samples []float64, err error) {
	st, err := b.stage("floods")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if err := st.origin(origin.Config{}); err != nil {
		return nil, err
	}
	if err := st.enforce(ctx, "concurrency: 1, queue: {max_wait: 30s}"); err != nil {
		return nil, err
	}
	held, err := st.hold(ctx)
	defer func() {
		for _, v := range held {
			v.conn.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	run, err := st.flood(rushRate, complete, "").Start(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, run.Stop()) }()
	begun := time.Now()
	if err := bench.Sleep(ctx, rushTime); err != nil {
		return nil, err
	}
	did, took := run.Counts(), time.Since(begun).Seconds()
	if _, err := st.tell(ctx, "/go?for=first"); err != nil {
		return nil, err
	}
	answered := 0.0
	for i, v := range held {
		if _, err := v.answer(); err != nil {
			st.Progress("  held request %d: %v", i, err)
		} else if i > 0 { // the first is the one they wait for
			answered++
		}
	}
	if err := run.Stop(); err != nil {
		return nil, err
	}
	order, err := st.asked(ctx, "/held")
	if err != nil {
		return nil, err
	}
	inOrder := 0.0
	for i, path := range order {
		if path == heldPath(i+1) {
			inOrder++
		}
	}
	if !slices.IsSorted(order) {
		st.Progress("  they came as %q", order)
	}
	s, _, err := st.until(ctx, calmLimit, state.zero)
	if err != nil {
		return nil, err
	}
	next := st.next(ctx)
	return []float64{
		answered, inOrder, float64(did.Sent) / took, float64(did.Answered) / took,
		s.left(), bench.Milliseconds(next),
	}, ctx.Err()
}

func heldPath(i int) string { return fmt.Sprintf("/held/%02d", i) }

// hold has one request in service and others wait, one after the other.
func (st *stage) hold(ctx context.Context) (all []*visit, err error) {
	for i := range 1 + floodHeld {
		v, err := st.visit(ctx, st.rig.ClientsV4[0])
		if err != nil {
			return all, err
		}
		all = append(all, v)
		path := heldPath(i)
		if i == 0 {
			path = "/wait?for=first"
		}
		if err := v.ask(path); err != nil {
			return all, err
		}
		s, _, err := st.until(ctx, 5*time.Second, func(s state) bool { return s.inService == 1 && s.waiting == i })
		if err == nil && s.waiting != i {
			err = fmt.Errorf("request %d is not held: %v", i, s)
		}
		if err != nil {
			return all, err
		}
	}
	return all, nil
}
