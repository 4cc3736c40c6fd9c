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
	defer func() { err = errors.Join(err, st.lab.Close()) }()
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

func (st *stage) bodies(ctx context.Context, c bodiesCase) ([]bench.Figure, error) {
	t := bench.NewTable(*runs,
		bench.Figure{What: c.String() + ": with / without", Wanted: bench.AtLeast(0.95)},
		bench.Figure{What: "  refused or broken with", Wanted: bench.Always(0, 0)},
		bench.Figure{What: "  in service, waiting, gathering and slots taken after it", Wanted: bench.Always(0, 0)},
		bench.Figure{What: "  uploads/s without", Unit: "/s"},
		bench.Figure{What: "  uploads/s with", Unit: "/s"},
	)
	for t.Next() {
		var without, with outcome
		var left float64
		var err error
		for _, gated := range bench.Turned(t, false, true) {
			if gated {
				left, err = st.with(ctx, c.concurrency, func() (err error) {
					with, err = st.uploaders(c.upload, c.clients).once(ctx)
					return err
				})
			} else {
				without, err = st.uploaders(c.upload, c.clients).once(ctx)
			}
			if err != nil {
				return t.Done(), err
			}
		}
		st.Progress("  %s/s without, %s/s with, %d refused, %d broken", bench.Number(without.rate), bench.Number(with.rate), with.refused, with.broken)
		t.Add(with.rate/without.rate, float64(with.refused+with.broken), left, without.rate, with.rate)
	}
	return t.Done(), nil
}
