// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
	"strings"
)

// CompileRequests turns the request rules of a policy into tables, whose hashes begin with
// a secret that follows from the seed. It warns of rules that can never match. Where neither
// request rules nor the order in a class ask for anything there are no tables. The error is of type Errors.
func CompileRequests(p *Policy, seed uint64) (*RequestTables, []Warning, error) {
	if len(p.Requests) == 0 && !p.fairByValue() {
		return nil, nil, nil
	}
	d := &diagnostics{file: p.File}
	c := newRequestCompiler(p, d)
	// A small secret is a weak one: its first byte can cancel that of a text out.
	place := func() { c.place(mix(seed ^ hashStep)) }
	for _, step := range []func(){c.addPairs, c.addLists, c.addPlaces, c.addRules, c.addFair, c.automaton, c.number, c.buildPlaces, c.affixes, c.buildGraph, c.addEntries, place, c.checkComplex, c.warnUnreachable} {
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
	names   [3]map[string]int // fields of headers, of cookies and of parameters
	words   map[string]*spot  // by text
	texts   []string          // of words, in the order of their first use
	outputs []output          // of the automaton
	paths   []conjunction
	pending []pendingEntry
	places  [2]placeSets // of from and to
}

func newRequestCompiler(p *Policy, d *diagnostics) *requestCompiler {
	c := &requestCompiler{
		policy: p, report: d, tables: &RequestTables{},
		names: [3]map[string]int{{}, {}, {}}, words: map[string]*spot{},
	}
	for _, f := range textFields {
		c.addField(f.key.name, 0, "")
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

// ask is what a rule asks of one value: one of the spots. Some may be of the field of the same
// value in small letters.
type ask struct {
	field int
	spots []*spot
	joint bool // it is found out when all has been read: such a rule is in the graph also alone
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
			Per: r.Per, Key: c.keyField(owner(i), r.Per.Key), Class: r.Class, Over: r.Over, Block: r.Block, Learn: r.Learn, When: r.When, Auto: r.Rate.Auto,
			Limits: limitTables(r.Limits),
		})
		for j, b := range r.Limits {
			c.tables.Rules[i].Limits[j].Key = c.keyField(owner(i), b.Per.Key)
		}
		c.addRule(i, c.asks(i, r))
		if len(c.report.errors) > 0 {
			return
		}
	}
}

// fairByValue reports whether requests wait in an order that goes by what they have.
func (p *Policy) fairByValue() bool {
	return p.limited() && slices.ContainsFunc(p.Classes, func(c Class) bool { return c.Fair.Key.Kind != "" })
}

// addFair has the values read by which the requests of a class take turns.
func (c *requestCompiler) addFair() {
	c.tables.Fair = make([]int, len(c.policy.Classes))
	for i := range c.policy.Classes {
		if c.policy.fairByValue() {
			c.tables.Fair[i] = c.keyField(classOwner(i), c.policy.Classes[i].Fair.Key)
		}
	}
}

// owner is who asks for a field: a request rule, by its index, or a class.
type owner int

// classOwner is the class with that index.
func classOwner(class int) owner { return owner(-1 - class) }

// asks returns what a rule asks for, by number of the field.
func (c *requestCompiler) asks(rule int, r *Request) []ask {
	var out []ask
	add := func(field int, patterns []string) {
		if len(patterns) > 0 {
			out = append(out, ask{field: field, spots: c.spotsOf(rule, field, patterns)})
		}
	}
	for field := range textFields {
		add(field, r.texts(field))
	}
	for kind, pairs := range [][]Pair{r.Header, r.Cookie, r.Query} {
		for _, p := range pairs {
			out = append(out, c.askPair(rule, MatchHeader+MatchKind(kind), &p))
		}
	}
	if r.Parameters > 0 {
		add(c.parameters(rule), []string{strings.Repeat(piece, r.Parameters) + "*"})
	}
	for kind, names := range r.Without.lists() {
		for _, name := range names {
			any := c.fields[c.names[kind][name]+1].any
			any.field = c.names[kind][name] + 1
			out = append(out, ask{any.field, []*spot{any}, true})
		}
	}
	for i := range c.places {
		if a := c.places[i].ask(rule); len(a.spots) > 0 {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b ask) int { return a.field - b.field })
	return out
}

