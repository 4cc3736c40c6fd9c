// SPDX-License-Identifier: Apache-2.0

package adapt

import "math"

// attempt begins a trial, if it is due and possible. What a short step brings can only be told
// against a base that is known well.
func (f *search) attempt(dir int, step float64, s *Sample, c Config) bool {
	if f.due[dir] > 1e-9 || step < 0.35 && (dir == up || f.ref.utilisation(s) < busyFully) && f.ref.t < f.patience()/2 {
		return false
	}
	if dir == up {
		return f.try(max(f.base+1, math.Floor(f.base*math.Exp(step))), s, c)
	}
	to := min(f.base-1, max(math.Ceil(f.base*math.Exp(-step)), math.Ceil(lowShare*f.low), f.least))
	if to <= f.low || to < f.least {
		return false
	}
	if s.Cores > 0 && f.ref.utilisation(s) >= busyHardly && to < 0.95*s.Cores && f.base <= 1.05*s.Cores {
		return false // a request that computes uses one core: fewer of them than cores leave some idle
	}
	return f.try(to, s, c)
}

// try begins a trial of a limit, within bounds, if that is another one.
func (f *search) try(to float64, s *Sample, c Config) bool {
	if to > f.base && f.paged > 0 {
		to = max(f.base, min(to, math.Floor(0.85*f.paged)))
	}
	if c.Ceiling > 0 {
		to = min(to, float64(c.Ceiling))
	}
	if idle := f.ref.idle(); to < f.base && f.ref.t > idleAfter && idle > max(f.base/2, idleLeast) {
		to = min(f.base, max(to, math.Ceil(idle)+1)) // those would keep the others out
	}
	if to = max(to, float64(c.Floor)); to == f.base {
		return false
	}
	f.trial, f.dir, f.acc, f.settle = to, down, tally{}, 0
	if to > f.base {
		f.dir = up
		f.settle = f.ramp()
	}
	return true
}

// ramp is for how many seconds completions are still those of a lower limit.
func (f *search) ramp() float64 { return min(1, 1.2*f.ref.in/max(f.ref.served, 1)) }

// judge ends a trial as soon as it is clear what it brings.
func (f *search) judge(s *Sample, q *inside) {
	u, was := f.acc.utilisation(s), f.ref.utilisation(s)
	gain, se := f.acc.gain(&f.ref, f.noise.index())
	if f.isFar(s, was) {
		f.judgeFar(s, gain, se)
		return
	}
	// What it leaves untaken cannot make it do more, and its processors have enough to do: whatever it completes.
	plenty := f.dir == down && was >= busyFully && u >= busyFully && q.taken() > 0
	if f.acc.t < f.enough() {
		if plenty {
			return
		}
		if was >= busyFully && u < idlePlain || f.dir == down && f.acc.t > 0.1-1e-9 && gain+3*se < -0.4 {
			f.reject(s, se) // it is plain already
		}
		return
	}
	if plenty {
		f.before, f.lowered = f.base, 0
		f.accept(0, 0)
		return
	}
	late := f.acc.t >= f.patience()
	if f.dir == up {
		full := math.Log(f.trial / f.base)
		need, enough := gainShare*full, 0.0
		if enough = need; full > 0.5 {
			enough = gainFar * full // with so long a step less means that the knee is near
		}
		busier := was > 0 && f.acc.own > f.acc.t/2 && f.acc.t > 0.3 && math.Log(u/was) > need && gain+se > 0
		if was >= busyHardly && f.lost(&f.ref, 2) { // for what each request costs, not for what waits
			if gain-surer*se > regain || late && gain-se > regain {
				if !f.roomy {
					gain = full
				}
				f.accept(gain, full)
			} else if gain+se < regain || late {
				f.reject(s, se)
			}
			return
		}
		switch {
		case gain-surer*se > need || late && gain > max(enough, 0.75*se) || busier:
			f.accept(max(gain, need), full)
		case !f.roomy && gain+se < enough || late:
			f.reject(s, se)
		case f.roomy && (gain+se < enough && f.acc.t > 4*f.enough() || gain < need/2 && f.acc.t > f.patience()/4):
			f.reject(s, se)
		}
		return
	}
	if f.less(s, gain, se) {
		f.others = true
		f.reject(s, se)
		return
	}
	if was >= busyFully && f.lost(&f.acc, 2) {
		f.reject(s, se)
		return
	}
	doubt := 2 * se
	if f.trial > crowd*s.Cores { // then busy processors say less
		doubt = se / 2
	}
	if was >= busyFully && gain+doubt > -lossAllow {
		switch {
		case u >= busyEnough && (f.acc.t > 0.2 || u > busyFully):
			f.before, f.lowered = f.base, 0
			f.accept(0, 0)
		case u < busyEnough-0.02 || late:
			f.reject(s, se)
		}
		return
	}
	loss := lossAllow
	if f.trial < 0.6*f.base && f.trial <= f.base-4 {
		loss = lossFar // were it below the knee it would cost far more; the way back up will bring it
	}
	switch {
	case gain-sure*se > -loss || late && gain > -loss/2 || late && loss == lossFar && gain+se > -loss:
		f.accept(0, 0)
	case gain+sure*se < -loss || late:
		f.reject(s, se)
	}
}

