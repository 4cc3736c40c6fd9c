// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"net/netip"
	"time"

	"narthex/internal/policy"
)

// cutFor is how long it is remembered that a connection's SYN was dropped: longer than the
// client tries.
const cutFor = 2 * time.Minute

// side is one of the two policies, and what it would have done so far.
type side struct {
	policy *policy.Policy
	tables *policy.Tables
	blocks bool // a rule blocks clients

	rules    map[ruleID]*Counts
	arrivals [][]uint64 // requests, or connections, by service and class

	buckets *buckets
	learned *table[client, learned]
	blocked *table[client, struct{}]
	cut     *table[connection, struct{}] // whose SYN it has dropped
}

type connection struct{ client, server netip.AddrPort }

// client is whom rules remember: an IPv4 address or an IPv6 /64.
type client struct{ prefix netip.Prefix }

// learned is the class that a client is remembered in.
type learned struct{ class int }

func newSide(p *policy.Policy, t *policy.Tables) *side {
	s := &side{
		policy: p, tables: t, rules: map[ruleID]*Counts{}, arrivals: make([][]uint64, len(t.Services)),
		buckets: newBuckets(), learned: newTable[client, learned](), blocked: newTable[client, struct{}](), cut: newTable[connection, struct{}](),
	}
	for i := range s.arrivals {
		s.arrivals[i] = make([]uint64, len(t.Classes))
	}
	for _, q := range p.Requests {
		s.blocks = s.blocks || q.Block > 0
	}
	return s
}

func clientOf(addr netip.Addr) client {
	bits := 32
	if !addr.Is4() {
		bits = 64
	}
	prefix, _ := addr.Prefix(bits) // the length is that of the family
	return client{prefix}
}

// service finds where an arrival belongs. It has come here, so its address is local.
func (s *side) service(a *Arrival) (int, bool) {
	return s.tables.ServiceAt(a.Server, func(netip.Addr) bool { return true })
}

func (s *side) serviceName(a *Arrival) string {
	if i, ok := s.service(a); ok {
		return s.tables.Services[i].Name
	}
	return ""
}

// decide says what becomes of an arrival, counts it and remembers what there is to remember.
func (s *side) decide(a *Arrival, says *said) Outcome {
	service, ok := s.service(a)
	if !ok {
		return Outcome{Verdict: Unpoliced}
	}
	d := &decision{side: s, a: a, service: service, now: int64(a.Clock), class: s.policy.Default, turn: true}
	d.shadow = s.tables.Services[service].Shadow
	if a.SYN {
		d.decideSYN()
	} else {
		d.decideRequest(says)
	}
	return d.end()
}

// learnedClass returns the class that a client is remembered in, or policy.NotLearned.
func (s *side) learnedClass(addr netip.Addr, now int64) int {
	if l, ok := s.learned.get(clientOf(addr), now); ok {
		return l.class
	}
	return policy.NotLearned
}

func (s *side) isBlocked(addr netip.Addr, now int64) bool {
	if !s.blocks {
		return false
	}
	_, blocked := s.blocked.get(clientOf(addr), now)
	return blocked
}

// decision is one that is being made.
type decision struct {
	*side
	a       *Arrival
	service int
	now     int64
	shadow  bool
	class   int
	turn    bool // it takes its turn, if it goes on
	out     Outcome
	row     int // of what is said to who is rejected
}

// by names the rule that decides.
func (d *decision) by(kind, rule string) { d.out.Kind, d.out.Rule = kind, rule }

// refuse is a verdict against the arrival.
func (d *decision) refuse(v Verdict, reason string) {
	if d.out.Verdict, d.out.Reason = v, reason; v == Reject {
		d.out.Answer = d.tables.Refused(d.service, d.row, reason)
	}
}

// end counts the decision and says what comes of it.
func (d *decision) end() Outcome {
	o := &d.out
	switch {
	case o.Verdict != "":
	case d.turn:
		o.Verdict = Pass
	default:
		o.Verdict = Exempt
	}
	if d.shadow && (o.Verdict == Drop || o.Verdict == Reject) {
		o.Verdict = map[Verdict]Verdict{Drop: WouldDrop, Reject: WouldReset}[o.Verdict]
	}
	if o.goesOn() {
		o.Class = d.policy.ClassName(d.class)
	}
	if o.Rule != "" {
		d.count(ruleID{o.Kind, o.Rule})
	}
	tcp := d.tables.Services[d.service].Room.Protocol == policy.TCP
	if d.turn && o.goesOn() && d.a.SYN == tcp {
		d.arrivals[d.service][d.class] += uint64(d.a.Weight)
	}
	return *o
}

func (d *decision) count(id ruleID) {
	c := d.rules[id]
	if c == nil {
		c = &Counts{}
		d.rules[id] = c
	}
	c.add(d.out.Verdict, uint64(d.a.Weight))
}

// decideSYN decides whether a connection comes about.
func (d *decision) decideSYN() {
	from := d.a.Client.Addr()
	d.bySource(from)
	at := connection{d.a.Client, d.a.Server}
	if d.out.Verdict == Drop && !d.shadow {
		d.cut.put(at, struct{}{}, d.now+int64(cutFor), d.now)
	} else {
		d.cut.remove(at)
	}
}

// bySourceRule makes the class what a source has, and returns the connection rule that matches it, or -1.
func (d *decision) bySourceRule(from netip.Addr) int {
	learned := d.learnedClass(from, d.now)
	rule := d.tables.LookupLearned(d.service, learned, from, d.a.Client.Port())
	d.class = d.tables.SourceClass(d.service, rule, learned)
	return rule
}

func (d *decision) bySource(from netip.Addr) {
	if d.isBlocked(from, d.now) {
		d.refuse(Drop, "blocked")
		return
	}
	rule := d.bySourceRule(from)
	if rule < 0 {
		return
	}
	c := &d.policy.Connections[rule]
	d.by(connectionKind, c.Name)
	switch c.Action {
	case policy.ActionPass:
		d.turn = false
	case policy.ActionDrop:
		if d.enforced(c.When) {
			d.refuse(Drop, "")
		}
	case policy.ActionPolice:
		if d.enforced(c.When) && !d.buckets.take(connectionBuckets(rule, c, from), d.now, d.a.Weight) {
			d.refuse(Drop, "")
		}
	}
}

func (d *decision) enforced(when policy.When) bool { return when.At(d.a.Level) }
