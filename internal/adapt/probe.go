// SPDX-License-Identifier: Apache-2.0

package adapt

import "math"

const (
	probeFor   = 0.5  // seconds for which requests must come as others leave
	closedLoop = 0.25 // index of dispersion of what is in service, below which they do: it is 1 where they come by chance
	probeLeast = 4.0  // requests in service below which nobody would gain by it
	probeTime  = 2.0  // the same of times in service, in multiples of the shortest target
	farFirst   = 8.0  // by what the number in service is divided, to see whether as many are served
	farFewest  = 6.0  // completions of late without which it is not tried
	farSure    = 0.1  // standard error that ends such a trial
	farAgain   = 16.0 // limit up to which steps find the knee as well
	stayTimes  = 5.0  // times between completions for which none of those above the limit has left
	farLongest = 0.3  // seconds, after which it ends otherwise, if there are enough of them
)

// prober tells when to try whether requests queue behind the server, where nobody sees it: in front of other processes, of
// a database, of a lock. Nothing shows it where clients ask again as soon as they have their answer, and have since the
// first moment: they are as many as ever, and take as long as ever. So their number is lowered for a moment. It would
// cost requests that come by chance to a server that keeps up, and they vary.
type prober struct {
	on      bool
	seen    float64 // seconds for which there has been enough to try
	varied  float64 // squares of the changes of what is in service, of late
	chance  float64 // what they would be by chance
	before  int     // in service
	pause   float64 // seconds, after the next
	wait    float64 // seconds until the next
	crowded float64 // in service when the last was
	now     float64 // in service
}

func (p *prober) step(s *Sample, e *estimator, q *inside, active bool) {
	span := s.Span.Seconds()
	keep := math.Exp(-span / probeFor)
	change := float64(s.InService - p.before)
	if chance := 2 * s.Service.within(span) / span; s.Served > 0 { // else it has not begun
		p.varied = p.varied*keep + min(change*change, 4*chance) // they may have come together
		p.chance = p.chance*keep + chance
	}
	p.before, p.now = s.InService, q.in
	if p.wait -= span; active {
		p.seen = 0
		return
	}
	p.on = false
	idle := s.Wanted == 0 || s.use() < busyHardly*s.Cores // else others may be what keeps processors busy
	enough := q.in >= max(probeLeast, s.Cores) && e.brief.served >= farFewest && q.in > probeTime*leastTarget*q.rate
	if s.Waiting > 0 || !idle || !enough || p.varied > closedLoop*p.chance {
		p.seen = 0
		return
	}
	p.seen += span
}

// due tells whether it is time to try.
func (p *prober) due() bool {
	return p.seen >= probeFor-1e-9 && (p.wait <= 0 || p.now > 2*p.crowded)
}

func (p *prober) begin() {
	if p.wait < -2*pauseMost || p.now > 2*p.crowded {
		p.pause = 0
	}
	p.pause = min(max(4*p.pause, 2*pauseFirst), pauseMost)
	p.on, p.wait, p.crowded = true, p.pause, p.now
}

// reach tries a limit far below a base of which nobody knows how much of it queues, where processors are not what
// requests wait for.
func (f *search) reach(s *Sample, q *inside, c Config) bool {
	if f.far || f.base <= probeLeast || q.taken() > 0 {
		return false
	}
	if !plenty(&f.ref) {
		return true
	}
	f.far = true
	return f.try(max(1, math.Floor(f.base/farFirst)), s, c)
}

// plenty tells whether a tally has enough to find the knee by it, or has been long enough.
func plenty(a *tally) bool {
	return a.t >= farLongest-1e-9 && (a.served >= fewest || a.t > 1)
}

// isFar tells whether a limit is tried that is so far below the base that what it brings tells where the knee is.
func (f *search) isFar(s *Sample, was float64) bool {
	return f.dir == down && !f.jumps && (was < busyHardly || f.probing || f.ref.doubtful(s)) && f.trial <= f.base/2
}

// less tells whether a lower limit has left processors as busy, nobody knows with whose work, and brought clearly less.
func (f *search) less(s *Sample, gain, se float64) bool {
	return gain+surer*se < -lossFar && f.ref.doubtful(s) && f.acc.doubtful(s)
}

// stays tells whether what is above a lower limit does not leave, as it would if it queued: nobody has to wait for it.
func (f *search) stays() bool {
	return f.trial > 0 && f.dir == down && f.stuck > max(stallFor, stayTimes/max(f.ref.rate(), 1))-1e-9
}

// judgeFar ends such a trial by the asymptotic bounds: if the limit brought less, then each of those in service its part, and
// as many of them as would have brought as much as the base are enough.
func (f *search) judgeFar(s *Sample, gain, se float64) {
	if se > farSure && !plenty(&f.acc) {
		return
	}
	n := max(f.acc.in/f.acc.t, 1)
	knee := math.Ceil(n*math.Exp(max(-gain, 0)+se/2)) + 1
	f.others = f.others || f.less(s, gain, se)
	switch {
	case gain > -lossAllow:
		f.accept(0, 0)
		f.step[down] = math.Log(2) // the knee is yet lower
	case knee >= f.base:
		f.reject(s, se)
		return
	default:
		f.trial = knee
		f.accept(0, 0)
		f.ref, f.due[up] = tally{}, 2*pauseFirst
		f.step = [2]float64{math.Log(1.35), math.Log(1.25)}
	}
	f.far, f.near = gain < -2*se || f.base <= farAgain, true // else a yet lower limit tells more
}
