// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"fmt"
	"slices"
	"strings"

	"narthex/internal/importer/draft"
)

// candidate is a rule that may still turn out not to be needed, or to be part of another.
type candidate struct {
	*draft.Rule
	zone  *zone // nil: it limits nothing
	burst int
}

// rules makes request rules of all limits.
func (c *config) rules() {
	var all []candidate
	for _, v := range c.virtuals() {
		for _, e := range v.entries {
			all = append(all, c.candidates(v, e)...)
		}
	}
	all = needed(merged(needed(all)))
	for _, r := range all {
		if r.zone == nil {
			r.Class = c.draft.NeedClass()
			r.Name = c.draft.Name("request", "no-limit")
			r.Note = append(r.Note, "Without a limit in nginx, although rules below would match.")
		} else {
			r.Name = c.draft.Name("request", r.zone.name)
			r.zone.rules++
			c.made[r.Rule] = r.zone
		}
		c.draft.Requests = append(c.draft.Requests, r.Rule)
	}
	for _, r := range all {
		if z := r.zone; z != nil && z.rules > 1 {
			c.draft.Leave(z.Origin, z.text, fmt.Sprintf("the %d rules made of this zone have buckets of their own, where nginx counts all of its requests together", z.rules), "lower the rates if a client must not have each of them")
			z.rules = 0
		}
	}
}

// candidates makes rules of what holds in one place.
func (c *config) candidates(v virtual, e entry) []candidate {
	stop := candidate{Rule: &draft.Rule{Origin: e.Origin, Host: v.hosts, Path: e.paths}}
	l, z := c.choose(e)
	if z == nil {
		return []candidate{stop}
	}
	rate, note, err := draft.Rate(z.count, z.per)
	if err != nil {
		c.draft.Leave(z.Origin, z.text, err.Error(), "write another rate")
		return []candidate{stop}
	}
	r := &draft.Rule{Origin: l.Origin, Host: v.hosts, Path: e.paths, Rate: rate, Burst: l.burst + 1}
	if note != "" {
		r.Note = append(r.Note, note)
	}
	if z.key.source {
		r.Per = "source"
	}
	if l.delays {
		c.draft.Leave(l.Origin, l.text, "nginx lets what is beyond the rate wait, one request after the other; Narthex lets the whole burst in at once, and rejects what is beyond it as nginx does",
			"the waiting room holds what the server cannot take; a lower burst comes nearer to the rate")
	}
	on := z.key.on
	if on == nil {
		return []candidate{{r, z, l.burst}}
	}
	part := stop
	if !on.unless {
		part = candidate{r, z, l.burst}
	}
	if !narrow(part.Rule, on.match) {
		c.draft.Leave(l.Origin, l.text, "its place and its key both ask for the path or host", "write a rule with the pattern that you mean")
		return []candidate{stop}
	}
	if on.unless {
		return []candidate{part, {r, z, l.burst}}
	}
	return []candidate{part, {Rule: &draft.Rule{Origin: e.Origin, Host: v.hosts, Path: e.paths}}}
}

// narrow makes a rule ask for more. It reports whether that can be.
func narrow(r *draft.Rule, by draft.Rule) bool {
	if len(r.Path) > 0 && len(by.Path) > 0 || len(r.Host) > 0 && len(by.Host) > 0 {
		return false
	}
	if len(by.Path) > 0 {
		r.Path = by.Path
	}
	if len(by.Host) > 0 {
		r.Host = by.Host
	}
	r.Method, r.Header, r.Cookie = by.Method, by.Header, by.Cookie
	return true
}

// choose returns the limit that Narthex can have in a place, or no zone.
func (c *config) choose(e entry) (limit, *zone) {
	var chosen limit
	var of *zone
	for _, l := range e.limits {
		z := c.zones[l.zone]
		switch {
		case z == nil:
			c.draft.Leave(l.Origin, l.text, "there is no limit_req_zone of that name", "nginx refuses this, too")
		case z.err != nil:
			c.draft.Leave(z.Origin, z.text, z.err.Error(), "take the client's address, or one bucket for all")
		case z.key.never:
			c.draft.Leave(z.Origin, z.text, "its key is always empty: it limits nothing", "")
		case of == nil || z.key.source && !of.key.source:
			if of != nil {
				c.second(chosen)
			}
			chosen, of = l, z
		default:
			c.second(l)
		}
	}
	return chosen, of
}

