// SPDX-License-Identifier: Apache-2.0

package adapt

import "math"

const (
	busyEnough   = 0.965 // utilisation that a limit must keep up
	busyFully    = 0.985 // utilisation from which on a lower limit may do
	busyHardly   = 0.955 // utilisation below which processors are not what requests wait for
	idlePlain    = 0.85  // utilisation below which a lower limit has plainly left processors idle
	busyAbout    = 0.85  // utilisation of the sample with which overload begins that means the same
	lossAllow    = 0.025 // share of throughput that a lower limit may cost
	drainedFor   = 0.15  // seconds in which the server shows what it does when it has drained
	drainedLeast = 0.5   // of what it did before, below which it has drained too far
	drainFrom    = 32.0  // requests in service per core from which on a server is drained
	slowFrom     = 4.0   // the same, where what is in service takes as long as slowWork
	slowWork     = 0.25  // seconds
	lossFar      = 0.1   // the same, of one far lower, at first
	lossMost     = 0.04  // the same, of all lower limits together: busy processors may do less with each request
	regain       = 0.015 // share of throughput that a higher limit has to bring where that was lost
	peakAfter    = 0.6   // of the patience for a trial, for how long a base must have been seen to compare it with others
	peakSpan     = 120.0 // seconds over which the most that a base has brought is forgotten
	regretAt     = 0.15  // seconds of the base before which it is not
	regretFor    = 2.0   // seconds after which a base that was lowered is taken to be enough
	lowFor       = 60.0  // seconds for which a base that was not enough after all bounds what is tried
	leastFor     = 2.0   // seconds for which a trial that left processors idle bounds what is tried
	lowShare     = 1.5   // the least that is tried then, as a multiple of it
	crowd        = 2.0   // requests in service per core of which most must wait for something else
	queueMost    = 5.0   // the same, that may queue for processors without these being busy all the time
	gainShare    = 0.15  // of what a higher limit would bring if nothing queued, what it has to bring
	gainFar      = 0.2   // the same, of a limit far higher
	pauseFirst   = 1.0   // seconds until a trial that failed is made again, the first time
	pauseMost    = 32.0  // the same, at the most
	jumpAfter    = 60.0  // seconds after a change of the server in which times in service before it are not gone by
	idleAfter    = 1.5   // seconds of the base after which those in service that do not leave are seen
	idleNothing  = 0.1   // utilisation at which nothing is done
	stallFor     = 0.15  // seconds of that for which a trial goes on
	idleSoon     = 0.3   // the same, where nothing is done meanwhile
	idleLeast    = 0.9   // how many they must be, besides
	stuckMost    = 1.0   // seconds to wait for those above the limit to leave
	pagedFor     = 60.0  // seconds for which a limit at which the server paged is not tried
	idleShare    = 0.6   // of the utilisation before, what is left of it if the server waits for something else now
	sure         = 1.5   // standard errors by which a trial that is ended early must be clear
	surer        = 2.5   // the same, of one that raises the limit: there are many looks at it
	trialMost    = 2.0   // seconds that a trial takes at the most
	trialSlow    = 8.0   // the same, of a server that completes few
	trialCount   = 300.0 // completions that a trial waits for beyond trialMost
)

// The directions of a trial.
const (
	down = iota
	up
)

