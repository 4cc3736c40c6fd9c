// SPDX-License-Identifier: Apache-2.0

package lists

import (
	"errors"
	"math/bits"
	"net/netip"
)

// Table finds in which lists an address is: a trie whose nodes take as many bits at once as their addresses
// are dense (Nilsson and Karlsson, IEEE JSAC 1999), and at its ends a few segments of addresses in order.
// Lookup is the look-up, step by step as the data path does it.
type Table struct {
	Root4, Root6 uint64   // nodes
	Nodes        []uint64 // those below them
	Ends4        []uint64 // segments of IPv4, see end4
	Ends6        []End6
	Sets         []uint64 // bits of lists, by number; 0 is none
}

// A node is, from the highest bit on: how many bits of the address choose its child, in 5 bits; in 27 how many
// segments it has; in 32 where its children or segments begin. Two numbers of bits stand for something else.
const (
	nodeEnds  = 0  // there are no children: segments
	nodeConst = 31 // all addresses have the set with the number in the lower half

	bitsShift  = 59
	countShift = 32
	countMask  = 1<<27 - 1
)

// Shape of the trie. The data path has the same bounds.
const (
	maxBits   = 22  // of a node
	maxDepth  = 16  // nodes on the way to segments
	fewEnds   = 8   // segments that are not split further
	manyEnds  = 511 // those that are not, from lateDepth on
	lateDepth = 7
	// From wideDepth on nodes take all the bits that they can: 70 are known, and maxDepth suffices.
	wideDepth = 10
)

// End6 is where a segment of IPv6 addresses begins.
type End6 struct {
	High, Low uint64
	Set       uint16
	Length    uint8    // of the prefix that it is; 0: it goes to where the next one begins
	_         [13]byte // 0
}

// A segment of IPv4 is its first address in the upper half, then 8 bits of 0, the prefix's length as in
// End6, and the number of its set.
const lengthShift = 16

// key is an address with its first bit as the highest; one of IPv4 has 96 bits of 0 behind it.
type key struct{ hi, lo uint64 }

func keyOf(a netip.Addr) key {
	b := a.As16()
	var k key
	if a.Is4() {
		copy(b[:], b[12:])
		clear(b[4:])
	}
	for i := range 8 {
		k.hi = k.hi<<8 | uint64(b[i])
		k.lo = k.lo<<8 | uint64(b[8+i])
	}
	return k
}

func (k key) compare(o key) int {
	switch {
	case k == o:
		return 0
	case k.hi < o.hi || k.hi == o.hi && k.lo < o.lo:
		return -1
	}
	return 1
}

// from returns n bits, at most 32, behind the first so many.
func (k key) from(at, n int) uint64 {
	if at >= 64 {
		return k.lo << (at - 64) >> (64 - n)
	}
	return (k.hi<<at | k.lo>>(64-at)) >> (64 - n)
}

