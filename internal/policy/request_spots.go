// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
)

// spot is a point up to which patterns are the same.
type spot struct {
	text   string // of a prefix, a suffix (reversed), a word or what has no star
	rule   uint32 // first rule that asks for this alone, or NoMatch
	number uint32 // 0: none
	flags  uint16
	field  int    // that it is of
	by     int    // first rule that uses it
	up     uint32 // of an affix: the next shorter with a flag
	to     uint32 // of an affix: the longest up to it that has a flag
	first  uint32 // of an affix: the first rule up to it
	depth  int    // of an affix: flagged ones up to it
}

// fieldSpots is the patterns of a field.
type fieldSpots struct {
	name               string // as in a policy
	kind               MatchKind
	key                string // of a header or cookie: its name
	any                *spot  // the empty prefix
	folded             int    // field of the same value in small letters; 0: none
	small              bool   // it is such a field
	keyed              bool   // rules have a bucket for each of its values
	exact              spotSet
	prefixes, suffixes spotSet
	tails, words       map[[2]*spot]*spot // by state and suffix, state and word
	pairs              [][2]*spot         // keys of tails, in order
	steps              [][2]*spot         // keys of words, in order
}

// spotSet finds spots by text and keeps their order.
type spotSet struct {
	byText map[string]*spot
	list   []*spot
}

func newSpotSet() spotSet { return spotSet{byText: map[string]*spot{}} }

// at returns the spot of a text, which it makes for the rule if there is none.
func (s *spotSet) at(text string, rule int) *spot {
	if p := s.byText[text]; p != nil {
		return p
	}
	p := &spot{text: text, rule: NoMatch, by: rule}
	s.byText[text] = p
	s.list = append(s.list, p)
	return p
}

// spotsOf returns the spots of a list of patterns, each once.
func (c *requestCompiler) spotsOf(rule, field int, patterns []string) []*spot {
	out := make([]*spot, 0, len(patterns))
	seen := make(map[*spot]bool, len(patterns))
	f := c.fields[field]
	for _, p := range patterns {
		for _, g := range expand(p) {
			if f.small {
				g = g.folded()
			}
			if s := c.spotOf(rule, f, g); !seen[s] {
				seen[s] = true
				s.field = field
				out = append(out, s)
			}
		}
	}
	return out
}

// spotOf returns the spot at which a pattern ends.
func (c *requestCompiler) spotOf(rule int, f *fieldSpots, parts glob) *spot {
	last := len(parts) - 1
	if last == 0 {
		return f.exact.at(parts[0], rule)
	}
	at := f.any
	if parts[0] != "" {
		at = f.prefixes.at(parts[0], rule)
	}
	if last == 1 && parts[0] == "" && parts[1] != "" {
		return f.suffixes.at(reversed(parts[1]), rule)
	}
	for _, w := range parts[1:last] {
		at.flags |= PatternWord
		at = c.step(rule, f, at, w)
	}
	if parts[last] == "" {
		return at
	}
	at.flags |= PatternTail
	suffix := f.suffixes.at(reversed(parts[last]), rule)
	suffix.flags |= PatternTail
	return join(f.tails, &f.pairs, at, suffix, rule)
}

// step returns the spot that a word leads to.
func (c *requestCompiler) step(rule int, f *fieldSpots, from *spot, text string) *spot {
	word := c.words[text]
	if word == nil {
		word = &spot{text: text, rule: NoMatch, by: rule}
		c.words[text] = word
		c.texts = append(c.texts, text)
	}
	return join(f.words, &f.steps, from, word, rule)
}

// join returns the spot of a pair, which it makes for the rule if there is none.
func join(spots map[[2]*spot]*spot, order *[][2]*spot, a, b *spot, rule int) *spot {
	pair := [2]*spot{a, b}
	if s := spots[pair]; s != nil {
		return s
	}
	s := &spot{rule: NoMatch, by: rule}
	spots[pair] = s
	*order = append(*order, pair)
	return s
}

func reversed(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

// isAbsence reports whether a field is that of a name's absence, or of a list: they have one pattern, with
// their number.
func (c *requestCompiler) isAbsence(field int) bool {
	t := c.tables
	return field >= FieldPairs && field < t.Pairs && (field-FieldPairs)%2 == 1 || t.Lists > 0 && field >= t.Lists && field < t.Lists+t.ListCount
}

// numberAbsent gives the patterns of absence the numbers of their fields.
func (c *requestCompiler) numberAbsent() {
	c.tables.Patterns = append(c.tables.Patterns, make([]MatchPattern, max(0, max(c.tables.Pairs, c.tables.Lists+c.tables.ListCount)-1))...)
	for i, f := range c.fields {
		if c.isAbsence(i) {
			f.any.number = uint32(i)
			f.any.flags |= PatternEdge
			c.tables.Patterns[i].Flags = PatternEdge
		}
	}
}

// number gives numbers to the patterns that others refer to: those with a flag, words,
// and what words lead to.
func (c *requestCompiler) number() {
	c.tables.Patterns = []MatchPattern{{}}
	c.numberAbsent()
	give := func(s *spot) {
		c.tables.Patterns = append(c.tables.Patterns, MatchPattern{Length: uint16(len(s.text)), Flags: s.flags})
		s.number = uint32(len(c.tables.Patterns) - 1)
	}
	flagged := func(list ...*spot) {
		for _, s := range list {
			if s.flags != 0 {
				give(s)
			}
		}
	}
	for _, text := range c.texts {
		give(c.words[text])
	}
	for _, p := range c.places {
		for _, s := range p.sets {
			give(s.spot)
		}
	}
	for i, f := range c.fields {
		if !c.isAbsence(i) {
			flagged(f.any)
		}
		flagged(f.exact.list...)
		flagged(f.prefixes.list...)
		flagged(f.suffixes.list...)
		for _, pair := range f.pairs {
			flagged(f.tails[pair])
		}
		for _, pair := range f.steps {
			give(f.words[pair])
		}
	}
}
