// SPDX-License-Identifier: Apache-2.0

package adapt

import "math"

const (
	streamSlow   = 0.5   // seconds that an answer takes, from which on answers are judged by their bytes
	streamQuick  = 0.03  // the same, while there is a limit
	streamKnown  = 6.0   // answers: fewer do not tell how long one takes
	streamMemory = 20.0  // seconds over which that is forgotten
	streamSpan   = 1.0   // seconds over which bytes are averaged, at least
	streamLeast  = 4.0   // in service below which nobody would gain by a limit
	streamStep   = 0.75  // what a limit is lowered to
	streamDrain  = 0.8   // of those in service, how many may be while they become fewer
	streamUp     = 1.25  // what a limit is raised to
	streamLoss   = 0.04  // share of the bytes that a lower limit may cost
	streamGain   = 0.3   // of what a higher limit would bring if nothing were shared, what it has to bring
	streamFull   = 0.7   // the same, with which the next step is longer
	streamLow    = 0.6   // of the most bytes, below which the places may be occupied
	streamShared = 0.85  // of those in service, what a limit must be below to be worth it
	streamSteady = 0.25  // share of those in service by which their number may change before a trial
	streamRef    = 3.0   // the same, of what a trial is compared with
	streamVague  = 0.1   // doubt beyond which nothing is tried
	streamMost   = 3.0   // seconds of a trial in which none has left, or so many have not come
	streamPause  = 4.0   // seconds until one that failed is made again, the first time
	streamLong   = 120.0 // the same, at the most
)

// bytesTally is how many bytes are sent, and for how many.
type bytesTally struct{ t, sent, in float64 }

// add takes a sample, and forgets over a span.
func (a *bytesTally) add(s *Sample, span float64) {
	t := s.Span.Seconds()
	k := math.Exp(-t / span)
	a.t, a.sent, a.in = a.t*k+t, a.sent*k+float64(s.Sent), a.in*k+float64(s.InService)*t
}

// rate is bytes per second.
func (a *bytesTally) rate() float64 { return a.sent / max(a.t, 1e-9) }

// mean is how many were in service.
func (a *bytesTally) mean() float64 { return a.in / max(a.t, 1e-9) }

// streams finds how many slow answers a server should write at once that share what they wait for, as those of a
// language model do. Answers of seconds are too few to go by, but what they send in the meantime tells at once: as their
// number falls, the bytes per second stay the same if they share something, and fall with it if each has its own. Nobody
// else sees what they wait for, for it is no processor.
type streams struct {
	answers, spent float64    // of late: how many, and seconds that they and those that go on have taken
	base           float64    // the limit that is held to be right; 0: none
	trial          float64    // the one that is tried; 0: none
	now, ref       bytesTally // of the last second, and of some more before a trial
	noise          sums       // squares of how far the one is from the other by itself, as a share
	since, tried   float64    // seconds of the trial, and since one more has left
	fewest         int        // in service, of the trial
	idle           float64    // seconds in which nobody has waited
	best           float64    // bytes per second, the most with a limit of late
	due, pause     [2]float64
	further        float64 // what the next higher limit is, in multiples
	known          bool    // a limit has been tried
}

// step takes a sample. It returns the limit, 0 for none, and whether answers are judged by their bytes.
func (f *streams) step(s *Sample) (limit int, ok bool) {
	t := s.Span.Seconds()
	keep := math.Exp(-t / streamMemory)
	f.answers = f.answers*keep + float64(s.Served)
	f.spent = f.spent*keep + float64(s.InService)*t
	f.best *= math.Exp(-t / streamLong)
	f.due[down] -= t
	f.due[up] -= t
	if !f.slow() {
		*f = streams{answers: f.answers, spent: f.spent}
		return 0, false
	}
	f.now.add(s, streamSpan)
	if f.trial > 0 {
		f.since += t
		f.tried += t
		f.judge(s)
	} else {
		f.ref.add(s, streamRef)
		f.consider(s)
	}
	return f.limit(), true
}

func (f *streams) limit() int {
	switch {
	case f.trial > 0 && f.base == 0: // not so quickly that a more important request would wait for long
		return int(max(f.trial, math.Floor(streamDrain*f.now.mean())))
	case f.trial > 0:
		return int(f.trial)
	}
	return int(f.base)
}

// slow tells whether answers take long enough. With a limit they take less, so the bound is lower then.
func (f *streams) slow() bool {
	least := streamSlow
	if f.base > 0 || f.trial > 0 {
		least = streamQuick
	}
	return f.spent >= least*max(f.answers, streamKnown)
}