func (c *config) second(l limit) {
	c.draft.Leave(l.Origin, l.text, "Narthex asks no rule after the first that matches, so that a request is in one limit, not in several",
		"what all clients may do together is better said by the service's concurrency")
}

// needed takes out the rules without a limit that no later one would match, anyway.
func needed(all []candidate) []candidate {
	var kept []candidate
	for i := len(all) - 1; i >= 0; i-- {
		r := all[i]
		if r.zone != nil || slices.ContainsFunc(kept, func(k candidate) bool { return overlap(r.Host, k.Host) && overlap(r.Path, k.Path) }) {
			kept = append(kept, r)
		}
	}
	slices.Reverse(kept)
	return kept
}

// merged puts neighbours with the same limit together, as nginx counts them.
func merged(all []candidate) []candidate {
	var out []candidate
	for _, r := range all {
		if len(out) > 0 && out[len(out)-1].absorb(r) {
			continue
		}
		out = append(out, r)
	}
	return out
}

// absorb makes a rule match what the next one matches, if the limit is the same.
func (a *candidate) absorb(b candidate) bool {
	asks := func(r candidate) bool { return len(r.Method)+len(r.Header)+len(r.Cookie) > 0 }
	if a.zone != b.zone || a.burst != b.burst || asks(*a) || asks(b) {
		return false
	}
	switch {
	case slices.Equal(a.Host, b.Host):
		a.Path = union(a.Path, b.Path)
	case slices.Equal(a.Path, b.Path) && (a.zone == nil || !a.zone.key.perServer):
		a.Host = union(a.Host, b.Host)
	default:
		return false
	}
	return true
}

// union of two lists of patterns, of which an empty one stands for all.
func union(a, b []string) []string {
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	out := slices.Clone(a)
	for _, p := range b {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// exempt makes connection rules of addresses with an empty key.
func (c *config) exempt() {
	var of *zone
	var used []*zone
	for _, z := range c.zones {
		if z.used(c) {
			used = append(used, z)
		}
	}
	slices.SortFunc(used, func(a, b *zone) int { return strings.Compare(a.name, b.name) })
	for _, z := range used {
		if of == nil {
			of = z
		}
		if !slices.Equal(z.key.exempt, of.key.exempt) {
			for _, z := range used {
				if len(z.key.exempt) > 0 {
					c.draft.Leave(z.Origin, z.text, "addresses are exempt from some limits and not from others; a connection rule would exempt them from all", "write a connection rule with from: and action: pass for those that no rule is to hold for")
				}
			}
			return
		}
	}
	if of == nil {
		return
	}
	for _, group := range grouped(of.key.exempt) {
		if group.value == "" {
			group.from = c.untrusted(of, group.from)
		}
		if len(group.from) == 0 {
			continue
		}
		r := &draft.Rule{Origin: of.Origin, From: group.from}
		if group.value == "" {
			r.Name, r.Action = c.draft.Name("connection", "exempt"), "pass"
			r.Note = append(r.Note, "Addresses with an empty key. With pass they go by the waiting room, too.")
		} else {
			r.Name, r.Class = c.draft.Name("connection", "not-exempt"), c.draft.NeedClass()
			r.Note = append(r.Note, "Addresses within exempt ones that are limited all the same.")
		}
		c.draft.Connections = append(c.draft.Connections, r)
	}
}

func (z *zone) used(c *config) bool {
	return slices.ContainsFunc(c.draft.Requests, func(r *draft.Rule) bool { return r.Rate != "" && c.made[r] == z })
}

type group struct {
	value string
	from  []string
}

// grouped puts neighbours with the same outcome together. Those that are not exempt and not
// within an exempt one are left out: they come last.
func grouped(by []ranged) []group {
	var out []group
	seen := map[string]bool{} // a later entry for the same addresses says the same or comes too late
	for _, r := range by {
		if seen[r.from] {
			continue
		}
		seen[r.from] = true
		if n := len(out); n > 0 && (out[n-1].value == "") == (r.value == "") {
			out[n-1].from = append(out[n-1].from, r.from)
			continue
		}
		out = append(out, group{r.value, []string{r.from}})
	}
	if n := len(out); n > 0 && out[n-1].value != "" {
		out = out[:n-1]
	}
	return out
}
