// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"narthex/experiments/internal/bench"
)

// table collects figures run by run.
type table struct {
	figures []bench.Figure
	invalid []string // why a run gave no figures
}

func newTable(figures ...bench.Figure) *table { return &table{figures: figures} }

// add takes a run's sample of each figure.
func (t *table) add(samples ...float64) {
	for i, v := range samples {
		t.figures[i].Samples = append(t.figures[i].Samples, v)
	}
}

// refuse takes note of a run that gives no figures, unless nothing is wrong with it.
func (t *table) refuse(why ...string) (refused bool) {
	for _, w := range why {
		if w != "" {
			t.invalid = append(t.invalid, w)
			refused = true
		}
	}
	return refused
}

// done returns the figures, the first with a note on runs that are missing.
func (t *table) done() []bench.Figure {
	if len(t.invalid) > 0 {
		t.figures[0].Note = strings.TrimPrefix(fmt.Sprintf("%s; invalid: %s", t.figures[0].Note, strings.Join(t.invalid, "; ")), "; ")
	}
	return t.figures
}
