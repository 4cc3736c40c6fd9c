// SPDX-License-Identifier: Apache-2.0

package parser

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// TestLimits takes tokens of several limits at once, and compares with textbook buckets of which all must have
// one: none is spent by who is refused, and who is refused was refused by the first that has none.
func TestLimits(t *testing.T) {
	var taken, refused int
	rapid.Check(t, func(t *rapid.T) {
		var limits []policer
		for i := range rapid.IntRange(1, 8).Draw(t, "limits") {
			limits = append(limits, policer{
				ID: uint64(i)<<32 | rapid.Uint64Range(0, 3).Draw(t, "id"), Bits4: 32, Bits6: 64,
				Interval: rapid.Uint64Range(1, 1000).Draw(t, "interval"), Burst: rapid.Uint64Range(1, 9).Draw(t, "burst"),
			})
		}
		limits[0].PerSource = rapid.Bool().Draw(t, "per source")
		last := &limits[len(limits)-1]
		last.PerSource = last.PerSource || rapid.Bool().Draw(t, "per prefix")
		last.Bits4 = 31
		resetBuckets(1, sourceWays, [2]uint64{rapid.Uint64().Draw(t, "key"), 2})
		now := rapid.Uint64Range(1<<20, 1<<40).Draw(t, "start")
		buckets := map[[2]int]*bucket{}
		want := make([]uint64, len(limits))
		for range rapid.IntRange(1, 300).Draw(t, "SYNs") {
			now += rapid.Uint64Range(0, 300).Draw(t, "ns")
			who := rapid.IntRange(0, 4).Draw(t, "who")
			first := -1
			var mine []*bucket
			for i, l := range limits {
				key := [2]int{i, 0}
				if l.PerSource {
					key[1] = 1 + who>>(32-l.Bits4)
				}
				b := buckets[key]
				if b == nil {
					b = newBucket(l, now)
					buckets[key] = b
				}
				if mine = append(mine, b); !b.has(now) && first < 0 {
					first = i
				}
			}
			got := takeAll(limits, netip.AddrFrom4([4]byte{192, 0, 2, byte(who)}), now)
			if got != (first < 0) {
				t.Fatalf("%v at %d: accepted %v, but the first limit without a token is %d", limits, now, got, first)
			}
			if first >= 0 {
				want[first]++
				refused++
				continue
			}
			taken++
			for _, b := range mine {
				b.take(now)
			}
		}
		for i, n := range want {
			if got := refusedBy(i); got != n {
				t.Errorf("limit %d has refused %d, want %d", i, got, n)
			}
		}
	})
	if taken == 0 || refused == 0 {
		t.Errorf("%d accepted, %d refused: nothing was tested", taken, refused)
	}
}
