// SPDX-License-Identifier: Apache-2.0

package adapt

import "math"

const (
	floodFull  = 0.9  // share of the queue from which on it is flooded
	floodRate  = 500  // rejections/s, besides: fewer cost less than 1 % of a core, and tell their clients why
	floodEvery = 0.2  // seconds between two cuts
	floodCut   = 0.7  // what is left of a class's share after a cut
	keepLeast  = 0.02 // the lowest share of a class
	keepMore   = 0.05 // what a class's share grows by in a second without a flood
	keepFast   = 0.5  // the same, where the queue is not half full: it is over
	// strangerRate is how many rejections/s take a quarter of a core, at 15 µs each.
	strangerRate = 0.25 / 15e-6
)

// keeper decides which share of SYNs to let in by class, so that what the queue has no room
// for is dropped where that costs least. Shares are cut in proportion while the queue is full and
// refuses many requests, the lowest class first, and grow by a constant when it does not (additive
// increase, multiplicative decrease: D.-M. Chiu and R. Jain, Computer Networks and ISDN Systems
// 17, 1989), the highest first. The highest class is never cut.
//
// That is for sources whose class is known before they have asked for anything. Strangers, who may be of
// any class for all that is known, are let in as long as their rejections take less than a quarter of a
// core.
type keeper struct {
	keep      []float64
	strangers float64 // share of them that is not let in
	since     float64 // s, of what follows
	refused   uint64
	classes   []asked // by rank
}

// asked is what a class has asked for, and how much of it was refused.
type asked struct{ arrived, rejected uint64 }

func (k *keeper) step(s *Sample, queue int) []float64 {
	k.add(s)
	if k.since >= floodEvery-1e-9 {
		full := queue > 0 && float64(s.Waiting) >= floodFull*float64(queue)
		switch {
		case full && float64(k.refused) > floodRate*k.since:
			k.cut()
			k.cutStrangers(float64(k.refused) / k.since)
		case s.Waiting == 0:
			k.keep, k.strangers = nil, 0
		case s.Waiting <= queue/2:
			k.grow(keepFast * k.since)
		default:
			k.grow(keepMore * k.since)
		}
		k.since, k.refused = 0, 0
		clear(k.classes)
	}
	if k.keep == nil {
		return nil
	}
	return append([]float64(nil), k.keep...)
}

func (k *keeper) add(s *Sample) {
	for len(k.classes) < len(s.Classes) {
		k.classes = append(k.classes, asked{})
	}
	for r := range s.Classes {
		k.classes[r].arrived += s.Classes[r].Arrived
		k.classes[r].rejected += s.Classes[r].Rejected
	}
	k.refused += s.Rejected
	k.since += s.Span.Seconds()
}

// cut lowers the share of the lowest class that is not at its least and sends something. The
// first cut leaves it what it gets served anyway.
func (k *keeper) cut() {
	for len(k.keep) < len(k.classes) {
		k.keep = append(k.keep, 1)
	}
	for r := len(k.classes) - 1; r > 0; r-- {
		c := &k.classes[r]
		if k.keep[r] <= keepLeast || c.arrived == 0 {
			continue
		}
		share := floodCut
		if k.keep[r] == 1 && c.rejected > 0 {
			share = min(share, 1.2*max(0, 1-float64(c.rejected)/float64(c.arrived)))
		}
		k.keep[r] = max(keepLeast, k.keep[r]*share)
		return
	}
}

// cutStrangers lets in as many strangers as are refused at a rate that may be.
func (k *keeper) cutStrangers(rate float64) {
	keep := (1 - k.strangers) * strangerRate / rate
	k.strangers = 1 - min(1, max(keepLeast, keep))
}

func (k *keeper) grow(by float64) {
	k.strangers = max(0, k.strangers-by)
	for r := range k.keep {
		if k.keep[r] < 1 {
			if k.keep[r] = math.Min(1, k.keep[r]+by); k.keep[r] < 1 {
				return
			}
		}
	}
	k.keep = nil
}
