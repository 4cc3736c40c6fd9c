// SPDX-License-Identifier: Apache-2.0

package adapt

import "math"

const (
	harmSpan  = 0.4   // seconds over which completions are averaged, at least
	harmCount = 20.0  // completions over which they are, where there are few
	harmMost  = 4.0   // seconds of it at the most
	harmShare = 0.5   // of the completions before, below which a limit may do harm
	harmTaken = 0.8   // requests that the server has taken, on the average, below which it serves nobody
	harmIdle  = 0.3   // of the processors, below which they are idle, beside what others on them do
	harmStuck = 0.09  // seconds for which the server does nothing at all with what is beyond a lower limit
	harmShows = 1.0   // seconds without a limit after which the server must do more
	harmLong  = 3.0   // the same while some still wait to be let in
	harmBack  = 1.5   // how many times as much
	harmFirst = 8.0   // seconds without a limit, the first time
	harmLast  = 120.0 // the same, at the most
	harmGrows = 8.0   // factor from one time to the next
	harmCalm  = 10.0  // seconds without a limit that binds after which the server is not asked any more
	harmAgain = 10.0  // seconds within which it happens again if it is of no use to ask the server
	harmFails = 2     // how many times, one after the other
	harmVain  = 600.0 // seconds after which it is tried again
)

// harm tells whether holding requests stops the server. Workers that stay with a kept connection do nothing while its
// next request is held, and what was let in waits in the accept queue for one of them. Then most of what is in
// service has not been taken, the processors are idle, and clearly less is completed than before. If that is over when
// nothing is held any more, the server is asked from then on to close connections, and requests are held again. If
// that is of no use, nothing is held for a while, and longer the next time.
type harm struct {
	asks   bool    // the server is asked to close each connection behind its answer
	vain   float64 // seconds for which that is taken to be of no use
	failed int     // how many times, one after the other, it has stopped again soon
	left   float64 // completions until its connections are closed
	calm   float64 // seconds for which no limit has bound

	now, most tally   // of late, and where most was completed of late
	untaken   float64 // requests in service that the server has not taken, times seconds
	still     stillness
	held      float64 // completions per second before the limit was given up
	free      float64 // seconds for which nothing is held yet
	since     float64 // seconds since the limit was given up
	pause     float64 // how long it will be given up the next time, seconds
	due       float64 // seconds until then at least
}

// step takes a sample, and whether another limit than the one that is held to be right is in force. It returns whether
// nothing is to be held.
func (h *harm) step(s *Sample, q *inside, binds, tries bool) bool {
	t := s.Span.Seconds()
	h.due -= t
	h.free -= t
	h.since += t
	h.vain -= t
	h.left -= float64(s.Served)
	left := min(q.left(s), s.InService)
	h.still.add(s, left)
	stands := h.still.stands()
	if tries && !stands {
		h.now, h.untaken = tally{}, 0
		return false
	}
	span := min(max(harmSpan, harmCount/max(h.most.rate(), h.now.rate(), 1)), harmMost)
	h.now.forget(t, span)
	h.now.add(s)
	h.untaken = h.untaken*math.Exp(-t/span) + float64(left)*t
	if h.most.served *= math.Exp(-t / peakSpan); h.now.t > span/2 && h.now.served > harmCount/2 && h.now.rate() > h.most.rate() {
		h.most = h.now
	}
	switch {
	case h.free > 0 && h.since > harmShows && !h.more() && (s.Waiting == 0 || h.since > harmLong): // it was something else
		h.pause = h.longer()
		h.free, h.due, h.most, h.asks = 0, h.pause, h.now, false
	case h.asks && h.free > 0 && h.since > harmShows && h.left <= 0: // workers have left their connections
		h.free, h.due = 0, harmShows
	case h.free <= 0 && h.due <= 0 && !paging(s) && (stands || binds && s.Waiting > 0 && h.now.t > span/2 && h.slows(s)):
		h.giveUp(s)
	}
	return h.free > 0
}

// giveUp has nothing be held: until the server has closed its connections, if it can be asked to, else for a while.
func (h *harm) giveUp(s *Sample) {
	if h.failed++; !h.asks || h.since >= harmAgain {
		h.failed = 0
	}
	if h.failed >= harmFails {
		h.vain, h.failed = harmVain, 0
	}
	h.asks = h.vain <= 0
	h.held, h.since, h.free = h.now.rate(), 0, harmFirst
	h.left = 2 * float64(s.InService+s.Waiting) // each once as it came, and once as it was asked to close
	if !h.asks {
		h.pause = h.longer()
		h.free = h.pause
	}
}

// more tells whether clearly more is completed than before the limit was given up.
func (h *harm) more() bool { return h.now.served >= 1 && h.now.rate() >= harmBack*h.held }

// above is how many may be in service meanwhile where there is a limit that must not be given up: as many as that may be
// at work, beside those that wait for a worker. Until the server does more twice as many are let in each time, for those
// for which workers wait are among them.
func (h *harm) above(limit int, s *Sample, q *inside) int {
	left := min(q.left(s), s.InService)
	if !h.more() {
		limit = max(limit, left)
	}
	return limit + left
}

// longer is for how long it is given up the next time but one.
func (h *harm) longer() float64 { return min(max(harmGrows*h.pause, harmFirst), harmLast) }

// closes tells whether the server is to be asked now, a span after the last time. Where no limit binds it may go on
// with its connections.
func (h *harm) closes(span float64, binds bool) bool {
	if h.calm += span; binds || h.free > 0 {
		h.calm = 0
	}
	return h.asks && h.calm < harmCalm
}

// slows tells whether the server has nearly stopped, with most of what was let in before it.
func (h *harm) slows(s *Sample) bool {
	want := harmShare * h.most.rate() * h.now.t
	if h.now.served+2*math.Sqrt(want) > want || h.untaken < h.now.in/2 {
		return false
	}
	return s.Cores <= 0 || h.now.utilisation(s) < idleShare*h.most.utilisation(s)
}

// stillness is what there was of late, times seconds: requests that the server has taken and that it has not, and
// processors, in use and in all. And for how long nothing at all has become of what is beyond a lower limit, in seconds.
type stillness struct{ t, taken, untaken, busy, cores, beyond float64 }

// add takes a sample, in which so many were not taken. It begins anew where none is, or nobody waits.
func (q *stillness) add(s *Sample, untaken int) {
	if untaken == 0 || s.Waiting == 0 {
		*q = stillness{}
		return
	}
	t := s.Span.Seconds()
	k := math.Exp(-t / harmSpan)
	q.t, q.taken, q.untaken = q.t*k+t, q.taken*k+float64(s.InService-untaken)*t, q.untaken*k+float64(untaken)*t
	q.busy, q.cores = q.busy*k+s.stirs()*t, q.cores*k+s.Cores*t
	if q.beyond += t; s.Limit == 0 || s.InService <= s.Limit || untaken < s.InService || s.Served > 0 || s.stirs() >= harmIdle*s.Cores {
		q.beyond = 0
	}
}

// stands tells whether the server does nothing at all, with nearly all of what was let in before it.
func (q *stillness) stands() bool {
	return q.beyond >= harmStuck || q.t > 0.6*harmSpan && q.taken < harmTaken*q.t && q.untaken > q.t && q.cores > 0 && q.busy < harmIdle*q.cores
}
