// SPDX-License-Identifier: Apache-2.0

// Package nftables makes a draft of a policy from the rules of nftables and iptables.
package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"narthex/internal/importer/draft"
)

// rule is one rule, as far as it is understood.
type rule struct {
	draft.Origin
	text    string
	family  int  // 4, 6, or 0 for both
	other   bool // another protocol than TCP
	iif     string
	ports   []portRange // of the server; empty: any
	daddr   []string
	from    []string
	not     bool // anybody but from
	fresh   bool // new connections only
	old     bool // no new connections
	limit   *limit
	unknown string      // what is not understood; empty: all is
	verdict string      // accept, drop, jump, return, or nothing
	target  string      // of a jump
	leaves  bool        // the jump does not come back: goto
	rest    int         // of a return: rules of its chain that follow; -1: not known yet
	beside  []portRange // of a rule for all ports: those that a rule above decides about
	instead string
}

// limit is a token bucket.
type limit struct {
	count  int
	per    time.Duration
	burst  int
	atOnce int  // connections; 0: a rate
	over   bool // matches beyond the rate, not within it
	source bool
	v4, v6 int // bits that share a bucket; 0: all
}

type portRange struct{ first, last uint16 }

// chain is a list of rules. A base chain has a hook.
type chain struct {
	name  string
	hook  string
	drops bool // its policy
	rules []*rule
}

// ruleset is what a file holds.
type ruleset struct {
	chains []*chain // in order
	byName map[string]*chain
}

func (s *ruleset) chain(name string) *chain {
	if s.byName == nil {
		s.byName = map[string]*chain{}
	}
	if c := s.byName[name]; c != nil {
		return c
	}
	c := &chain{name: name}
	s.byName[name] = c
	s.chains = append(s.chains, c)
	return c
}

// leave notes what is not understood; the first is enough.
func (r *rule) leave(format string, args ...any) {
	if r.unknown == "" {
		r.unknown = fmt.Sprintf(format, args...)
	}
}

// dports adds ports of the server.
func (r *rule) dports(values []string, not bool) {
	if not {
		r.leave("all ports but some are not carried over")
		return
	}
	var ports []portRange
	for _, v := range values {
		p, err := readPorts(v)
		if err != nil {
			r.leave("%v", err)
			return
		}
		ports = append(ports, p)
	}
	if r.ports != nil && !slices.Equal(r.ports, ports) {
		r.leave("two lists of ports are not carried over")
	}
	r.ports = ports
}

// names of ports that nft and iptables print.
var portNames = map[string]uint16{"ssh": 22, "smtp": 25, "domain": 53, "http": 80, "kerberos": 88, "pop3": 110, "imap2": 143, "imap": 143, "https": 443, "submission": 587, "imaps": 993, "pop3s": 995, "http-alt": 8080, "mysql": 3306, "postgresql": 5432}

func readPorts(text string) (portRange, error) {
	sep := "-"
	if !strings.Contains(text, "-") || portNames[text] != 0 {
		sep = ":"
	}
	first, last, isRange := strings.Cut(text, sep)
	if !isRange {
		last = first
	}
	a, err := readPort(first)
	b, err2 := readPort(last)
	if err != nil || err2 != nil || b < a {
		return portRange{}, fmt.Errorf("the port %q is not known", text)
	}
	return portRange{a, b}, nil
}

func readPort(text string) (uint16, error) {
	if n := portNames[text]; n != 0 {
		return n, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err
}

// sources adds addresses of clients.
func (r *rule) sources(values []string, not bool) {
	if r.from != nil {
		r.leave("two lists of addresses are not carried over")
		return
	}
	r.not = not
	seen := map[string]bool{}
	for _, v := range values {
		text, err := readAddress(v)
		if err != nil {
			r.leave("%v", err)
			return
		}
		if !seen[text] {
			seen[text] = true
			r.from = append(r.from, text)
		}
	}
	if r.from == nil {
		r.leave("its set of addresses is empty here, or is not in this file")
	}
}

// readAddress writes an address, prefix or range as a policy does.
func readAddress(v string) (string, error) {
	if first, last, ok := strings.Cut(v, "-"); ok {
		a, err := netip.ParseAddr(first)
		b, err2 := netip.ParseAddr(last)
		if err != nil || err2 != nil || a.Is4() != b.Is4() || b.Less(a) {
			return "", fmt.Errorf("%q is not a range of addresses", v)
		}
		if a == b {
			return a.String(), nil
		}
		return a.String() + "-" + b.String(), nil
	}
	p, err := netip.ParsePrefix(v)
	if a, errAddr := netip.ParseAddr(v); errAddr == nil && a.Zone() == "" {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	if host, mask, ok := strings.Cut(v, "/"); err != nil && ok {
		a, errA := netip.ParseAddr(host)
		m, errM := netip.ParseAddr(mask)
		if errA == nil && errM == nil && a.BitLen() == m.BitLen() {
			if bits, ok := maskBits(m); ok {
				p, err = netip.PrefixFrom(a, bits), nil
			}
		}
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("%q is not an address", v)
	case p.IsSingleIP():
		return p.Addr().String(), nil
	}
	return p.Masked().String(), nil
}

// maskBits returns the length of a netmask.
func maskBits(m netip.Addr) (int, bool) {
	bits := 0
	for _, b := range m.AsSlice() {
		for b&0x80 != 0 {
			bits++
			b <<= 1
		}
		if b != 0 {
			return 0, false
		}
	}
	return bits, netip.PrefixFrom(m, bits).Masked().Addr() == m
}

// units are the times of rates, as nft and iptables write them.
var units = map[string]time.Duration{"second": time.Second, "sec": time.Second, "s": time.Second, "minute": time.Minute, "min": time.Minute, "m": time.Minute,
	"hour": time.Hour, "h": time.Hour, "day": 24 * time.Hour, "d": 24 * time.Hour, "week": 7 * 24 * time.Hour}

// rate reads N/UNIT.
func (l *limit) rate(text string) bool {
	number, unit, _ := strings.Cut(text, "/")
	n, err := strconv.Atoi(number)
	l.count, l.per = n, units[unit]
	return err == nil && n > 0 && l.per > 0
}

// defaultBurst is what nftables and iptables take where none is named, in packets.
const defaultBurst = 5
