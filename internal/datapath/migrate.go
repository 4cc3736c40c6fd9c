// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"slices"

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

// rehashSources moves per-source buckets to a table of another size. Where a set
// overflows, the fullest buckets are forgotten, and the rest stand for them as they do
// after an eviction.
func (o *objects) rehashSources(old *ebpf.Map) error {
	was := make([]narthexSourceSet, old.MaxEntries())
	if err := readArray(old, was); err != nil {
		return err
	}
	now := make([]narthexSourceSet, o.SourceSets.MaxEntries())
	var all []narthexSource
	for i := range was {
		all = append(all, slices.DeleteFunc(was[i].Way[:], func(s narthexSource) bool { return s.Tag == 0 })...)
	}
	for _, s := range all {
		set := &now[uint32(s.Tag>>32)&uint32(len(now)-1)]
		fullest := &set.Way[0]
		for w := range set.Way {
			if set.Way[w].Time < fullest.Time {
				fullest = &set.Way[w]
			}
		}
		if s.Time >= fullest.Time {
			*fullest = s
		}
	}
	return writeArray(o.SourceSets, now)
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
