// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"narthex/experiments/internal/bench"
)

// bodiesCase is a crowd that uploads.
type bodiesCase struct {
	upload      upload
	clients     int
	concurrency string
}

func (c bodiesCase) String() string {
	size := fmt.Sprintf("%d kB", c.upload.size/1000)
	if c.upload.size >= 1000_000 {
		size = fmt.Sprintf("%d MB", c.upload.size/1000_000)
	}
	framing := "plain"
	if c.upload.chunked {
		framing = "chunked"
	}
	return fmt.Sprintf("%s, %s, %s, %d clients, concurrency %s", size, framing, bench.Manner(c.upload.keepAlive), c.clients, c.concurrency)
}

func bodiesCases() (all []bodiesCase) {
	for _, concurrency := range []string{fmt.Sprint(limit), "auto"} {
		for _, clients := range []int{20, 200} {
			for _, size := range []int{30_000, 100_000, 10_000_000} {
				for _, chunked := range []bool{false, true} {
					for _, keep := range []bool{false, true} {
						all = append(all, bodiesCase{upload{size, chunked, keep}, clients, concurrency})
					}
				}
			}
		}
	}
	return all
}

func (b suite) bodies(ctx context.Context) (figures []bench.Figure, err error) {
	st, err := b.stage("bodies")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.rig.Close()) }()
	if err := st.receive(); err != nil {
		return nil, err
	}
	for _, c := range bodiesCases() {
		if !strings.Contains(c.String(), *named) {
			continue
		}
		b.Progress(" %s", c)
		f, err := st.bodies(ctx, c)
		figures = append(figures, f...)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", c, err)
		}
	}
	return figures, nil
}

// standings are what uploads are measured with: nothing, Narthex, HAProxy, and, as the best that any queue in
// front of the server could bring, as few clients as may be served at once.
type standings struct {
	without, with, proxied, few outcome

	left float64 // of what waited, with Narthex
}

func (st *stage) bodies(ctx context.Context, c bodiesCase) ([]bench.Figure, error) {
	t := bench.NewTable(*runs,
		bench.Figure{What: c.String() + ": with / without", Wanted: bench.AtLeast(0.95)},
		bench.Figure{What: "  with / through HAProxy, maxconn 4", Wanted: bench.AtLeast(1)},
		bench.Figure{What: "  with / four clients alone"},
		bench.Figure{What: "  refused or broken with", Wanted: bench.Always(0, 0)},
		bench.Figure{What: "  in service, waiting, gathering and slots taken after it", Wanted: bench.Always(0, 0)},
		bench.Figure{What: "  uploads/s without", Unit: "/s"},
		bench.Figure{What: "  uploads/s with", Unit: "/s"},
	)
	for t.Next() {
		var s standings
		for _, measure := range bench.Turned(t, st.free, st.crowded, st.proxied, st.gated) {
			if err := measure(ctx, c, &s); err != nil {
				return t.Done(), err
			}
		}
		with := s.with.rate
		st.Progress("  %s/s without, %s/s with, %s/s through HAProxy, %s/s by four alone; %d refused, %d broken", bench.Number(s.without.rate),
			bench.Number(with), bench.Number(s.proxied.rate), bench.Number(s.few.rate), s.with.refused, s.with.broken)
		t.Add(with/s.without.rate, with/s.proxied.rate, with/s.few.rate, float64(s.with.refused+s.with.broken), s.left, s.without.rate, with)
	}
	return t.Done(), nil
}

func (st *stage) free(ctx context.Context, c bodiesCase, s *standings) (err error) {
	s.few, err = st.uploaders(c.upload, limit).once(ctx)
	return err
}

func (st *stage) crowded(ctx context.Context, c bodiesCase, s *standings) (err error) {
	s.without, err = st.uploaders(c.upload, c.clients).once(ctx)
	return err
}

func (st *stage) proxied(ctx context.Context, c bodiesCase, s *standings) (err error) {
	uploads := st.uploaders(c.upload, c.clients)
	uploads.to = st.proxy
	s.proxied, err = uploads.once(ctx)
	return err
}

func (st *stage) gated(ctx context.Context, c bodiesCase, s *standings) (err error) {
	s.left, err = st.with(ctx, c.concurrency, func() (err error) {
		s.with, err = st.uploaders(c.upload, c.clients).once(ctx)
		return err
	})
	return err
}
