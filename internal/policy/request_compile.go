// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
)

// CompileRequests turns the request rules of a policy into tables, whose hashes begin with
// a secret that follows from the seed. It warns of rules that can never match. Without
// request rules there are no tables. The error is of type Errors.
func CompileRequests(p *Policy, seed uint64) (*RequestTables, []Warning, error) {
	if len(p.Requests) == 0 {
		return nil, nil, nil
	}
	d := &diagnostics{file: p.File}
	c := newRequestCompiler(p, d)
	// A small secret is a weak one: its first byte can cancel that of a text out.
	place := func() { c.place(mix(seed ^ hashStep)) }
	for _, step := range []func(){c.addRules, c.automaton, c.number, c.affixes, c.buildGraph, c.addEntries, place, c.checkComplex, c.warnUnreachable} {
		step()
		if len(d.errors) > 0 {
			return nil, nil, d.err()
		}
	}
	return c.tables, d.warned(), nil
}

// compileRequests is CompileRequests with a seed that nobody knows.
func compileRequests(p *Policy) (*RequestTables, []Warning, error) {
	var seed [8]byte
	rand.Read(seed[:]) // never fails
	return CompileRequests(p, binary.NativeEndian.Uint64(seed[:]))
}

// requestCompiler builds the tables of one policy.
//
// Patterns are split at their stars. What several have in common is one spot: the prefix
// up to the first star, and then prefix and words up to each further star. A rule that
// asks for one field is noted at the spot of its pattern; one that asks for several is a
// path through the graph, whose edges are spots.
type requestCompiler struct {
	policy  *Policy
	report  *diagnostics
	tables  *RequestTables
	fields  []*fieldSpots
	names   [2]map[string]int // fields of headers and of cookies
	words   map[string]*spot  // by text
	texts   []string          // of words, in the order of their first use
	outputs []output          // of the automaton
	paths   []conjunction
	pending []pendingEntry
}

func newRequestCompiler(p *Policy, d *diagnostics) *requestCompiler {
	c := &requestCompiler{
		policy: p, report: d, tables: &RequestTables{},
		names: [2]map[string]int{{}, {}}, words: map[string]*spot{},
	}
	for _, name := range []string{FieldHost: "host", FieldPath: "path", FieldMethod: "method", FieldSNI: "sni", FieldALPN: "alpn"} {
		c.addField(name, 0, "")
	}
	return c
}

func (c *requestCompiler) addField(name string, kind MatchKind, key string) int {
	c.fields = append(c.fields, &fieldSpots{
		name: name, kind: kind, key: key, any: &spot{rule: NoMatch},
		exact: newSpotSet(), prefixes: newSpotSet(), suffixes: newSpotSet(),
		tails: map[[2]*spot]*spot{}, words: map[[2]*spot]*spot{},
	})
	return len(c.fields) - 1
}

// ask is what a rule asks of one field: one of the spots.
type ask struct {
	field int
	spots []*spot
}

// conjunction is a rule that asks for several fields, by their numbers, or for none.
type conjunction struct {
	rule int
	asks []ask
}

func (c *requestCompiler) addRules() {
	for i := range c.policy.Requests {
		r := &c.policy.Requests[i]
		c.tables.Rules = append(c.tables.Rules, RequestRule{
			Name: r.Name, Action: r.Action, Interval: r.Rate.Interval(), Burst: uint32(r.Burst),
			Per: r.Per, Class: r.Class, Over: r.Over, Block: r.Block, Learn: r.Learn, When: r.When, Auto: r.Rate.Auto,
		})
		c.addRule(i, c.asks(i, r))
		if len(c.report.errors) > 0 {
			return
		}
	}
}

// asks returns what a rule asks for, by number of the field.
func (c *requestCompiler) asks(rule int, r *Request) []ask {
	var out []ask
	add := func(field int, patterns []string) {
		if len(patterns) > 0 {
			out = append(out, ask{field, c.spotsOf(rule, field, patterns)})
		}
	}
	add(FieldHost, r.Host)
	add(FieldPath, r.Path)
	add(FieldMethod, r.Method)
	add(FieldSNI, r.SNI)
	add(FieldALPN, r.ALPN)
	for _, h := range r.Header {
		add(c.named(rule, "header", MatchHeader, h.Name), h.Values)
	}
	for _, h := range r.Cookie {
		add(c.named(rule, "cookie", MatchCookie, h.Name), h.Values)
	}
	slices.SortFunc(out, func(a, b ask) int { return a.field - b.field })
	return out
}

// named returns the field of a header or cookie.
func (c *requestCompiler) named(rule int, what string, kind MatchKind, name string) int {
	fields := c.names[kind-MatchHeader]
	if f, ok := fields[name]; ok {
		return f
	}
	if len(c.fields) == MaxFields {
		r := &c.policy.Requests[rule]
		c.report.errorf(r.Pos, "request rule %q names %s %q, and rules before it name %d headers and cookies; together they are at most %d: let rules ask for fewer different ones",
			r.Name, what, name, MaxFields-FieldNamed, MaxFields-FieldNamed)
		return MaxFields - 1
	}
	fields[name] = c.addField(what+" "+name, kind, name)
	return fields[name]
}

func (c *requestCompiler) addRule(rule int, asks []ask) {
	if len(asks) != 1 {
		for _, a := range asks {
			for _, s := range a.spots {
				s.flags |= PatternEdge
			}
		}
		c.paths = append(c.paths, conjunction{rule, asks})
		return
	}
	for _, s := range asks[0].spots {
		s.rule = min(s.rule, uint32(rule))
	}
}
