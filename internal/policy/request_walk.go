// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"

	"narthex/internal/httphead"
)

// Match returns the index of the first rule that matches a request, or -1, step by step as
// the data path finds it.
func (t *RequestTables) Match(q *RequestView) int {
	w := t.walk(q)
	if w.rule == NoMatch {
		return -1
	}
	return int(w.rule)
}

// Complex reports whether a request has so many patterns at once that the data path has no
// room for them, and rejects it.
func (t *RequestTables) Complex(q *RequestView) bool { return t.walk(q).complex }

// walk looks a request up.
func (t *RequestTables) walk(q *RequestView) *requestWalk {
	w := &requestWalk{t: t, rule: NoMatch, hits: make([][]uint32, len(t.Fields))}
	for field := range FieldNamed {
		for _, v := range q.Texts[field] {
			w.value(field, v)
		}
	}
	if t.Headers {
		w.named(MatchHeader, q.Headers)
	}
	if t.Cookies {
		w.named(MatchCookie, q.Cookies)
	}
	if t.Query {
		w.named(MatchQuery, q.Query)
	}
	if t.Parameters > 0 {
		w.value(t.Parameters, strings.Repeat(piece, min(q.Parameters, MaxPieces)))
	}
	if t.Pairs > 0 && q.isHTTP() {
		w.absent(q)
	}
	w.places(q)
	if t.Graph {
		w.graph()
	}
	return w
}

// requestWalk is the look-up of one request.
type requestWalk struct {
	t       *RequestTables
	rule    uint32     // the first that matches so far
	hits    [][]uint32 // by field: patterns with PatternEdge that match
	complex bool       // there is more than the data path has room for
}

func (w *requestWalk) named(kind MatchKind, list []NameValue) {
	for _, v := range list {
		if e, ok := w.t.find(textKey(hashText(w.t.Seed, v.Name), kind, 0)); ok {
			w.value(int(e.To), v.Value)
			if folded := w.t.Fields[e.To].Folded; folded != 0 {
				w.value(folded, httphead.Lower(v.Value))
			}
		}
	}
}

// absent notes the absence of names that have no values.
func (w *requestWalk) absent(q *RequestView) {
	known := map[uint32]bool{} // of an example, the fields of what is absent
	if q.onlyAbsent != nil {
		for kind, names := range q.onlyAbsent.lists() {
			for _, name := range names {
				if e, ok := w.t.find(textKey(hashText(w.t.Seed, name), MatchHeader+MatchKind(kind), 0)); ok {
					known[e.To] = true
				}
			}
		}
	}
	for f := FieldPairs; f < w.t.Pairs; f += 2 {
		if q.Cut && w.t.Fields[f].Kind != MatchQuery {
			continue
		}
		if len(w.hits[f]) == 0 && (q.onlyAbsent == nil || known[uint32(f)]) {
			w.hits[f+1] = []uint32{uint32(f + 1)}
		}
	}
}

// places notes the sets of addresses that the client and the destination are in.
func (w *requestWalk) places(q *RequestView) {
	for list := range w.t.ListCount {
		if field := w.t.Lists + list; q.Lists>>list&1 != 0 {
			w.hits[field] = []uint32{uint32(field)}
		}
	}
	t := w.t.Places
	if t == nil {
		return
	}
	at := q.placed
	if at == nil {
		at = &placed{t.from(q.From), t.to(q.To)}
	}
	for i, field := range []int{t.FromField, t.ToField} {
		if field != 0 {
			w.hits[field] = at[i]
		}
	}
}

// graph goes through the graph from its root on, along the patterns that match.
func (w *requestWalk) graph() {
	steps := 0
	for pending := []uint32{0}; len(pending) > 0; steps++ {
		n := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		node := &w.t.Nodes[n]
		w.rule = min(w.rule, node.Rule)
		if node.First >= w.rule {
			continue
		}
		for field, patterns := range w.hits {
			if node.Fields[field/64]>>(field%64)&1 == 0 || len(patterns) == 0 {
				continue
			}
			steps += 1 + len(patterns)
			for _, p := range patterns {
				if e, ok := w.t.find(numberKey(w.t.Seed, MatchEdge, n, p)); ok {
					pending = append(pending, e.To)
				}
			}
		}
		w.complex = w.complex || len(pending) > maxPending
	}
	w.complex = w.complex || steps > maxWalk
}

// valueWalk is the look-up of one value.
type valueWalk struct {
	*requestWalk
	field   int
	value   string
	reached []state // patterns that go on
}

// state is a pattern up to a star, and where it ends in the value.
type state struct {
	pattern uint32
	end     int
}