// search finds, while requests wait, the smallest limit that keeps the bottleneck busy. It holds
// a limit to be right, the base, and tries others against it, for no longer than it takes to
// tell the difference. A trial that succeeds becomes the base, and the next step in its direction
// is longer; one that fails is made again after a pause that doubles.
type search struct {
	base    float64
	trial   float64 // the limit that is being tried; 0: none
	dir     int     // of the trial
	signal  string
	settle  float64    // seconds until the last change shows
	nothing float64    // seconds for which a lower limit has let nothing be done
	stuck   float64    // seconds for which more than the limit have been in service
	ref     tally      // what the base does
	above   int        // the fewest that were in service then; 0: no more than the limit
	recent  tally      // the same, over a shorter time
	acc     tally      // what the trial does
	step    [2]float64 // next step, as the logarithm of a factor
	pause   [2]float64 // after the next failure, seconds
	due     [2]float64 // seconds until the next trial
	busyAt  float64    // utilisation at the base when a lower limit failed
	paged   float64    // requests in service when the server paged; 0: it did not of late
	ago     float64    // seconds since then
	// Until Little's law may be tried again, and for how long after the next time, seconds.
	jumpDue, jumpPause float64
	jumps              bool // the trial is one
	// By the asymptotic bounds, the least that a limit has to be, for a trial left processors idle;
	// 0: none did of late. Seconds since then.
	least, leastAgo float64
	// There are more requests than processors, and few of them queue, so that busy processors are no
	// proof that a higher limit brings nothing.
	roomy   bool
	doubted bool    // a higher limit has failed while processors were busy
	quick   float64 // mean time in service where it was shortest of late, seconds; 0: not known
	probing bool    // nobody waits yet: whether they should is what is tried
	vain    bool    // it has shown that they should not
	far     bool    // one far below the base has been tried, or other signals say how many are enough
	others  bool    // others keep the processors busy: with fewer requests they were as busy, and did clearly less
	near    bool    // a limit as high as the processors would allow has failed
	peak    float64 // completions per second, the most that a base has brought of late
	// The base before it was lowered, and for how many seconds it has been lower.
	before, lowered float64
	low, lowAgo     float64 // the highest base that was not enough after all, 0: none of late; seconds since then
	noise           dispersion
	drained         tally   // of when it had drained
	draining        float64 // in service, while it drains to show how much of it is enough; 0: it does not
	pool            bool    // the server takes so many requests at once and no more
}

func (f *search) begin(s *Sample, e *estimator, q *inside, c Config, probing bool) {
	*f = search{signal: SignalModel, noise: f.noise, far: true}
	if s.Cores > 0 && s.use() >= busyAbout*s.Cores && e.brief.t > briefly/2 {
		f.peak = e.brief.rate()
	}
	n := float64(s.InService)
	knee := e.knee()
	// Busy processors may need far fewer than are in service. Where these take long, that shows sooner when they drain
	// than by trials, and who comes waits for them anyway.
	slow := s.Cores > 0 && s.use() >= busyFully*s.Cores && n > slowFrom*s.Cores && n > slowWork*q.rate
	switch {
	case paging(s):
		f.paged = n
		f.base, f.signal = min(n/2, max(knee, s.Cores)), SignalMemory
	case probing:
		f.base, f.far = n, false
	case q.taken() > 0 && q.taken()+1 < n && !slow:
		f.base, f.signal = q.taken()+1, SignalTaken
	case s.Cores > 0 && knee > 0 && (s.use() >= busyAbout*s.Cores || flooded(s, e)):
		f.base = knee
		if s.use() < busyAbout*s.Cores || s.Wanted == 0 { // they may wait for something else yet
			f.base++
			f.far = false
		}
		if idle := e.long.idle(); idle > max(knee/2, 2) {
			f.base += idle // they will stay, and use nothing
		}
	case s.Cores > 0 && s.use() >= busyHardly*s.Cores:
		// What is in service drains, if it is much, and shows with how much of it they are still busy.
		f.base, f.signal, f.far = n, SignalCPU, false
		if slow || n > drainFrom*s.Cores {
			f.base, f.draining = s.Cores, n
		}
	case e.queues(s, inflation):
		f.base, f.far = min(n, e.little(s)), false
	default:
		f.base, f.far = n, false
	}
	f.base = max(math.Ceil(max(f.base, min(n, e.left))-0.1), float64(c.Floor))
	if c.Ceiling > 0 {
		f.base = min(f.base, float64(c.Ceiling))
	}
	if e.residence.count >= fewest {
		f.quick = e.residence.mean()
	}
	f.forget()
	if s.Cores == 0 {
		f.due[up] = pauseFirst // first see whether requests queue inside
	}
	if f.signal == SignalCPU && f.draining == 0 {
		f.step[down] = math.Log(4)
	}
	if f.signal == SignalTaken && s.use() >= busyFully*s.Cores {
		f.step[down], f.due[up] = math.Log(2), pauseFirst // so many workers may be more than processors need
	}
	if s.Waiting == 0 && s.use() < busyAbout*s.Cores { // they queue for something that is not seen
		f.near, f.due[up], f.step[down] = true, pauseFirst, math.Log(2)
	}
	if f.probing = probing; probing {
		f.ref = e.brief.tally
	}
}

