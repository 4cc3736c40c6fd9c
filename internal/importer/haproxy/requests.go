// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"narthex/internal/importer/draft"
	"narthex/internal/policy"
)

// limits returns the rates of requests beyond which a proxy refuses them.
func (c *config) limits(p *proxy) []*limit {
	var out []*limit
	for _, l := range p.lines {
		verdict := ""
		if len(l.words) > 1 {
			verdict = l.words[1]
		}
		if l.words[0] != "http-request" || !slices.Contains([]string{"deny", "tarpit", "reject", "silent-drop", "return"}, verdict) {
			continue
		}
		at := slices.IndexFunc(l.words, func(w string) bool { return w == "if" || w == "unless" })
		if at < 0 {
			continue
		}
		cond, err := p.condition(l.words[at:])
		if err != nil {
			c.seen[l.Origin] = true
			c.draft.Leave(l.Origin, l.text(), err.Error(), "")
			continue
		}
		found := false
		for _, term := range cond {
			if !slices.ContainsFunc(term, func(t literal) bool { return t.rate != nil || asksCounter(t.text) }) {
				continue // what is refused always, HAProxy goes on refusing
			}
			c.seen[l.Origin] = true
			limit, err := c.limitOf(p, l, term, "http_req_rate")
			switch {
			case err != nil:
				c.draft.Leave(l.Origin, l.text(), err.Error(), "")
				continue
			case limit == nil:
				c.draft.Leave(l.Origin, l.text(), "rates of requests and connections are carried over, other counters are not", "")
				continue
			}
			found = true
			if verdict == "reject" || verdict == "silent-drop" {
				limit.over = "drop"
			}
			limit.status = status(l, verdict)
			if matches(limit.match) {
				c.draft.Leave(l.Origin, l.text(), "HAProxy counts all requests that are tracked; Narthex counts those that the rule matches", "")
			}
			c.windows(limit)
			out = append(out, limit)
		}
		if found {
			c.verdict(l, verdict)
		}
	}
	return out
}

// status is what HAProxy refuses with; 0: it sends no answer.
func status(l line, verdict string) int {
	if n := max(option(l.words, "deny_status"), option(l.words, "status")); n > 0 {
		return n
	}
	return map[string]int{"deny": 403, "tarpit": 500, "return": 200}[verdict]
}

// verdict lists what differs in how a request is refused.
func (c *config) verdict(l line, verdict string) {
	if verdict == "tarpit" {
		c.draft.Leave(l.Origin, l.text(), "Narthex does not let a client wait for its refusal", "block: drops its connections for a time")
	}
	if n := status(l, verdict); n > 0 && n < 400 {
		c.draft.Leave(l.Origin, l.text(), fmt.Sprintf("HAProxy answers %d, and Narthex refuses with a status from 400 on", n), "answer: {status: …} in the rule")
	}
}

// requests makes request rules of a proxy's rates and classes.
func (c *config) requests(p *proxy, classes bool) {
	limits := c.limits(p)
	rules := c.classRules(p)
	if !classes {
		rules = nil
	}
	seen := slices.ContainsFunc(c.of[p], func(s *draft.Service) bool { return s.Protocol == policy.HTTP })
	if !seen {
		for _, l := range limits {
			c.draft.Leave(l.Origin, l.text(), "requests within TLS are not visible", "run Narthex between what ends TLS and the application, or limit connections")
		}
		limits = nil
	}
	var general []*limit
	var some [][]*limit // of the same requests
	for _, l := range limits {
		same := func(group []*limit) bool { return reflect.DeepEqual(group[0].match, l.match) }
		switch i := slices.IndexFunc(some, same); {
		case !matches(l.match) && len(l.match.From) == 0:
			general = append(general, l)
		case i >= 0:
			some[i] = append(some[i], l)
		default:
			some = append(some, []*limit{l})
		}
	}
	for _, group := range some {
		l := group[0]
		if len(rules) > 0 {
			c.draft.Leave(l.Origin, l.text(), "Narthex asks no rule after the first that matches: these requests get no class", "give the rule a class")
		}
		c.draft.Requests = append(c.draft.Requests, c.limitRule(slices.Concat(group, general), l.match, ""))
	}
	c.exempt(p, limits)
	made := c.byClass(p, rules, general, seen)
	if len(general) == 0 {
		return
	}
	if made+len(some) > 0 {
		c.draft.Leave(general[0].Origin, general[0].text(), "each rule has buckets of its own, where HAProxy counts all requests of a client together", "lower the limits if a client must not have each of them")
	}
	c.draft.Requests = append(c.draft.Requests, c.limitRule(general, &draft.Rule{}, ""))
}

// limitRule makes a rule of limits that hold together.
func (c *config) limitRule(limits []*limit, match *draft.Rule, class string) *draft.Rule {
	r, first := *match, limits[0]
	r.Origin, r.Name = first.Origin, c.draft.Name("request", "req-rate")
	r.Over, r.Class = first.over, class
	r.Answers(first.status)
	for _, l := range limits {
		r.Also(l.Limit)
		if l.note != "" {
			r.Note = append(slices.Clone(r.Note), l.note)
		}
		if l.over != first.over || l.status != first.status {
			c.draft.Leave(l.Origin, l.text(), "a rule refuses in one way, whichever of its limits is exceeded", "it is that of the first limit here")
		}
	}
	r.Plain()
	return &r
}