// value finds the patterns of a field that a value has.
func (w *requestWalk) value(field int, value string) {
	f := &w.t.Fields[field]
	v := valueWalk{requestWalk: w, field: field, value: value}
	w.rule = min(w.rule, f.Rule)
	if f.Exact {
		if e, ok := w.t.find(textKey(hashText(w.t.Seed, value), MatchExact, field)); ok {
			w.rule = min(w.rule, e.Rule)
			v.hit(e.To)
		}
	}
	prefix, found := v.longest(MatchPrefix, value, f.Prefixes, f.PrefixCount)
	if !found {
		prefix = f.Pattern
	}
	for ; prefix != 0; prefix = w.t.Patterns[prefix].Up {
		v.reach(prefix, int(w.t.Patterns[prefix].Length))
	}
	if f.Words {
		v.words()
	}
	end := value[len(value)-min(len(value), int(f.LongestSuffix)):]
	suffix, _ := v.longest(MatchSuffix, reversed(end), f.Suffixes, f.SuffixCount)
	for ; suffix != 0; suffix = w.t.Patterns[suffix].Up {
		v.suffix(suffix)
	}
}

// longest finds the longest prefix of a text that the table has, by a binary search over
// their lengths, and returns the pattern there.
func (v *valueWalk) longest(kind MatchKind, text string, at uint32, count uint16) (pattern uint32, found bool) {
	hash, factor := []uint64{v.t.Seed}, hashFactor(v.t.Seed)
	rule := NoMatch
	for lo, hi := 0, int(count); lo < hi; {
		mid := (lo + hi) / 2
		n := int(v.t.Lengths[int(at)+mid])
		if n > len(text) {
			hi = mid
			continue
		}
		for i := len(hash) - 1; i < n; i++ {
			hash = append(hash, hashByte(hash[i], text[i], factor))
		}
		if e, ok := v.t.find(textKey(hash[n], kind, v.field)); ok {
			rule, pattern, found, lo = e.Rule, e.To, true, mid+1
		} else {
			hi = mid
		}
	}
	v.rule = min(v.rule, rule)
	return pattern, found
}

// hit notes a pattern that the value has, if the graph asks for it.
func (v *valueWalk) hit(pattern uint32) {
	hits := &v.hits[v.field]
	if v.t.Patterns[pattern].Flags&PatternEdge == 0 || slices.Contains(*hits, pattern) {
		return
	}
	*hits = append(*hits, pattern)
	v.complex = v.complex || len(*hits) > maxHits
}

// reach notes a pattern up to a star, from which suffixes or words may go on.
func (v *valueWalk) reach(pattern uint32, end int) {
	v.hit(pattern)
	known := slices.ContainsFunc(v.reached, func(s state) bool { return s.pattern == pattern })
	if v.t.Patterns[pattern].Flags&(PatternTail|PatternWord) == 0 || known {
		return
	}
	v.reached = append(v.reached, state{pattern, end})
	v.complex = v.complex || len(v.reached) > maxReached
}

// words finds the words of the value, in the order of their ends and the longest first.
func (v *valueWalk) words() {
	at := uint32(0)
	for i := range len(v.value) {
		at = v.t.States[int(at)*v.t.Width+int(v.t.Classes[v.value[i]])]
		ends := at&StateOutput != 0
		at &^= StateOutput
		for s := at; ends; ends = s != 0 {
			e, _ := v.t.find(numberKey(v.t.Seed, MatchOutput, s, 0))
			v.word(e.Rule, i+1)
			s = e.To
		}
	}
}

// word goes on with a word that ends there, from each pattern that ends before it.
func (v *valueWalk) word(word uint32, end int) {
	begin := end - int(v.t.Patterns[word].Length)
	for _, s := range v.reached {
		if s.end > begin {
			continue
		}
		if e, ok := v.t.find(numberKey(v.t.Seed, MatchWord, s.pattern, word)); ok {
			v.rule = min(v.rule, e.Rule)
			v.reach(e.To, end)
		}
	}
}

// suffix notes a suffix of the value, and the patterns that it ends.
func (v *valueWalk) suffix(suffix uint32) {
	v.hit(suffix)
	p := v.t.Patterns[suffix]
	if p.Flags&PatternTail == 0 {
		return
	}
	for _, s := range v.reached {
		if s.end+int(p.Length) > len(v.value) {
			continue
		}
		if e, ok := v.t.find(numberKey(v.t.Seed, MatchTail, s.pattern, suffix)); ok {
			v.rule = min(v.rule, e.Rule)
			v.hit(e.To)
		}
	}
}
