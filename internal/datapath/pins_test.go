// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"slices"
	"strings"
	"testing"
)

// scratchMaps hold nothing that outlives a packet, or a closing of a socket; or that the next look does not find again, or clients do not have as well.
var scratchMaps = []string{"scratch", "works", "nesting", "readings", "state_changes", "mirrored_records", "stalled", "fingerprints", "early_bytes"}

// What a program keeps is pinned, or the next daemon's programs begin without it.
func TestAllStateIsPinned(t *testing.T) {
	spec, err := loadNarthex()
	if err != nil {
		t.Fatal(err)
	}
	o := &objects{}
	pinned, events := o.pinnedMaps(), o.eventMaps()
	for name := range spec.Maps {
		_, kept := pinned[name]
		_, told := events[name]
		scratch := slices.Contains(scratchMaps, name) || strings.HasPrefix(name, ".")
		if n := len(slices.DeleteFunc([]bool{kept, told, scratch}, func(b bool) bool { return !b })); n != 1 {
			t.Errorf("map %q: pinned %v, of events %v, scratch memory %v, want one of them", name, kept, told, scratch)
		}
	}
}