// Lookup returns the bits of the lists that an address is in.
func (t *Table) Lookup(a netip.Addr) uint64 {
	k, n, at := keyOf(a), t.Root6, 0
	if a.Is4() {
		n = t.Root4
	}
	for range maxDepth {
		b := int(n >> bitsShift)
		if b == nodeEnds || b == nodeConst {
			break
		}
		n = t.Nodes[uint64(uint32(n))+k.from(at, b)]
		at += b
	}
	if n>>bitsShift == nodeConst {
		return t.Sets[uint16(n)]
	}
	begin, count := int(uint32(n)), int(n>>countShift&countMask)
	// The last that does not begin behind the address.
	low, high := 0, count
	for low < high {
		if middle := (low + high) / 2; t.end(a.Is4(), begin+middle).key.compare(k) <= 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == 0 {
		return 0
	}
	e := t.end(a.Is4(), begin+low-1)
	if !e.covers(k) {
		return 0
	}
	return t.Sets[e.set]
}

// segment is addresses that have the same set.
type segment struct {
	key    key
	length int // of the prefix that it is; 0: it goes to where the next one begins
	set    uint16
}

// covers reports whether an address that is not before the segment is in it.
func (s *segment) covers(k key) bool {
	m := mask(s.length)
	return (k.hi^s.key.hi)&m.hi|(k.lo^s.key.lo)&m.lo == 0
}

// mask returns the bits that a prefix of the length knows.
func mask(length int) key {
	return key{^(^uint64(0) >> min(length, 64)), ^(^uint64(0) >> max(length-64, 0))}
}

func (t *Table) end(is4 bool, i int) segment {
	if is4 {
		e := t.Ends4[i]
		return segment{key{hi: e >> 32 << 32}, int(uint8(e >> lengthShift)), uint16(e)}
	}
	e := &t.Ends6[i]
	return segment{key{e.High, e.Low}, int(e.Length), e.Set}
}

// errManySets says that there are too many different combinations of lists.
var errManySets = errors.New("addresses are in more than 65,535 different combinations of lists; let lists overlap less")

// Bytes returns what the table takes in the data path.
func (t *Table) Bytes() int {
	return 8*(len(t.Nodes)+len(t.Ends4)+len(t.Sets)) + 32*len(t.Ends6)
}

// Build makes the table of lists. The n-th has bit n.
func Build(all []*List) (*Table, error) {
	t := &Table{Sets: []uint64{0}}
	b := builder{t: t, sets: map[uint64]uint16{0: 0}}
	var err error
	if t.Root4, err = b.family(all, true); err != nil {
		return nil, err
	}
	t.Root6, err = b.family(all, false)
	return t, err
}

type builder struct {
	t    *Table
	sets map[uint64]uint16
	is4  bool
	all  []segment
}

// family makes the trie of one address family.
func (b *builder) family(all []*List, is4 bool) (uint64, error) {
	b.is4 = is4
	if err := b.segments(all); err != nil {
		return 0, err
	}
	if is4 {
		b.t.Ends4 = make([]uint64, 0, len(b.all))
	} else {
		b.t.Ends6 = make([]End6, 0, len(b.all))
	}
	root := b.node(key{}, 0, len(b.all), 0, 0)
	b.all = nil
	return root, nil
}

// cursor goes through the addresses of a list.
type cursor struct {
	list   *List
	bit    uint64
	at     int
	inside bool
	next   key // where it enters or leaves
	done   bool
}

func (c *cursor) step(is4 bool) {
	if c.inside {
		c.at++
	}
	c.inside = !c.inside
	if !c.inside && c.at == c.list.spans(is4) {
		c.done = true
		return
	}
	first, last := c.list.span(is4, c.at)
	c.next = first
	if c.inside {
		c.next = last.next()
		c.done = c.next == key{} // it goes to the end
	}
}

// next returns the key behind; the first behind the last.
func (k key) next() key {
	if k.lo++; k.lo == 0 {
		k.hi++
	}
	return k
}

// segments lists the addresses that are in lists, as segments with the same set.
func (b *builder) segments(all []*List) error {
	var cursors []*cursor
	size := 0
	for i, l := range all {
		size += l.spans(b.is4)
		if l.spans(b.is4) > 0 {
			first, _ := l.span(b.is4, 0)
			cursors = append(cursors, &cursor{list: l, bit: 1 << i, next: first})
		}
	}
	b.all = make([]segment, 0, size)
	var in uint64
	var begin key
	for {
		next := (*cursor)(nil)
		for _, c := range cursors {
			if !c.done && (next == nil || c.next.compare(next.next) < 0) {
				next = c
			}
		}
		if next == nil {
			break
		}
		at, before := next.next, in
		for _, c := range cursors {
			if !c.done && c.next == at {
				in ^= c.bit
				c.step(b.is4)
			}
		}
		if err := b.add(before, begin, at, in != 0); err != nil {
			return err
		}
		begin = at
	}
	return b.add(in, begin, key{}, false)
}

// add appends a segment from begin to before end; behind it is a gap unless others follow.
func (b *builder) add(in uint64, begin, end key, follows bool) error {
	if in == 0 {
		return nil
	}
	set, ok := b.sets[in]
	if !ok {
		if len(b.t.Sets) > 0xffff {
			return errManySets
		}
		set = uint16(len(b.t.Sets))
		b.sets[in] = set
		b.t.Sets = append(b.t.Sets, in)
	}
	if n := prefixLength(begin, end); n > 0 && !follows {
		b.all = append(b.all, segment{begin, n, set})
		return nil
	}
	b.all = append(b.all, segment{begin, 0, set})
	if !follows && end != (key{}) {
		b.all = append(b.all, segment{key: end})
	}
	return nil
}

// prefixLength returns the length of the prefix that goes from begin to before end; 0: that is none.
func prefixLength(begin, end key) int {
	lo, borrow := bits.Sub64(end.lo, begin.lo, 0)
	hi, _ := bits.Sub64(end.hi, begin.hi, borrow)
	if bits.OnesCount64(hi)+bits.OnesCount64(lo) != 1 {
		return 0
	}
	free := bits.TrailingZeros64(lo)
	if lo == 0 {
		free = 64 + bits.TrailingZeros64(hi)
	}
	if m := mask(128 - free); begin.hi&^m.hi|begin.lo&^m.lo != 0 {
		return 0
	}
	return 128 - free
}

// node makes the node of the block of addresses that begins at an address and whose first `at` bits are known,
// with the segments that begin in it.
func (b *builder) node(start key, from, to, at, depth int) uint64 {
	n := to - from
	if n == 0 {
		return nodeConst<<bitsShift | uint64(b.before(start, from))
	}
	if s := &b.all[from]; n == 1 && s.length > 0 && s.length <= at {
		return nodeConst<<bitsShift | uint64(s.set)
	}
	width := 128
	if b.is4 {
		width = 32
	}
	take := min(bits.Len(uint(n/4))-1, maxBits, width-at)
	if depth >= wideDepth {
		take = min(maxBits, width-at)
	}
	if n <= fewEnds || depth >= lateDepth && n <= manyEnds || take < 1 {
		return b.ends(start, from, to)
	}
	base := len(b.t.Nodes)
	b.t.Nodes = append(b.t.Nodes, make([]uint64, 1<<take)...)
	for i := range 1 << take {
		end := from
		for end < to && b.all[end].key.from(at, take) == uint64(i) {
			end++
		}
		b.t.Nodes[base+i] = b.node(start.child(at+take, uint64(i)), from, end, at+take, depth+1)
		from = end
	}
	return uint64(take)<<bitsShift | uint64(base)
}

// child returns the i-th address of which so many bits are known.
func (k key) child(known int, i uint64) key {
	if known <= 64 {
		return key{k.hi | i<<(64-known), k.lo}
	}
	return key{k.hi | i>>(known-64), k.lo | i<<(128-known)}
}

// before returns the set at an address in front of a segment, which the segment before it may have.
func (b *builder) before(at key, i int) uint16 {
	if i == 0 || b.all[i-1].length > 0 && !b.all[i-1].covers(at) {
		return 0
	}
	return b.all[i-1].set
}

// ends makes a node of segments.
func (b *builder) ends(start key, from, to int) uint64 {
	begin := b.count()
	if set := b.before(start, from); set != 0 && start != b.all[from].key {
		b.end(segment{start, 0, set})
	}
	for i := from; i < to; i++ {
		b.end(b.all[i])
	}
	return nodeEnds<<bitsShift | uint64(b.count()-begin)<<countShift | uint64(begin)
}

func (b *builder) count() int {
	if b.is4 {
		return len(b.t.Ends4)
	}
	return len(b.t.Ends6)
}

func (b *builder) end(s segment) {
	if b.is4 {
		b.t.Ends4 = append(b.t.Ends4, s.key.hi>>32<<32|uint64(s.length)<<lengthShift|uint64(s.set))
		return
	}
	b.t.Ends6 = append(b.t.Ends6, End6{High: s.key.hi, Low: s.key.lo, Length: uint8(s.length), Set: s.set})
}
