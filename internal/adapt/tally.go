// SPDX-License-Identifier: Apache-2.0

package adapt

import "math"

// tally sums up samples taken under one limit.
type tally struct {
	t, served, busy, in float64
	spent               float64 // in service, by those that left it
	own                 float64 // seconds in which the server's own threads told how busy it was
}

func (a *tally) add(s *Sample) {
	t := s.Span.Seconds()
	a.t += t
	a.served += float64(s.Served)
	a.busy += s.use() * t
	a.in += s.MeanInService * t
	a.spent += s.Service.Sum.Seconds()
	if s.Wanted > 0 {
		a.own += t
	}
}

// forget lets the sums decay over t seconds.
func (a *tally) forget(t, span float64) {
	k := math.Exp(-t / span)
	a.t, a.served, a.busy, a.in, a.spent, a.own = a.t*k, a.served*k, a.busy*k, a.in*k, a.spent*k, a.own*k
}

// rate is completions per second.
func (a *tally) rate() float64 {
	if a.t == 0 {
		return 0
	}
	return a.served / a.t
}

// idle is how many of those in service were there without being among those that leave, by
// Little's law: long polls, downloads by slow clients. It takes a time in service to tell.
func (a *tally) idle() float64 {
	if a.t == 0 {
		return 0
	}
	return max(0, (a.in-a.spent)/a.t)
}

// utilisation is the share of the processors that was busy, or -1 if that is not known.
func (a *tally) utilisation(s *Sample) float64 {
	if s.Cores <= 0 || a.t == 0 {
		return -1
	}
	return a.busy / a.t / s.Cores
}

// doubtful tells whether processors were busy and it is not known with whose work: that of processes behind the
// server, or of others on the machine.
func (a *tally) doubtful(s *Sample) bool {
	return a.own < a.t/2 && a.utilisation(s) >= busyAbout
}

// gain is the logarithm of how many times as many completions per second there were as in
// another tally, and its standard error for an index of dispersion of completions.
func (a *tally) gain(b *tally, dispersion float64) (gain, se float64) {
	ka, kb := max(a.served, 0.5), max(b.served, 0.5)
	return math.Log(ka / a.t * b.t / kb), math.Sqrt(dispersion * (1/ka + 1/kb))
}

// dispersion estimates the index of dispersion of completions, the variance of their number per
// interval over its mean: 1 for a Poisson process, less for work of equal size, much more for
// some that is seldom and long.
type dispersion struct{ squares, weight float64 }

func (d *dispersion) add(s *Sample, rate float64) {
	mean := rate * s.Span.Seconds()
	if mean < 1 {
		return
	}
	x := float64(s.Served) - mean
	keep := math.Exp(-s.Span.Seconds() / (2 * trialMost))
	d.squares = d.squares*keep + min(x*x/mean, 30)
	d.weight = d.weight*keep + 1
}

// index returns the estimate, 1 as long as little is known.
func (d *dispersion) index() float64 {
	const doubt = 5 // samples
	return max(0.05, (d.squares+doubt)/(d.weight+doubt))
}
