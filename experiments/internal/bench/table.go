// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"slices"
	"strings"
)

// Table collects figures run by run.
type Table struct {
	figures []Figure
	runs    int // that are wanted
	begun   int
	invalid []string // why a run gave no figures
}

// NewTable is a table of figures that so many valid runs are to give samples of.
func NewTable(runs int, figures ...Figure) *Table { return &Table{figures: figures, runs: runs} }

// Next reports whether there is to be another run: until there are enough that are valid, or
// it is clear that there will not be.
func (t *Table) Next() bool {
	t.begun++
	return t.begun-1 < t.runs+min(len(t.invalid), 2*t.runs)
}

// Turned returns a list of variants, backwards in every other run, so that a drift weighs on
// all of them.
func Turned[T any](t *Table, variants ...T) []T {
	if t.begun%2 == 0 {
		slices.Reverse(variants)
	}
	return variants
}

// Add takes a run's sample of each figure.
func (t *Table) Add(samples ...float64) {
	for i, v := range samples {
		t.figures[i].Samples = append(t.figures[i].Samples, v)
	}
}

// Refuse takes note of a run that gives no figures, unless nothing is wrong with it.
func (t *Table) Refuse(why ...string) bool {
	why = slices.DeleteFunc(why, func(w string) bool { return w == "" })
	if len(why) > 0 {
		t.invalid = append(t.invalid, strings.Join(why, ", "))
	}
	return len(why) > 0
}

// Done returns the figures, the first with a note on runs that are missing.
func (t *Table) Done() []Figure {
	if len(t.invalid) > 0 {
		t.figures[0].Note = strings.TrimPrefix(fmt.Sprintf("%s; %d invalid runs: %s", t.figures[0].Note, len(t.invalid), strings.Join(t.invalid, "; ")), "; ")
	}
	return t.figures
}
