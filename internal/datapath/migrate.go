// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
)

// migrate carries over what the retired maps hold, where its form is known, and says in
// sentences what is lost. What changes until the links are switched follows in takeOver.
func (o *objects) migrate() (notes []string, err error) {
	copies := map[string]func(old *ebpf.Map) error{
		narthexMapRulePaces:    func(*ebpf.Map) error { return nil }, // the daemon sets them anew
		narthexMapRuleSlots:    func(old *ebpf.Map) error { return copyArray[narthexRuleSlot](old, o.RuleSlots) },
		narthexMapRuleBuckets:  func(old *ebpf.Map) error { return copyArray[uint64](old, o.RuleBuckets) },
		narthexMapRuleCounts:   func(*ebpf.Map) error { return nil }, // in takeOver
		narthexMapSourceSets:   o.rehashSources,
		narthexMapReasonCounts: func(old *ebpf.Map) error { return copyCounts(old, o.ReasonCounts) },
	}
	pinned := o.pinnedMaps()
	if o.retired[narthexMapRooms] != nil {
		notes = append(notes, "the waiting rooms begin anew, in memory of another size or layout: what waits is sent again by its clients")
	}
	for name, old := range o.retired {
		now := pinned[name]
		if now == nil || slices.Contains(ofOneLoad, name) || slices.Contains(roomMaps, name) {
			continue
		}
		if name == narthexMapLearnedClients {
			notes = append(notes, "clients that request rules had learned are forgotten")
			continue
		}
		carry := copies[name]
		if carry == nil || !sameLayout(old, now) {
			notes = append(notes, fmt.Sprintf("what map %q held is reset: this version lays it out in another way", name))
			continue
		}
		if err := carry(old); err != nil {
			return notes, fmt.Errorf("migrating map %q: %w", name, err)
		}
	}
	return notes, nil
}

func sameLayout(a, b *ebpf.Map) bool {
	return a.Type() == b.Type() && a.ValueSize() == b.ValueSize() && a.KeySize() == b.KeySize()
}

// copyArray copies the entries that both maps have.
func copyArray[T any](old, now *ebpf.Map) error {
	values := make([]T, old.MaxEntries())
	if err := readArray(old, values); err != nil {
		return err
	}
	values = values[:min(len(values), int(now.MaxEntries()))]
	return writeArray(now, values)
}

// writeArray writes the first entries of an array map.
func writeArray[T any](m *ebpf.Map, values []T) error {
	keys := make([]uint32, len(values))
	for i := range keys {
		keys[i] = uint32(i)
	}
	if _, err := m.BatchUpdate(keys, values, nil); err != nil {
		return fmt.Errorf("writing map %s: %w", m, err)
	}
	return nil
}

func copyCounts(old, now *ebpf.Map) error {
	for key := range min(old.MaxEntries(), now.MaxEntries()) {
		var perCPU []narthexCounts
		if err := old.Lookup(key, &perCPU); err != nil {
			return err
		}
		if err := now.Put(key, perCPU); err != nil {
			return err
		}
	}
	return nil
}

// rehashSources moves per-source buckets to a table of another size.
func (o *objects) rehashSources(old *ebpf.Map) error {
	was := make([]narthexSourceSet, old.MaxEntries())
	if err := readArray(old, was); err != nil {
		return err
	}
	return writeArray(o.SourceSets, rehash(was, int(o.SourceSets.MaxEntries())))
}

// rehash distributes buckets over another number of sets; both are powers of two. A
// source that was evicted before must find no fuller bucket here either: no time of its
// new set is earlier than the earliest of its old one. Where a set overflows, the fullest
// buckets are evicted.
func rehash(was []narthexSourceSet, sets int) []narthexSourceSet {
	now := make([]narthexSourceSet, sets)
	if sets > len(was) {
		for i := range now {
			floor := fullest(&was[i%len(was)]).Time
			for w := range now[i].Way {
				now[i].Way[w].Time = floor
			}
		}
	}
	for i := range was {
		for _, s := range was[i].Way {
			if s.Tag == 0 && sets > len(was) {
				continue // its time is the floor
			}
			into := i % sets
			if s.Tag != 0 {
				into = int(uint32(s.Tag>>32)) % sets
			}
			if f := fullest(&now[into]); s.Time >= f.Time {
				*f = s
			}
		}
	}
	return now
}

// fullest returns the way that the next newcomer would take over.
func fullest(set *narthexSourceSet) *narthexSource {
	least := &set.Way[0]
	for w := range set.Way {
		if set.Way[w].Time < least.Time {
			least = &set.Way[w]
		}
	}
	return least
}

// takeOver adds what the old programs counted to the base of the slots that are still the
// same rule's, and moves their buckets on by the tokens that were taken since migrate.
func (o *objects) takeOver(before, after *slots) error {
	counts, buckets := o.retired[narthexMapRuleCounts], o.retired[narthexMapRuleBuckets]
	for key, slot := range before.byRule {
		now, ok := after.byRule[key]
		if !ok || now != slot {
			continue
		}
		if counts != nil && sameLayout(counts, o.RuleCounts) && slot < counts.MaxEntries() {
			if err := o.addBase(counts, slot, after); err != nil {
				return err
			}
		}
		if buckets == nil || !sameLayout(buckets, o.RuleBuckets) || before.rules[slot].Id != after.rules[slot].Id {
			continue
		}
		if err := o.raise(buckets, bucketIndex(slot, after.rules[slot].Id)); err != nil {
			return err
		}
	}
	return nil
}

func (o *objects) addBase(counts *ebpf.Map, slot uint32, s *slots) error {
	total, err := readCounts(counts, slot)
	if err != nil {
		return err
	}
	base := &s.rules[slot].Base
	sum := total.plus(*base)
	base.Passed, base.Dropped, base.WouldDrop = sum.Passed, sum.Dropped, sum.WouldDrop
	return o.RuleSlots.Put(slot, &s.rules[slot])
}

// raise makes a bucket no fuller than it is in the old map.
func (o *objects) raise(old *ebpf.Map, index uint32) error {
	var was, now uint64
	if index >= old.MaxEntries() {
		return nil
	}
	if err := old.Lookup(index, &was); err != nil {
		return err
	}
	if err := o.RuleBuckets.Lookup(index, &now); err != nil {
		return err
	}
	if was <= now {
		return nil
	}
	return o.RuleBuckets.Put(index, was)
}
