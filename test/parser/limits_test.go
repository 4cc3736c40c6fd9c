// SPDX-License-Identifier: Apache-2.0

package parser

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestLimits takes tokens and places of several limits at once, and compares with textbook buckets, and counts, of
// which all must have one: none is spent by who is refused, and who is refused was refused by the first that has none.
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
		for i := range rapid.IntRange(0, min(len(limits), 4)).Draw(t, "at once") {
			limits[i*len(limits)/4%len(limits)].AtOnce = rapid.Uint64Range(1, 4).Draw(t, "so many")
		}
		limits[0].PerSource = rapid.Bool().Draw(t, "per source")
		last := &limits[len(limits)-1]
		last.PerSource = last.PerSource || rapid.Bool().Draw(t, "per prefix")
		last.Bits4 = 31
		resetBuckets(1, sourceWays, [2]uint64{rapid.Uint64().Draw(t, "key"), 2})
		now := rapid.Uint64Range(1<<20, 1<<40).Draw(t, "start")
		buckets := map[[2]int]*bucket{}
		counts := map[[2]int]uint64{}
		var inside []func() // what leaves
		want := make([]uint64, len(limits))
		for range rapid.IntRange(1, 300).Draw(t, "SYNs") {
			now += rapid.Uint64Range(0, 300).Draw(t, "ns")
			who := rapid.IntRange(0, 4).Draw(t, "who")
			first := -1
			for len(inside) > 0 && rapid.IntRange(0, 3).Draw(t, "one leaves") == 0 {
				i := rapid.IntRange(0, len(inside)-1).Draw(t, "which")
				inside[i]()
				inside = slices.Delete(inside, i, i+1)
			}
			var mine []*bucket
			var places [][2]int
			for i, l := range limits {
				key := [2]int{i, 0}
				if l.PerSource {
					key[1] = 1 + who>>(32-l.Bits4)
				}
				if l.AtOnce > 0 {
					if places = append(places, key); counts[key] == l.AtOnce && first < 0 {
						first = i
					}
					continue
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
			got, leave := takeAll(limits, netip.AddrFrom4([4]byte{192, 0, 2, byte(who)}), now)
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
			for _, key := range places {
				counts[key]++
			}
			inside = append(inside, func() {
				leave()
				for _, key := range places {
					counts[key]--
				}
			})
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
