// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"

	"narthex/internal/policy"
)

const (
	cellSize   = int(unsafe.Sizeof(narthexNode{})) // the largest of a cell's forms
	pageSize   = int(unsafe.Sizeof(narthexPage{}))
	pageCells  = pageSize / cellSize
	entryNode  = 1 << 31
	groupAny   = ^uint32(0)
	noClass    = 0xff
	maxGroups  = 32 // half the bits of interface_groups: the old image has the other half
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

func (im *image) at(cell int) []byte {
	offset := cell/pageCells*pageSize + cell%pageCells*cellSize
	return im.pages[offset : offset+cellSize]
}

// put writes a struct into a cell.
func put[T any](im *image, cell int, v *T) {
	copy(im.at(cell), unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)))
}

// entry turns an outcome or a node of the compiler's into a cell's number.
func entry(e policy.Entry, nodes, outcomes int) uint32 {
	if i, ok := e.Node(); ok {
		return uint32(nodes+i) | entryNode
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
		put(im, first+i, &n)
	}
}

// buildImage packs tables for the slots that rules and services have.
func buildImage(t *policy.Tables, listens *policy.ListenTables, s *slots, groups []uint32, generation uint32) *image {
	im := &image{listenNodes: 1}
	im.services = im.listenNodes + len(listens.Nodes)
	im.rules = im.services + len(t.Services)
	im.nodes = im.rules + len(t.Rules)
	im.cells = im.nodes + len(t.Nodes)
	im.pages = make([]byte, (im.cells+pageCells-1)/pageCells*pageSize)

	h := narthexHeader{
		ListenV4:   entry(listens.V4, im.listenNodes, im.services),
		ListenV6:   entry(listens.V6, im.listenNodes, im.services),
		AnyV4:      entry(listens.AnyV4, im.listenNodes, im.services),
		AnyV6:      entry(listens.AnyV6, im.listenNodes, im.services),
		Generation: generation,
		Shadow:     flag(!slices.ContainsFunc(t.Services, func(s policy.ServiceTable) bool { return !s.Shadow })),
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

// publish builds the image and puts it in force.
func (in *Instance) publish(s State, groups []uint32) error {
	if missing := in.slots.newRules(s.Tables.Rules) - in.slots.free(); missing > 0 {
		if err := in.grow(len(in.slots.rules) + missing); err != nil {
			return err
		}
	}
	if err := in.assignRules(s.Tables.Rules); err != nil {
		return err
	}
	if err := in.assignServices(s.Tables.Services); err != nil {
		return err
	}
	listens, err := policy.CompileListens(s.Tables.Services, append(slices.Clone(s.Locals), alwaysLocal...))
	if err != nil {
		return err
	}
	generation := in.imageGen + 1
	if err := in.addInterfaceGroups(s, groups, generation); err != nil {
		return err
	}
	im := buildImage(s.Tables, listens, in.slots, groupBits(groups, generation), generation)
	if err := in.objects.install(im); err != nil {
		return err
	}
	if err := in.switchLinks(); err != nil {
		return err
	}
	if err := pin(in.objects.image, in.pins.mapPath(imageName)); err != nil {
		return err
	}
	in.imageGen = generation
	if err := in.releaseServices(s.Tables.Services); err != nil {
		return err
	}
	return in.releaseRules(s.Tables.Rules)
}

// install writes the image to a map of its own and makes it the policy. The kernel
// returns only when no packet uses the old one any more.
func (o *objects) install(im *image) error {
	spec, err := loadNarthex()
	if err != nil {
		return err
	}
	inner := spec.Maps[narthexMapPolicyImage].InnerMap.Copy()
	inner.MaxEntries = uint32(len(im.pages) / pageSize)
	m, err := ebpf.NewMap(inner)
	if err != nil {
		return fmt.Errorf("creating the policy's map: %w", err)
	}
	pages := make([]narthexPage, inner.MaxEntries)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&pages[0])), len(im.pages)), im.pages)
	if err := writeArray(m, pages); err != nil {
		closeMap(m)
		return err
	}
	if err := o.PolicyImage.Put(zero, m); err != nil {
		closeMap(m)
		return fmt.Errorf("putting the policy in force: %w", err)
	}
	closeMap(o.image)
	o.image = m
	return nil
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

// groupServices numbers the distinct lists of interfaces that services name; groupAny
// for all if there is but one.
func groupServices(services []policy.ServiceTable) ([]uint32, error) {
	numbers := map[string]uint32{}
	groups := make([]uint32, len(services))
	for i := range services {
		names := slices.Clone(services[i].Interfaces)
		slices.Sort(names)
		key := strings.Join(names, "/") // no interface name has a slash
		if _, ok := numbers[key]; !ok {
			numbers[key] = uint32(len(numbers))
		}
		groups[i] = numbers[key]
	}
	if len(numbers) > maxGroups {
		return nil, fmt.Errorf("services name %d different lists of interfaces: at most %d are possible; let more services share theirs", len(numbers), maxGroups)
	}
	if len(numbers) == 1 {
		for i := range groups {
			groups[i] = groupAny
		}
	}
	return groups, nil
}

// groupBits returns which bit of interface_groups stands for each service's group in an
// image: images take turns with the two halves, so that the one being built and the one
// in force do not meet.
func groupBits(groups []uint32, generation uint32) []uint32 {
	bits := slices.Clone(groups)
	for i := range bits {
		if bits[i] != groupAny {
			bits[i] += generation % 2 * maxGroups
		}
	}
	return bits
}

// interfaceBits returns the bits of each target's interface for an image.
func interfaceBits(s State, groups []uint32, generation uint32) map[uint32]uint64 {
	bits := map[uint32]uint64{}
	for _, t := range s.Targets {
		for _, service := range t.Services {
			if b := groupBits(groups, generation)[service]; b != groupAny {
				bits[uint32(t.Index)] |= 1 << b
			}
		}
	}
	return bits
}

// addInterfaceGroups gives interfaces the bits of the image to come beside those they
// have.
func (in *Instance) addInterfaceGroups(s State, groups []uint32, generation uint32) error {
	for index, bits := range interfaceBits(s, groups, generation) {
		var old uint64
		if err := in.objects.InterfaceGroups.Lookup(index, &old); err != nil {
			old = 0
		}
		half := uint64(1<<maxGroups-1) << (generation % 2 * maxGroups)
		if err := in.objects.InterfaceGroups.Put(index, old&^half|bits); err != nil {
			return fmt.Errorf("noting the groups of interface %d: %w", index, err)
		}
	}
	return nil
}

// trimInterfaceGroups removes the bits of images that are no longer in force.
func (in *Instance) trimInterfaceGroups(s State, groups []uint32) {
	want := interfaceBits(s, groups, in.imageGen)
	var index uint32
	var bits uint64
	var gone []uint32
	entries := in.objects.InterfaceGroups.Iterate()
	for entries.Next(&index, &bits) {
		if want[index] != bits {
			gone = append(gone, index)
		}
	}
	for _, index := range gone {
		if want[index] == 0 {
			_ = in.objects.InterfaceGroups.Delete(index)
		} else {
			_ = in.objects.InterfaceGroups.Put(index, want[index])
		}
	}
}
