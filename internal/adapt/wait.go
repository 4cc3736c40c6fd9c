// SPDX-License-Identifier: Apache-2.0

package adapt

import (
	"math"
	"time"
)

const (
	waitTimes = 5.0   // times in service that requests may wait where rates are set by it
	waitLeast = 0.010 // seconds that they may wait in any case
	waitSpan  = 0.15  // seconds over which what waits is averaged
	waitMost  = 10.0  // seconds: more is not told apart
	waitFew   = 5.0   // requests served that a rate is of, at least
	waitLong  = 2.0   // seconds that it is of, at the most
)

// waiter tells for how long a request would wait that comes now, in the room and inside the server.
type waiter struct {
	room    float64 // requests that wait there
	wait    float64 // seconds
	target  float64 // seconds that it may be
	service float64 // seconds in service without waiting
	rate    float64 // at which requests are served, per second
}

// step finds the time by Little's law: what waits, by the rate at which it is served.
func (w *waiter) step(s *Sample, e *estimator, q *inside, target time.Duration) {
	w.room += (float64(s.Waiting) - w.room) * (1 - math.Exp(-s.Span.Seconds()/waitSpan))
	if w.room < 0.01 {
		w.room = 0
	}
	over := min(max(insideSpan, waitFew/max(w.rate, 1)), waitLong)
	w.rate += (float64(s.Served)/s.Span.Seconds() - w.rate) * (1 - math.Exp(-s.Span.Seconds()/over))
	inside, service := w.inside(s, e, q)
	w.service = service
	if w.target = target.Seconds(); target == 0 {
		w.target = max(waitTimes*service, waitLeast)
	}
	w.wait = inside
	if w.rate > 0 {
		w.wait += w.room / w.rate
	} else if w.room > 0 {
		w.wait = waitMost
	}
	w.wait = min(w.wait, waitMost)
}

// inside is for how long requests wait inside the server, and how long they take otherwise: by what it
// leaves untaken, by what its processors cannot work on, or by how much longer requests take than they did.
func (w *waiter) inside(s *Sample, e *estimator, q *inside) (wait, service float64) {
	busy := s.Cores > 0 && s.use() >= saturated*s.Cores
	if w.rate <= 0 {
		if busy && q.in > pile*s.Cores {
			return waitMost, w.service
		}
		return 0, w.service
	}
	needed := max(s.Cores, 1)
	if n := e.knee(); n > 0 {
		needed = max(needed, n)
	}
	service = min(q.in, needed) / w.rate
	if least := e.service(); least > 0 {
		service = min(service, least)
	}
	if taken := q.taken(); taken > 0 {
		wait = max(q.untaken/w.rate, q.queuedFor)
	}
	if busy {
		wait = max(wait, (q.in-needed-1)/w.rate)
	}
	if slower := e.inflation(); slower > 1+targetShare && e.crowded(s) {
		wait = max(wait, q.in/w.rate*(1-1/slower))
	}
	return wait, service
}
