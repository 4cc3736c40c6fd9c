// SPDX-License-Identifier: Apache-2.0

package policy

import "math/bits"

// prefix is an address prefix in the form of a Key, with its outcome.
type prefix struct {
	word  [2]uint64
	bits  int // length; 0 to 32 for IPv4, to 128 for IPv6
	entry Entry
}

// nibble returns the i-th four bits of the prefix.
func (p *prefix) nibble(i int) int { return int(p.word[i/16] >> (60 - 4*(i%16)) & 15) }

// common returns how many leading bits two prefixes share.
func common(a, b *prefix) int {
	if x := a.word[0] ^ b.word[0]; x != 0 {
		return bits.LeadingZeros64(x)
	}
	return 64 + bits.LeadingZeros64(a.word[1]^b.word[1])
}

// build returns the sub-trie for addresses whose first four×depth bits are known, given
// the outcome inherited from shorter prefixes and the prefixes that begin with these bits
// or cover them, by address. It changes list.
func (f *forest) build(list []prefix, depth int, inherited Entry) (Entry, error) {
	if err := f.spend(len(list) + 1); err != nil {
		return none, err
	}
	list, inherited, err := f.inherit(list, depth, inherited)
	if err != nil || len(list) == 0 {
		return inherited, err
	}
	// The node tests the first nibble in which prefixes differ or one of them ends, and
	// skips those before it; but it stays in one word.
	shared := common(&list[0], &list[len(list)-1])
	for i := range list {
		shared = min(shared, list[i].bits-1)
	}
	at := min(shared/4, depth/16*16+15)
	n := Node{Miss: inherited, Word: uint8(at / 16), Shift: uint8(60 - 4*(at%16))}
	if skipped := at - depth; skipped > 0 {
		n.Mask = (1<<(4*skipped) - 1) << (n.Shift + 4)
		n.Key = list[0].word[n.Word] & n.Mask
	}
	if err := f.children(&n, list, at, inherited); err != nil {
		return none, err
	}
	if n.Mask == 0 {
		n.Miss = none // never taken: equal nodes are to be equal
	}
	return f.add(&n), nil
}

// inherit combines the outcome with that of prefixes which cover all addresses in
// question, and drops the prefixes that then cannot change it.
func (f *forest) inherit(list []prefix, depth int, inherited Entry) ([]prefix, Entry, error) {
	var err error
	for i := range list {
		if list[i].bits <= 4*depth {
			if inherited, err = f.firstOf(inherited, list[i].entry); err != nil {
				return nil, none, err
			}
		}
	}
	kept := list[:0]
	for i := range list {
		if list[i].bits <= 4*depth {
			continue
		}
		e, err := f.firstOf(inherited, list[i].entry)
		if err != nil {
			return nil, none, err
		}
		if e != inherited {
			kept = append(kept, list[i])
		}
	}
	return kept, inherited, nil
}

// children builds the sixteen children of a node that tests the nibble at.
func (f *forest) children(n *Node, list []prefix, at int, inherited Entry) error {
	var short []prefix // these end in the nibble and cover several children
	for i := range list {
		if list[i].bits < 4*at+4 {
			short = append(short, list[i])
		}
	}
	next := 0
	part := make([]prefix, 0, len(short)+4)
	for v := range n.Child {
		part = part[:0]
		for i := range short {
			if free := 4*at + 4 - short[i].bits; v>>free == short[i].nibble(at)>>free {
				part = append(part, short[i])
			}
		}
		for ; next < len(list) && list[next].nibble(at) == v; next++ {
			if list[next].bits >= 4*at+4 {
				part = append(part, list[next])
			}
		}
		child, err := f.build(part, at+1, inherited)
		if err != nil {
			return err
		}
		n.Child[v] = child
	}
	return nil
}
