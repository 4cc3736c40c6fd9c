// SPDX-License-Identifier: Apache-2.0

package rules

/*
#include <stdlib.h>

#include "native.h"
*/
import "C"

import (
	"unsafe"

	"narthex/internal/policy"
)

const (
	pageSize = int(C.sizeof_struct_page)
	cellSize = 64
)

// image is a policy image of request rules alone.
type image struct {
	bytes []byte // C's memory, so that a sanitizer knows where it ends
	cells int    // in use
}

// take gives cells to so many values of a size.
func (im *image) take(n int, size uintptr, align int) int {
	at := (im.cells + align - 1) / align * align
	im.cells = at + (n*int(size)+cellSize-1)/cellSize
	if pages := (im.cells*cellSize + pageSize - 1) / pageSize; pages*pageSize > len(im.bytes) {
		im.grow(pages)
	}
	return at
}

// grow makes an image so many pages large.
func (im *image) grow(pages int) {
	old := im.bytes
	im.bytes = unsafe.Slice((*byte)(C.calloc(C.size_t(pages), C.size_t(pageSize))), pages*pageSize)
	copy(im.bytes, old)
	C.free(unsafe.Pointer(unsafe.SliceData(old)))
}

// add appends values, each where C has it in an array. It returns their first cell.
func add[T any](im *image, v []T) C.__u32 {
	at := im.take(len(v), unsafe.Sizeof(*new(T)), 1)
	put(im, at, v)
	return C.__u32(at)
}

func put[T any](im *image, cell int, v []T) {
	if len(v) > 0 {
		copy(im.bytes[cell*cellSize:], unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0]))))
	}
}

// clear makes the image empty, and its memory of use again.
func (im *image) clear() {
	clear(im.bytes[:im.cells*cellSize])
	im.cells = 0
}

// fill puts tables into an image that is empty, the way package datapath does.
func (im *image) fill(t *policy.RequestTables) {
	var h C.struct_header
	var m C.struct_match
	header, match := im.take(1, cellSize, 1), im.take(1, cellSize, 1)
	h.match = C.__u32(match)
	m.seed, m.mask, m.width, m.letters = C.__u64(t.Seed), C.__u32(len(t.Entries)/policy.MatchWays-1), C.__u16(t.Width), C.__u32(t.Letters)
	m.headers, m.cookies, m.graph, m.asks = flag(t.Headers), flag(t.Cookies), flag(t.Graph), asked(t.Fields)
	m.query, m.parameters, m.pairs = flag(t.Query), C.__u8(t.Parameters), C.__u8(t.Pairs)
	m.rules = C.__u32(im.take(len(t.Rules), cellSize, 1))
	m.rule_count = C.__u32(len(t.Rules))
	lengths := add(im, t.Lengths)
	m.classes = C.__u32(im.take(len(t.Classes), 1, 4))
	put(im, int(m.classes), t.Classes[:])
	m.states = add(im, t.States)
	m.fields = add(im, fieldCells(t, lengths))
	m.patterns = add(im, patternCells(t))
	m.nodes = add(im, nodeCells(t))
	m.places = im.addPlaces(t.Places)
	entries := entryCells(t)
	im.cells = im.placeEntries(len(entries)/policy.MatchWays, t.Seed)
	m.entries = C.__u32(im.take(len(entries), unsafe.Sizeof(entries[0]), 1))
	put(im, int(m.entries), entries)
	put(im, header, []C.struct_header{h})
	put(im, match, []C.struct_match{m})
}

