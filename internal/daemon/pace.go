// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"math"
	"slices"
	"time"

	"narthex/internal/adapt"
	"narthex/internal/datapath"
	"narthex/internal/policy"
)

// paceStep is the share by which a rate differs that is put in force at once.
const paceStep = 0.02

// paces are the rules of a service whose rates set themselves.
type paces struct {
	rules  []policy.AutoRule
	pacer  *adapt.Pacer
	last   []datapath.Counts
	counts []adapt.PacedCount
	read   bool      // last is known
	wanted []float64 // per second; 0: the rule is to limit nothing
}

func newPaces(rules []policy.AutoRule) *paces {
	if len(rules) == 0 {
		return nil
	}
	p := &paces{rules: rules, last: make([]datapath.Counts, len(rules)), counts: make([]adapt.PacedCount, len(rules)), wanted: make([]float64, len(rules))}
	paced := make([]adapt.Paced, len(rules))
	for i, r := range rules {
		paced[i] = adapt.Paced{Rank: r.Rank, Min: r.Auto.Least(), Max: r.Auto.Most(), From: adapt.Level(r.When)}
	}
	p.pacer = adapt.NewPacer(paced)
	return p
}

// goOn takes over what was learned of the same rules, which may have other places in the policy.
func (p *paces) goOn(was *paces) {
	if p == nil || was == nil || len(p.rules) != len(was.rules) {
		return
	}
	for i := range p.rules {
		a, b := p.rules[i], was.rules[i]
		if a.Index = b.Index; a != b {
			return
		}
	}
	p.pacer, p.wanted = was.pacer, was.wanted
}

// pacedRule names a rule to the data path.
func pacedRule(r policy.AutoRule) datapath.PacedRule {
	return datapath.PacedRule{Request: r.Request, Index: r.Index}
}

// pace has the rates of a service's rules set themselves.
func (a *agent) pace(s *steered, sample *adapt.Sample) {
	p := s.paces
	if p == nil {
		return
	}
	for i, r := range p.rules {
		now, err := a.path.ReadPaced(pacedRule(r))
		if err != nil {
			a.report("read what rules have done", err)
			return
		}
		was := p.last[i]
		p.last[i], p.counts[i] = now, adapt.PacedCount{}
		if p.read {
			p.counts[i] = adapt.PacedCount{Passed: since(now.Passed, was.Passed), Refused: since(now.Dropped+now.WouldDrop, was.Dropped+was.WouldDrop)}
		}
	}
	p.read = true
	copy(p.wanted, p.pacer.Step(sample, &s.decision, p.counts))
}

// setPaces puts the rates of a service's rules in force, those of other services considered.
func (a *agent) setPaces(s *steered, now time.Duration) {
	if s.paces == nil {
		return
	}
	for _, r := range s.paces.rules {
		want, was := a.paceOf(r.Name, r.Request), a.paced[r.AutoRuleName]
		same := want == was.rate || want > 0 && was.rate > 0 && math.Abs(want-was.rate) < paceStep*was.rate
		if was.at != 0 && same && (want == 0 || now-was.at < steerEvery) {
			continue
		}
		if err := a.path.SetPace(pacedRule(r), datapath.Pace{Rate: want, Grace: controlGrace}); err != nil {
			a.report("put rates in force", err)
			return
		}
		a.paced[r.AutoRuleName] = pacedAt{want, now}
	}
}

// pacedAt is a rate that was put in force.
type pacedAt struct {
	rate float64
	at   time.Duration
}

// paceOf is the lowest rate that a service wants for a rule, per second; 0: none wants one.
func (a *agent) paceOf(name string, request bool) (rate float64) {
	for _, s := range a.services {
		if s.paces == nil {
			continue
		}
		i := slices.IndexFunc(s.paces.rules, func(r policy.AutoRule) bool { return r.Name == name && r.Request == request })
		if i >= 0 && s.paces.wanted[i] > 0 && (rate == 0 || s.paces.wanted[i] < rate) {
			rate = s.paces.wanted[i]
		}
	}
	return rate
}

// rateNow is the rate of a rule that sets itself, per second; 0: it limits nothing at the moment.
func (a *agent) rateNow(table, rule string) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.paced[policy.AutoRuleName{Name: rule, Request: table == requestTable}].rate
}

// bySYNs fills in a sample of a service whose connections are not followed: what its server has not taken and
// what its threads work on is in service, and what it took was served.
func (s *steered) bySYNs(out *adapt.Sample, backlog int) {
	passed := since(s.syns.Passed, s.lastSYNs.Passed)
	out.InService = backlog + int(math.Round(out.Runnable))
	out.MeanInService = float64(out.InService)
	out.Arrived, out.Entered = passed, passed
	out.Served = uint64(max(0, int64(passed)-int64(backlog-s.backlog)))
	s.backlog = backlog
}
