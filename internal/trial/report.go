// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Report is what a trial has found. Numbers are of arrivals, estimated where not every source
// was copied.
type Report struct {
	Began     time.Time `json:"began_at"`
	Seconds   float64   `json:"seconds"`
	SYNs      uint64    `json:"syns"`
	Requests  uint64    `json:"requests"`
	Missed    uint64    `json:"missed"` // arrivals that were decided and could not be copied
	Same      uint64    `json:"same"`
	Different uint64    `json:"different"`
	// Agreement is the share of arrivals of which the kernel has done what the trial says of the
	// live policy, 0 to 1; 1 if there were none.
	Agreement float64  `json:"agreement"`
	Pairs     []Pair   `json:"pairs"` // most frequent first
	Rules     []Rule   `json:"rules"` // in the candidate's order, then those that only the live policy has
	Classes   []Class  `json:"classes"`
	Notes     []string `json:"notes"`
}

// Pair is a difference: what the live policy does, and what the candidate would.
type Pair struct {
	Service   string    `json:"service"`
	Of        string    `json:"of"` // SYN or request
	Live      Outcome   `json:"live"`
	Candidate Outcome   `json:"candidate"`
	Count     uint64    `json:"count"`
	Examples  []Example `json:"examples"`
}

// Example is an arrival on which they differ.
type Example struct {
	Time    time.Time `json:"time"`
	Client  string    `json:"client"`
	Request string    `json:"request,omitempty"` // request line, or TLS and the server's name
}

// Counts says how a rule has decided.
type Counts struct {
	Matched  uint64 `json:"matched"`
	Dropped  uint64 `json:"dropped"`
	Rejected uint64 `json:"rejected"`
	Demoted  uint64 `json:"demoted"`
}

func (c *Counts) add(v Verdict, n uint64) {
	c.Matched += n
	switch v {
	case Drop, WouldDrop:
		c.Dropped += n
	case Reject, WouldReset:
		c.Rejected += n
	case Demote:
		c.Demoted += n
	}
}

// Rule is a rule of either policy, or of both. A side without it has zeros.
type Rule struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"` // connection or request
	Live      Counts `json:"live"`
	Candidate Counts `json:"candidate"`
	Kernel    Counts `json:"kernel"` // what the live policy has really done
}

// Class says how many requests of a service, or connections, would arrive in a class.
type Class struct {
	Service   string `json:"service"`
	Name      string `json:"name"`
	Live      uint64 `json:"live"`
	Candidate uint64 `json:"candidate"`
}

// Report sums up what was found so far.
func (t *Trial) Report(now time.Time) Report {
	r := Report{
		Began: t.began, Seconds: now.Sub(t.began).Seconds(), SYNs: t.syns, Requests: t.requests,
		Missed: t.missed, Same: t.same, Different: t.different, Agreement: 1,
		Pairs: []Pair{}, Rules: []Rule{}, Classes: []Class{}, Notes: t.notes(),
	}
	if t.compared > 0 {
		r.Agreement = float64(t.agreed) / float64(t.compared)
	}
	for _, p := range t.pairs {
		pair := *p
		pair.Examples = slices.Clone(p.Examples)
		r.Pairs = append(r.Pairs, pair)
	}
	slices.SortFunc(r.Pairs, func(a, b Pair) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(fmt.Sprint(a.Service, a.Of, a.Live, a.Candidate), fmt.Sprint(b.Service, b.Of, b.Live, b.Candidate)))
	})
	t.sumRules(&r)
	t.sumClasses(&r)
	return r
}

func (t *Trial) sumRules(r *Report) {
	seen := map[ruleID]bool{}
	add := func(kind, name string) {
		id := ruleID{kind, name}
		if seen[id] {
			return
		}
		seen[id] = true
		count := func(c *Counts) Counts {
			if c == nil {
				return Counts{}
			}
			return *c
		}
		r.Rules = append(r.Rules, Rule{name, kind, count(t.live.rules[id]), count(t.candidate.rules[id]), count(t.kernel[id])})
	}
	for _, s := range []*side{t.candidate, t.live} {
		for _, c := range s.policy.Connections {
			add(connectionKind, c.Name)
		}
		for _, q := range s.policy.Requests {
			add(requestKind, q.Name)
		}
	}
}

func (t *Trial) sumClasses(r *Report) {
	at := map[[2]string]int{}
	for _, s := range []*side{t.candidate, t.live} {
		for i := range s.arrivals {
			for class, n := range s.arrivals[i] {
				id := [2]string{s.tables.Services[i].Name, s.tables.Classes[class].Name}
				if _, ok := at[id]; !ok {
					at[id] = len(r.Classes)
					r.Classes = append(r.Classes, Class{Service: id[0], Name: id[1]})
				}
				if c := &r.Classes[at[id]]; s == t.live {
					c.Live += n
				} else {
					c.Candidate += n
				}
			}
		}
	}
}

// notes are sentences on what the numbers do not say.
func (t *Trial) notes() []string {
	notes := []string{"waiting is not tried out: classes show how many would arrive in them, not how long they would wait"}
	say := func(n uint64, format string) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf(format, n))
		}
	}
	for _, s := range t.candidate.tables.Services {
		has := false
		for _, l := range t.live.tables.Services {
			has = has || l.Name == s.Name
		}
		if !has {
			notes = append(notes, fmt.Sprintf("service %s is not policed yet: what comes to it is not seen, unless it comes to a service of the live policy", s.Name))
		}
	}
	if t.sampled > 0 {
		notes = append(notes, "more came than can be copied: of a part of the time only some sources were, and numbers are estimates")
	}
	say(t.missed, "%d arrivals could not be copied, and are not in the numbers")
	say(t.truncated, "%d heads are longer than a copy: what stands further on in them was not compared")
	say(t.untold, "%d differences are of kinds beyond those that are listed")
	lost := uint64(0)
	for _, s := range []*side{t.live, t.candidate} {
		lost += s.buckets.sources.lost + s.learned.lost + s.blocked.lost + s.cut.lost
	}
	say(lost, "%d times there was no room to remember a source; the trial took its bucket for full")
	return notes
}
