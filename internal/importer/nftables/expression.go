// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"
	"strings"
)

// expression reads the matches and statements of one rule.
type expression struct {
	*parser
	rule *rule
	key  string // family and table
	list []token
	at   int
}

func (e *expression) peek(n int) string {
	if e.at+n < len(e.list) {
		return e.list[e.at+n].text
	}
	return ""
}

func (e *expression) take() string {
	e.at++
	return e.peek(-1)
}

func (e *expression) read() {
	for e.at < len(e.list) && e.rule.unknown == "" {
		e.one()
	}
	if e.rule.unknown != "" {
		e.salvage()
	}
}

// salvage looks for what makes a rule that is not understood worth a word.
func (e *expression) salvage() {
	for i, t := range e.list {
		if t.text == "saddr" && e.rule.from == nil {
			e.rule.from = []string{}
		}
		if t.text == "limit" && e.rule.limit == nil || t.text == "count" && i > 0 && e.list[i-1].text == "ct" {
			e.rule.limit = &limit{}
		}
		if t.text == "udp" || t.text == "icmp" || t.text == "icmpv6" {
			e.rule.other = true
		}
	}
	e.rule.verdict = "drop"
	jumps := func(t token) bool { return t.text == "jump" || t.text == "goto" }
	if i := slices.IndexFunc(e.list, jumps); i >= 0 && i+1 < len(e.list) && !slices.ContainsFunc(e.list, func(t token) bool { return t.text == "vmap" }) {
		e.rule.verdict, e.rule.target = "jump", e.key+" "+e.list[i+1].text
	}
}

func (e *expression) one() {
	r := e.rule
	switch word := e.take(); word {
	case "ip", "ip6":
		e.network(word)
	case "tcp", "th":
		e.transport()
	case "udp", "icmp", "icmpv6", "sctp", "dccp", "udplite", "esp", "ah", "arp":
		r.other = true
		e.at = len(e.list)
	case "meta":
		if e.peek(0) == "l4proto" || e.peek(0) == "nfproto" || e.peek(0) == "protocol" {
			e.at++
			e.protocol()
			return
		}
		if e.peek(0) == "iif" || e.peek(0) == "iifname" {
			return // as without meta
		}
		r.leave("meta %s is not carried over", e.peek(0))
	case "iif", "iifname":
		values, not := e.values()
		r.iif = strings.Join(values, ",")
		if not {
			r.iif = "not " + r.iif
		}
	case "ct":
		e.tracked()
	case "limit":
		e.limit(&limit{})
	case "meter", "add", "update":
		e.meter(word)
	case "counter":
		if e.peek(0) == "packets" {
			e.at += 4
		} else if e.peek(0) == "name" {
			e.at += 2
		}
	case "log":
		for e.at < len(e.list) && slices.Contains([]string{"prefix", "level", "group", "snaplen", "queue-threshold", "flags"}, e.peek(0)) {
			e.at += 2
		}
	case "comment":
		e.at++
	case "accept", "drop", "return", "continue":
		r.verdict = strings.Replace(word, "continue", "", 1)
	case "reject":
		r.verdict = "drop"
		e.at = len(e.list)
	case "jump", "goto":
		r.verdict, r.target, r.leaves = "jump", e.key+" "+e.take(), word == "goto"
	default:
		r.leave("%q is not carried over", word)
	}
}

// network reads a match on the header of IPv4 or IPv6.
func (e *expression) network(version string) {
	r := e.rule
	family := 4
	if version == "ip6" {
		family = 6
	}
	if r.family != 0 && r.family != family {
		r.other = true
	}
	r.family = family
	switch field := e.take(); field {
	case "saddr":
		values, not := e.values()
		r.sources(values, not)
	case "daddr":
		values, not := e.values()
		if r.daddr = values; not || values == nil {
			r.leave("the server's addresses are named in a way that is not carried over")
		}
	case "protocol", "nexthdr":
		e.protocol()
	default:
		r.leave("%s %s is not carried over", version, field)
	}
}

func (e *expression) protocol() {
	values, not := e.values()
	switch {
	case slices.Equal(values, []string{"tcp"}) && !not, slices.Equal(values, []string{"6"}) && !not:
	case slices.Equal(values, []string{"ipv4"}) && !not, slices.Equal(values, []string{"ip"}) && !not:
		e.rule.family = 4
	case slices.Equal(values, []string{"ipv6"}) && !not, slices.Equal(values, []string{"ip6"}) && !not:
		e.rule.family = 6
	case slices.Contains(values, "tcp") == not:
		e.rule.other = true
	}
}

func (e *expression) transport() {
	r := e.rule
	switch field := e.take(); field {
	case "dport":
		if e.peek(0) == "vmap" {
			r.leave("a verdict map is not carried over")
			r.instead = "write a rule for each of its elements"
			return
		}
		values, not := e.values()
		r.dports(values, not)
	case "flags":
		e.flags()
	default:
		r.leave("tcp %s is not carried over", field)
	}
}

// flags reads a match on SYN in one of the forms that nft has had.
func (e *expression) flags() {
	begin := e.at
	for e.at < len(e.list) && (e.list[e.at].sign || slices.Contains([]string{"fin", "syn", "rst", "ack", "psh", "urg", "ecn", "cwr", "/"}, e.peek(0))) && e.peek(0) != "{" {
		e.at++
	}
	text := strings.Map(func(r rune) rune {
		if r == '(' || r == ')' || r == ' ' {
			return -1
		}
		return r
	}, written(e.list[begin:e.at]))
	value := text
	if mask, want, ok := strings.Cut(text, "=="); ok {
		value = want
		if mask != "" && !strings.Contains(mask, "syn") {
			value = ""
		}
	} else if want, _, ok := strings.Cut(text, "/"); ok {
		value = want
	}
	if value == "syn" {
		e.rule.fresh = true
		return
	}
	e.rule.leave("tcp flags %s are not carried over", text)
}

func (e *expression) tracked() {
	r := e.rule
	switch field := e.take(); field {
	case "state":
		values, not := e.values()
		r.states(values, not)
	case "count":
		e.count(&limit{})
	default:
		r.leave("ct %s is not carried over", field)
	}
}

// states reads states of connection tracking.
func (r *rule) states(values []string, not bool) {
	fresh := false
	for _, v := range values {
		fresh = fresh || strings.EqualFold(v, "new")
	}
	switch {
	case !not && fresh && len(values) == 1:
		r.fresh = true
	case fresh == not:
		r.old = true
	case not:
		r.fresh = true // what is not established is new, or no connection at all
	}
}

// values reads what a field is compared with.
func (e *expression) values() (values []string, not bool) {
	switch e.peek(0) {
	case "!=", "==":
		not = e.take() == "!="
	case "&", "and":
		e.rule.leave("a mask is not carried over")
		return nil, false
	}
	first := e.take()
	switch {
	case first == "{":
		begin := e.at
		for e.at < len(e.list) && e.peek(0) != "}" {
			e.at++
		}
		values = e.elementsOf(append([]token{{text: "{", sign: true}}, e.list[begin:e.at]...))
		e.at++
	case strings.HasPrefix(first, "@"):
		values = e.sets[e.key+" "+first[1:]]
	case strings.HasPrefix(first, "$"):
		values = e.elementsOf(append([]token{{text: "{", sign: true}}, e.defined[first[1:]]...))
	default:
		values = []string{first}
		for e.peek(0) == "," {
			e.at++
			values = append(values, e.take())
		}
	}
	return values, not
}
