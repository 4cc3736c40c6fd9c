// SPDX-License-Identifier: Apache-2.0

package adapt

import (
	"cmp"
	"math"
	"slices"
)

const (
	paceEvery  = 0.1  // seconds between two changes of rates
	paceWithin = 0.4  // seconds within which the queue is to be brought to its target
	paceLess   = 0.5  // share by which less gets in than of late, at most
	paceMemory = 0.6  // seconds: what "of late" is
	probeStep  = 0.02 // share by which more may get in, the more with each step at which nothing waits
	probeMost  = 0.5  // the same, at most
	askedSpan  = 0.5  // seconds over which what rules ask for is averaged
	bindSpan   = 0.3  // seconds after a refusal for which rates are what limits
	mostShare  = 4.0  // times what came in a while that a server may have done in it
)

// Paced is a rule whose rate sets itself.
type Paced struct {
	Rank     int     // of its class, 0 the most important
	Min, Max float64 // per second
	From     Level   // of overload, from which on it is enforced
}

// PacedCount is what became of what a rule was for.
type PacedCount struct{ Passed, Refused uint64 }

// Pacer sets the rates of rules so that what waits at their service stays at its target. It follows how
// much gets in through them together, which is what the server does of it while a queue stands; it lets in more while the queue is
// shorter than the target and less while it is longer. What all may have goes to the highest class first, so
// that the lowest gives way first.
//
// With h the time within which the queue is to be at its target and s the memory, small deviations x of the
// rate follow x″ + x′/h + x/(h·s) = 0. It is not safe for concurrent use.
type Pacer struct {
	rules           []Paced
	asked           []float64 // per second
	passed          []float64 // per second
	counts          []PacedCount
	span            float64 // seconds of what is counted
	served, arrived float64 // requests then
	done            load    // per second
	among           float64 // per second that got in, of late
	bound           float64 // seconds since something was refused
	probe           float64 // share by which more may get in, to find out whether the server can do more
	on              bool
	rates           []float64
}

// load is what a service was asked for and did, per second.
type load struct{ arrived, served float64 }

// share is how much of what comes the server does; more than 1 while it works on what had to wait.
func (l *load) share() float64 {
	if l.arrived <= 0 {
		return 1
	}
	return min(max(l.served/l.arrived, 1/mostShare), mostShare)
}

// NewPacer returns a Pacer of the rules of one service.
func NewPacer(rules []Paced) *Pacer {
	n := len(rules)
	return &Pacer{
		rules: rules, asked: make([]float64, n), passed: make([]float64, n), counts: make([]PacedCount, n), rates: make([]float64, n),
	}
}

// Step returns the rates of the rules from now on, per second; 0: not enforced. Counts are those of the
// time since the last step.
func (p *Pacer) Step(s *Sample, d *Decision, counts []PacedCount) []float64 {
	p.arrived += float64(s.Arrived)
	p.served += float64(s.Served)
	for i, c := range counts {
		p.counts[i].Passed += c.Passed
		p.counts[i].Refused += c.Refused
	}
	if p.span += s.Span.Seconds(); p.span < paceEvery-1e-9 {
		return p.rates
	}
	in := p.count(d.Level)
	p.follow(in, d.Wait, d.Target)
	if !p.on {
		clear(p.rates)
		return p.rates
	}
	p.share(p.among*p.factor(d.Wait, d.Target)+1, d.Level)
	return p.rates
}

// count averages what was counted, and returns how much of what got in through rules that are enforced the server has
// done, per second.
func (p *Pacer) count(level Level) (in float64) {
	p.bound += p.span
	on := false
	k := 1 - math.Exp(-p.span/askedSpan)
	p.done.arrived += (p.arrived/p.span - p.done.arrived) * k
	p.done.served += (p.served/p.span - p.done.served) * k
	p.arrived, p.served = 0, 0
	for i, r := range p.rules {
		c := &p.counts[i]
		passed, refused := float64(c.Passed)/p.span, float64(c.Refused)/p.span
		p.asked[i] += (passed + refused - p.asked[i]) * k
		p.passed[i] += (passed - p.passed[i]) * k
		if level >= r.From {
			on = true
			in += passed
			if refused > 0 {
				p.bound = 0
			}
		}
	}
	if on && !p.on {
		p.among, p.bound = 0, 0
		for i, r := range p.rules {
			if level >= r.From {
				p.among += p.passed[i] * p.done.share()
			}
		}
	}
	p.on = on
	return in * p.done.share()
}

// follow brings what got in of late up to date. Where less was asked for than might have got in, that
// says nothing of the server.
func (p *Pacer) follow(in, wait, target float64) {
	if p.bound <= bindSpan || wait > target || in > p.among {
		p.among += (in - p.among) * (1 - math.Exp(-p.span/paceMemory))
	}
	p.span = 0
	clear(p.counts)
}

// factor is how much of what got in of late may get in.
func (p *Pacer) factor(wait, target float64) float64 {
	if wait < target/2 {
		p.probe = min(p.probe+probeStep, probeMost)
	} else {
		p.probe = 0
	}
	return 1 + max((target-wait)/paceWithin, -paceLess) + p.probe
}

// share gives each rule its rate, of what all may have together: the higher classes what they ask for,
// rules of one class as much as each other, and each at least its least.
func (p *Pacer) share(all float64, level Level) {
	order := p.order(level)
	for len(order) > 0 {
		same := 1
		for same < len(order) && p.rules[order[same]].Rank == p.rules[order[0]].Rank {
			same++
		}
		for i, rule := range order[:same] {
			r := &p.rules[rule]
			mine := max(all, 0) / float64(same-i)
			p.rates[rule] = min(max(mine, r.Min), r.Max)
			all -= min(p.rates[rule], p.asked[rule])
		}
		order = order[same:]
	}
}

// order lists the rules that are enforced, the most important first, of one class those first that ask for
// least: what they leave is the others'. The rates of the rest are none.
func (p *Pacer) order(level Level) (order []int) {
	for i, r := range p.rules {
		if p.rates[i] = 0; level >= r.From {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		if d := p.rules[a].Rank - p.rules[b].Rank; d != 0 {
			return d
		}
		return cmp.Compare(p.asked[a], p.asked[b])
	})
	return order
}
