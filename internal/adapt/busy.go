// SPDX-License-Identifier: Apache-2.0

package adapt

import "math"

// busy begins a trial while processors are busy. That may be with something else than requests:
// others on the machine, or idle threads of a runtime that look for work.
func (f *search) busy(u float64, s *Sample, e *estimator, q *inside, c Config) {
	if u >= busyFully && f.busyAt > 0 && f.busyAt < busyFully && f.recent.utilisation(s) > 0.99 && f.due[down] > 0 {
		f.due[down], f.pause[down] = 0, pauseFirst
	}
	f.signal = SignalCPU
	x := e.capacity()
	switch {
	case f.ref.t > peakAfter*f.patience() && f.lost(&f.ref, 2):
		f.signal = SignalThroughput
		f.attempt(up, math.Log(2), s, c)
	case f.roomy && f.due[up] <= 1e-9:
		f.attempt(up, f.step[up], s, c)
	case u >= busyFully && f.attempt(down, f.step[down], s, c):
	case f.leaves(q): // a higher limit lets in what it would leave as well
	case x == 0 || f.ref.rate() < busyAbout*x: // it was more, or is not known
		f.attempt(up, f.step[up], s, c)
	}
}

// leaves tells whether the server does not read a part of what was let in, for most of the time.
func (f *search) leaves(q *inside) bool { return f.base > 1 && q.stands >= standing/2 }

// queued is how many of those in service wait for others there, by Little's law.
func (f *search) queued() float64 {
	if f.ref.spent == 0 {
		return 0
	}
	return f.ref.in / f.ref.t * (1 - f.quick*f.ref.served/f.ref.spent)
}

// hasten remembers how quick requests can be.
func (f *search) hasten(a *tally) {
	if a.served >= fewest && (f.quick == 0 || a.spent < f.quick*a.served) {
		f.quick = a.spent / a.served
	}
}

// regret returns to the base before it was lowered, if that was of late and has left processors
// idle after all: what requests wait for may come in waves that are longer than a trial.
func (f *search) regret() {
	if f.recent.t < regretAt {
		return
	}
	pause := min(4*f.pause[down], pauseMost)
	f.low, f.lowAgo = max(f.low, f.base), 0
	f.base, f.before = f.before, 0
	f.signal = SignalCPU
	f.forget()
	f.pause[down], f.due[down] = pause, pause
	f.jumpDue = max(f.jumpDue, pause) // it was processors that they waited for
}
