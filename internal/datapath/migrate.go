// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// migrate carries over what the retired maps hold, where its form is known, and notes
// what is lost. Counts of rules follow in keepCounts.
func (o *objects) migrate(in *Instance) error {
	copies := map[string]func(old *ebpf.Map) error{
		narthexMapRuleSlots:    func(old *ebpf.Map) error { return copyArray[narthexRuleSlot](old, o.RuleSlots) },
		narthexMapRuleBuckets:  func(old *ebpf.Map) error { return copyArray[uint64](old, o.RuleBuckets) },
		narthexMapSourceSets:   o.rehashSources,
		narthexMapReasonCounts: func(old *ebpf.Map) error { return copyCounts(old, o.ReasonCounts) },
	}
	pinned := o.pinnedMaps()
	for name, old := range o.retired {
		now := pinned[name]
		if now == nil || name == narthexMapPolicyImage || name == narthexMapRuleCounts {
			continue
		}
		carry := copies[name]
		if carry == nil || old.Type() != now.Type() || old.ValueSize() != now.ValueSize() || old.KeySize() != now.KeySize() {
			in.notes = append(in.notes, fmt.Sprintf("what map %q held is reset: this version lays it out in another way", name))
			continue
		}
		if err := carry(old); err != nil {
			return fmt.Errorf("migrating map %q: %w", name, err)
		}
	}
	return nil
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

// keepCounts adds what the retired counters of rules reached to the base of their slots.
func (o *objects) keepCounts(s *slots) error {
	old := o.retired[narthexMapRuleCounts]
	if old == nil {
		return nil
	}
	for _, slot := range s.byRule {
		if slot >= old.MaxEntries() {
			continue
		}
		total, err := readCounts(old, slot)
		if err != nil {
			return err
		}
		base := &s.rules[slot].Base
		sum := total.plus(*base)
		base.Passed, base.Dropped, base.WouldDrop = sum.Passed, sum.Dropped, sum.WouldDrop
		if err := o.RuleSlots.Put(slot, &s.rules[slot]); err != nil {
			return err
		}
	}
	return nil
}
