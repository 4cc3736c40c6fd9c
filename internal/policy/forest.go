// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"math"
)

// Bounds of the work on one policy, so that no file can take a minute or all memory.
const (
	// maxBuilt bounds the nodes built, among them those that are dropped in the end.
	maxBuilt = MaxNodes + MaxNodes/4
	// maxWork bounds prefixes visited plus children combined, a second or two of work.
	maxWork = 48 << 20
	// rememberBits is the binary logarithm of how many results of firstOf are kept.
	rememberBits = 17
)

// errTooLarge says that a bound was met. Compile says whose fault it is.
var errTooLarge = errors.New("tables too large")

// portWord is the word of the key with the source port.
const portWord = 2

// none is the Entry of no rule.
const none Entry = 0

// order returns an Entry's place in file order: the first rule is 0, no rule is last.
func order(e Entry) uint32 { return uint32(e) - 1 }

// forest holds nodes without two that are equal, so that equal sub-tries of different
// services, prefixes and ports are one, and equality of sub-tries is equality of entries.
type forest struct {
	nodes []Node
	span  []orders // of each node
	index []uint32 // hash table of node number plus one, open addressing
	seed  maphash.Seed
	first []combined // results of firstOf by hash; a newer one replaces an older one
	work  int
	// unite combines two rules in place of the choice of the first.
	unite func(a, b Entry) (Entry, error)
}

// combined is a result of firstOf; a is smaller than b.
type combined struct{ a, b, result Entry }

// orders are the first and the last place in file order of what a sub-trie leads to.
type orders struct{ least, most uint32 }

func newForest() *forest {
	return &forest{index: make([]uint32, 1<<10), seed: maphash.MakeSeed()}
}

// spend counts work and reports whether there is any left.
func (f *forest) spend(work int) error {
	f.work += work
	if f.work > maxWork || len(f.nodes) > maxBuilt {
		return errTooLarge
	}
	return nil
}

// orders returns the range of what an entry leads to.
func (f *forest) orders(e Entry) orders {
	if i, ok := e.Node(); ok {
		return f.span[i]
	}
	return orders{order(e), order(e)}
}

// add returns the entry of a node, an existing one if there is an equal one. A node whose
// outcome is always the same is not needed.
func (f *forest) add(n *Node) Entry {
	same := n.Mask == 0 || n.Miss == n.Child[0]
	for _, c := range n.Child {
		same = same && c == n.Child[0]
	}
	if same {
		return n.Child[0]
	}
	slot := f.hash(n) & uint64(len(f.index)-1)
	for f.index[slot] != 0 {
		if i := f.index[slot] - 1; f.nodes[i] == *n {
			return NodeEntry(int(i))
		}
		slot = (slot + 1) & uint64(len(f.index)-1)
	}
	f.index[slot] = uint32(len(f.nodes)) + 1
	f.nodes = append(f.nodes, *n)
	f.span = append(f.span, f.spanOf(n))
	if len(f.nodes)*2 > len(f.index) {
		f.grow()
	}
	return NodeEntry(len(f.nodes) - 1)
}

func (f *forest) spanOf(n *Node) orders {
	s := orders{math.MaxUint32, 0}
	if n.Mask != 0 {
		s = f.orders(n.Miss)
	}
	for _, c := range n.Child {
		o := f.orders(c)
		s = orders{min(s.least, o.least), max(s.most, o.most)}
	}
	return s
}

func (f *forest) hash(n *Node) uint64 {
	var b [86]byte
	binary.NativeEndian.PutUint64(b[0:], n.Key)
	binary.NativeEndian.PutUint64(b[8:], n.Mask)
	binary.NativeEndian.PutUint32(b[16:], uint32(n.Miss))
	b[20], b[21] = n.Word, n.Shift
	for i, c := range n.Child {
		binary.NativeEndian.PutUint32(b[22+4*i:], uint32(c))
	}
	return maphash.Bytes(f.seed, b[:])
}

func (f *forest) grow() {
	f.index = make([]uint32, 2*len(f.index))
	for i := range f.nodes {
		slot := f.hash(&f.nodes[i]) & uint64(len(f.index)-1)
		for f.index[slot] != 0 {
			slot = (slot + 1) & uint64(len(f.index)-1)
		}
		f.index[slot] = uint32(i) + 1
	}
}

