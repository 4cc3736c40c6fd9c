// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"strconv"
	"unsafe"

	"github.com/cilium/ebpf"

	"narthex/internal/lists"
)

// keyLists is where the journal has which table of lists is in force.
const keyLists = "lists"

const (
	listPageSize    = int(unsafe.Sizeof(narthexListPage{}))
	listUnits       = listPageSize / 8
	listPageEnds    = listPageSize / int(unsafe.Sizeof(lists.End6{}))
	listHeaderUnits = int(unsafe.Sizeof(narthexListHeader{})) / 8
)

// Lists is a table of lists in the kernel's memory.
type Lists struct{ table *ebpf.Map }

// NewLists puts a table into the kernel's memory. It is in force once Apply or SwapLists says so.
func (in *Instance) NewLists(t *lists.Table) (*Lists, error) {
	im := newListImage(t)
	m, err := newTable(narthexMapLists, im.pages)
	if err != nil {
		return nil, fmt.Errorf("creating the map of lists, of %d MiB: %w", im.pages*listPageSize>>20, err)
	}
	if err := im.write(m); err != nil {
		closeMap(m)
		return nil, fmt.Errorf("writing lists: %w", err)
	}
	return &Lists{m}, nil
}

// Close gives the table up. What is in force stays.
func (l *Lists) Close() {
	if l != nil {
		closeMap(l.table)
	}
}

// listImage is a table in the form in which the programs read it: pages of units, then those of ends.
type listImage struct {
	header narthexListHeader
	units  [][]uint64 // in order
	ends   []lists.End6
	behind int // page behind the units
	pages  int
}

func newListImage(t *lists.Table) *listImage {
	sets := listHeaderUnits + len(t.Nodes)
	ends4 := sets + len(t.Sets)
	im := &listImage{ends: t.Ends6, behind: (ends4 + len(t.Ends4) + listUnits - 1) / listUnits}
	im.pages = im.behind + (len(t.Ends6)+listPageEnds-1)/listPageEnds
	im.header = narthexListHeader{
		RootV4: t.Root4, RootV6: t.Root6,
		Nodes: uint32(listHeaderUnits), Sets: uint32(sets), EndsV4: uint32(ends4), EndsV6: uint32(im.behind * listPageEnds),
	}
	header := (*[listHeaderUnits]uint64)(unsafe.Pointer(&im.header))
	im.units = [][]uint64{header[:], t.Nodes, t.Sets, t.Ends4}
	return im
}

// write fills a map, a page at a time.
func (im *listImage) write(m *ebpf.Map) error {
	page := make([]byte, listPageSize)
	for i := range im.pages {
		clear(page)
		if i < im.behind {
			im.fill(unsafe.Slice((*uint64)(unsafe.Pointer(&page[0])), listUnits), i*listUnits)
		} else {
			from := im.ends[(i-im.behind)*listPageEnds:]
			copy(unsafe.Slice((*lists.End6)(unsafe.Pointer(&page[0])), listPageEnds), from)
		}
		if err := m.Put(uint32(i), page); err != nil {
			return err
		}
	}
	return nil
}

// fill copies units from a number on.
func (im *listImage) fill(page []uint64, from int) {
	for _, part := range im.units {
		if from < len(part) {
			n := copy(page, part[max(from, 0):])
			page, from = page[n:], 0
			continue
		}
		from -= len(part)
	}
}

// placeLists puts the lists of another policy where none are in force, and leaves the same ones where they are.
func (c *change) placeLists() error {
	if c.state.Lists == nil {
		return nil
	}
	at, _ := strconv.Atoi(recorded(c.objects.Journal, keyLists))
	if at > 0 && c.state.Lists == c.in.applied.Lists && c.objects == c.in.objects {
		c.lists = at
		return nil
	}
	c.lists = 1
	if at == 1 {
		c.lists = 2
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	which := uint32(c.lists - 1)
	if err := c.objects.ListMatches.Put(which, make([]narthexListCounts, cpus)); err != nil {
		return fmt.Errorf("clearing counts of lists: %w", err)
	}
	if err := c.objects.Lists.Put(which, c.state.Lists.table); err != nil {
		return fmt.Errorf("placing lists: %w", err)
	}
	c.undo = append(c.undo, func() error { return c.objects.Lists.Delete(which) })
	return nil
}

// settleLists forgets the table that no image names any more.
func (in *Instance) settleLists(at int) error {
	for which := range uint32(2) {
		if int(which) == at-1 {
			continue
		}
		// Of one that is not there nothing is to be done.
		_ = in.objects.Lists.Delete(which)
	}
	in.listsAt = at
	return record(in.objects.Journal, keyLists, strconv.Itoa(at))
}

// SwapLists replaces the lists in force by newer contents of the same ones. Each packet is decided by the old
// or by the new ones.
func (in *Instance) SwapLists(l *Lists) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.listsAt == 0 {
		return fmt.Errorf("no lists are in force")
	}
	if err := in.objects.Lists.Put(uint32(in.listsAt-1), l.table); err != nil {
		return fmt.Errorf("putting lists in force: %w", err)
	}
	in.applied.Lists = l
	return nil
}

// ListMatches returns how many packets and requests had a source in each list since the policy is in force.
func (in *Instance) ListMatches() ([]uint64, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	sums := make([]uint64, len(narthexListCounts{}.Matched))
	if in.listsAt == 0 {
		return sums, nil
	}
	var perCPU []narthexListCounts
	if err := in.objects.ListMatches.Lookup(uint32(in.listsAt-1), &perCPU); err != nil {
		return nil, fmt.Errorf("reading counts of lists: %w", err)
	}
	for _, c := range perCPU {
		for i, n := range c.Matched {
			sums[i] += n
		}
	}
	return sums, nil
}
