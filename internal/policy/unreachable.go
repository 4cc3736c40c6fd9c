// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// warnUnreachable warns of rules that no look-up ends at. The tables are exact and every
// path in them that begins at a root which is in use is taken by some key, so a rule at
// the end of none can never match.
func (c *compiler) warnUnreachable(d *diagnostics, t *Tables) {
	explained := 0
	for _, i := range unreachable(c.policy, t) {
		r := &c.policy.Connections[i]
		cover := ""
		if explained < maxReports {
			cover = c.coverOf(t, i)
			explained++
		}
		d.warnf(r.Pos, "connection rule %q can never match: %s", r.Name, cmp.Or(cover, coverSentence(c.policy.connectionAt, nil)))
	}
}

// unreachable returns the rules that can never match, ascending, because of earlier ones
// or of the address families that the services listen on. It takes it that sources can be
// learned in every class.
func unreachable(p *Policy, t *Tables) []int {
	matches := make([]bool, len(t.Rules))
	seen := make([]bool, len(t.Nodes))
	var todo []Entry
	for i := range t.Services {
		f := p.Services[i].families()
		for _, r := range append(t.Services[i].Learned, t.Services[i].Roots) {
			if f.v4 {
				todo = append(todo, r.RootV4)
			}
			if f.v6 {
				todo = append(todo, r.RootV6)
			}
		}
	}
	for len(todo) > 0 {
		e := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if i, ok := e.Rule(); ok {
			matches[i] = true
		}
		if i, ok := e.Node(); ok && !seen[i] {
			seen[i] = true
			todo = append(append(todo, t.Nodes[i].Miss), t.Nodes[i].Child[:]...)
		}
	}
	var out []int
	for i := range p.Connections {
		if !matches[i] {
			out = append(out, i)
		}
	}
	return out
}

// maxVisits bounds the search for the rules that cover another one.
const maxVisits = 1 << 18

// coverOf says why a rule can never match: which rules match what it asks for.
func (c *compiler) coverOf(t *Tables, rule int) string {
	w := walk{tables: t, rules: map[int]bool{}, left: maxVisits}
	r := &c.policy.Connections[rule]
	var served families
	visit := func(service int, f families) {
		w.service(service, r, f)
		served = served.or(f)
	}
	for _, s := range r.To {
		visit(s, c.policy.Services[s].families())
	}
	if len(r.To) == 0 {
		for _, g := range c.groups {
			var f families
			for _, s := range g.services {
				f = f.or(c.policy.Services[s].families())
			}
			visit(g.services[0], f)
		}
	}
	if w.left <= 0 {
		return ""
	}
	if s := familySentence(c.policy, r, served, w.rules); s != "" {
		return s
	}
	return coverSentence(c.policy.connectionAt, w.rules)
}

// connectionAt returns name and position of a connection rule.
func (p *Policy) connectionAt(i int) (string, Pos) {
	return p.Connections[i].Name, p.Connections[i].Pos
}

// requestAt returns name and position of a request rule.
func (p *Policy) requestAt(i int) (string, Pos) { return p.Requests[i].Name, p.Requests[i].Pos }

// coverSentence says which rules cover another one, if they are known.
func coverSentence(ruleAt func(int) (string, Pos), rules map[int]bool) string {
	const advice = " all of it first; move it up or remove it"
	switch len(rules) {
	case 0:
		return "earlier rules match" + advice
	case 1:
		return "rule " + ruleNames(ruleAt, rules) + " matches" + advice
	}
	return "rules " + ruleNames(ruleAt, rules) + " match" + advice
}

// ruleNames names the first rules of a set with their lines.
func ruleNames(ruleAt func(int) (string, Pos), rules map[int]bool) string {
	const most = 3
	in := slices.Sorted(maps.Keys(rules))
	named := make([]string, 0, most)
	for _, i := range in[:min(len(in), most)] {
		name, pos := ruleAt(i)
		named = append(named, fmt.Sprintf("%q (line %d)", name, pos.Line))
	}
	if len(in) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(named, ", "), len(in)-most)
	}
	return strings.Join(named, ", ")
}

// walk collects the rules that a region of keys leads to.
type walk struct {
	tables *Tables
	rules  map[int]bool
	seen   map[Entry]bool // entries visited in the region at hand
	left   int            // visits
}

// service walks all that a rule asks for in the tables of one service, for the families
// that packets to it can have.
func (w *walk) service(s int, r *Connection, f families) {
	table := &w.tables.Services[s]
	if len(r.Learned) == 0 {
		w.roots(table.Roots, r, f)
	}
	for _, class := range r.Learned {
		w.roots(table.Learned[class], r, f)
	}
}

// roots walks what a rule asks for from the roots of one service.
func (w *walk) roots(roots Roots, r *Connection, f families) {
	ports := portPrefixes(r.FromPort)
	anybody := len(r.From)+len(r.FromLists) == 0
	if anybody && f.v4 {
		w.region(roots.RootV4, Key{}, Key{}, ports)
	}
	if anybody && f.v6 {
		w.region(roots.RootV6, Key{}, Key{}, ports)
	}
	w.lists(roots, r, f, ports)
	for _, from := range r.From {
		if w.left <= 0 || !f.of(from) {
			continue
		}
		for _, p := range from.Prefixes() {
			w.region(roots.of(from.First), NewKey(p.Addr(), 0), prefixMask(p.Bits()), ports)
		}
	}
}

// lists walks what a rule asks for of sources in its lists.
func (w *walk) lists(roots Roots, r *Connection, f families, ports []portBlock) {
	for _, list := range r.FromLists {
		in := Key{listWord: 1 << list}
		if f.v4 {
			w.region(roots.RootV4, in, in, ports)
		}
		if f.v6 {
			w.region(roots.RootV6, in, in, ports)
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