// within keeps the base between other bounds, and begins anew there.
func (f *search) within(c Config) {
	base := max(f.base, float64(c.Floor))
	if c.Ceiling > 0 {
		base = min(base, float64(c.Ceiling))
	}
	if f.base > 0 && base != f.base {
		f.base = base
		f.forget()
	}
}

// forget begins the search anew at its base.
func (f *search) forget() {
	f.trial, f.ref, f.recent, f.acc = 0, tally{}, tally{}, tally{}
	f.step = [2]float64{math.Log(1.25), math.Log(1.35)}
	f.pause = [2]float64{pauseFirst, pauseFirst}
	f.due = [2]float64{}
	f.busyAt, f.near, f.doubted = 0, false, false
}

// limit is the limit to be in force.
func (f *search) limit() int {
	if f.trial > 0 {
		return int(f.trial)
	}
	return int(f.base)
}

// observe takes a sample of a time in which requests wait.
func (f *search) observe(s *Sample, e *estimator, q *inside, c Config) {
	t := s.Span.Seconds()
	if f.others {
		unseen := *s
		unseen.Cores = 0
		s = &unseen
	}
	f.due[down] -= t
	f.due[up] -= t
	f.lowered += t
	if f.ago += t; f.ago > pagedFor {
		f.paged = 0
	}
	if f.lowAgo += t; f.lowAgo > lowFor {
		f.low = 0
	}
	if f.leastAgo += t; f.leastAgo > leastFor {
		f.least = 0
	}
	if paging(s) {
		f.retreat(s, c)
		return
	}
	if s.Waiting == 0 && f.trial <= f.base && s.MeanInService < 0.8*float64(f.limit()) {
		f.trial = 0 // nobody waits: nothing to be learned, and no reason to try anything
		return
	}
	if f.draining > 0 && f.drain(s) {
		return
	}
	if f.stalled(s) {
		f.reject(s, 0)
		return
	}
	if !f.settled(s) {
		if f.stays() {
			f.reject(s, 0)
		}
		return
	}
	if f.trial > 0 {
		f.acc.add(s)
		f.hasten(&f.acc)
		f.judge(s, q)
		return
	}
	if f.ref.t > 0.2 {
		f.noise.add(s, f.ref.rate())
	}
	f.ref.forget(t, f.patience())
	f.recent.forget(t, trialMost/8)
	f.ref.add(s)
	f.recent.add(s)
	f.peak *= math.Exp(-t / peakSpan)
	f.quick *= math.Exp(t / peakSpan)
	f.hasten(&f.ref)
	if f.ref.t > peakAfter*f.patience() {
		f.peak = max(f.peak, f.ref.rate())
	}
	if f.changed(s) {
		f.settle = min(0.5, f.recent.in/max(f.recent.served, 1))
		f.forget()
		f.peak, f.low, f.least, f.quick = 0, 0, 0, 0
		if f.others { // it may be themselves now
			f.others, f.far = false, false
		}
		f.jumpDue = jumpAfter // what was known of times in service may hold no more
		return
	}
	if f.jumpDue -= t; f.jumpDue <= 1e-9 && f.jump(s, e, q, c) {
		return
	}
	f.consider(s, e, q, c)
}

