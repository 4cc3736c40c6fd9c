// SPDX-License-Identifier: Apache-2.0

package adapt

import "math"

const (
	overloadAfter = 0.25 // seconds for which requests must wait before it is called overload
	calmFirst     = 2.0  // seconds without waiting after which overload is over, the first time
	calmMost      = 30.0 // the same, at the most
	againWithin   = 10.0 // seconds within which overload that comes back was not over
)

// overload is the state in which rules with `when: overload` are enforced. It begins when
// requests have waited for the limit for a while, and ends when none has for a longer one. If
// it comes back at once, as it does where such a rule keeps the load away that caused it, that
// while doubles.
type overload struct {
	active bool
	degree float64
	since  float64 // seconds for which the sample has spoken for the other state
	calm   float64 // seconds without waiting that end it
	over   float64 // seconds since it ended
}

func (o *overload) step(s *Sample, queue int, bound bool) {
	span := s.Span.Seconds()
	o.degree += (degree(s, queue) - o.degree) * (1 - math.Exp(-span/0.2))
	if o.degree < 0.001 {
		o.degree = 0
	}
	waits := bound && (s.Waiting > 0 || s.Held > 0 || s.Rejected > 0)
	o.over += span
	if waits == o.active {
		o.since = 0
		return
	}
	o.since += span
	switch {
	case !o.active && o.since >= overloadAfter-1e-9:
		if o.calm == 0 || o.over > againWithin {
			o.calm = calmFirst
		} else {
			o.calm = min(2*o.calm, calmMost)
		}
		o.active, o.since = true, 0
	case o.active && o.since >= o.calm-1e-9:
		o.active, o.since, o.over = false, 0, 0
	}
}

// degree is the share of the queue that is full, and beyond 1 the share of requests that are
// refused.
func degree(s *Sample, queue int) float64 {
	if s.Rejected > 0 {
		return 1 + min(1, float64(s.Rejected)/float64(max(s.Arrived, s.Rejected)))
	}
	if queue > 0 {
		return min(1, float64(s.Waiting)/float64(queue))
	}
	return min(1, float64(s.Waiting)/4096)
}
