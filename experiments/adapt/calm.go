// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"narthex/experiments/internal/bench"
)

// ease is clients who do not ask for more than a server can do.
type ease struct {
	name, server string
	clients      func(*stage) bench.Starter
}

var eases = []ease{
	{"go, 20 clients that think for 60 ms", "go", func(st *stage) bench.Starter { return st.closed(20, 60*time.Millisecond) }},
	{"sleep, 24 clients that do not think", "sleep", func(st *stage) bench.Starter { return st.closed(24, 0) }},
	{"nginx, 20 requests at once 100 times a second", "nginx", func(st *stage) bench.Starter { return st.open(2000, 20) }},
}

// calm: what is not overloaded is not to be limited.
func (b suite) calm(ctx context.Context) (figures []bench.Figure, err error) {
	for _, e := range eases {
		f, err := b.ease(ctx, e)
		figures = append(figures, f...)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return figures, nil
}

func (b suite) ease(ctx context.Context, e ease) (figures []bench.Figure, err error) {
	st, err := b.stage("calm-" + e.server)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if err := st.serve(serverNamed(e.server)); err != nil {
		return nil, err
	}
	figures = []bench.Figure{
		{What: e.name + ": requests held", Wanted: bench.Always(0, 0)},
		{What: e.name + ": requests/s, with Narthex / without", Wanted: bench.AtLeast(0.98)},
		{What: e.name + ": the server's core was busy", Unit: "%"},
	}
	figures[0].Note, err = repeat(func(round int) (invalid string, err error) {
		var rate [2]float64
		var held, busy float64
		for _, with := range []int{round % 2, 1 - round%2} {
			s, h, err := st.atEase(ctx, e, with == 1, fmt.Sprintf("calm %s %d", e.server, round+1))
			if err != nil {
				return "", err
			}
			if invalid == "" {
				invalid = s.invalid()
			}
			rate[with], busy = s.reports.Rate(), s.serverBusy
			held += h
		}
		st.Progress("  %s: %s/s without, %s/s with, %.0f held", e.name, bench.Number(rate[0]), bench.Number(rate[1]), held)
		if invalid == "" {
			for i, v := range []float64{held, rate[1] / rate[0], 100 * busy} {
				figures[i].Samples = append(figures[i].Samples, v)
			}
		}
		return invalid, nil
	})
	return figures, err
}

// atEase measures the clients, with Narthex or without, and how many of their requests were held
// since they began.
func (st *stage) atEase(ctx context.Context, e ease, with bool, name string) (s *sample, held float64, err error) {
	if with {
		if err := st.enforce(ctx); err != nil {
			return nil, 0, err
		}
		defer func() { err = errors.Join(err, st.daemon.Stop()) }()
	}
	c, err := bench.Gather(ctx, e.clients(st))
	if err != nil {
		return nil, 0, err
	}
	defer c.End()
	if !with {
		s, err = st.measure(ctx, c, settle(), length())
		return s, 0, err
	}
	w := st.watch(ctx, 100*time.Millisecond, name)
	defer func() { err = errors.Join(err, w.end()) }()
	if s, err = st.measure(ctx, c, settle(), length()); err != nil {
		return nil, 0, err
	}
	now, err := st.status(ctx)
	for _, class := range now.Classes {
		held += float64(class.Held)
	}
	return s, held, err
}