// jump tries the limit that signals speak for, if that is clearly another one.
func (f *search) jump(s *Sample, e *estimator, q *inside, c Config) bool {
	if f.ref.served < 4 || f.ref.t < 0.1-1e-9 {
		return false
	}
	to := f.base
	if taken := q.taken(); taken > 0 {
		to = math.Round(taken) + 1
	} else if f.far && f.ref.utilisation(s) < busyHardly && e.queues(s, inflation) {
		to = math.Ceil(min(e.little(s), f.base/1.5))
	}
	if to >= f.base || !f.try(to, s, c) {
		return false
	}
	f.jumps = true
	return true
}

// drain ends the draining of a server when its processors are no longer busy: what was in service
// before that was enough. Where they stay busy and it does clearly less, it is others that keep them busy; then the
// asymptotic bounds tell how many are enough. It returns whether that is being measured.
func (f *search) drain(s *Sample) bool {
	switch {
	case s.use() < busyHardly*s.Cores:
		f.base = max(f.base, math.Ceil(f.draining))
		f.settle = min(0.5, s.Service.Sum.Seconds()/max(float64(s.Served), 1)) // until they are as many again
	case float64(s.InService) > f.base:
		f.draining = float64(s.InService)
		return false
	default:
		f.drained.add(s)
		less := f.drained.rate() < drainedLeast*f.peak
		if f.drained.t < drainedFor-1e-9 || less && !plenty(&f.drained) {
			return true
		}
		if less {
			knee := math.Ceil(f.base*f.peak/max(f.drained.rate(), 1)) + 1
			f.base, f.others, f.far = min(math.Ceil(f.draining), knee), true, true
			f.forget()
		}
	}
	f.draining, f.drained = 0, tally{}
	return false
}

// settled tells whether a sample shows what the limit does: those above it have left, and those
// let in by a higher one have had the time to show in completions.
func (f *search) settled(s *Sample) bool {
	f.settle -= s.Span.Seconds()
	limit := float64(f.limit())
	if float64(s.InService) <= limit && s.MeanInService <= 1.02*limit+0.1 {
		f.stuck, f.above = 0, 0
	} else if f.above == 0 || s.InService < f.above { // they leave
		f.stuck, f.above = 0, s.InService
		return false
	} else if f.stuck += s.Span.Seconds(); f.stuck < stuckMost {
		return false
	}
	return f.settle <= 1e-9
}

// enough is for how many seconds the base or a trial must have been seen: two samples, or a
// time in service, for what was let in together ends together.
func (f *search) enough() float64 {
	return max(0.1, min(f.ref.in/max(f.ref.served, 1), 1)) - 1e-9
}

// patience is how many seconds a trial may take, and over how many the reference forgets.
func (f *search) patience() float64 {
	return max(trialMost, min(trialCount/max(f.ref.rate(), 1), trialSlow))
}

// consider begins a trial if one is due.
func (f *search) consider(s *Sample, e *estimator, q *inside, c Config) {
	u := f.ref.utilisation(s)
	if f.occupied(u) {
		f.base += math.Ceil(f.ref.idle())
		if c.Ceiling > 0 {
			f.base = min(f.base, float64(c.Ceiling))
		}
		f.signal = SignalThroughput
		f.forget()
		return
	}
	if f.ref.t < f.enough() || f.ref.served < 4 && f.ref.t < 1 {
		return
	}
	f.roomy = u >= busyHardly && f.base >= crowd*s.Cores && f.queued() < queueMost*s.Cores && !f.leaves(q)
	if (u < busyHardly || f.probing) && (f.pooled(q) || u >= 0 && f.reach(s, q, c)) {
		return
	}
	if f.ref.doubtful(s) && f.reach(s, q, c) {
		return
	}
	switch {
	case u < 0:
		f.signal = SignalThroughput
		if !f.attempt(up, f.step[up], s, c) {
			f.attempt(down, f.step[down], s, c)
		}
	case u >= busyHardly:
		f.busy(u, s, e, q, c)
	case f.before > f.base && f.lowered <= regretFor:
		f.regret()
	default:
		f.signal = SignalThroughput
		if f.doubted { // while they were busy
			f.doubted, f.due[up], f.pause[up] = false, 0, pauseFirst
		}
		step := f.step[up]
		if !f.near { // nothing speaks against it yet: as far as the processors would allow
			step = max(step, min(math.Log(saturated/max(u, 0.01)), math.Log(4)))
		}
		if !f.attempt(up, step, s, c) {
			f.attempt(down, f.step[down], s, c)
		}
	}
}

