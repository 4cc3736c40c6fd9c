// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"net/netip"
	"slices"
)

// ListenTables find the service of a destination address and port. The look-up is that of
// the connection rules, with the destination in place of the source; a rule's Entry stands
// for a service.
type ListenTables struct {
	V4, V6 Entry
	Nodes  []Node
}

// CompileListens builds the tables for the services' listens. A listen on any address
// stands for each of the local prefixes; a specific one wins over it.
func CompileListens(services []ServiceTable, locals []netip.Prefix) (*ListenTables, error) {
	f := newForest()
	var v4, v6 []prefix
	add := func(p netip.Prefix, port uint16, order int) error {
		entry, err := f.ports([]PortRange{{First: port, Last: port}}, RuleEntry(order))
		if err != nil {
			return err
		}
		if p.Addr().Is4() {
			v4 = append(v4, newPrefix(p, entry))
		} else {
			v6 = append(v6, newPrefix(p, entry))
		}
		return nil
	}
	for i, s := range services {
		for _, l := range s.Listen {
			if l.Addr.IsValid() {
				if err := add(netip.PrefixFrom(l.Addr, l.Addr.BitLen()), l.Port, i); err != nil {
					return nil, err
				}
				continue
			}
			for _, p := range locals {
				// Later in order than every specific listen.
				if err := add(p, l.Port, len(services)+i); err != nil {
					return nil, err
				}
			}
		}
	}
	return f.listens(v4, v6, len(services))
}

// listens builds both families' tables; outcomes are services modulo their number.
func (f *forest) listens(v4, v6 []prefix, services int) (*ListenTables, error) {
	t := &ListenTables{}
	for _, family := range []struct {
		list []prefix
		root *Entry
	}{{v4, &t.V4}, {v6, &t.V6}} {
		list, err := f.merge(family.list)
		if err != nil {
			return nil, err
		}
		if *family.root, err = f.build(list, 0, none); err != nil {
			return nil, err
		}
	}
	t.Nodes = f.nodes
	for i := range t.Nodes {
		n := &t.Nodes[i]
		n.Miss = n.Miss.modulo(services)
		for c := range n.Child {
			n.Child[c] = n.Child[c].modulo(services)
		}
	}
	t.V4, t.V6 = t.V4.modulo(services), t.V6.modulo(services)
	return t, nil
}

// modulo reduces the index of an Entry that is an outcome.
func (e Entry) modulo(n int) Entry {
	if i, ok := e.Rule(); ok {
		return RuleEntry(i % n)
	}
	return e
}

// merge sorts prefixes by address and length and makes one of those that are equal.
func (f *forest) merge(list []prefix) ([]prefix, error) {
	slices.SortFunc(list, func(a, b prefix) int {
		return cmp.Or(cmp.Compare(a.word[0], b.word[0]), cmp.Compare(a.word[1], b.word[1]),
			cmp.Compare(a.bits, b.bits))
	})
	merged := list[:0]
	for _, p := range list {
		last := len(merged) - 1
		if last < 0 || merged[last].word != p.word || merged[last].bits != p.bits {
			merged = append(merged, p)
			continue
		}
		var err error
		if merged[last].entry, err = f.firstOf(merged[last].entry, p.entry); err != nil {
			return nil, err
		}
	}
	return merged, nil
}

// Lookup returns the index of the service that a SYN to the address and port is for, or
// -1.
func (t *ListenTables) Lookup(to netip.AddrPort) int {
	root := t.V6
	if to.Addr().Unmap().Is4() {
		root = t.V4
	}
	return lookup(t.Nodes, root, NewKey(to.Addr(), to.Port()))
}
