// SPDX-License-Identifier: Apache-2.0

package adapt

import (
	"math"
	"time"
)

// Level says how overloaded a service is. Each level includes those before it.
type Level uint8

// The levels of overload.
const (
	LevelCalm      Level = iota
	LevelOverload        // requests wait: what comes takes longer than the target
	LevelRejecting       // requests are turned away for want of room
	LevelFlooded         // more are turned away than answered: what comes costs more than the answers
	levels
)

// String returns the word that a rule's `when` has for it.
func (l Level) String() string {
	return [levels]string{"calm", "overload", "rejecting", "flooded"}[min(l, levels-1)]
}

// Thresholds say when levels of overload begin and end. What is 0 has its default.
type Thresholds struct {
	After     time.Duration // for which a level must be seen before it begins
	Calm      time.Duration // for which it must not be seen before it ends, the first time
	Rejecting float64       // requests turned away per second from which on it is LevelRejecting
	Flooded   float64       // the same of LevelFlooded
}

// The defaults of Thresholds.
const (
	DefaultAfter     = 250 * time.Millisecond
	DefaultCalm      = 2 * time.Second
	DefaultRejecting = 2
	DefaultFlooded   = floodRate // if more are turned away than answered
)

const (
	calmMost    = 30.0 // seconds without a level after which it is over, at the most
	againWithin = 10.0 // seconds within which a level that comes back was not over
	refusedSpan = 1.0  // seconds over which requests that are turned away are averaged
	stillShare  = 0.5  // of a threshold, below which its level ends
)

// withDefaults fills in what is not given.
func (t Thresholds) withDefaults() Thresholds {
	if t.After == 0 {
		t.After = DefaultAfter
	}
	if t.Calm == 0 {
		t.Calm = DefaultCalm
	}
	if t.Rejecting == 0 {
		t.Rejecting = DefaultRejecting
	}
	return t
}

// lasting is a state that begins when samples have spoken for it for a while, and ends when they
// have not for a longer one. If it comes back at once, as it does where a rule keeps the load away that
// caused it, that while doubles.
type lasting struct {
	active bool
	since  float64 // seconds for which samples have spoken for the other state
	calm   float64 // seconds that end it
	over   float64 // seconds since it ended
}

func (l *lasting) step(span float64, seen bool, t *Thresholds) {
	l.over += span
	if seen == l.active {
		l.since = 0
		return
	}
	l.since += span
	first := t.Calm.Seconds()
	switch {
	case !l.active && l.since >= t.After.Seconds()-1e-9:
		if l.calm == 0 || l.over > againWithin {
			l.calm = first
		} else {
			l.calm = min(2*l.calm, max(calmMost, first))
		}
		l.active, l.since = true, 0
	case l.active && l.since >= l.calm-1e-9:
		l.active, l.since, l.over = false, 0, 0
	}
}

// overload finds the level by which rules with `when` are enforced.
type overload struct {
	levels          [levels]lasting
	degree          float64
	refused, served float64 // per second
}

func (o *overload) step(s *Sample, c *Config, waits bool) {
	span, t := s.Span.Seconds(), c.Thresholds.withDefaults()
	o.degree += (degree(s, c.QueueSize) - o.degree) * (1 - math.Exp(-span/0.2))
	if o.degree < 0.001 {
		o.degree = 0
	}
	k := 1 - math.Exp(-span/refusedSpan)
	o.refused += (float64(s.Rejected)/span - o.refused) * k
	o.served += (float64(s.Served)/span - o.served) * k
	o.levels[LevelOverload].step(span, waits, &t)
	o.levels[LevelRejecting].step(span, o.refuses(LevelRejecting, t.Rejecting), &t)
	o.levels[LevelFlooded].step(span, o.floods(&t), &t)
}

// refuses tells whether so many requests per second are turned away that a level begins, or goes on.
func (o *overload) refuses(l Level, threshold float64) bool {
	if o.levels[l].active {
		threshold *= stillShare
	}
	return o.refused >= threshold
}

// floods tells whether what comes costs more than the answers: by default, whether more requests are
// turned away than answered, and so many that it matters.
func (o *overload) floods(t *Thresholds) bool {
	if t.Flooded > 0 {
		return o.refuses(LevelFlooded, t.Flooded)
	}
	return o.refuses(LevelFlooded, max(DefaultFlooded, o.served))
}

// level is the highest that is active.
func (o *overload) level() Level {
	for l := LevelFlooded; l > LevelCalm; l-- {
		if o.levels[l].active {
			return l
		}
	}
	return LevelCalm
}

// degree is the share of the queue that is full, and beyond 1 the share of requests that are
// refused.
func degree(s *Sample, queue int) float64 {
	if s.Rejected > 0 {
		return 1 + min(1, float64(s.Rejected)/float64(max(s.Arrived, s.Rejected)))
	}
	if queue > 0 {
		return min(1, float64(s.Waiting)/float64(queue))
	}
	return min(1, float64(s.Waiting)/4096)
}