// addPlaces appends the tables of addresses. Nodes take two cells, from an even one on.
func (im *image) addPlaces(t *policy.PlaceTables) C.__u32 {
	if t == nil {
		return 0
	}
	sets := im.take(len(t.Sets), cellSize, 1)
	nodes := im.take(len(t.Nodes), 2*cellSize, 2)
	entry := func(e policy.Entry) C.__u32 {
		if i, ok := e.Node(); ok {
			return C.ENTRY_NODE | C.__u32(nodes+2*i)
		}
		if i, ok := e.Rule(); ok {
			return C.__u32(sets + i)
		}
		return C.ENTRY_NONE
	}
	for i, patterns := range t.Sets {
		var p C.struct_sets
		for j, n := range patterns {
			p.pattern[j] = C.__u32(n)
		}
		put(im, sets+i, []C.struct_sets{p})
	}
	for i := range t.Nodes {
		n := &t.Nodes[i]
		c := C.struct_node{key: C.__u64(n.Key), mask: C.__u64(n.Mask), word: C.__u8(n.Word), shift: C.__u8(n.Shift), miss: entry(n.Miss)}
		for j, child := range n.Child {
			c.child[j] = entry(child)
		}
		put(im, nodes+2*i, []C.struct_node{c})
	}
	return add(im, []C.struct_places{{
		from_v4: entry(t.From.RootV4), from_v6: entry(t.From.RootV6), to_v4: entry(t.To.RootV4), to_v6: entry(t.To.RootV6),
		from: C.__u8(t.FromField), to: C.__u8(t.ToField),
	}})
}

// placeEntries returns the cell from which a hash table is placed: in the page at hand if it fits, or where a
// page begins; by some seeds so that it goes on in another page, as large ones do.
func (im *image) placeEntries(cells int, seed uint64) int {
	const pageCells = pageSize / cellSize
	next := (im.cells + pageCells - 1) / pageCells * pageCells
	switch {
	case seed%4 == 0 && next-cells/2 >= im.cells:
		return next - cells/2
	case im.cells%pageCells+cells <= pageCells:
		return im.cells
	}
	return next
}

func fieldCells(t *policy.RequestTables, lengths C.__u32) []C.struct_match_field {
	var out []C.struct_match_field
	for _, f := range t.Fields {
		out = append(out, C.struct_match_field{
			rule: C.__u32(f.Rule), pattern: C.__u32(f.Pattern),
			prefixes: lengths + C.__u32(f.Prefixes/policy.LengthsPerCell), prefix_count: C.__u16(f.PrefixCount),
			suffixes: lengths + C.__u32(f.Suffixes/policy.LengthsPerCell), suffix_count: C.__u16(f.SuffixCount),
			longest_suffix: C.__u16(f.LongestSuffix), exact: flag(f.Exact), words: flag(f.Words), folded: C.__u8(f.Folded), keyed: flag(f.Keyed),
		})
	}
	return out
}

func patternCells(t *policy.RequestTables) []C.struct_pattern {
	var out []C.struct_pattern
	for _, p := range t.Patterns {
		out = append(out, C.struct_pattern{up: C.__u32(p.Up), length: C.__u16(p.Length), flags: C.__u16(p.Flags)})
	}
	return out
}

func nodeCells(t *policy.RequestTables) []C.struct_match_node {
	var out []C.struct_match_node
	for _, n := range t.Nodes {
		node := C.struct_match_node{rule: C.__u32(n.Rule), first: C.__u32(n.First)}
		for i, bits := range n.Fields {
			node.fields[i] = C.__u64(bits)
		}
		out = append(out, node)
	}
	return out
}

func entryCells(t *policy.RequestTables) []C.struct_match_entry {
	out := make([]C.struct_match_entry, len(t.Entries))
	for i, e := range t.Entries {
		out[i] = C.struct_match_entry{key: C.__u64(e.Key), rule: C.__u32(e.Rule), to: C.__u32(e.To)}
	}
	return out
}

// asked returns the bits of the fields that rules ask for and that are not named in the policy.
func asked(fields []policy.MatchField) (bits C.__u8) {
	for i, f := range fields[:policy.FieldNamed] {
		if f.Keyed || f.Rule != policy.NoMatch || f.Pattern != 0 || f.PrefixCount > 0 || f.SuffixCount > 0 || f.Exact || f.Words {
			bits |= 1 << i
		}
	}
	return bits
}

func flag(b bool) C.__u8 {
	if b {
		return 1
	}
	return 0
}
