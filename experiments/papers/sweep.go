// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"narthex/experiments/internal/evidence"
)

// outcome is what a run of one variant at one load has given.
type outcome struct {
	values  map[string]float64 // by what they are
	invalid string             // why they say nothing; empty if they do
}

// variant is one way to treat the same load: nothing, ours, or a peer.
type variant struct {
	name string
	ours bool
	// start has it in force until stop. What is there before the variant (the server, say) is
	// not its business.
	start   func(ctx context.Context) (stop func() error, err error)
	measure func(ctx context.Context, x float64) (outcome, error)
	xs      []float64 // loads at which it is measured; the sweep's if empty
}

// tries is how often a run is done until it is valid.
const tries = 4

// swept is what a sweep has given.
type swept struct {
	values            map[string]map[float64]map[string][]float64 // by variant, load and what they are: a sample of each round
	repeated, invalid []string
}

// sweep measures each variant at each load, once a round. Variants take turns, backwards in every
// other round, so that a drift of the machine weighs on all of them.
func (s *suite) sweep(ctx context.Context, xs []float64, variants ...variant) (*swept, error) {
	all := &swept{values: map[string]map[float64]map[string][]float64{}}
	for round := range s.runs {
		turn := slices.Clone(variants)
		if round%2 == 1 {
			slices.Reverse(turn)
		}
		for _, v := range turn {
			if len(v.xs) == 0 {
				v.xs = xs
			}
			if err := s.one(ctx, v, round, all); err != nil {
				return nil, fmt.Errorf("%s: %w", v.name, err)
			}
		}
	}
	return all, nil
}

// apart is the variants at one load after the other in place of one variant after the other: what is
// compared at a load is then measured within seconds, in which a machine changes less.
func apart(xs []float64, variants ...variant) (all []variant) {
	for _, x := range xs {
		for _, v := range variants {
			if len(v.xs) == 0 || slices.Contains(v.xs, x) {
				v.xs = []float64{x}
				all = append(all, v)
			}
		}
	}
	return all
}

// one measures a variant at its loads.
func (s *suite) one(ctx context.Context, v variant, round int, all *swept) (err error) {
	stop, err := v.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for _, x := range v.xs {
		if err := s.point(ctx, v, x, round, all); err != nil {
			return err
		}
	}
	return nil
}

// point measures a variant at one load until that is valid.
func (s *suite) point(ctx context.Context, v variant, x float64, round int, all *swept) error {
	for try := 1; ; try++ {
		o, err := v.measure(ctx, x)
		if err != nil {
			return fmt.Errorf("at %v: %w", x, err)
		}
		s.Progress("  round %d, %s at %v: %s", round+1, v.name, x, o)
		if o.invalid == "" {
			all.add(v.name, x, o.values)
			return nil
		}
		why := fmt.Sprintf("%s at %v, round %d: %s", v.name, x, round+1, o.invalid)
		if try == tries {
			all.invalid = append(all.invalid, why)
			return nil
		}
		all.repeated = append(all.repeated, why)
	}
}

func (o outcome) String() string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(o.values)) {
		text += fmt.Sprintf("%s %.4g  ", name, o.values[name])
	}
	if o.invalid != "" {
		text += "INVALID: " + o.invalid
	}
	return text
}

func (a *swept) add(variant string, x float64, values map[string]float64) {
	if a.values[variant] == nil {
		a.values[variant] = map[float64]map[string][]float64{}
	}
	if a.values[variant][x] == nil {
		a.values[variant][x] = map[string][]float64{}
	}
	for what, v := range values {
		a.values[variant][x][what] = append(a.values[variant][x][what], v)
	}
}

// at returns the samples of a figure, in the order of the rounds.
func (a *swept) at(variant string, x float64, what string) []float64 {
	return a.values[variant][x][what]
}

// series makes a line of a figure's samples.
func (a *swept) series(v variant, what string) evidence.Series {
	line := evidence.Series{Name: v.name, Ours: v.ours}
	for x, values := range a.values[v.name] {
		if samples := values[what]; len(samples) > 0 {
			line.Points = append(line.Points, evidence.Point{X: x, Samples: samples})
		}
	}
	slices.SortFunc(line.Points, func(p, q evidence.Point) int {
		switch {
		case p.X < q.X:
			return -1
		case p.X > q.X:
			return 1
		}
		return 0
	})
	return line
}

// over divides samples of the same rounds; it is as long as the shorter of both.
func over(a, b []float64) []float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		ratios = append(ratios, a[i]/b[i])
	}
	return ratios
}
