// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"
	"strconv"
	"strings"
)

// limit reads what follows the word.
func (e *expression) limit(l *limit) {
	r := e.rule
	if e.take() != "rate" {
		r.leave("a named limit is not carried over")
		return
	}
	if e.peek(0) == "over" {
		l.over = true
		e.at++
	}
	text := e.take()
	if e.peek(0) == "/" { // 10 / second
		e.at++
		text += "/" + e.take()
	}
	if !l.rate(text) {
		r.leave("a rate of bytes is not carried over")
		return
	}
	l.burst = defaultBurst
	if e.peek(0) == "burst" {
		e.at++
		n, err := strconv.Atoi(e.take())
		if err != nil || e.take() != "packets" {
			r.leave("its burst is not understood")
		}
		if n > 0 {
			l.burst = n
		}
	}
	if r.limit != nil {
		r.leave("it has two limits")
	}
	r.limit = l
}

// meter reads a limit for each element of a set.
func (e *expression) meter(word string) {
	r := e.rule
	name := e.take()
	if word == "meter" && e.peek(0) == "size" {
		e.at += 2
	}
	if e.peek(0) != "{" || word != "meter" && !strings.HasPrefix(name, "@") {
		r.leave("%s %s is not carried over", word, name)
		return
	}
	e.at++
	l := &limit{source: true}
	version, field := e.take(), e.take()
	bits := map[string]int{"ip": 32, "ip6": 128}[version]
	if bits == 0 || field != "saddr" {
		r.leave("it counts by %s %s, and Narthex by the client's address", version, field)
		return
	}
	if e.peek(0) == "and" || e.peek(0) == "&" {
		e.at++
		mask, err := netip.ParseAddr(e.take())
		n, ok := maskBits(mask)
		if err != nil || !ok {
			r.leave("its mask is not that of a prefix")
			return
		}
		bits = n
	}
	l.keyed(r, version, bits)
	for e.peek(0) == "timeout" {
		e.at += 2
	}
	switch {
	case e.peek(0) == "limit":
		e.at++
		e.limit(l)
	case e.peek(0) == "ct" && e.peek(1) == "count":
		e.at += 2
		e.count(l)
	default:
		r.leave("what it keeps of each client is not a rate")
		r.instead = "a rule that blocks clients for a time is a request rule with block:"
	}
	if r.unknown == "" && e.take() != "}" {
		r.leave("what it keeps of each client is not understood")
	}
}

// count reads what follows the words ct count.
func (e *expression) count(l *limit) {
	r := e.rule
	if e.peek(0) == "over" {
		l.over = true
		e.at++
	}
	n, err := strconv.Atoi(e.take())
	if err != nil || n < 1 {
		r.leave("how many connections it lets be open at once is not understood")
		return
	}
	if r.limit != nil {
		r.leave("it has two limits")
	}
	l.atOnce = n
	r.limit = l
}

// keyed says by which bits of the address is counted.
func (l *limit) keyed(r *rule, version string, bits int) {
	family := 4
	if version == "ip6" {
		family, l.v6 = 6, bits
	} else {
		l.v4 = bits
	}
	if r.family != 0 && r.family != family {
		r.other = true
	}
	r.family = family
	if bits == 0 {
		l.source, l.v4, l.v6 = false, 0, 0
	}
}
