// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"narthex/internal/policy"
)

const (
	ranks        = len(narthexRoomConfig{}.Rank)
	learnedCells = ranks * int(unsafe.Sizeof(narthexRoots{})) / cellSize
	nodeSize     = int(unsafe.Sizeof(narthexNode{}))
	pageSize     = int(unsafe.Sizeof(narthexPage{}))
	cellSize     = 64
	pageCells    = pageSize / cellSize
	nodeCells    = nodeSize / cellSize
	entryNode    = uint32(1) << 31
	groupAny     = ^uint32(0)
	noClass      = 0xff
	cellHeader   = 0
)

// image is a policy in the form in which the programs read it: cells in pages. The
// header comes first, then what finds services, then what finds rules.
type image struct {
	pages []narthexPage
}

func newImage(cells int) *image {
	return &image{make([]narthexPage, (cells+pageCells-1)/pageCells)}
}

// from returns the bytes from a cell on.
func (im *image) from(cell int) []byte {
	all := unsafe.Slice((*byte)(unsafe.Pointer(&im.pages[0])), len(im.pages)*pageSize)
	return all[cell*cellSize:]
}

// put writes a struct into a cell.
func put[T any](im *image, cell int, v *T) { putAll(im, cell, unsafe.Slice(v, 1)) }

// putAll writes what follows one another without gaps from a cell on.
func putAll[T any](im *image, cell int, v []T) {
	if len(v) > 0 {
		copy(im.from(cell), unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0]))))
	}
}

// trie places a look-up's nodes and outcomes in an image.
type trie struct {
	nodes    []policy.Node
	outcomes int      // first cell of the outcomes
	entries  []uint32 // of the nodes
	end      int      // cell behind
}

// newTrie gives cells to so many outcomes and to the nodes, from a cell on. A node that
// leads to one outcome or on to a single other entry becomes a copy of the outcome with a
// guard.
func newTrie(nodes []policy.Node, outcomes, cell int) *trie {
	t := &trie{nodes: nodes, outcomes: cell, entries: make([]uint32, len(nodes))}
	cell += outcomes
	for i := range nodes {
		if _, _, guarded := t.guard(&nodes[i]); guarded {
			t.entries[i] = uint32(cell)
			cell++
		}
	}
	cell = (cell + nodeCells - 1) / nodeCells * nodeCells
	for i := range nodes {
		if t.entries[i] == 0 {
			t.entries[i] = uint32(cell) | entryNode
			cell += nodeCells
		}
	}
	t.end = cell
	return t
}

// entry returns the cell of an outcome or of a node.
func (t *trie) entry(e policy.Entry) uint32 {
	if i, ok := e.Node(); ok {
		return t.entries[i]
	}
	if i, ok := e.Rule(); ok {
		return uint32(t.outcomes + i)
	}
	return 0
}

// guard returns the guard that stands for a node which leads to one outcome under one
// prefix and to one other entry elsewhere.
func (t *trie) guard(n *policy.Node) (g narthexGuard, outcome int, ok bool) {
	for first, child := range n.Child {
		outcome, ok := child.Rule()
		if !ok || first > 0 && n.Child[first-1] == child {
			continue
		}
		size, other, ok := block(n, first)
		if !ok || n.Mask != 0 && other != n.Miss {
			continue
		}
		g.Mask = n.Mask | uint64(len(n.Child)-size)<<n.Shift
		g.Key = n.Key | uint64(first)<<n.Shift
		g.Word, g.Miss = n.Word, t.entry(other)
		return g, outcome, true
	}
	return g, 0, false
}

// block reports whether the children equal to the one at first are those under one prefix
// of the nibble, how many they are, and which entry all others are.
func block(n *policy.Node, first int) (size int, other policy.Entry, ok bool) {
	for first+size < len(n.Child) && n.Child[first+size] == n.Child[first] {
		size++
	}
	if size == len(n.Child) || size&(size-1) != 0 || first%size != 0 {
		return 0, 0, false
	}
	other = n.Child[(first+size)%len(n.Child)]
	for i, c := range n.Child {
		if (i < first || i >= first+size) && c != other {
			return 0, 0, false
		}
	}
	return size, other, true
}

// write puts the nodes into the image, those with a guard by a function that writes an
// outcome to a cell.
func (t *trie) write(im *image, outcome func(cell, i int, g narthexGuard)) {
	for i := range t.nodes {
		if g, o, guarded := t.guard(&t.nodes[i]); guarded {
			outcome(int(t.entries[i]), o, g)
			continue
		}
		from := &t.nodes[i]
		n := narthexNode{Key: from.Key, Mask: from.Mask, Word: from.Word, Shift: from.Shift, Miss: t.entry(from.Miss)}
		for c := range n.Child {
			n.Child[c] = t.entry(from.Child[c])
		}
		put(im, int(t.entries[i]&^entryNode), &n)
	}
}

