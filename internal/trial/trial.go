// SPDX-License-Identifier: Apache-2.0

// Package trial decides on the same traffic by two policies, one in force and one that is not,
// and counts where they differ. Both are decided in the same way, so that a policy differs
// from itself on no traffic.
//
// It decides as the data path does: the first rule that matches, token buckets, what is
// remembered of clients, whom trusted proxies name. It knows of no concurrency and no queue:
// whether a request would wait is not said, only in which class it would arrive.
package trial

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"narthex/internal/policy"
)

// Arrival is what comes to a service: a SYN, or the beginning of a request or connection.
type Arrival struct {
	Time   time.Time      // for people
	Clock  time.Duration  // that nobody sets; buckets and what is remembered go by it
	Weight int            // of how many it is one; 0 is 1
	Client netip.AddrPort // of the connection
	Server netip.AddrPort
	Real   netip.Addr // whom a trusted proxy has named; invalid: nobody
	SYN    bool
	Head   []byte      // of a request or a ClientHello, perhaps not to its end
	Level  policy.When // of overload: rules that ask for it or less are enforced
	Kernel Verdict
	Rule   string // by which the kernel has decided; empty: none
}

// Verdict is what becomes of an arrival.
type Verdict string

// The verdicts.
const (
	Pass       Verdict = "pass"        // it goes on: of a request, to take its turn
	Exempt     Verdict = "exempt"      // it goes on and by every control, without a turn
	Demote     Verdict = "demote"      // the same in the lowest class, for its rule's bucket is empty
	Drop       Verdict = "drop"        // a SYN is dropped, or a connection reset
	Reject     Verdict = "reject"      // a request is answered in place of the server
	Unreached  Verdict = "not reached" // a request on a connection whose SYN would have been dropped
	Unpoliced  Verdict = "not policed" // it is to no service
	WouldDrop  Verdict = "would drop"  // as drop and reject, in shadow mode: it goes on
	WouldReset Verdict = "would reject"
)

// Outcome is a verdict and what it comes from.
type Outcome struct {
	Verdict Verdict `json:"verdict"`
	Rule    string  `json:"rule,omitempty"`   // empty: none matches, or none is asked
	Kind    string  `json:"kind,omitempty"`   // of the rule: connection or request
	Class   string  `json:"class,omitempty"`  // of what goes on
	Answer  string  `json:"answer,omitempty"` // to who is rejected: its status and its name, or reset
	Reason  string  `json:"reason,omitempty"` // blocked, malformed or complex
}

// The kinds of rules.
const (
	connectionKind = "connection"
	requestKind    = "request"
)

// goesOn reports whether the server gets it.
func (o *Outcome) goesOn() bool {
	return o.Verdict != Drop && o.Verdict != Reject && o.Verdict != Unreached
}

// differs reports whether it makes a difference to the client. Which rule it was does not. To who is not let in
// nothing else does but what it is told.
func (o *Outcome) differs(p *Outcome) bool {
	return o.Verdict != p.Verdict || !o.goesOn() && o.Answer != p.Answer || o.goesOn() && o.Verdict != Exempt && o.Class != p.Class
}

// Bounds of what a trial remembers. Beyond them it forgets, and counts that.
const (
	mostPairs    = 1000
	mostExamples = 3
	mostEntries  = 1 << 16 // of each table of each policy
)

// Trial is a comparison that goes on. It is not safe for concurrent use.
type Trial struct {
	live, candidate *side
	began           time.Time

	syns, requests     uint64 // with their weights
	same, different    uint64
	missed             uint64
	sampled, truncated uint64 // copies: with a weight, with a head that does not end
	agreed, compared   uint64 // copies of which the kernel has done what the live policy would do
	kernel             map[ruleID]*Counts
	pairs              map[pairID]*Pair
	untold             uint64 // differences beyond mostPairs
}

type ruleID struct{ kind, name string }

type pairID struct {
	service         string
	syn             bool
	live, candidate Outcome
}

// New begins a trial of two policies with their tables.
func New(live, candidate *policy.Policy, liveTables, candidateTables *policy.Tables, began time.Time) *Trial {
	return &Trial{
		live: newSide(live, liveTables), candidate: newSide(candidate, candidateTables), began: began,
		kernel: map[ruleID]*Counts{}, pairs: map[pairID]*Pair{},
	}
}

// Miss counts arrivals of which there is no copy.
func (t *Trial) Miss(n uint64) { t.missed += n }

// Seen returns how many arrivals there were, and on how many the policies differ.
func (t *Trial) Seen() (all, different uint64) { return t.syns + t.requests, t.different }

// Take decides on an arrival by both policies.
func (t *Trial) Take(a *Arrival) {
	a.Weight = max(a.Weight, 1)
	if a.Weight > 1 {
		t.sampled++
	}
	var says *said
	if !a.SYN {
		says = hear(a)
		says.forwarded = says.isForwarded(t.live, a)
	}
	live, candidate := t.live.decide(a, says), t.candidate.decide(a, says)
	if says != nil && says.truncated {
		t.truncated++
	}
	weight := uint64(a.Weight)
	if a.SYN {
		t.syns += weight
	} else {
		t.requests += weight
	}
	t.compare(a, &live)
	if !live.differs(&candidate) {
		t.same += weight
		return
	}
	t.different += weight
	t.note(a, says, live, candidate)
}

// compare counts what the kernel has done, and whether that is what the live policy says.
func (t *Trial) compare(a *Arrival, live *Outcome) {
	if a.Kernel == "" || live.Verdict == Unreached {
		return
	}
	t.compared++
	goesOn := a.Kernel == Pass || a.Kernel == Demote
	// In shadow mode the kernel tells of what it would have done.
	refused := !live.goesOn() || live.Verdict == WouldDrop || live.Verdict == WouldReset
	if goesOn == !refused && (a.Kernel == Demote) == (live.Verdict == Demote) {
		t.agreed++
	}
	if a.Rule == "" {
		return
	}
	id := ruleID{connectionKind, a.Rule}
	named := func(q policy.Request) bool { return q.Name == a.Rule }
	if !a.SYN && slices.ContainsFunc(t.live.policy.Requests, named) {
		id.kind = requestKind
	}
	c := t.kernel[id]
	if c == nil {
		c = &Counts{}
		t.kernel[id] = c
	}
	c.add(a.Kernel, uint64(a.Weight))
}

// note keeps a difference with an example or two.
func (t *Trial) note(a *Arrival, says *said, live, candidate Outcome) {
	service := cmp.Or(t.live.serviceName(a), t.candidate.serviceName(a))
	id := pairID{service, a.SYN, live, candidate}
	p := t.pairs[id]
	if p == nil {
		if len(t.pairs) >= mostPairs {
			t.untold += uint64(a.Weight)
			return
		}
		p = &Pair{Service: service, Of: "request", Live: live, Candidate: candidate}
		if a.SYN {
			p.Of = "SYN"
		}
		t.pairs[id] = p
	}
	p.Count += uint64(a.Weight)
	from := a.Client.Addr()
	if a.Real.IsValid() {
		from = a.Real
	}
	again := func(e Example) bool { return e.Client == from.String() && e.Request == says.line() }
	if len(p.Examples) < mostExamples && !slices.ContainsFunc(p.Examples, again) {
		p.Examples = append(p.Examples, Example{a.Time, from.String(), says.line()})
	}
}
