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
		{"a hundred times the connections", 16, []contender{{connections: 32, cost: 10 * ms}, {connections: 3200, cost: 10 * ms}}, []float64{0.5, 0.5}},
		{"four times the time", 16, []contender{{connections: 50, cost: 10 * ms}, {connections: 50, cost: 40 * ms}}, []float64{0.5, 0.5}},
		{"fifty times the time", 16, []contender{{connections: 50, cost: 10 * ms}, {connections: 50, cost: 500 * ms}}, []float64{0.5, 0.5}},
		{"three, of which one wants little", 16, []contender{{connections: 3200, cost: 10 * ms}, {connections: 320, cost: 20 * ms}, {connections: 2, cost: 30 * ms}}, []float64{0.44, 0.44, 0.12}},
		{"one place", 1, []contender{{connections: 1, cost: 10 * ms}, {connections: 100, cost: 3 * ms}}, []float64{0.5, 0.5}},
		{"beside sources that are always new", 8, []contender{{connections: 20, cost: 10 * ms}, {connections: 20, cost: 10 * ms, fresh: true}}, []float64{0.033, 0.95}},
		{"a value beside one of its source with a hundred times the connections", 16, []contender{{connections: 32, cost: 10 * ms, network: 1}, {connections: 3200, cost: 10 * ms, network: 1}}, []float64{0.5, 0.5}},
		{"a source beside one with three values", 16, []contender{{connections: 32, cost: 10 * ms, network: 1}, {connections: 50, cost: 10 * ms, network: 2}, {connections: 500, cost: 10 * ms, network: 2}, {connections: 500, cost: 10 * ms, network: 2}}, []float64{0.5, 0.167, 0.167, 0.167}},
		{"a source beside one that makes its values up", 16, []contender{{connections: 32, cost: 10 * ms, network: 1}, {connections: 3200, cost: 10 * ms, network: 2, madeUp: true}}, []float64{0.5, 0.5}},
		{"a value beside many made up in its source, and another source", 16, []contender{{connections: 32, cost: 10 * ms, network: 1}, {connections: 32, cost: 10 * ms, network: 2}, {connections: 320, cost: 10 * ms, network: 2, madeUp: true}}, []float64{0.5, 0.00157, 0.498}},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := 0.0
			got, wrong := contest(c.all, c.places, 40_000)
			if wrong != "" {
				t.Fatal(wrong)
			}
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