// layout is where everything goes in an image.
type layout struct {
	tables    *policy.Tables
	slots     *slots
	groups    []uint32
	services  *trie
	rules     *trie
	learned   []int // cell of each service's roots for learned sources; 0: there are none
	rooms     []narthexRoomConfig
	firstRoom int
	refusals  []narthexRefusal
	refused   int         // cell of the first
	labels    int         // cell of what classes are called in answers
	match     *matchImage // nil: there are no request rules
	limits    int         // cell of the next limit of a rule
	end       int         // cell behind
}

func newLayout(t *policy.Tables, listens *policy.ListenTables, s *slots, groups []uint32, texts uint32) *layout {
	l := &layout{tables: t, slots: s, groups: groups, rooms: roomConfigs(t, s), refusals: refusals(t.Answers, texts)}
	l.services = newTrie(listens.Nodes, len(t.Services), nodeCells)
	l.rules = newTrie(t.Nodes, max(len(t.Rules), 1), l.services.end) // look-ups of trusted proxies end at the first
	cell := ceil(l.rules.end, learnedCells)
	for i := range t.Services {
		l.learned = append(l.learned, 0)
		if t.Services[i].Learned != nil {
			l.learned[i] = cell
			cell += learnedCells
		}
	}
	l.firstRoom = ceil(cell, roomCells)
	l.refused = l.firstRoom + len(l.rooms)*roomCells
	l.labels = l.refused + (len(l.refusals)+refusalsPerCell-1)/refusalsPerCell
	l.end = l.labels + 1
	if l.match = placeMatch(t.Requests, l.end); l.match != nil {
		l.end = l.match.end
	}
	l.limits = l.end
	for _, r := range t.Rules {
		l.end += limitCells(r.Limits)
	}
	for _, r := range t.RequestRules() {
		l.end += limitCells(r.Limits)
	}
	return l
}

// limitCells is how many cells the limits of a rule take, with its rate: that is the last of them.
func limitCells(limits []policy.LimitTable) int {
	if len(limits) == 0 {
		return 0
	}
	return len(limits) + 1
}

// writeLimits puts the limits of a rule into the image and has it lead to them.
func (l *layout) writeLimits(im *image, r *narthexRule, key ruleKey, limits []policy.LimitTable) {
	if len(limits) == 0 {
		return
	}
	own := *r
	r.Limits = uint32(l.limits)
	for i := range limits {
		limit := ruleCell(boundLimit(&limits[i]), -1, l.slots, l.slots.byRule[key.limit(i)])
		limit.Key = uint8(limits[i].Key)
		l.limits++
		if i+1 < len(limits) || own.Interval != 0 || own.By != 0 {
			limit.Limits = uint32(l.limits)
		}
		put(im, l.limits-1, limit)
	}
	own.Guard, own.Action = narthexGuard{}, uint8(policy.ActionClassify) // what it refuses is counted as the rule's
	put(im, l.limits, &own)
	l.limits++
}

// longestWait is for how long a request to any service may wait.
func longestWait(t *policy.Tables) (longest time.Duration) {
	for i, s := range t.Services {
		if t.HasRoom(i) && !s.Shadow {
			longest = max(longest, s.Room.Queue.MaxWait)
		}
	}
	return longest
}

// sheds reports whether SYNs to any service may be dropped in overload.
func sheds(t *policy.Tables) bool {
	for i := range t.Services {
		if t.Sheds(i) {
			return true
		}
	}
	return false
}

// buildImage packs tables for the slots that rules and services have, and for texts of answers at an offset.
func buildImage(t *policy.Tables, targets []Target, listens *policy.ListenTables, s *slots, groups []uint32, generation, texts uint32, lists int) *image {
	l := newLayout(t, listens, s, groups, texts)
	im := newImage(l.end)
	labels := classLabels(t)
	h := narthexHeader{
		ListenV4: l.services.entry(listens.V4), ListenV6: l.services.entry(listens.V6),
		AnyV4: l.services.entry(listens.AnyV4), AnyV6: l.services.entry(listens.AnyV6),
		Generation: generation,
		Rooms:      uint32(l.firstRoom), RoomCount: uint32(len(l.rooms)),
		Shadow: flag(!slices.ContainsFunc(t.Services, func(s policy.ServiceTable) bool { return !s.Shadow })),
		Steers: flag(sheds(t)),
		Lists:  uint8(lists), Listed: flag(t.Listed && lists > 0), Bounds: flag(slices.ContainsFunc(t.Services, isBounded)),
		LongestWait: uint32(longestWait(t).Milliseconds()),
		Answers:     uint32(l.refused), AnswerCount: uint32(len(l.refusals)),
		Labels: uint32(l.labels),
		Uppers: flag(slices.ContainsFunc(targets, func(t Target) bool { return len(t.Uppers) > 0 })),
	}
	if t.Answers != nil {
		h.Kinds = uint32(t.Answers.Kinds)
	}
	putAll(im, l.refused, l.refusals)
	put(im, l.labels, &labels)
	if l.match != nil {
		l.match.write(im, l, t.Answers)
		h.Match = uint32(l.match.cell)
		h.Blocks = flag(slices.ContainsFunc(t.Requests.Rules, func(r policy.RequestRule) bool { return r.Block > 0 }))
	}
	put(im, cellHeader, &h)
	l.writeServices(im)
	l.writeRules(im)
	for i := range l.rooms {
		put(im, l.firstRoom+i*roomCells, &l.rooms[i])
	}
	return im
}