// piece stands for each parameter in the text of their number.
const piece = "1"

// lists returns the names of headers, of cookies and of parameters.
func (w *Without) lists() [][]string { return [][]string{w.Header, w.Cookie, w.Query} }

// askPair returns what a rule asks of a header, cookie or parameter.
func (c *requestCompiler) askPair(rule int, kind MatchKind, p *Pair) ask {
	field := c.named(owner(rule), kind, p.Name)
	a := ask{field: field, spots: c.spotsOf(rule, field, p.Values)}
	if len(p.Folded) == 0 {
		return a
	}
	f := c.fields[field]
	if f.folded == 0 {
		f.folded = c.newField(owner(rule), f.name, 0, "")
		c.fields[f.folded].small = true
	}
	a.spots = append(a.spots, c.spotsOf(rule, f.folded, p.Folded)...)
	return a
}

// addPairs gives their fields to the names that rules want absent, before all others.
func (c *requestCompiler) addPairs() {
	for i := range c.policy.Requests {
		for kind, names := range c.policy.Requests[i].Without.lists() {
			for _, name := range names {
				if _, there := c.names[kind][name]; there {
					continue
				}
				field := c.named(owner(i), MatchHeader+MatchKind(kind), name)
				c.newField(owner(i), c.fields[field].name, 0, "")
				c.fields[field].any.flags |= PatternEdge // it says that the name is there
				c.tables.Pairs = len(c.fields)
			}
		}
	}
}

// parameters returns the field of the number of parameters.
func (c *requestCompiler) parameters(rule int) int {
	if c.tables.Parameters == 0 {
		c.tables.Parameters = c.newField(owner(rule), "parameters", 0, "")
	}
	return c.tables.Parameters
}

// keyField returns the field of what has a bucket for each of its values, and one more; 0: nothing has.
func (c *requestCompiler) keyField(by owner, key PerKey) int {
	field := FieldHost
	switch {
	case key.Kind == "":
		return 0
	case key.Name != "":
		field = c.named(by, MatchHeader+MatchKind(slices.Index(pairKinds, key.Kind)), key.Name)
	}
	c.fields[field].keyed = true
	return field + 1
}

// named returns the field of a header, cookie or parameter.
func (c *requestCompiler) named(by owner, kind MatchKind, name string) int {
	fields := c.names[kind-MatchHeader]
	if f, ok := fields[name]; ok {
		return f
	}
	what := map[MatchKind]string{MatchHeader: "header", MatchCookie: "cookie", MatchQuery: "parameter"}[kind]
	fields[name] = c.newField(by, what+" "+name, kind, name)
	return fields[name]
}

// newField adds a field for who asks for it, if there is room for one.
func (c *requestCompiler) newField(by owner, name string, kind MatchKind, key string) int {
	if len(c.fields) < MaxFields {
		return c.addField(name, kind, key)
	}
	at, what := Pos{}, "class"
	var asks string
	if by < 0 {
		class := &c.policy.Classes[-1-by]
		at, asks = class.fairAt, class.Name
	} else {
		at, asks, what = c.policy.Requests[by].Pos, c.policy.Requests[by].Name, "request rule"
	}
	c.report.errorf(at, "%s %q asks for %s, and others before it for as many headers, cookies and parameters as there can be, %d; one in \"without\" counts twice, one with patterns of both kinds of \"ignore_case\", too: let rules ask for fewer different ones",
		what, asks, name, MaxFields-FieldNamed)
	return MaxFields - 1
}

func (c *requestCompiler) addRule(rule int, asks []ask) {
	if len(asks) != 1 || asks[0].joint {
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
