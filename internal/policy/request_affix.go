// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"
	"strings"
)

// affixes decides what is found at each prefix and suffix, and lists their entries: the
// longest one that a value has stands for the shorter ones, too, whose rules it inherits
// and to whose patterns it leads.
func (c *requestCompiler) affixes() {
	c.tables.Fields = make([]MatchField, len(c.fields))
	for i, f := range c.fields {
		to := &c.tables.Fields[i]
		f.any.first, f.any.to = f.any.rule, f.any.number
		if f.any.number != 0 {
			f.any.depth = 1
		}
		to.Rule, to.Pattern, to.Folded, to.Kind, to.Keyed = f.any.rule, f.any.number, f.folded, f.kind, f.keyed
		none := &spot{first: f.any.rule}
		to.Prefixes, to.PrefixCount = c.affixesOf(i, MatchPrefix, f.prefixes.list, f.any)
		to.Suffixes, to.SuffixCount = c.affixesOf(i, MatchSuffix, f.suffixes.list, none)
		for _, s := range f.suffixes.list {
			to.LongestSuffix = max(to.LongestSuffix, uint16(len(s.text)))
		}
	}
}

// affixesOf lists the entries of a field's prefixes, or of its suffixes from their ends.
// The empty one is beside them. It returns where their lengths are.
func (c *requestCompiler) affixesOf(field int, kind MatchKind, list []*spot, empty *spot) (at uint32, count uint16) {
	lengths := c.addLengths(list)
	list = slices.SortedFunc(slices.Values(list), func(a, b *spot) int { return cmp.Compare(a.text, b.text) })
	real := make(map[string]bool, len(list))
	for _, s := range list {
		real[s.text] = true
	}
	above := []*spot{empty} // what the one at hand begins with
	for _, s := range list {
		for top := above[len(above)-1]; !strings.HasPrefix(s.text, top.text); top = above[len(above)-1] {
			above = above[:len(above)-1]
		}
		s.inherit(above[len(above)-1])
		if s.number != 0 {
			c.tables.Patterns[s.number].Up = s.up
		}
		c.pending = append(c.pending, pendingEntry{kind: kind, field: field, text: s.text, rule: s.first, to: s.to})
		above = append(above, s)
		c.addMarkers(field, kind, s.text, lengths, above, real)
		if s.depth > maxChain {
			c.blameChain(field, kind, above)
			return 0, 0
		}
	}
	return uint32(len(c.tables.Lengths) - padded(len(lengths))), uint16(len(lengths))
}

// inherit takes over what is found at the next shorter affix.
func (s *spot) inherit(from *spot) {
	s.first, s.to, s.up, s.depth = min(s.rule, from.first), from.to, from.to, from.depth
	if s.number != 0 {
		s.to = s.number
		s.depth++
	}
}

// addLengths appends the different lengths of affixes, ascending.
func (c *requestCompiler) addLengths(list []*spot) []uint16 {
	var lengths []uint16
	for _, s := range list {
		lengths = append(lengths, uint16(len(s.text)))
	}
	slices.Sort(lengths)
	lengths = slices.Compact(lengths)
	c.tables.Lengths = append(c.tables.Lengths, lengths...)
	c.tables.Lengths = append(c.tables.Lengths, make([]uint16, padded(len(lengths))-len(lengths))...)
	return lengths
}

// padded returns the places that a list of n lengths takes.
func padded(n int) int {
	return (n + LengthsPerCell - 1) / LengthsPerCell * LengthsPerCell
}

// addMarkers lists entries that lead the binary search by length to an affix: at each length
// at which the search has to go on to longer ones (Waldvogel et al., Scalable High Speed IP
// Routing Lookups, SIGCOMM 1997). What is found at a marker is what is found at the longest
// affix that is not longer.
func (c *requestCompiler) addMarkers(field int, kind MatchKind, text string, lengths []uint16, above []*spot, there map[string]bool) {
	for lo, hi := 0, len(lengths); lo < hi; {
		mid := (lo + hi) / 2
		n := int(lengths[mid])
		switch {
		case n == len(text):
			return
		case n > len(text):
			hi = mid
			continue
		}
		lo = mid + 1
		if there[text[:n]] {
			continue
		}
		there[text[:n]] = true
		at, exact := slices.BinarySearchFunc(above, n, func(s *spot, n int) int { return len(s.text) - n })
		if !exact {
			at--
		}
		c.pending = append(c.pending, pendingEntry{kind: kind, field: field, text: text[:n], rule: above[at].first, to: above[at].to})
	}
}
