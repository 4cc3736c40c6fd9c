// SPDX-License-Identifier: Apache-2.0

package adapt

import "math"

const (
	saturated = 0.97 // utilisation from which on processors are taken to be the bottleneck
	enterFor  = 3    // samples in a row that must say overload
	slowFor   = 0.25 // seconds for which requests must wait inside the server
	pile      = 16.0 // requests in service per core that are more than chance where none has ended
	leaveFor  = 1.0  // seconds over which requests must wait for overload to last
)

// binding tells whether the limit has to be the smallest that keeps the server busy, because
// requests wait or pile up inside the server, or may be far above what is in service.
type binding struct {
	active bool
	run    int     // samples in a row that speak for overload
	slow   float64 // seconds for which requests have waited inside the server
	waits  float64 // share of the last second in which requests waited
	crowd  float64 // requests in service when it began
	probes prober
}

// used tells whether the limit of a sample was reached, so that a request that waits does so
// for the limit.
func used(s *Sample) bool {
	return s.Limit > 0 && float64(s.InService) >= 0.9*float64(s.Limit)-1
}

func (b *binding) step(s *Sample, e *estimator, q *inside, f *search) {
	b.probes.step(s, e, q, b.active)
	if b.active {
		if float64(s.InService+s.Waiting) < min(q.target(0, s)*q.rate, b.crowd)/2 {
			b.end() // they may as well wait inside
		} else if f.vain {
			b.end()
		} else if f.trial <= f.base { // with more let in to try it, that none waits says nothing
			b.leave(s)
		}
		return
	}
	switch {
	case s.Waiting > 0 && used(s) && !q.pointless(s) && float64(s.Limit) >= e.unheld() && !e.opens(s, q):
		b.run++
		if flooded(s, e) {
			b.run += 2
		}
	default:
		b.run = 0
	}
	if queuesInside(s, e, q) {
		b.slow += s.Span.Seconds()
	} else {
		b.slow = 0
	}
	if b.run >= enterFor || b.slow >= slowFor-1e-9 || (b.run > 0 || b.slow > 0) && paging(s) {
		*b = binding{active: true, waits: 1, crowd: float64(s.InService), probes: b.probes}
	} else if b.probes.due() {
		*b = binding{active: true, waits: 1, probes: b.probes}
		b.probes.begin()
	}
}

// end lets requests be held no more.
func (b *binding) end() { *b = binding{probes: b.probes} }

// queuesInside tells whether what waits inside the server takes longer than it should.
func queuesInside(s *Sample, e *estimator, q *inside) bool {
	if q.rate <= 0 {
		return s.Cores > 0 && s.use() >= saturated*s.Cores && q.in > pile*s.Cores
	}
	if taken := q.taken(); taken > 0 && q.waits() > targetShare*q.target(taken/q.rate, s) {
		return true
	}
	if s.Cores > 0 && s.use() >= saturated*s.Cores {
		needed := s.Cores
		if n := e.knee(); n > 0 {
			needed = max(n, needed)
		}
		if (q.in-needed-1)/q.rate > q.target(needed/q.rate, s) {
			return true
		}
	}
	if slower := e.inflation(); slower > 1+targetShare && e.crowded(s) {
		service := q.in / q.rate / slower
		return (slower-1)*service > targetShare*q.target(service, s)
	}
	return false
}

func (b *binding) leave(s *Sample) {
	now := 0.0
	if s.Waiting > 0 || s.InService > s.Limit {
		now = 1
	}
	b.waits += (now - b.waits) * (1 - math.Exp(-s.Span.Seconds()/leaveFor))
	if b.waits < 0.5 {
		b.end()
	}
}

// flooded tells whether clearly more requests came than the processors can do.
func flooded(s *Sample, e *estimator) bool {
	can := e.capacity() * s.Span.Seconds()
	return can > 0 && s.use() > quietest*s.Cores && float64(s.Arrived) > 1.2*can+3*math.Sqrt(can)
}
