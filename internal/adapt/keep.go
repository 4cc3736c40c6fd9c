// SPDX-License-Identifier: Apache-2.0

package adapt

import "math"

const (
	floodFull  = 0.9  // share of the queue from which on it is flooded
	floodEvery = 0.2  // seconds between two cuts
	floodCut   = 0.7  // what is left of a class's share after a cut
	keepLeast  = 0.02 // the lowest share of a class
	keepMore   = 0.05 // what a class's share grows by in a second without a flood
)

// keeper decides which share of SYNs to let in by class, so that what the queue has no room
// for is dropped where that costs least. Shares are cut in proportion while the queue is full and
// refuses requests, the lowest class first, and grow by a constant when it does not (additive
// increase, multiplicative decrease: D.-M. Chiu and R. Jain, Computer Networks and ISDN Systems
// 17, 1989), the highest first. The highest class is never cut.
type keeper struct {
	keep  []float64
	since float64
}

func (k *keeper) step(s *Sample, queue int) []float64 {
	k.since += s.Span.Seconds()
	if queue > 0 && s.Rejected > 0 && float64(s.Waiting) >= floodFull*float64(queue) {
		if k.since >= floodEvery-1e-9 {
			k.since = 0
			k.cut(s)
		}
	} else if k.keep != nil {
		k.grow(keepMore * s.Span.Seconds())
	}
	if k.keep == nil {
		return nil
	}
	return append([]float64(nil), k.keep...)
}

// cut lowers the share of the lowest class that is not at its least and sends something. The
// first cut leaves it what it gets served anyway.
func (k *keeper) cut(s *Sample) {
	for len(k.keep) < len(s.Classes) {
		k.keep = append(k.keep, 1)
	}
	for r := len(s.Classes) - 1; r > 0; r-- {
		c := &s.Classes[r]
		if k.keep[r] <= keepLeast || c.Arrived == 0 {
			continue
		}
		share := floodCut
		if k.keep[r] == 1 && c.Rejected > 0 {
			share = min(share, 1.2*max(0, 1-float64(c.Rejected)/float64(c.Arrived)))
		}
		k.keep[r] = max(keepLeast, k.keep[r]*share)
		return
	}
}

func (k *keeper) grow(by float64) {
	for r := range k.keep {
		if k.keep[r] < 1 {
			if k.keep[r] = math.Min(1, k.keep[r]+by); k.keep[r] < 1 {
				return
			}
		}
	}
	k.keep = nil
}
