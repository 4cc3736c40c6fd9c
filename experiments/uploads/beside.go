// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"narthex/experiments/internal/bench"
)

// goldClients ask for little beside those who upload.
const goldClients = 5

// beside: small requests of gold clients beside uploads, with Narthex and without.
func (b suite) beside(ctx context.Context) (figures []bench.Figure, err error) {
	st, err := b.stage("beside")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.rig.Close()) }()
	if err := st.receive(); err != nil {
		return nil, err
	}
	for _, size := range []int{30_000, 1_000_000} {
		f, err := st.beside(ctx, size)
		figures = append(figures, f...)
		if err != nil {
			return figures, err
		}
	}
	return figures, nil
}

func (st *stage) beside(ctx context.Context, size int) ([]bench.Figure, error) {
	t := bench.NewTable(*runs,
		bench.Figure{What: fmt.Sprintf("gold beside uploads of %d kB: with / without", size/1000), Wanted: bench.AtLeast(1)},
		bench.Figure{What: "  gold requests/s without", Unit: "/s"},
		bench.Figure{What: "  gold requests/s with", Unit: "/s"},
	)
	for t.Next() {
		var without, with outcome
		var err error
		for _, gated := range bench.Turned(t, false, true) {
			if gated {
				_, err = st.with(ctx, fmt.Sprint(limit), func() (err error) {
					with, err = st.goldBeside(ctx, size)
					return err
				})
			} else {
				without, err = st.goldBeside(ctx, size)
			}
			if err != nil {
				return t.Done(), err
			}
		}
		st.Progress("  %s/s without, %s/s with", bench.Number(without.rate), bench.Number(with.rate))
		t.Add(with.rate/without.rate, without.rate, with.rate)
	}
	return t.Done(), nil
}

func (st *stage) goldBeside(ctx context.Context, size int) (o outcome, err error) {
	uploads := st.uploaders(upload{size: size, keepAlive: true}, 40)
	uploads.start(ctx)
	defer func() { err = errors.Join(err, uploads.end()) }()
	gold := st.uploaders(upload{keepAlive: true}, goldClients)
	gold.sources = st.rig.ClientsV4
	return gold.once(ctx)
}
