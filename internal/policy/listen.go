// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// ListenTables find the service of a destination address and port. A step of the look-up
// is that of the connection rules, with the destination in place of the source; a rule's
// Entry stands for a service. Ports come first: a SYN to one on which no service listens
// is told in a step.
type ListenTables struct {
	V4, V6 Entry
	// AnyV4 and AnyV6 look up addresses alone: they lead to a service that listens there on
	// some port, to one that is not in shadow mode if there is such.
	AnyV4, AnyV6 Entry
	Nodes        []Node
}

// listening is a prefix of local addresses with the service that listens there.
type listening struct {
	prefix  netip.Prefix
	service int
}

// CompileListens builds the tables for the services' listens. A listen on any address
// stands for each of the local prefixes; a specific one wins over it.
func CompileListens(services []ServiceTable, locals []netip.Prefix) (*ListenTables, error) {
	byPort := map[uint16][]listening{}
	for i, s := range services {
		for _, l := range s.Listen {
			if l.Addr.IsValid() {
				byPort[l.Port] = append(byPort[l.Port], listening{netip.PrefixFrom(l.Addr, l.Addr.BitLen()), i})
				continue
			}
			for _, p := range locals {
				// Later in order than every specific listen.
				byPort[l.Port] = append(byPort[l.Port], listening{p, len(services) + i})
			}
		}
	}
	b := listenBuilder{services: services, forest: newForest(), byPort: byPort, ports: slices.Sorted(maps.Keys(byPort))}
	t := &ListenTables{}
	for _, family := range []struct {
		is4       bool
		root, any *Entry
	}{{true, &t.V4, &t.AnyV4}, {false, &t.V6, &t.AnyV6}} {
		if err := b.build(family.is4, family.root, family.any); err != nil {
			return nil, err
		}
	}
	t.Nodes = append(b.forest.nodes, b.portNodes...)
	place := func(e *Entry) {
		if i, ok := e.Node(); ok && i >= portNode {
			*e = NodeEntry(i - portNode + len(b.forest.nodes))
		} else if i, ok := e.Rule(); ok {
			*e = RuleEntry(i % len(services))
		}
	}
	for _, root := range []*Entry{&t.V4, &t.V6, &t.AnyV4, &t.AnyV6} {
		place(root)
	}
	for i := range t.Nodes {
		place(&t.Nodes[i].Miss)
		for c := range t.Nodes[i].Child {
			place(&t.Nodes[i].Child[c])
		}
	}
	return t, nil
}

// listenBuilder builds tries of addresses in one forest and those of ports, which lead to
// them, as nodes of their own.
type listenBuilder struct {
	services  []ServiceTable
	forest    *forest
	byPort    map[uint16][]listening
	ports     []uint16
	portNodes []Node // entries to these are above portNode
}

// portNode marks an Entry to a node on ports until all nodes are in one list.
const portNode = 1 << 30

func (b *listenBuilder) build(is4 bool, root, any *Entry) error {
	var everywhere, ports []prefix
	var roots []Entry
	for _, port := range b.ports {
		var list []prefix
		for _, l := range b.byPort[port] {
			if l.prefix.Addr().Is4() == is4 {
				list = append(list, newPrefix(l.prefix, RuleEntry(l.service)))
				everywhere = append(everywhere, newPrefix(l.prefix, b.anyEntry(l.service%len(b.services))))
			}
		}
		e, err := b.forest.trie(list)
		if err != nil {
			return err
		}
		ports = append(ports, prefix{[2]uint64{uint64(port) << 48, 0}, 16, RuleEntry(len(roots))})
		roots = append(roots, e)
	}
	var err error
	if *any, err = b.forest.trie(everywhere); err != nil {
		return err
	}
	*root, err = b.portTrie(ports, roots)
	return err
}

// anyEntry orders services for a look-up without ports.
func (b *listenBuilder) anyEntry(service int) Entry {
	if b.services[service].Shadow {
		return RuleEntry(len(b.services) + service)
	}
	return RuleEntry(service)
}

// portTrie builds the trie that leads from each port to its root: one over addresses of
// 16 bits, with its nodes then made to test the port.
func (b *listenBuilder) portTrie(ports []prefix, roots []Entry) (Entry, error) {
	f := newForest()
	root, err := f.build(ports, 0, none)
	if err != nil {
		return none, err
	}
	first := len(b.portNodes)
	place := func(e Entry) Entry {
		if i, ok := e.Node(); ok {
			return NodeEntry(portNode + first + i)
		}
		if i, ok := e.Rule(); ok {
			return roots[i]
		}
		return none
	}
	for _, n := range f.nodes {
		n.Word = portWord
		n.Miss = place(n.Miss)
		for c := range n.Child {
			n.Child[c] = place(n.Child[c])
		}
		b.portNodes = append(b.portNodes, n)
	}
	return place(root), nil
}

// merge sorts prefixes by address and length and makes one of those that are equal. It
// changes list.
func (f *forest) merge(list []prefix) ([]prefix, error) {
	slices.SortFunc(list, func(a, b prefix) int {
		return cmp.Or(cmp.Compare(a.word[0], b.word[0]), cmp.Compare(a.word[1], b.word[1]),
			cmp.Compare(a.bits, b.bits))
	})
	return f.fold(list)
}

// fold makes one of equal prefixes, given by address and length. It changes list.
func (f *forest) fold(list []prefix) ([]prefix, error) {
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

// LookupAny returns the index of a service that listens on the address, of one that is
// not in shadow mode if there is such, or -1.
func (t *ListenTables) LookupAny(to netip.Addr) int {
	root := t.AnyV6
	if to.Unmap().Is4() {
		root = t.AnyV4
	}
	return lookup(t.Nodes, root, NewKey(to, 0))
}
