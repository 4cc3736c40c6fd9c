// SPDX-License-Identifier: Apache-2.0

package policy

import "testing"

// TestFirstOf combines so many pairs that results of other pairs are met in the place
// where a result is kept.
func TestFirstOf(t *testing.T) {
	const rules = 600
	f := newForest()
	ranges := make([]PortRange, rules)
	entries := make([]Entry, rules)
	for i := range entries {
		first := uint16(i * 97)
		ranges[i] = PortRange{first, first + uint16(i%7*1000)}
		var err error
		if entries[i], err = f.ports(ranges[i:i+1], RuleEntry(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, a := range entries {
		for j, b := range entries[i:] {
			both, err := f.firstOf(b, a)
			if err != nil {
				t.Fatal(err)
			}
			for _, port := range []uint16{ranges[i].First, ranges[i].Last, ranges[i+j].First, ranges[i+j].Last} {
				want := -1
				for _, r := range []int{i + j, i} {
					if ranges[r].First <= port && port <= ranges[r].Last {
						want = r
					}
				}
				if got := lookup(f.nodes, both, Key{portWord: uint64(port) << 48}); got != want {
					t.Fatalf("rules %d and %d, port %d: rule %d, want %d", i, i+j, port, got, want)
				}
			}
		}
	}
}
