// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
)

// warnUnreachable warns of rules that no look-up ends at. The tables are exact and every
// path in them is taken by some key, so a rule that is in no leaf can never match.
func (c *compiler) warnUnreachable(d *diagnostics, t *Tables) {
	explained := 0
	for _, i := range unreachable(c.policy, t) {
		r := &c.policy.Connections[i]
		cover := ""
		if explained < maxReports {
			cover = c.coverOf(t, i)
			explained++
		}
		d.warnf(r.Pos, "connection rule %q can never match: %s; move it up or remove it", r.Name, cmp.Or(cover, "earlier rules match all of it first"))
	}
}

// unreachable returns the rules that can never match because of earlier ones, ascending.
func unreachable(p *Policy, t *Tables) []int {
	matches := make([]bool, len(t.Rules))
	mark := func(e Entry) {
		if i, ok := e.Rule(); ok {
			matches[i] = true
		}
	}
	for _, s := range t.Services {
		mark(s.RootV4)
		mark(s.RootV6)
	}
	for i := range t.Nodes {
		n := &t.Nodes[i]
		mark(n.Miss)
		for _, e := range n.Child {
			mark(e)
		}
	}
	var out []int
	for i, r := range p.Connections {
		if !matches[i] && len(r.Learned) == 0 {
			out = append(out, i)
		}
	}
	return out
}

// maxVisits bounds the search for the rules that cover another one.
const maxVisits = 1 << 18

// coverOf says which rules match what a rule asks for.
func (c *compiler) coverOf(t *Tables, rule int) string {
	w := walk{tables: t, rules: map[int]bool{}, left: maxVisits}
	r := &c.policy.Connections[rule]
	services := r.To
	if len(services) == 0 {
		for _, g := range c.groups {
			services = append(services, g.services[0])
		}
	}
	for _, s := range services {
		w.service(s, r)
		if w.left <= 0 {
			return ""
		}
	}
	return c.coverSentence(w.rules)
}

// coverSentence names the rules that cover another one.
func (c *compiler) coverSentence(rules map[int]bool) string {
	const most = 3
	var in []int
	for i := range rules {
		in = append(in, i)
	}
	slices.Sort(in)
	named := ""
	for n, i := range in[:min(len(in), most)] {
		if n > 0 {
			named += ", "
		}
		named += fmt.Sprintf("%q (line %d)", c.policy.Connections[i].Name, c.policy.Connections[i].Pos.Line)
	}
	switch {
	case len(in) == 1:
		return "rule " + named + " matches all of it first"
	case len(in) > most:
		return fmt.Sprintf("rules %s and %d more match all of it first", named, len(in)-most)
	}
	return "rules " + named + " match all of it first"
}

// walk collects the rules that a region of keys leads to.
type walk struct {
	tables *Tables
	rules  map[int]bool
	seen   map[Entry]bool // entries visited in the region at hand
	left   int            // visits
}

// service walks all that a rule asks for in the tables of one service.
func (w *walk) service(s int, r *Connection) {
	ports := portPrefixes(r.FromPort)
	roots := w.tables.Services[s]
	if len(r.From) == 0 {
		w.region(roots.RootV4, Key{}, Key{}, ports)
		w.region(roots.RootV6, Key{}, Key{}, ports)
	}
	for _, from := range r.From {
		if w.left <= 0 {
			return
		}
		for _, p := range from.Prefixes() {
			root := roots.RootV6
			if p.Addr().Is4() {
				root = roots.RootV4
			}
			w.region(root, NewKey(p.Addr(), 0), prefixMask(p.Bits()), ports)
		}
	}
}

// region walks the addresses of one prefix, for each of the given blocks of ports.
func (w *walk) region(root Entry, key, known Key, ports []portBlock) {
	for _, b := range ports {
		key[2], known[2] = b.key, b.mask
		w.seen = map[Entry]bool{}
		w.from(root, key, known)
	}
}

// from collects the rules that keys lead to which have the known bits.
func (w *walk) from(e Entry, key, known Key) {
	if w.left <= 0 || w.seen[e] {
		return
	}
	w.left--
	w.seen[e] = true
	if i, ok := e.Rule(); ok {
		w.rules[i] = true
	}
	i, ok := e.Node()
	if !ok {
		return
	}
	n := &w.tables.Nodes[i]
	k, m := key[n.Word], known[n.Word]
	if n.Mask&^m != 0 || (k^n.Key)&n.Mask != 0 {
		w.from(n.Miss, key, known)
	}
	if (k^n.Key)&n.Mask&m != 0 {
		return
	}
	for v, child := range n.Child {
		if (uint64(v)^k>>n.Shift)&(m>>n.Shift)&15 == 0 {
			w.from(child, key, known)
		}
	}
}

// prefixMask returns the key bits that a prefix of an address knows.
func prefixMask(bits int) Key {
	return Key{^(^uint64(0) >> min(bits, 64)), ^(^uint64(0) >> max(bits-64, 0)), 0}
}

// portBlock is an aligned block of ports in the form of a key's word.
type portBlock struct{ key, mask uint64 }

// portPrefixes splits ranges of ports into aligned blocks; no ranges are all ports.
func portPrefixes(ranges []PortRange) []portBlock {
	if len(ranges) == 0 {
		return []portBlock{{}}
	}
	var out []portBlock
	for _, r := range ranges {
		for first, last := int(r.First), int(r.Last); first <= last; {
			size := 1
			for first%(2*size) == 0 && first+2*size-1 <= last {
				size *= 2
			}
			out = append(out, portBlock{uint64(first) << 48, uint64(1<<16-size) << 48})
			first += size
		}
	}
	return out
}
