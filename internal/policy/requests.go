// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math/bits"
	"time"
)

// Limits of compiled request rules. The data path relies on them.
const (
	MaxLiteral   = 1023    // bytes of a pattern, or of the name of a header or cookie
	MaxFields    = 128     // fields: those below, the names of headers, cookies and parameters, and what else is asked of them
	MaxPieces    = 64      // parameters of a query that are counted
	MaxTexts     = 256     // texts without classes that a pattern may stand for
	maxChain     = 8       // flagged prefixes of a field that begin with one another, and suffixes
	maxOutputs   = 16      // texts between stars that are each other's ends
	maxHits      = 16      // patterns of a field that one request has and that lead on in the graph
	maxReached   = 32      // patterns up to a star that one value has and that go on
	maxPending   = 64      // nodes of the graph that are still to be visited
	maxWalk      = 1024    // steps through the graph
	maxEntries   = 2 << 20 // places in the hash table: 32 MiB
	maxAutomaton = 8 << 20 // places in the automaton: 32 MiB
)

// NoMatch stands for no rule in request tables.
const NoMatch = ^uint32(0)

// MatchKind says what a key of the hash table is of.
type MatchKind uint8

// The kinds of keys. The data path uses the same numbers.
const (
	MatchExact  MatchKind = iota // field, text
	MatchPrefix                  // field, text: a pattern begins so, or a longer one does
	MatchSuffix                  // the same from the end
	MatchTail                    // pattern, suffix: the suffix ends it
	MatchWord                    // pattern, word: the word goes on with it
	MatchOutput                  // state of the automaton: a word ends there
	MatchEdge                    // node of the graph, pattern
	MatchHeader                  // name in lower case, with hyphens for underscores
	MatchCookie                  // name
	MatchQuery                   // name of a parameter
)

// Shape of the hash table: entries are looked for in so many cells of so many entries,
// and a free one ends the search.
const (
	MatchWays  = 4
	MatchCells = 4
)

// RequestTables is the request rules compiled for the data path: what a request says is
// looked up by keyed hashes, so that the number of rules does not change the number of
// steps. Match is the look-up, step by step as the data path does it.
type RequestTables struct {
	Seed     uint64         // secret, with which hashes begin
	Entries  []MatchEntry   // hash table: cells of MatchWays; their number is a power of two
	Patterns []MatchPattern // what several patterns have in common; number 0 is none
	Fields   []MatchField   // by number
	Lengths  []uint16       // of prefixes and suffixes, ascending; a field's begin at a multiple of LengthsPerCell
	Nodes    []MatchNode    // graph of the rules with several fields; 0 is the root
	Classes  [256]uint8     // a byte's class in the automaton
	Width    int            // classes; 0: there is no automaton
	States   []uint32       // States[state*Width+class] is the next state, with StateOutput if words end there
	Headers  bool           // rules name headers
	Cookies  bool           // rules name cookies
	Query    bool           // rules name parameters of the query, or ask how many there are
	// Parameters is the field of their number, 0: none. It is compared as a text of as many bytes.
	Parameters int
	Pairs      int           // where the fields from FieldPairs on end that are pairs; 0: there are none
	Letters    uint32        // bits: the lowest five bits of the first letters of the names of headers
	Graph      bool          // the graph is of use: rules have several fields, or none
	Rules      []RequestRule // in file order
	Fair       []int         // by class: field + 1 of what divides the share of each source; 0: nothing does
	Lists      int           // field of the first list; 0: no rule asks for any
	ListCount  int
	Places     *PlaceTables // nil: no rule asks whom a request is from, or where it is to
}

// LengthsPerCell is how many lengths the data path reads at a time: lists of them are aligned
// to it.
const LengthsPerCell = 32

// StateOutput marks a state of the automaton in which words end.
const StateOutput uint32 = 1 << 31

// MatchEntry is a place in the hash table; a key of 0 says that it is free.
type MatchEntry struct {
	Key  uint64
	Rule uint32 // first rule that asks for this alone, or NoMatch; of MatchOutput: the word
	To   uint32 // pattern, 0: none; of MatchOutput: next state with a word; of MatchEdge: node; of names: field
}

// Flags of a pattern.
const (
	PatternEdge = 1 << iota // rules that ask for more than one field ask for it
	PatternTail             // of a suffix: it ends others; of others: suffixes may end them
	PatternWord             // words may go on with it
)

// MatchPattern is a pattern as far as it is common to several.
type MatchPattern struct {
	Up     uint32 // the next shorter prefix, or suffix, that has a flag; 0: none
	Length uint16 // bytes of a prefix, suffix or word
	Flags  uint16
}

