// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"regexp"
	"slices"
	"strings"
)

// counters are the fetches and converters that ask for what a stick table, a proxy or a server counts.
var counters = regexp.MustCompile(`\b(sc\d?|src)_\w+|\btable_\w+|\b(be|fe|srv)_(conn|conn_free|queue|req_rate|sess_rate)\b|\b(avg_)?queue\(|\bconnslots\(`)

// asksCounter reports whether a text asks for what a stick table counts.
func asksCounter(text string) bool {
	return slices.ContainsFunc(counters.FindAllString(text, -1), func(fetch string) bool { return fetch != "src_port" && fetch != "src_is_local" })
}

// counts reports whether a line asks for counters, be it by the name of an ACL of its section.
func (s *section) counts(l line) bool {
	if asksCounter(l.text()) {
		return true
	}
	return slices.ContainsFunc(s.lines, func(acl line) bool {
		return acl.begins("acl") && len(acl.words) > 2 && asksCounter(acl.text()) &&
			slices.ContainsFunc(l.words, func(w string) bool { return strings.TrimLeft(w, "!") == acl.words[1] })
	})
}

// rest lists the limits that nothing has carried over or listed, wherever they stand.
func (c *config) rest(sections []*section) {
	for _, s := range sections {
		if !s.matters() {
			continue
		}
		for _, l := range s.lines {
			switch {
			case c.seen[l.Origin], l.begins("acl"), l.begins("log-format"):
			case l.begins("rate-limit"):
				c.draft.Leave(l.Origin, l.text(), "HAProxy lets new connections wait beyond this rate, and Narthex drops their SYNs", "write a connection rule with that rate, if that is meant")
			case s.counts(l):
				c.draft.Leave(l.Origin, l.text(), "counters are carried over where a frontend or listen section refuses by a rate, and not here", "write the rule that is meant: rate: and per: source")
			}
		}
	}
}

// allowed lists what ends HAProxy's rules of a section before a rate or class is asked, and
// what takes the client's address from a request.
func (c *config) allowed(p *proxy) {
	lists := [][]line{p.lines}
	if p.defaults != nil {
		lists = append(lists, p.defaults.lines)
	}
	for _, lines := range lists {
		for i, l := range lines {
			ends := l.begins("http-request", "allow") || l.begins("tcp-request", "content", "accept")
			if ends && slices.ContainsFunc(lines[i+1:], func(after line) bool {
				return after.words[0] == l.words[0] && (p.counts(after) || slices.Contains(after.words, "set-priority-class"))
			}) {
				c.draft.Leave(l.Origin, l.text(), "HAProxy asks none of the rates and classes after it for what it lets by, and Narthex does", "write a rule for these requests above the others")
			}
			if slices.Contains(l.words, "set-src") {
				c.draft.Leave(l.Origin, l.text(), "HAProxy takes this for the client's address from here on, and Narthex the address of the connection",
					"name the proxies that say so: trusted_proxies in the service, by X-Forwarded-For or the PROXY protocol")
			}
		}
	}
}
