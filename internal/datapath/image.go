// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"

	"narthex/internal/policy"
)

const (
	nodeSize   = int(unsafe.Sizeof(narthexNode{}))
	pageSize   = int(unsafe.Sizeof(narthexPage{}))
	cellSize   = 64
	pageCells  = pageSize / cellSize
	nodeCells  = nodeSize / cellSize
	entryNode  = 1 << 31
	groupAny   = ^uint32(0)
	noClass    = 0xff
	cellHeader = 0
)

// image is a policy in the form in which the programs read it: cells in pages. The
// header comes first, then the nodes that find services, so that what every SYN needs
// shares a page; then services, rules, and the nodes that find rules.
type image struct {
	pages []byte
	cells int // in use

	listenNodes, services, rules, nodes int // first cell of each kind
}

// put writes a struct into a cell.
func put[T any](im *image, cell int, v *T) {
	copy(im.pages[cell*cellSize:], unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)))
}

// entry turns an outcome or a node of the compiler's into a cell's number.
func entry(e policy.Entry, nodes, outcomes int) uint32 {
	if i, ok := e.Node(); ok {
		return uint32(nodes+nodeCells*i) | entryNode
	}
	if i, ok := e.Rule(); ok {
		return uint32(outcomes + i)
	}
	return 0
}

func (im *image) putNodes(list []policy.Node, first, outcomes int) {
	for i := range list {
		from := &list[i]
		n := narthexNode{Key: from.Key, Mask: from.Mask, Word: from.Word, Shift: from.Shift, Miss: entry(from.Miss, first, outcomes)}
		for c := range n.Child {
			n.Child[c] = entry(from.Child[c], first, outcomes)
		}
		put(im, first+nodeCells*i, &n)
	}
}

// buildImage packs tables for the slots that rules and services have.
func buildImage(t *policy.Tables, targets []Target, listens *policy.ListenTables, s *slots, groups []uint32, generation uint32) *image {
	im := &image{listenNodes: nodeCells}
	im.services = im.listenNodes + nodeCells*len(listens.Nodes)
	im.rules = im.services + len(t.Services)
	im.nodes = (im.rules + len(t.Rules) + nodeCells - 1) / nodeCells * nodeCells
	im.cells = im.nodes + nodeCells*len(t.Nodes)
	im.pages = make([]byte, (im.cells+pageCells-1)/pageCells*pageSize)

	h := narthexHeader{
		ListenV4:   entry(listens.V4, im.listenNodes, im.services),
		ListenV6:   entry(listens.V6, im.listenNodes, im.services),
		AnyV4:      entry(listens.AnyV4, im.listenNodes, im.services),
		AnyV6:      entry(listens.AnyV6, im.listenNodes, im.services),
		Generation: generation,
		Shadow:     flag(!slices.ContainsFunc(t.Services, func(s policy.ServiceTable) bool { return !s.Shadow })),
		Uppers:     flag(slices.ContainsFunc(targets, func(t Target) bool { return len(t.Uppers) > 0 })),
	}
	put(im, cellHeader, &h)
	im.putNodes(listens.Nodes, im.listenNodes, im.services)
	for i := range t.Services {
		from := &t.Services[i]
		put(im, im.services+i, &narthexService{
			Slot: s.byName[from.Name], Group: groups[i], Shadow: flag(from.Shadow),
			RootV4: entry(from.RootV4, im.nodes, im.rules), RootV6: entry(from.RootV6, im.nodes, im.rules),
		})
	}
	for i := range t.Rules {
		put(im, im.rules+i, ruleCell(&t.Rules[i], s))
	}
	im.putNodes(t.Nodes, im.nodes, im.rules)
	return im
}

func ruleCell(from *policy.RuleTable, s *slots) *narthexRule {
	slot := s.byRule[from.Name]
	r := &narthexRule{
		Slot: slot, Id: uint64(slot)<<32 | s.rules[slot].Id&0xffffffff, Bucket: bucketIndex(slot, s.rules[slot].Id),
		Action: uint8(from.Action), Class: noClass,
	}
	if from.Class >= 0 {
		r.Class = uint8(from.Class)
	}
	if from.Action == policy.ActionPolice {
		f := form(from)
		r.Interval, r.Tolerance = f.Interval, f.Interval*uint64(max(f.Burst, 1)-1)
		r.PerSource, r.BitsV4, r.BitsV6 = f.PerSource, f.BitsV4, f.BitsV6
	}
	return r
}

func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// alwaysLocal are local addresses whatever the routing tables say.
var alwaysLocal = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// newMap makes a map of the image.
func (im *image) newMap() (*ebpf.Map, error) {
	spec, err := loadNarthex()
	if err != nil {
		return nil, err
	}
	inner := spec.Maps[narthexMapPolicyImage].InnerMap.Copy()
	inner.MaxEntries = uint32(len(im.pages) / pageSize)
	m, err := ebpf.NewMap(inner)
	if err != nil {
		return nil, fmt.Errorf("creating the policy's map: %w", err)
	}
	pages := make([]narthexPage, inner.MaxEntries)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&pages[0])), len(im.pages)), im.pages)
	if err := writeArray(m, pages); err != nil {
		closeMap(m)
		return nil, err
	}
	return m, nil
}

// imageName is the pin of the image in force. It could be had from policy_image by its
// identifier, but only with more privilege than a daemon needs otherwise.
const imageName = "image"

// generation returns that of an image, 0 if there is none.
func generation(image *ebpf.Map) uint32 {
	if image == nil {
		return 0
	}
	page := make([]byte, image.ValueSize())
	if image.Lookup(zero, &page) != nil || len(page) < cellSize {
		return 0
	}
	return (*narthexHeader)(unsafe.Pointer(&page[0])).Generation
}