// accept makes the trial the base. If a higher limit brought only a part of what it could, the
// knee lies between: where the gain would have been full.
func (f *search) accept(gain, full float64) {
	to := f.trial
	if f.jumps {
		f.jumps, f.jumpPause, f.far, f.near = false, 0, true, true // the base before was a limit far higher
	}
	f.pause[f.dir], f.due[f.dir] = pauseFirst, 0
	f.step[f.dir] = min(1.5*f.step[f.dir], math.Log(2))
	if f.dir == up && gain < 0.9*full {
		f.step[up] = math.Log(1.25) // the knee is near
	}
	if f.dir == up && gain < 0.7*full {
		to = min(to, max(f.base+1, math.Ceil(f.base*math.Exp(gain)*1.05)))
		f.due[up] = pauseFirst / 4
	}
	f.ref = f.acc
	f.due[1-f.dir] = max(f.due[1-f.dir], pauseFirst)
	if f.dir == up {
		f.pause[down], f.due[down] = pauseFirst, pauseFirst
	}
	f.recent = tally{}
	if to != f.trial {
		f.ref = tally{}
	}
	f.base, f.trial, f.probing = to, 0, false
}

// reject returns to the base.
func (f *search) reject(s *Sample, se float64) {
	d := f.dir
	if f.jumps {
		f.jumps, f.jumpPause = false, min(max(4*f.jumpPause, 4*pauseFirst), pauseMost)
		f.jumpDue = f.jumpPause
	}
	least := max(0.1, min(2*se, 0.5))
	if f.step[d] > 1.2*least && f.base*f.step[d] > 2 && d == down {
		f.due[d] = pauseFirst / 4
	} else {
		f.due[d] = f.pause[d]
		more := 2.0
		if d == up && f.ref.utilisation(s) >= busyHardly {
			more, f.doubted = 4, true
		}
		f.pause[d] = min(more*f.pause[d], pauseMost)
	}
	f.step[d] = max(f.step[d]/2, least)
	if d == up {
		if !f.near && f.trial > 1.6*f.base {
			f.near, f.pause[up], f.due[up] = true, pauseFirst, pauseFirst/2
			f.step[up] = math.Log(1.35)
		}
		f.step[up] = max(f.step[up], math.Log(1.25))
	} else {
		f.busyAt = f.ref.utilisation(s)
		if u := f.acc.utilisation(s); f.busyAt >= busyFully && u > 0 && u < idlePlain {
			f.least, f.leastAgo = max(f.least, min(f.base, math.Floor(f.trial/u))), 0
		}
	}
	f.vain = f.probing
	f.trial = 0
	f.settle = 0.05
	if d == down {
		f.settle = f.ramp()
	}
}