// ports returns the sub-trie that leads from a port of the given ranges to a rule.
func (f *forest) ports(ranges []PortRange, rule Entry) (Entry, error) {
	all := none
	for _, r := range ranges {
		var err error
		if all, err = f.firstOf(all, f.portRange(r, 60, 0, rule)); err != nil {
			return none, err
		}
	}
	return all, nil
}

// portRange builds the part of a range's sub-trie that begins at port base and tests the
// port from the bit shift of its word on.
func (f *forest) portRange(r PortRange, shift int, base uint32, rule Entry) Entry {
	n := Node{Word: portWord, Shift: uint8(shift)}
	size := uint32(1) << (shift - 48)
	for i := range n.Child {
		first := base + uint32(i)*size
		last := first + size - 1
		switch {
		case last < uint32(r.First) || first > uint32(r.Last):
		case first >= uint32(r.First) && last <= uint32(r.Last):
			n.Child[i] = rule
		default:
			n.Child[i] = f.portRange(r, shift-4, first, rule)
		}
	}
	return f.add(&n)
}

// firstOf combines two outcomes, each a rule, none or a sub-trie on ports: for each port
// the rule that comes first in the file.
func (f *forest) firstOf(a, b Entry) (Entry, error) {
	if a > b {
		a, b = b, a
	}
	if e, ok, err := f.decided(a, b); ok || err != nil {
		return e, err
	}
	if known := f.remembered(a, b); known.a == a && known.b == b {
		return known.result, nil
	}
	if err := f.spend(16); err != nil {
		return none, err
	}
	at := max(f.turn(a), f.turn(b))
	n := turned(at)
	for i := range n.Child {
		var err error
		if n.Child[i], err = f.firstOf(f.part(a, at, i), f.part(b, at, i)); err != nil {
			return none, err
		}
	}
	e := f.add(&n)
	*f.remembered(a, b) = combined{a, b, e}
	return e, nil
}

// decided returns the combination of two outcomes that takes no new sub-trie; a is the smaller.
func (f *forest) decided(a, b Entry) (e Entry, ok bool, err error) {
	if f.unite != nil {
		_, left := a.Node()
		_, right := b.Node()
		switch {
		case a == b || a == none:
			return b, true, nil
		case !left && !right:
			e, err = f.unite(a, b)
			return e, true, err
		}
		return none, false, nil
	}
	oa, ob := f.orders(a), f.orders(b)
	switch {
	case a == b || oa.most <= ob.least:
		return a, true, nil
	case ob.most <= oa.least:
		return b, true, nil
	}
	return none, false, nil
}

// placer returns a function that copies the nodes that an entry leads to, and returns it as it is then.
func (f *forest) placer(to *[]Node) func(Entry) Entry {
	moved := make([]Entry, 0, len(f.nodes))
	var place func(Entry) Entry
	place = func(e Entry) Entry {
		i, ok := e.Node()
		if !ok {
			return e
		}
		if i >= len(moved) {
			moved = append(moved, make([]Entry, len(f.nodes)-len(moved))...)
		}
		if moved[i] == none {
			at := len(*to)
			moved[i] = NodeEntry(at)
			n := f.nodes[i]
			*to = append(*to, n)
			n.Miss = place(n.Miss)
			for v := range n.Child {
				n.Child[v] = place(n.Child[v])
			}
			(*to)[at] = n
		}
		return moved[i]
	}
	return place
}

// remembered returns where the result for two outcomes is kept. That place may hold
// another result. No pair is zero, because no rule needs no combining.
func (f *forest) remembered(a, b Entry) *combined {
	if f.first == nil {
		f.first = make([]combined, 1<<rememberBits)
	}
	// Fibonacci hashing: the multiplier is 2^64 divided by the golden ratio.
	return &f.first[(uint64(a)<<32|uint64(b))*0x9e3779b97f4a7c15>>(64-rememberBits)]
}

// turn returns when an entry is tested beside others, 0 if it tests nothing.
func (f *forest) turn(e Entry) int {
	if i, ok := e.Node(); ok {
		return turn(&f.nodes[i])
	}
	return 0
}

// part returns where an entry leads from the i-th part of what is tested at a turn, or the entry
// itself if it does not test that.
func (f *forest) part(e Entry, at, i int) Entry {
	if n, ok := e.Node(); ok && turn(&f.nodes[n]) == at {
		return f.nodes[n].Child[i]
	}
	return e
}
