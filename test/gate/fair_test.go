// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"math"
	"testing"
)

// TestFair looks at who gets how much of the places in a class: each source its max-min share of the time, whatever
// its requests cost and however many it has.
func TestFair(t *testing.T) {
	const ms = 1_000_000
	for _, c := range []struct {
		name   string
		places int
		all    []contender
		want   []float64
	}{
		{"a hundred times the connections", 16, []contender{{32, 10 * ms, false}, {3200, 10 * ms, false}}, []float64{0.5, 0.5}},
		{"four times the time", 16, []contender{{50, 10 * ms, false}, {50, 40 * ms, false}}, []float64{0.5, 0.5}},
		{"fifty times the time", 16, []contender{{50, 10 * ms, false}, {50, 500 * ms, false}}, []float64{0.5, 0.5}},
		{"three, of which one wants little", 16, []contender{{3200, 10 * ms, false}, {320, 20 * ms, false}, {2, 30 * ms, false}}, []float64{0.44, 0.44, 0.12}},
		{"one place", 1, []contender{{1, 10 * ms, false}, {100, 3 * ms, false}}, []float64{0.5, 0.5}},
		{"beside sources that are always new", 8, []contender{{20, 10 * ms, false}, {20, 10 * ms, true}}, []float64{0.033, 0.95}},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := 0.0
			got := contest(c.all, c.places, 40_000)
			for _, served := range got {
				all += served
			}
			for i, served := range got {
				// New sources are as many as ask, 20 at a time, and each is a turn ahead: of an old one this is the least.
				if share := served / all; share < c.want[i]*0.9 || len(c.all) > 1 && !c.all[1].fresh && math.Abs(share-c.want[i]) > c.want[i]*0.1 {
					t.Errorf("source %d has %.3f of the time, want %.2f", i, share, c.want[i])
				}
			}
		})
	}
}
