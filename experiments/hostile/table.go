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
	begun   int
	invalid []string // why a run gave no figures
}

func newTable(figures ...bench.Figure) *table { return &table{figures: figures} }

// next reports whether there is to be another run: until there are enough that are valid, or
// it is clear that there will not be.
func (t *table) next() bool {
	t.begun++
	return t.begun-1 < *runs+min(len(t.invalid), 2**runs)
}

// add takes a run's sample of each figure, unless something was wrong with it.
func (t *table) add(invalid string, samples ...float64) {
	if invalid != "" {
		t.invalid = append(t.invalid, invalid)
		return
	}
	for i, v := range samples {
		t.figures[i].Samples = append(t.figures[i].Samples, v)
	}
}

// done returns the figures, the first with a note on runs that are missing.
func (t *table) done() []bench.Figure {
	if len(t.invalid) > 0 {
		t.figures[0].Note = fmt.Sprintf("%d invalid runs: %s", len(t.invalid), strings.Join(t.invalid, "; "))
	}
	return t.figures
}