// exempt makes a connection rule of addresses that no rate holds for.
func (c *config) exempt(p *proxy, limits []*limit) {
	for i, l := range limits {
		if !slices.Equal(l.exempt, limits[0].exempt) {
			c.draft.Leave(l.Origin, l.text(), "addresses are exempt from some rates and not from others; a connection rule would exempt them from all", "")
			return
		}
		if i == len(limits)-1 && len(l.exempt) > 0 {
			r := &draft.Rule{Origin: l.Origin, Name: c.draft.Name("connection", "exempt"), From: l.exempt, To: p.service, Action: "pass",
				Note: []string{"With pass they go by the waiting room, too."}}
			if c.hasRate(p) {
				c.draft.Leave(l.Origin, l.text(), "addresses that are exempt from the rate of requests are exempt from that of connections now, too", "")
			}
			c.beforeRates(l.line, r)
		}
	}
}

// byClass makes rules of what sets classes, the strongest first. It returns how many request
// rules it has made.
func (c *config) byClass(p *proxy, rules []classRule, general []*limit, seen bool) (made int) {
	addressed := false // the class of addresses is asked for after that of requests
	for i, r := range rules {
		c.seen[r.Origin] = true
		cond := r.cond
		if len(cond) == 0 {
			cond = condition{nil}
		}
		for _, term := range cond {
			match, from, but, err := parted(term)
			last := i == len(rules)-1 || i == len(rules)-2 && len(rules[i+1].cond) == 0
			switch {
			case err == nil && match == nil:
				continue // it never holds
			case err == nil && from != nil && but != nil:
				err = errors.New("an address beside what a test excludes is not carried over")
			case err == nil && but != nil && !last:
				err = errors.New("what a test excludes is carried over in the first class that is set, not in later ones")
			case err == nil && from == nil && addressed:
				err = errors.New("a class by address is set after it, and Narthex lets a class by request win")
			case err == nil && from == nil && !seen && len(match.SNI) == 0 && (matches(match) || but != nil):
				err = errors.New("requests within TLS are not visible")
			}
			if err != nil {
				c.draft.Leave(r.Origin, r.text(), err.Error(), "write the rules as you mean them: the first that matches decides")
				continue
			}
			if from != nil && matches(match) {
				match.From, from = from, nil
			}
			if from != nil {
				addressed = true
				c.classed(p, r, from)
				continue
			}
			if but != nil {
				otherwise := 0
				if i+1 < len(rules) {
					otherwise = rules[i+1].value
				}
				except, ok := both(match, but)
				if !ok {
					c.draft.Leave(r.Origin, r.text(), "two tests of the same kind together are no pattern", "")
					continue
				}
				c.classRule(r, except, otherwise, general)
				made++
			}
			c.classRule(r, match, r.value, general)
			made++
		}
	}
	return made
}

func (c *config) classRule(r classRule, match *draft.Rule, value int, general []*limit) {
	class := className(value)
	if len(general) > 0 && len(match.SNI) == 0 {
		out := c.limitRule(general, match, class)
		out.Origin = r.Origin
		c.draft.Requests = append(c.draft.Requests, out)
		return
	}
	out := *match
	out.Origin, out.Name, out.Class = r.Origin, c.draft.Name("request", class), class
	c.draft.Requests = append(c.draft.Requests, &out)
}

// classed gives connections from some addresses a class. The rate of connections stays.
func (c *config) classed(p *proxy, r classRule, from []string) {
	class := className(r.value)
	out := &draft.Rule{Origin: r.Origin, Name: c.draft.Name("connection", class), From: from, To: p.service, Class: class}
	at := len(c.draft.Connections)
	for i, other := range c.draft.Connections {
		if other.Limited() && len(other.From) == 0 && slices.Equal(other.To, p.service) {
			out.Rate, out.Burst, out.Per, out.Limits = other.Rate, other.Burst, other.Per, slices.Clone(other.Limits)
			at = i
			break
		}
	}
	c.draft.Connections = slices.Insert(c.draft.Connections, at, out)
}

// parted sorts out what a term asks: of a request, of the address, and what must not be. A
// nil match says that it never holds.
func parted(term []literal) (match *draft.Rule, from []string, but *draft.Rule, err error) {
	match = &draft.Rule{}
	for _, t := range term {
		switch {
		case t.err != nil:
			return match, nil, nil, fmt.Errorf("%q: %w", t.text, t.err)
		case t.never && !t.not:
			return nil, nil, nil, nil
		case t.never:
		case t.match != nil && !t.not:
			both, ok := both(match, t.match)
			if !ok {
				return match, nil, nil, errors.New("two tests of the same kind together are no pattern")
			}
			match = both
		case t.match != nil && but == nil && matches(t.match):
			but = t.match
		case t.from != nil && !t.not && from == nil:
			from = t.from
		default:
			return match, nil, nil, fmt.Errorf("%q is not carried over with a class", t.text)
		}
	}
	return match, from, but, nil
}
