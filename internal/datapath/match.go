// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"unsafe"

	"narthex/internal/policy"
)

// matchImage is where the tables of request rules go in an image.
type matchImage struct {
	narthexMatch
	tables  *policy.RequestTables
	cell    int // of the match itself
	lengths uint32
	places  *trie // nil: no rule asks for addresses
	end     int   // cell behind
}

// Values a cell has room for.
const (
	patternsPerCell = cellSize / int(unsafe.Sizeof(narthexPattern{}))
	nodesPerCell    = cellSize / int(unsafe.Sizeof(narthexMatchNode{}))
	lengthsPerCell  = cellSize / int(unsafe.Sizeof(uint16(0)))
	statesPerCell   = cellSize / int(unsafe.Sizeof(uint32(0)))
	entriesPerCell  = cellSize / int(unsafe.Sizeof(narthexMatchEntry{}))
	classCells      = len(policy.RequestTables{}.Classes) / cellSize
)

// placeMatch gives cells to the tables, from a cell on; nil: there are none.
func placeMatch(t *policy.RequestTables, cell int) *matchImage {
	if t == nil {
		return nil
	}
	m := &matchImage{tables: t, cell: cell}
	next := cell + 1
	take := func(n, perCell int) uint32 {
		at := next
		next += (n + perCell - 1) / perCell
		return uint32(at)
	}
	m.narthexMatch = narthexMatch{
		Seed: t.Seed, RuleCount: uint32(len(t.Rules)), Mask: uint32(len(t.Entries)/entriesPerCell - 1), Width: uint16(t.Width),
		Headers: flag(t.Headers), Cookies: flag(t.Cookies), Graph: flag(t.Graph), Asks: asked(t.Fields), Letters: t.Letters,
		Query: flag(t.Query), Parameters: uint8(t.Parameters), Pairs: uint8(t.Pairs), Lists: uint8(t.Lists), ListCount: uint8(t.ListCount),
		Rules:    take(len(t.Rules), 1),
		Fields:   take(len(t.Fields), 1),
		Patterns: take(len(t.Patterns), patternsPerCell),
		Nodes:    take(len(t.Nodes), nodesPerCell),
		States:   take(len(t.States), statesPerCell),
	}
	if p := t.Places; p != nil {
		m.Places = take(1, 1)
		m.places = newTrie(p.Nodes, len(p.Sets), next)
		next = m.places.end
	}
	m.lengths = take(len(t.Lengths), lengthsPerCell)
	next = ceil(next, classCells) // within a page
	m.Classes = take(len(t.Classes), cellSize)
	if next%pageCells+len(t.Entries)/entriesPerCell > pageCells {
		next = ceil(next, pageCells)
	}
	m.Entries = take(len(t.Entries), entriesPerCell)
	m.end = next
	return m
}

// ceil returns the next multiple.
func ceil(n, of int) int { return (n + of - 1) / of * of }

// asked returns the bits of the fields that rules ask for and that are not named in the policy.
func asked(fields []policy.MatchField) (bits uint8) {
	for i, f := range fields[:policy.FieldNamed] {
		if f.Keyed || f.Rule != policy.NoMatch || f.Pattern != 0 || f.PrefixCount > 0 || f.SuffixCount > 0 || f.Exact || f.Words {
			bits |= 1 << i
		}
	}
	return bits
}

// write puts the tables into the image.
func (m *matchImage) write(im *image, l *layout, answers *policy.AnswerTables) {
	t := m.tables
	put(im, m.cell, &m.narthexMatch)
	for i := range t.Rules {
		cell := int(m.Rules) + i
		r := requestCell(&t.Rules[i], l.slots)
		l.writeLimits(im, r, requestKey(&t.Rules[i]), t.Rules[i].Limits)
		put(im, cell, r)
		g := requestGuard(&t.Rules[i])
		if answers != nil {
			g.Answer = uint16(answers.Row[i])
		}
		put(im, cell, g) // in place of the guard
	}
	for i := range t.Fields {
		put(im, int(m.Fields)+i, m.field(&t.Fields[i]))
	}
	patterns := make([]narthexPattern, len(t.Patterns))
	for i, p := range t.Patterns {
		patterns[i] = narthexPattern{Up: p.Up, Length: p.Length, Flags: p.Flags}
	}
	nodes := make([]narthexMatchNode, len(t.Nodes))
	for i, n := range t.Nodes {
		nodes[i] = narthexMatchNode{Fields: n.Fields, Rule: n.Rule, First: n.First}
	}
	entries := make([]narthexMatchEntry, len(t.Entries))
	for i, e := range t.Entries {
		entries[i] = narthexMatchEntry{Key: e.Key, Rule: e.Rule, To: e.To}
	}
	m.writePlaces(im)
	putAll(im, int(m.Patterns), patterns)
	putAll(im, int(m.Nodes), nodes)
	putAll(im, int(m.Entries), entries)
	putAll(im, int(m.lengths), t.Lengths)
	putAll(im, int(m.Classes), t.Classes[:])
	putAll(im, int(m.States), t.States)
}

// writePlaces puts the sets of addresses into the image.
func (m *matchImage) writePlaces(im *image) {
	t := m.tables.Places
	if t == nil {
		return
	}
	put(im, int(m.Places), &narthexPlaces{
		FromV4: m.places.entry(t.From.RootV4), FromV6: m.places.entry(t.From.RootV6),
		ToV4: m.places.entry(t.To.RootV4), ToV6: m.places.entry(t.To.RootV6),
		From: uint8(t.FromField), To: uint8(t.ToField),
	})
	set := func(cell, i int, g narthexGuard) {
		p := narthexSets{Guard: g}
		copy(p.Pattern[:], t.Sets[i])
		put(im, cell, &p)
	}
	for i := range t.Sets {
		set(m.places.outcomes+i, i, narthexGuard{})
	}
	m.places.write(im, set)
}

func (m *matchImage) field(f *policy.MatchField) *narthexMatchField {
	return &narthexMatchField{
		Rule: f.Rule, Pattern: f.Pattern,
		Prefixes: m.lengths + f.Prefixes/uint32(lengthsPerCell), PrefixCount: f.PrefixCount,
		Suffixes: m.lengths + f.Suffixes/uint32(lengthsPerCell), SuffixCount: f.SuffixCount,
		LongestSuffix: f.LongestSuffix, Exact: flag(f.Exact), Words: flag(f.Words), Folded: uint8(f.Folded), Keyed: flag(f.Keyed),
	}
}

func requestCell(from *policy.RequestRule, s *slots) *narthexRule {
	r := ruleCell(requestLimit(from), from.Class, s, s.byRule[requestKey(from)])
	r.When, r.By, r.Key = uint8(whens[from.When]), byPace(from.Auto), uint8(from.Key)
	return r
}

var overs = map[policy.Over]narthexOver{
	policy.OverReject: narthexOverOVER_REJECT,
	policy.OverDrop:   narthexOverOVER_DROP,
	policy.OverDemote: narthexOverOVER_DEMOTE,
}

func requestGuard(from *policy.RequestRule) *narthexRequestGuard {
	return &narthexRequestGuard{Block: uint64(from.Block), Learn: uint64(from.Learn), Over: uint8(overs[from.Over])}
}