// occupied tells whether most of those in service are there without leaving and without work, so that few places
// are left. Where nothing leaves and nothing works, that is plain sooner.
func (f *search) occupied(u float64) bool {
	after := idleAfter
	if f.ref.served < 1 && u >= 0 && u < idlePlain/2 {
		after = idleSoon
	}
	return u < busyHardly && f.ref.t > after && f.ref.idle() > max(f.base/2, idleLeast)
}

// stalled tells whether a lower limit has stopped the server: those that are left above it use nothing and do not
// leave.
func (f *search) stalled(s *Sample) bool {
	if f.trial == 0 || f.dir != down || s.Served > 0 || s.Cores == 0 || s.use() > idleNothing*s.Cores {
		f.nothing = 0
		return false
	}
	f.nothing += s.Span.Seconds()
	return f.nothing > stallFor-1e-9 && f.nothing > 2*f.ramp()
}

// pooled sets the limit of a server that takes so many requests at once and no more: one more than
// that, which shows that there are not more workers than were.
func (f *search) pooled(q *inside) bool {
	switch taken := q.taken(); {
	case taken > 0 && f.base <= taken+1.6:
		f.pool, f.signal = true, SignalTaken
		return true
	case f.pool && q.stands < standing/2 && f.ref.t > 0.15-1e-9:
		f.base += max(1, math.Floor(f.base/4))
		f.signal = SignalTaken
		f.ref, f.recent = tally{}, tally{}
		return true
	}
	return f.pool
}

// lost tells whether what a tally shows is less than what other limits have brought, by so many
// standard errors more than is allowed.
func (f *search) lost(a *tally, errors float64) bool {
	if f.peak <= 0 || a.t == 0 {
		return false
	}
	k := max(a.served, 0.5)
	return math.Log(f.peak*a.t/k)-errors*math.Sqrt(f.noise.index()/k) > lossMost
}

// retreat lowers the limit at once, because the server pages, once for what is in service.
func (f *search) retreat(s *Sample, c Config) {
	if f.settle -= s.Span.Seconds(); f.settle > 0 || float64(s.InService) > 1.05*float64(f.limit()) {
		return
	}
	f.base = max(float64(c.Floor), math.Floor(0.7*float64(min(s.InService, f.limit()))))
	f.signal = SignalMemory
	f.forget()
	f.paged, f.ago = float64(s.InService), 0
	f.settle = 0.1
}

// paging tells whether tasks wait for memory that was taken from them.
func paging(s *Sample) bool { return s.Pressure.Memory > 0.2 && s.MajorFaults > 100 }

// changed tells whether the base does something else than it did. Processors that were busy and are idle now,
// though requests wait, leave no doubt.
func (f *search) changed(s *Sample) bool {
	if f.ref.t < 0.4 || f.recent.t < 0.15 {
		return false
	}
	gain, se := f.recent.gain(&f.ref, f.noise.index())
	idler := s.Cores > 0 && f.recent.utilisation(s) < idleShare*f.ref.utilisation(s)
	return math.Abs(gain) > 0.35 && (math.Abs(gain) > 4*se || gain < 0 && idler)
}