// doubt is how far the bytes of a second are from their mean by themselves, as a share.
func (f *streams) doubt() float64 { return math.Sqrt(f.noise.mean()) }

// consider begins a trial if one is due.
func (f *streams) consider(s *Sample) {
	if f.idle += s.Span.Seconds(); s.Waiting > 0 || f.base == 0 {
		f.idle = 0
	} else if f.idle > streamSpan { // the limit stays, and holds nobody. A higher one is tried soon if that changes
		f.due[up], f.pause[up] = 0, 0
		return
	}
	if n := f.ref.mean(); math.Abs(float64(s.InService)-n) > streamSteady*n+1 {
		f.ref, f.noise = bytesTally{}, sums{} // they come, or go
		return
	}
	if f.occupied(s) || f.ref.t < streamSpan || f.ref.rate() == 0 {
		return
	}
	t, far := s.Span.Seconds(), f.now.rate()/f.ref.rate()-1
	f.noise.add(far*far*t, t, math.Exp(-t/streamRef))
	if f.noise.count < 2*streamSpan || f.doubt() > streamVague {
		return
	}
	switch {
	case f.base > 0 && s.Waiting > 0 && f.due[up] <= 0:
		f.try(max(f.base+1, math.Floor(max(f.further, streamUp)*f.base)))
	case f.base > 1 && f.due[down] <= 0:
		f.try(math.Floor(streamStep * f.base))
	case f.base == 0 && f.due[down] <= 0 && f.ref.mean() >= streamLeast:
		f.try(1) // until it is seen how many are too few
	}
}

// occupied tries twice the limit if far fewer bytes are sent than were when it was found: its places may be those of
// clients that do not read.
func (f *streams) occupied(s *Sample) bool {
	if f.base == 0 || s.Waiting == 0 || f.ref.t < 2*streamSpan || !f.low() {
		return false
	}
	f.try(2 * f.base)
	return true
}

// low tells whether far fewer bytes are sent than were when the limit was found.
func (f *streams) low() bool { return f.best > 0 && f.now.rate() <= streamLow*f.best }

func (f *streams) try(limit float64) {
	f.trial, f.since, f.tried, f.fewest = limit, 0, 0, 0
}

// judge ends a trial as soon as it is clear what it brings.
func (f *streams) judge(s *Sample) {
	if f.fewest == 0 || s.InService < f.fewest { // they leave
		f.fewest, f.tried = s.InService, 0
	}
	there := f.since > 2*streamSpan && math.Abs(f.now.mean()-f.trial) < 0.05*f.trial+0.2
	gain := math.Log(max(f.now.rate(), 1) / max(f.ref.rate(), 1))
	switch {
	case f.base > 0 && f.trial > f.base:
		f.judgeHigher(gain, there)
	case gain < -streamLoss-2*f.doubt():
		f.fell(math.Ceil(f.now.mean() * math.Exp(-gain)))
	case there && gain > -streamLoss-f.doubt()/2:
		f.accept(f.trial)
		f.due[up] = max(f.due[up], streamPause)
	case f.tried > streamMost || there && f.since > 2*streamMost:
		f.reject(down)
	}
}

// fell ends a trial in which the bytes have become fewer: so many would have brought as many as before, if each brings
// its part (the asymptotic bounds, as for other limits).
func (f *streams) fell(knee float64) {
	if f.base > 0 || knee > streamShared*f.ref.mean() {
		f.reject(down)
		return
	}
	f.accept(knee) // that is too many rather than too few: what is seen is of the last second
	f.due[up] = 2 * streamPause
}

// judgeHigher ends the trial of a higher limit, once it is in force.
func (f *streams) judgeHigher(gain float64, known bool) {
	switch {
	case !known && f.tried <= streamMost:
	case !known || gain < streamGain*math.Log(f.trial/f.base):
		f.reject(up)
		if f.low() { // more places than that are occupied, or the server has become slower: nothing that is known holds
			f.base, f.best = 0, 0
			f.reject(down)
		}
	default:
		if f.further = streamUp; gain > streamFull*math.Log(f.trial/f.base) {
			f.further = 2 // each brings its part
		}
		f.accept(f.trial)
		f.ref = f.now
	}
}

// accept makes a limit the base.
func (f *streams) accept(limit float64) {
	f.base, f.trial, f.known = limit, 0, true
	f.best = max(f.best, f.ref.rate())
	f.pause = [2]float64{}
}

// reject returns to the limit before.
func (f *streams) reject(dir int) {
	f.known, f.further = true, streamUp
	f.pause[dir] = min(max(2*f.pause[dir], streamPause), streamLong)
	f.trial, f.due[dir] = 0, f.pause[dir]
	f.ref = bytesTally{}
}
