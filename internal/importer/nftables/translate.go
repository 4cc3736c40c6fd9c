// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"narthex/internal/importer/draft"
	"narthex/internal/policy"
)

const (
	maxInlined = 100_000 // rules, after jumps have been followed
	maxJumps   = 16      // as in the kernel
	maxPorts   = 64      // of a range
)

// translator makes connection rules of what packets to this host meet.
type translator struct {
	draft    *draft.Draft
	set      *ruleset
	services map[string]string // name by listen
	limited  map[string]bool   // services that have a rate for anybody, by name and family
	ports    map[string]uint16 // of services, by listen
	within   map[*draft.Rule]bool
	excepts  map[*draft.Rule]*draft.Rule // exceptions, and of which rule
	beside   map[*draft.Rule][]portRange // for which a rule for all ports is not asked
	ending   []*draft.Rule               // rates and exceptions, which may end the search too early
	reached  map[*chain]bool
	inlined  int
	general  bool // a rate or a drop for all ports is in the policy
}

// translate goes through the base chains that see packets to this host.
func translate(d *draft.Draft, s *ruleset) {
	t := &translator{draft: d, set: s, services: map[string]string{}, ports: map[string]uint16{}, limited: map[string]bool{}, within: map[*draft.Rule]bool{},
		excepts: map[*draft.Rule]*draft.Rule{}, beside: map[*draft.Rule][]portRange{}, reached: map[*chain]bool{}}
	for _, hook := range hooks {
		for _, c := range s.chains {
			if c.hook == hook {
				t.base(c)
			}
		}
	}
	t.unreached()
	t.narrow()
}

func (t *translator) base(c *chain) {
	rules := t.inline(c.rules, nil, 0)
	fresh := map[int]bool{} // families of which only new connections come so far; 0: both
	var above []decision
	for i, r := range rules {
		above = slices.DeleteFunc(above, func(d decision) bool { return d.until <= i })
		switch {
		case r.other || r.iif == "lo" || r.verdict == "" && r.limit == nil:
		case r.old && r.verdict == "accept" && r.plain() && r.ports == nil:
			fresh[r.family] = true
		case r.old:
		case r.decides():
			above = append(above, decided(r, i, len(rules)))
			t.opened(r)
		case r.verdict == "return":
			if r.limit != nil || r.from != nil {
				t.leave(r, "what returns to the chain before is not carried over")
			}
		case !t.worth(r, fresh[0] || fresh[r.family]):
		default:
			if left, ok := t.undecided(r, above); ok {
				t.rule(left, rules[i+1:], c.drops)
			}
		}
	}
}

// plain reports whether a rule asks for nothing but its family, ports and states.
func (r *rule) plain() bool {
	return r.from == nil && r.limit == nil && r.unknown == "" && r.daddr == nil
}

func (t *translator) leave(r *rule, why string) { t.draft.Leave(r.Origin, r.text, why, r.instead) }

// inline puts the rules of a chain in the place of a jump to it.
func (t *translator) inline(rules []*rule, outer *rule, depth int) []*rule {
	var out []*rule
	for _, r := range rules {
		if t.inlined++; t.inlined > maxInlined || depth > maxJumps {
			t.leave(r, "there are too many jumps")
			return scoped(out)
		}
		both := *r
		both.rest = -1
		if outer != nil {
			both.under(outer)
		}
		if r.verdict != "jump" {
			out = append(out, &both)
			continue
		}
		if both.limit != nil || both.unknown != "" || both.other {
			t.unfollowed(&both)
			continue
		}
		if to := t.set.byName[r.target]; to != nil {
			t.reached[to] = true
			out = append(out, t.inline(overs(to.rules, &both), &both, depth+1)...)
		}
		if both.leaves {
			both.verdict = "return"
			out = append(out, &both)
		}
	}
	return scoped(out)
}

