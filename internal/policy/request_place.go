// SPDX-License-Identifier: Apache-2.0

package policy

// pendingEntry is an entry of the hash table whose key is not known yet.
type pendingEntry struct {
	kind     MatchKind
	field    int
	text     string // reversed, of a suffix
	a, b     uint32 // of kinds without text
	rule, to uint32
}

func (e *pendingEntry) key(seed uint64) uint64 {
	switch e.kind {
	case MatchTail, MatchWord, MatchOutput, MatchEdge:
		return numberKey(seed, e.kind, e.a, e.b)
	}
	return textKey(hashText(seed, e.text), e.kind, e.field)
}

// addEntries lists the entries that neither affixes nor graph and automaton have listed.
func (c *requestCompiler) addEntries() {
	t := c.tables
	for i, f := range c.fields {
		for _, s := range f.exact.list {
			c.pending = append(c.pending, pendingEntry{kind: MatchExact, field: i, text: s.text, rule: s.rule, to: s.number})
		}
		for _, pair := range f.pairs {
			s := f.tails[pair]
			c.pending = append(c.pending, pendingEntry{kind: MatchTail, a: pair[0].number, b: pair[1].number, rule: s.rule, to: s.number})
		}
		for _, pair := range f.steps {
			s := f.words[pair]
			c.pending = append(c.pending, pendingEntry{kind: MatchWord, a: pair[0].number, b: pair[1].number, rule: s.rule, to: s.number})
		}
		if f.kind != 0 {
			c.pending = append(c.pending, pendingEntry{kind: f.kind, text: f.key, rule: NoMatch, to: uint32(i)})
			if f.kind == MatchHeader {
				t.Headers = true
				t.Letters |= 1 << (f.key[0] & 31)
			}
			t.Cookies = t.Cookies || f.kind == MatchCookie
			t.Query = t.Query || f.kind == MatchQuery
		}
		t.Fields[i].Exact, t.Fields[i].Words = len(f.exact.list) > 0, len(f.steps) > 0
	}
	t.Query = t.Query || t.Parameters > 0
	for _, o := range c.outputs {
		c.pending = append(c.pending, pendingEntry{kind: MatchOutput, a: o.state, rule: o.word.number, to: o.next})
	}
}

// maxSeeds bounds the search for a seed under which all keys differ. That one is not found
// at once is a matter of one in a million.
const maxSeeds = 16

// place makes the hash table: with another seed if a key is 0 or there twice, and larger
// if an entry finds no room.
func (c *requestCompiler) place(seed uint64) {
	t := c.tables
	size := tableSize(len(c.pending))
	for range maxSeeds {
		unique, fits := true, false
		for ; !fits && unique; size *= 2 {
			if size > maxEntries {
				c.blameEntries()
				return
			}
			t.Seed, t.Entries = seed, make([]MatchEntry, size)
			unique, fits = c.fill()
		}
		if unique {
			return
		}
		size /= 2
		seed = mix(seed + hashStep)
	}
	c.report.errorf(Pos{}, "the patterns of the request rules hash alike under %d secrets, which should not happen; please report it", maxSeeds)
}

// fill puts all entries into the table. It reports whether their keys differ and whether
// there was room for all.
func (c *requestCompiler) fill() (unique, fits bool) {
	for i := range c.pending {
		e := &c.pending[i]
		key := e.key(c.tables.Seed)
		if _, twice := c.tables.find(key); twice || key == 0 {
			return false, true
		}
		if !c.tables.insert(MatchEntry{key, e.rule, e.to}) {
			return true, false
		}
	}
	return true, true
}
