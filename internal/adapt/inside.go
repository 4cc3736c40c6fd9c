// SPDX-License-Identifier: Apache-2.0

package adapt

import "math"

const (
	leastTarget = 0.001  // seconds: what waits inside the server may always take so long
	targetShare = 0.8    // of the target, from which on requests are held: so that it is not exceeded
	insideSpan  = 0.2    // seconds over which what is inside is averaged
	standing    = 0.8    // share of that time in which something must have been untaken to be called a queue
	untakenFor  = 0.5e-3 // seconds that a request must stay untaken on average, besides
	heldCost    = 10e-6  // seconds of processor time that it takes to hold a request
	heldShare   = 0.03   // of the processor time of requests, what holding them may take
	cheapQueue  = 0.1    // seconds that may wait inside a server where it would take more
)

// inside has what a server was given: what it has taken, and what it leaves in its accept queues and
// unread. It is an average over a short time.
type inside struct {
	in, untaken, rate float64
	stands            float64 // share of the time in which something was untaken
	limit             int     // at the end of it
	unread            int     // when it was looked for last
	queuedFor         float64 // seconds for which accept queues had those in them, their mean, likewise
	most              float64 // Config.Target, seconds
	alike             bool    // Config.Alike
}

func (q *inside) step(s *Sample) {
	k := 1 - math.Exp(-s.Span.Seconds()/insideSpan)
	if q.limit != s.Limit {
		q.limit, k = s.Limit, max(k, 0.5)
	}
	now, untaken := 0.0, float64(min(q.left(s), s.InService))
	if untaken > 0 {
		now = 1
	}
	q.in += (float64(s.InService) - q.in) * k
	q.untaken += (untaken - q.untaken) * k
	q.rate += (float64(s.Served)/s.Span.Seconds() - q.rate) * k
	q.stands += (now - q.stands) * k
}

// left is how many requests the server leaves in accept queues and unread. What it does not read says something
// only while its processors are busy: it may leave a body there as well, as long as its client likes.
func (q *inside) left(s *Sample) int {
	if s.Unread >= 0 {
		q.unread, q.queuedFor = s.Unread, s.QueuedFor
	}
	if s.Backlog == 0 {
		q.queuedFor = 0
	}
	if s.Cores <= 0 || s.use() < busyHardly*s.Cores {
		return s.Backlog
	}
	return s.Backlog + q.unread
}

// waits is for how many seconds a request is left there.
func (q *inside) waits() float64 { return max(q.untaken/q.rate, q.queuedFor) }

// taken is how many requests the server works on, if it leaves some untaken for more than a
// moment: it would not take more; else 0.
func (q *inside) taken() float64 {
	if q.stands < standing || q.untaken < untakenFor*q.rate {
		return 0
	}
	return max(q.in-q.untaken, 1)
}

// target is how long requests may wait inside the server, in seconds, if one that does not takes so long:
// as long as that; much longer where holding them would cost more than it brings.
func (q *inside) target(service float64, s *Sample) float64 {
	switch {
	case q.most > 0:
		return q.most
	case q.pointless(s):
		return math.Inf(1)
	case cheap(s, q.rate):
		return cheapQueue
	}
	return max(service, leastTarget)
}

// pointless tells whether nobody would gain by what is held: requests are alike, and holding costs throughput.
func (q *inside) pointless(s *Sample) bool { return q.alike && q.most == 0 && cheap(s, q.rate) }

// cheap tells whether processors that are busy with so many requests per second would do clearly less
// if they had to hold them.
func cheap(s *Sample, rate float64) bool {
	return s.Cores > 0 && s.use() >= quietest*s.Cores && holdingCosts(rate, s.Cores)
}

// holdingCosts tells whether to hold so many requests per second would take more of so many processors than it may.
func holdingCosts(rate, cores float64) bool { return heldCost*rate > heldShare*cores }
