// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"

	"pgregory.net/rapid"
)

// After a change of the table's size every source, whether it has a bucket or was evicted
// from its set before, finds one that is no fuller than it left it.
func TestRehashGivesNoTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SampledFrom([]int{1, 2, 4, 8, 16})
		was := make([]narthexSourceSet, sizes.Draw(t, "sets before"))
		left := map[uint64]uint64{} // the time at which each source left its bucket
		for range rapid.IntRange(0, 200).Draw(t, "arrivals") {
			tag := uint64(rapid.IntRange(0, 63).Draw(t, "source"))<<32 | 1
			set := &was[int(tag>>32)%len(was)]
			s := fullest(set)
			for w := range set.Way {
				if set.Way[w].Tag == tag {
					s = &set.Way[w]
				}
			}
			s.Tag = tag
			s.Time += uint64(rapid.IntRange(1, 100).Draw(t, "cost"))
			left[tag] = s.Time
		}
		now := rehash(was, sizes.Draw(t, "sets after"))
		for tag, time := range left {
			set := &now[int(tag>>32)%len(now)]
			s := fullest(set)
			for w := range set.Way {
				if set.Way[w].Tag == tag {
					s = &set.Way[w]
				}
			}
			if s.Time < time {
				t.Fatalf("source %d left a bucket at %d and finds one at %d", tag>>32, time, s.Time)
			}
		}
	})
}