// MatchField is what rules ask of a field.
type MatchField struct {
	Rule          uint32 // first rule that asks only that it is there, or NoMatch
	Pattern       uint32 // the empty prefix, if it has a flag: "*", or what begins with a star; 0: none
	Prefixes      uint32 // where the lengths of prefixes begin in Lengths
	Suffixes      uint32
	PrefixCount   uint16
	SuffixCount   uint16
	LongestSuffix uint16
	Exact         bool      // there are patterns without a star
	Words         bool      // there are words to look for
	Folded        int       // field of the same value in small letters; 0: none
	Keyed         bool      // something counts for each of its values
	Kind          MatchKind // of a name; the data path has it in the entry of the name
}

// MatchNode is a node of the graph that rules with several fields are paths through.
type MatchNode struct {
	Fields [MaxFields / 64]uint64 // bits: fields that lead on
	Rule   uint32                 // first rule that has all it asks for here, or NoMatch
	First  uint32                 // first rule here or further on
}

// RequestRule is one request rule without its match.
type RequestRule struct {
	Name     string
	Action   Action
	Interval time.Duration // time in which the bucket gains one token; 0 unless Action is ActionPolice
	Burst    uint32        // bucket depth in tokens
	Per      Per           // who shares a bucket
	Key      int           // field + 1 whose values have a bucket each, 0: none; see Per
	Class    int           // index into Tables.Classes, or -1
	Over     Over          // what is done out of profile; empty unless Action is ActionPolice
	Block    time.Duration // for which connections of a client are refused after a rejection; 0: none
	Learn    time.Duration // for which a client is remembered in the class; 0: none
	// When says when the action is enforced, the bucket charged and the client blocked. The
	// rule matches, gives its class and remembers clients in it in any case.
	When   When
	Auto   AutoRate // the rate sets itself: Interval and Burst are 0
	Limits []LimitTable
}

// Bytes returns what the tables take in the data path.
func (t *RequestTables) Bytes() int {
	const entry, pattern, field, node, rule, cell = 16, 8, 64, 32, 64, 64
	places := 0
	if p := t.Places; p != nil {
		places = cell + cell*len(p.Sets) + 2*cell*len(p.Nodes)
	}
	return places + cell + entry*len(t.Entries) + pattern*len(t.Patterns) + field*len(t.Fields) + 2*len(t.Lengths) +
		node*len(t.Nodes) + len(t.Classes) + 4*len(t.States) + rule*len(t.Rules)
}

const (
	hashStep = 0x9e3779b97f4a7c15
	hashKind = 0xd1b54a32d192ed03
	hashMix  = 0xd6e8feb86659fd93
)

// hashFactor is what the hash of a text is multiplied by with each byte.
func hashFactor(seed uint64) uint64 { return mix(seed) | 1 }

// hashByte continues the hash of a text, which begins with the seed.
func hashByte(h uint64, b byte, factor uint64) uint64 { return (h ^ uint64(b)) * factor }

func hashText(seed uint64, text string) uint64 {
	h, factor := seed, hashFactor(seed)
	for i := range len(text) {
		h = hashByte(h, text[i], factor)
	}
	return h
}

func mix(x uint64) uint64 {
	for range 2 {
		x ^= x >> 32
		x *= hashMix
	}
	return x ^ x>>32
}

// textKey returns the key of a text with the given hash; field is 0 for names.
func textKey(hash uint64, kind MatchKind, field int) uint64 {
	return mix(hash + uint64(int(kind)<<8|field)*hashKind)
}

// numberKey returns the key of a pair of numbers.
func numberKey(seed uint64, kind MatchKind, a, b uint32) uint64 {
	return mix((seed ^ (uint64(a)<<32 | uint64(b))) + uint64(kind)<<8*hashKind)
}

// find looks a key up in the hash table.
func (t *RequestTables) find(key uint64) (MatchEntry, bool) {
	mask := len(t.Entries)/MatchWays - 1
	for i := range MatchCells {
		cell := (int(key&uint64(mask)) + i) & mask
		for _, e := range t.Entries[cell*MatchWays:][:MatchWays] {
			if e.Key == 0 {
				return MatchEntry{}, false
			}
			if e.Key == key {
				return e, true
			}
		}
	}
	return MatchEntry{}, false
}

// insert puts an entry into the hash table. It reports whether there was room.
func (t *RequestTables) insert(e MatchEntry) bool {
	mask := len(t.Entries)/MatchWays - 1
	for i := range MatchCells {
		cell := (int(e.Key&uint64(mask)) + i) & mask
		for w := range MatchWays {
			if at := &t.Entries[cell*MatchWays+w]; at.Key == 0 {
				*at = e
				return true
			}
		}
	}
	return false
}

// tableSize returns the places of a table that n entries fill by a half at most.
func tableSize(n int) int {
	return max(MatchWays, 1<<bits.Len(uint(max(2*n-1, 0))))
}
