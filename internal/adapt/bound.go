// SPDX-License-Identifier: Apache-2.0

package adapt

import "math"

const (
	saturated = 0.97 // utilisation from which on processors are taken to be the bottleneck
	enterFor  = 3    // samples in a row that must say overload
	slowFor   = 0.5  // seconds for which all requests must take longer, though none waits for the limit
	pile      = 16.0 // requests in service beyond the knee that are more than chance
	leaveFor  = 1.0  // seconds over which requests must wait for overload to last
)

// binding tells whether the limit has to be the smallest that keeps the server busy, because
// requests wait or pile up inside the server, or may be far above what is in service.
type binding struct {
	active bool
	run    int     // samples in a row that speak for overload
	slow   float64 // seconds for which all requests have taken longer
	waits  float64 // share of the last second in which requests waited
}

// used tells whether the limit of a sample was reached, so that a request that waits does so
// for the limit.
func used(s *Sample) bool {
	return s.Limit > 0 && float64(s.InService) >= 0.9*float64(s.Limit)-1
}

func (b *binding) step(s *Sample, e *estimator, f *search) {
	if b.active {
		if f.trial <= f.base { // with more let in to try it, that none waits says nothing
			b.leave(s)
		}
		return
	}
	if (s.Waiting > 0 && used(s)) || piledUp(s, e) {
		b.run++
		if flooded(s, e) {
			b.run += 2
		}
	} else {
		b.run = 0
	}
	if e.queues(s, inflation) {
		b.slow += s.Span.Seconds()
	} else {
		b.slow = 0
	}
	if b.run >= enterFor || b.slow > slowFor || b.run > 0 && paging(s) {
		*b = binding{active: true, waits: 1}
	}
}

func (b *binding) leave(s *Sample) {
	now := 0.0
	if s.Waiting > 0 || s.InService > s.Limit {
		now = 1
	}
	b.waits += (now - b.waits) * (1 - math.Exp(-s.Span.Seconds()/leaveFor))
	if b.waits < 0.5 {
		*b = binding{}
	}
}

// flooded tells whether clearly more requests came than the processors can do.
func flooded(s *Sample, e *estimator) bool {
	can := e.capacity() * s.Span.Seconds()
	return can > 0 && s.Busy > quietest*s.Cores && float64(s.Arrived) > 1.2*can+3*math.Sqrt(can)
}

// piledUp tells whether there is more work inside the server than queues by chance.
func piledUp(s *Sample, e *estimator) bool {
	if s.Cores == 0 || s.Busy < saturated*s.Cores {
		return false
	}
	n, x := e.knee(), e.capacity()
	in := float64(s.InService)
	if n == 0 || x == 0 {
		return in > pile*s.Cores
	}
	return in > n+pile && (in-n)/x > e.residence.mean()
}
