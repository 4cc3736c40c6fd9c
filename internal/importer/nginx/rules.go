// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"fmt"
	"reflect"
	"slices"

	"narthex/internal/importer/draft"
)

// bound is a limit of a place and the zone that it is counted in.
type bound struct {
	zone   *zone
	burst  int
	atOnce int // of limit_conn; 0: a limit_req
}

// candidate is a rule that may still turn out not to be needed, or to be part of another.
type candidate struct {
	*draft.Rule
	bounds []bound // none: it limits nothing
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
		if len(r.bounds) == 0 {
			r.Class = c.draft.NeedClass()
			r.Name = c.draft.Name("request", "no-limit")
			r.Note = append(r.Note, "Without a limit in nginx, although rules below would match.")
		} else {
			r.Name = c.draft.Name("request", r.bounds[0].zone.name)
			for _, b := range r.bounds {
				b.zone.rules++
			}
		}
		c.draft.Requests = append(c.draft.Requests, r.Rule)
	}
	for _, r := range all {
		for _, b := range r.bounds {
			if z := b.zone; z.rules > 1 {
				c.draft.Leave(z.Origin, z.text, fmt.Sprintf("the %d rules made of this zone have buckets of their own, where nginx counts all of its requests together", z.rules), "lower the limits if a client must not have each of them")
				z.rules = 0
			}
		}
	}
}

// candidates makes rules of what holds in one place. Limits that hold for some of its requests or addresses alone
// make several.
func (c *config) candidates(v virtual, e entry) []candidate {
	always, sometimes, on := c.holding(e)
	var out []candidate
	for _, g := range grouped(c.exempt(slices.Concat(always, sometimes))) {
		if len(g.from) == 0 {
			continue
		}
		free := func(l limit) bool { return g.value == "" && len(c.zones[l.zone].key.exempt) > 0 }
		few := func(limits []limit) []limit { return slices.DeleteFunc(slices.Clone(limits), free) }
		for _, r := range c.conditional(v, e, few(always), few(sometimes), on) {
			if r.From != nil {
				c.draft.Leave(r.Origin, e.text, "its keys ask for addresses in two ways", "write a rule with from")
				continue
			}
			r.From = g.from
			out = append(out, r)
		}
	}
	return append(out, c.conditional(v, e, always, sometimes, on)...)
}

// exempt returns the addresses that limits of one place do not hold for, the narrowest ranges first.
func (c *config) exempt(limits []limit) []ranged {
	var by []ranged
	for _, l := range limits {
		z := c.zones[l.zone]
		switch {
		case len(z.key.exempt) == 0 || slices.Equal(by, z.key.exempt):
		case by == nil:
			by = z.key.exempt
		default:
			c.draft.Leave(l.Origin, l.text, "other addresses are exempt from it than from the limit before it, and here those of that one", "write rules with from for those")
		}
	}
	return by
}

// conditional makes a rule of limits that always hold in a place, and another with those that hold under a condition.
func (c *config) conditional(v virtual, e entry, always, sometimes []limit, on *condition) []candidate {
	make := func(limits []limit) candidate { return c.candidate(v, e, limits) }
	both := make(slices.Concat(always, sometimes))
	if on == nil || len(sometimes) == 0 {
		return []candidate{both}
	}
	part, rest := both, make(always)
	if on.unless {
		part, rest = rest, both
	}
	if !narrow(part.Rule, on.match) {
		c.draft.Leave(sometimes[0].Origin, sometimes[0].text, "its place and its key both ask for the path or host", "write a rule with the pattern that you mean")
		return []candidate{make(always)}
	}
	return []candidate{part, rest}
}

// candidate makes a rule of limits that hold in one place.
func (c *config) candidate(v virtual, e entry, limits []limit) candidate {
	r := candidate{Rule: &draft.Rule{Origin: e.Origin, Host: v.hosts, Path: e.paths}}
	for _, l := range limits {
		z := c.zones[l.zone]
		made := draft.Limit{AtOnce: l.atOnce, Per: z.key.per}
		if z.key.source {
			made.Per = "source"
		}
		if l.atOnce == 0 {
			made.Rate, made.Burst = z.rate, l.burst+1
			if z.note != "" {
				r.Note = append(r.Note, z.note)
			}
		}
		if len(r.bounds) == 0 {
			r.Origin = l.Origin
		} else if l.Origin != r.Origin {
			r.Note = append(r.Note, fmt.Sprintf("Also %s:%d.", l.File, l.Line))
		}
		r.bounds = append(r.bounds, bound{z, l.burst, l.atOnce})
		r.Limits = append(r.Limits, made)
		if l.delays {
			c.draft.Leave(l.Origin, l.text, "nginx lets what is beyond the rate wait, one request after the other; Narthex lets the whole burst in at once, and rejects what is beyond it as nginx does",
				"the waiting room holds what the server cannot take; a lower burst comes nearer to the rate")
		}
	}
	r.Plain()
	if len(r.bounds) > 0 {
		r.Answers(e.status)
	}
	return r
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
	r.From, r.Method, r.Header, r.Cookie, r.Query = by.From, by.Method, by.Header, by.Cookie, by.Query
	return true
}

// holding returns the limits of a place: those that always hold, and those that hold under a condition.
func (c *config) holding(e entry) (always, sometimes []limit, on *condition) {
	for _, l := range e.limits() {
		z := c.zones[l.zone]
		switch {
		case z == nil:
			c.draft.Leave(l.Origin, l.text, "there is no zone of that name", "nginx refuses this, too")
		case z.err != nil:
			c.draft.Leave(z.Origin, z.text, z.err.Error(), "take the client's address, or one bucket for all")
		case z.key.never:
			c.draft.Leave(z.Origin, z.text, "its key is always empty: it limits nothing", "")
		case !c.rate(z):
		case z.key.on == nil:
			always = append(always, l)
		case on == nil || reflect.DeepEqual(on, z.key.on):
			sometimes, on = append(sometimes, l), z.key.on
		default:
			c.draft.Leave(l.Origin, l.text, "it holds for other requests of this place than the limit before it, whose rule would hide this one", "write a rule for requests that both hold for, with both as its limits")
		}
	}
	return always, sometimes, on
}

// rate writes the zone's rate. It reports whether a policy can have it.
func (c *config) rate(z *zone) bool {
	if z.count == 0 {
		return true
	}
	var err error
	if z.rate, z.note, err = draft.Rate(z.count, z.per); err != nil {
		c.draft.Leave(z.Origin, z.text, err.Error(), "write another rate")
	}
	return err == nil
}

// needed takes out the rules without a limit that no later one would match, anyway.
func needed(all []candidate) []candidate {
	var kept []candidate
	for i := len(all) - 1; i >= 0; i-- {
		r := all[i]
		if len(r.bounds) > 0 || slices.ContainsFunc(kept, func(k candidate) bool { return overlap(r.Host, k.Host) && overlap(r.Path, k.Path) }) {
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
	asks := func(r candidate) bool { return len(r.From)+len(r.Method)+len(r.Header)+len(r.Cookie)+len(r.Query) > 0 }
	perServer := func(b bound) bool { return b.zone.key.perServer }
	if !slices.Equal(a.bounds, b.bounds) || a.Answer != b.Answer || asks(*a) || asks(b) {
		return false
	}
	switch {
	case slices.Equal(a.Host, b.Host):
		a.Path = union(a.Path, b.Path)
	case slices.Equal(a.Path, b.Path) && !slices.ContainsFunc(a.bounds, perServer):
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