func (l *layout) writeServices(im *image) {
	service := func(cell, i int, g narthexGuard) {
		from := &l.tables.Services[i]
		put(im, cell, &narthexService{
			Guard: g, Slot: l.slots.byName[from.Name], Group: l.groups[i], Shadow: flag(from.Shadow), Gate: flag(HasGate(from)),
			RootV4: l.rules.entry(from.RootV4), RootV6: l.rules.entry(from.RootV6),
			TrustedV4: l.rules.entry(from.Trusted.RootV4), TrustedV6: l.rules.entry(from.Trusted.RootV6), Learned: uint32(l.learned[i]),
		})
	}
	for i := range l.tables.Services {
		service(l.services.outcomes+i, i, narthexGuard{})
		l.writeLearned(im, i)
	}
	l.services.write(im, service)
}

// writeLearned writes where look-ups of a service's rules begin for sources that are
// remembered in a class, by rank.
func (l *layout) writeLearned(im *image, service int) {
	var row [ranks]narthexRoots
	for rank, r := range l.tables.Services[service].Learned {
		row[rank] = narthexRoots{V4: l.rules.entry(r.RootV4), V6: l.rules.entry(r.RootV6)}
	}
	if cell := l.learned[service]; cell != 0 {
		putAll(im, cell, row[:])
	}
}

func (l *layout) writeRules(im *image) {
	cells := make([]narthexRule, max(len(l.tables.Rules), 1)) // of the first, also if there is none
	rule := func(cell, i int, g narthexGuard) {
		r := cells[i]
		r.Guard = g
		put(im, cell, &r)
	}
	for i := range l.tables.Rules {
		r := &l.tables.Rules[i]
		cells[i] = *connectionCell(r, l.slots)
		l.writeLimits(im, &cells[i], connectionKey(r), r.Limits)
		rule(l.rules.outcomes+i, i, narthexGuard{})
	}
	l.rules.write(im, rule)
}

func connectionCell(from *policy.RuleTable, s *slots) *narthexRule {
	r := ruleCell(connectionLimit(from), from.Class, s, s.byRule[connectionKey(from)])
	r.When, r.By = uint8(whens[from.When]), byPace(from.Auto)
	return r
}

var whens = map[policy.When]narthexWhen{
	policy.WhenAlways:    narthexWhenWHEN_ALWAYS,
	policy.WhenOverload:  narthexWhenWHEN_OVERLOAD,
	policy.WhenRejecting: narthexWhenWHEN_REJECTING,
	policy.WhenFlooded:   narthexWhenWHEN_FLOODED,
}

// byPace is what a rule goes by that has a rate.
func byPace(auto policy.AutoRate) uint8 { return flag(auto.On) * uint8(narthexLimitByBY_PACE) }

func ruleCell(l limit, class int, s *slots, slot uint32) *narthexRule {
	r := &narthexRule{
		Slot: slot, Id: uint64(slot)<<32 | s.rules[slot].Id&0xffffffff,
		Action: uint8(l.action), Class: noClass,
	}
	if class >= 0 {
		r.Class = uint8(class)
	}
	if l.action == policy.ActionPolice {
		f := l.form()
		r.Interval, r.Tolerance = f.Interval, f.Interval*uint64(max(f.Burst, 1)-1)
		if l.atOnce > 0 {
			r.By, r.Interval, r.Tolerance = uint8(narthexLimitByBY_PLACES), 0, uint64(l.atOnce)
		}
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
	m, err := newTable(narthexMapPolicyImage, len(im.pages))
	if err != nil {
		return nil, fmt.Errorf("creating the policy's map: %w", err)
	}
	if err := writeArray(m, im.pages); err != nil {
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
