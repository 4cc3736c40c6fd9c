// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"narthex/experiments/internal/bench"
)

// table collects figures run by run.
type table struct {
	figures []bench.Figure
	begun   int      // runs
	invalid []string // why a run gave no figures
}

// next reports whether there is to be another run: until there are enough that are valid, or
// it is clear that there will not be.
func (t *table) next() bool {
	t.begun++
	return t.begun-1 < *runs+min(len(t.invalid), 2**runs)
}

// turned returns a list of variants, backwards in every other run, so that a drift weighs on
// all of them.
func turned[T any](t *table, variants ...T) []T {
	if t.begun%2 == 0 {
		slices.Reverse(variants)
	}
	return variants
}

func newTable(figures ...bench.Figure) *table { return &table{figures: figures} }

// add takes a run's sample of each figure.
func (t *table) add(samples ...float64) {
	for i, v := range samples {
		t.figures[i].Samples = append(t.figures[i].Samples, v)
	}
}

// refuse takes note of a run that gives no figures, unless nothing is wrong with it.
func (t *table) refuse(why ...string) bool {
	why = slices.DeleteFunc(why, func(w string) bool { return w == "" })
	if len(why) > 0 {
		t.invalid = append(t.invalid, strings.Join(why, ", "))
	}
	return len(why) > 0
}

// done returns the figures, the first with a note on runs that are missing.
func (t *table) done() []bench.Figure {
	if len(t.invalid) > 0 {
		t.figures[0].Note = strings.TrimPrefix(fmt.Sprintf("%s; %d invalid runs: %s", t.figures[0].Note, len(t.invalid), strings.Join(t.invalid, "; ")), "; ")
	}
	return t.figures
}