// overs puts a drop of what is beyond a rate in the place of a return within it that a drop of all else follows, be it
// after a line in the log. The rules are those of a chain to which a rule jumps.
func overs(rules []*rule, jump *rule) []*rule {
	all := func(r *rule) bool { return r.matchesAll() && (len(r.ports) == 0 || slices.Equal(r.ports, jump.ports)) }
	var out []*rule
	for i := 0; i < len(rules); i++ {
		r := rules[i]
		next := i + 1
		for next < len(rules) && rules[next].verdict == "" {
			next++
		}
		if next < len(rules) && r.limit != nil && !r.limit.over && r.verdict == "return" && all(r) {
			if end := rules[next]; end.verdict == "drop" && end.limit == nil && all(end) && end.family == r.family {
				both, l := *r, *r.limit
				l.over = true
				both.limit, both.verdict = &l, "drop"
				out = append(out, &both)
				i = next
				continue
			}
		}
		out = append(out, r)
	}
	return out
}

// matchesAll reports whether a rule asks for nothing but its rate and ports.
func (r *rule) matchesAll() bool {
	return !r.other && r.iif == "" && len(r.daddr) == 0 && len(r.from) == 0 && !r.fresh && !r.old && r.unknown == ""
}

// under adds what a jump to the rule's chain asks for.
func (r *rule) under(o *rule) {
	switch {
	case r.family == 0:
		r.family = o.family
	case o.family != 0 && o.family != r.family:
		r.other = true // never
	}
	r.other = r.other || o.other
	r.fresh = r.fresh || o.fresh
	r.old = r.old || o.old
	if r.iif == "" {
		r.iif = o.iif
	}
	if o.ports != nil {
		if r.ports != nil && !slices.Equal(r.ports, o.ports) {
			kept := slices.DeleteFunc(slices.Clone(r.ports), func(p portRange) bool { return !covered(p, o.ports) })
			if len(kept) != len(r.ports) {
				r.leave("its ports are not those of the jump to its chain")
			}
		} else {
			r.ports = o.ports
		}
	}
	if o.daddr != nil && r.daddr == nil {
		r.daddr = o.daddr
	} else if o.daddr != nil {
		r.leave("it asks for the server's address twice")
	}
	if o.from != nil && r.from == nil {
		r.from, r.not = o.from, o.not
	} else if o.from != nil {
		r.leave("it asks for the client's address twice")
	}
}

func covered(p portRange, by []portRange) bool {
	return len(by) == 0 || slices.ContainsFunc(by, func(q portRange) bool { return q.first <= p.first && p.last <= q.last })
}

// worth reports whether a rule is to be carried over, and lists those that cannot be.
func (t *translator) worth(r *rule, fresh bool) bool {
	limits := r.limit != nil
	switch {
	case r.unknown != "" && (limits || r.from != nil || r.instead != ""):
		t.leave(r, r.unknown)
	case r.unknown != "": // no limit, and nothing about clients
	case limits && r.limit.atOnce == 0 && !r.fresh && !fresh:
		t.leave(r, "it counts packets, and Narthex counts connections")
	case !limits && r.from == nil: // opens or closes a port
	case !limits && r.not && r.verdict == "accept":
		t.leave(r, "accepting all but some addresses says nothing about the others")
	default:
		return true
	}
	return false
}

// rule carries one rule over.
func (t *translator) rule(r *rule, after []*rule, drops bool) {
	if r.iif != "" {
		t.draft.Leave(r.Origin, r.text, "the interface is not carried over: a rule holds wherever its service is policed", "name the interfaces in the service")
	}
	out := &draft.Rule{Origin: r.Origin, From: r.from}
	if r.limit != nil && !t.rate(r, out, after, drops) {
		return
	}
	to, ok := t.to(r)
	if !ok {
		return
	}
	out.To = to
	t.general = t.general || len(to) == 0 && (r.limit != nil || r.verdict == "drop")
	var except *draft.Rule
	if r.not {
		except, out.From = t.exception(r, to), nil
		t.beside[except] = r.beside
	}
	t.beside[out] = r.beside
	switch {
	case r.limit != nil:
		out.From = family(out.From, r.family)
		t.add(r, out, except)
	case r.verdict == "drop":
		out.From = family(out.From, r.family)
		out.Name, out.Action = t.draft.Name("connection", "drop"), "drop"
		t.insert(r, out, except, t.dropFirst)
	default:
		out.Name, out.Class = t.draft.Name("connection", "accept"), t.draft.NeedClass()
		t.insert(r, out, nil, t.acceptFirst)
	}
}

// family narrows a rule for anybody to one family.
func family(from []string, family int) []string {
	if from == nil && family == 4 {
		return []string{"0.0.0.0/0"}
	}
	if from == nil && family == 6 {
		return []string{"::/0"}
	}
	return from
}

// rate fills in the limit. It reports whether there is one.
func (t *translator) rate(r *rule, out *draft.Rule, after []*rule, drops bool) bool {
	l := r.limit
	switch {
	case l.over && r.verdict != "drop":
		t.leave(r, "what is beyond the rate is not dropped")
		return false
	case !l.over && r.verdict != "accept":
		t.leave(r, "what is within the rate is not accepted")
		return false
	case !l.over && !beyond(r, after, drops):
		t.leave(r, "what is beyond the rate is accepted by a later rule or the chain's policy, so that it limits nothing")
		return false
	}
	if a := again(r, after); !l.over && a != nil {
		t.leave(r, fmt.Sprintf("%q below it accepts up to its own rate what is beyond this one; a connection is in one rule here, and is refused", a.text))
	}
	t.within[out] = !l.over
	if l.atOnce > 0 {
		out.Limits = []draft.Limit{{AtOnce: l.atOnce, Per: l.by()}}
		return true
	}
	rate, note, err := draft.Rate(l.count, l.per)
	if err != nil {
		t.leave(r, err.Error())
		return false
	}
	if note != "" {
		out.Note = append(out.Note, note)
	}
	out.Rate, out.Burst, out.Per = rate, min(max(l.burst, 1), policy.MaxBurst), l.by()
	return true
}

// by returns what the limit counts by, as a policy has it.
func (l *limit) by() string {
	if !l.source {
		return ""
	}
	var parts []string
	if l.v4 != 0 && l.v4 != 32 {
		parts = append(parts, "v4: "+strconv.Itoa(l.v4))
	}
	if l.v6 != 0 && l.v6 != 64 {
		parts = append(parts, "v6: "+strconv.Itoa(l.v6))
	}
	if parts == nil {
		return "source"
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// beyond reports whether what a rate does not accept is dropped in the end.
func beyond(r *rule, after []*rule, drops bool) bool {
	if end := ending(r, after); end != nil {
		return end.verdict == "drop"
	}
	return drops
}

// again returns the rate that accepts some of what another one does not, before anything decides about it.
func again(r *rule, after []*rule) *rule {
	end := ending(r, after)
	for _, a := range after {
		if a == end {
			break
		}
		if a.covers(r) && a.verdict == "accept" && a.limit != nil && !a.limit.over {
			return a
		}
	}
	return nil
}

// ending returns the first rule that decides about all that a rule matches.
func ending(r *rule, after []*rule) *rule {
	for _, a := range after {
		if a.covers(r) && a.limit == nil && (a.verdict == "drop" || a.verdict == "accept") {
			return a
		}
	}
	return nil
}

// covers reports whether a rule matches all new connections that another one matches.
func (r *rule) covers(o *rule) bool {
	return !r.other && !r.old && r.unknown == "" && r.from == nil && r.daddr == nil && r.iif == "" && (r.family == 0 || r.family == o.family) &&
		(len(r.ports) == 0 || len(o.ports) > 0 && !slices.ContainsFunc(o.ports, func(p portRange) bool { return !covered(p, r.ports) }))
}
