// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"narthex/internal/policy"
)

// slots say which rule and which service owns which counters and buckets, by name. The
// maps hold the same, for the next daemon.
type slots struct {
	rules    []narthexRuleSlot
	byRule   map[ruleKey]uint32
	services []string
	byName   map[string]uint32
	classes  []string
	byClass  map[string]uint32
	capacity int // how many requests can be held at once
	flows    int // how many connections can be followed
}

// ruleKey tells rules: one of each table may have the same name.
type ruleKey struct {
	kind uint8
	name string
}

// The kinds of rules in a struct rule_slot.
const (
	connectionRule = uint8(narthexRuleKindRULE_CONNECTION)
	requestRule    = uint8(narthexRuleKindRULE_REQUEST)
	firstLimit     = uint8(narthexRuleKindRULE_LIMITS)
	kindsOfRules   = firstLimit
)

func connectionKey(r *policy.RuleTable) ruleKey { return ruleKey{connectionRule, r.Name} }

func requestKey(r *policy.RequestRule) ruleKey { return ruleKey{requestRule, r.Name} }

// slotKey returns whose a slot is, with no name if it is free.
func slotKey(s *narthexRuleSlot) ruleKey { return ruleKey{s.Kind, nameString(s.Name[:])} }

// owner is a rule that has a slot, with its bucket.
type owner struct {
	ruleKey
	limit
}

// limit is what a rule says of its bucket.
type limit struct {
	action   policy.Action
	interval time.Duration
	burst    uint32
	per      policy.Per
	atOnce   uint32 // in place of a bucket; 0: there is one
}

// key is the slot's of one of the limits of a rule.
func (k ruleKey) limit(i int) ruleKey {
	return ruleKey{k.kind + firstLimit + kindsOfRules*uint8(i), k.name}
}

// isLimit reports whether a slot is that of one of the limits of a rule.
func (k ruleKey) isLimit() bool { return k.kind >= firstLimit }

func boundLimit(l *policy.LimitTable) limit {
	return limit{policy.ActionPolice, l.Interval, l.Burst, l.Per, l.AtOnce}
}

func connectionLimit(r *policy.RuleTable) limit {
	return limit{r.Action, r.Interval, r.Burst, r.Per, 0}
}

func requestLimit(r *policy.RequestRule) limit { return limit{r.Action, r.Interval, r.Burst, r.Per, 0} }

// ruleOwners lists the rules of both tables, each followed by its limits.
func ruleOwners(t *policy.Tables) []owner {
	requests := t.RequestRules()
	all := make([]owner, 0, len(t.Rules)+len(requests))
	add := func(key ruleKey, own limit, limits []policy.LimitTable) {
		all = append(all, owner{key, own})
		for i := range limits {
			all = append(all, owner{key.limit(i), boundLimit(&limits[i])})
		}
	}
	for i := range t.Rules {
		add(connectionKey(&t.Rules[i]), connectionLimit(&t.Rules[i]), t.Rules[i].Limits)
	}
	for i := range requests {
		add(requestKey(&requests[i]), requestLimit(&requests[i]), requests[i].Limits)
	}
	return all
}

// readSlots reads the owners from the maps.
func readSlots(o *objects) (*slots, error) {
	s := &slots{byRule: map[ruleKey]uint32{}, capacity: int(o.Slots.MaxEntries()) - 1, flows: int(o.Flows.MaxEntries())}
	s.rules = make([]narthexRuleSlot, o.RuleSlots.MaxEntries())
	if err := readArray(o.RuleSlots, s.rules); err != nil {
		return nil, err
	}
	for i := range s.rules {
		if key := slotKey(&s.rules[i]); key.name != "" {
			s.byRule[key] = uint32(i)
		}
	}
	services := make([]narthexServiceSlot, o.ServiceSlots.MaxEntries())
	if err := readArray(o.ServiceSlots, services); err != nil {
		return nil, err
	}
	classes := make([]narthexClassSlot, o.ClassSlots.MaxEntries())
	if err := readArray(o.ClassSlots, classes); err != nil {
		return nil, err
	}
	s.services, s.byName = owners(services, func(o *narthexServiceSlot) []uint8 { return o.Name[:] })
	s.classes, s.byClass = owners(classes, func(o *narthexClassSlot) []uint8 { return o.Name[:] })
	return s, nil
}

// owners returns the names of what owns slots, by slot and the other way around.
func owners[T any](slots []T, name func(*T) []uint8) (names []string, bySlot map[string]uint32) {
	names, bySlot = make([]string, len(slots)), map[string]uint32{}
	for i := range slots {
		if names[i] = nameString(name(&slots[i])); names[i] != "" {
			bySlot[names[i]] = uint32(i)
		}
	}
	return names, bySlot
}

// readArray reads all of an array map.
func readArray[T any](m *ebpf.Map, values []T) error {
	keys := make([]uint32, len(values))
	var cursor ebpf.MapBatchCursor
	n, err := m.BatchLookup(&cursor, keys, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("reading map %s: %w", m, err)
	}
	if n != len(values) {
		return fmt.Errorf("reading map %s: %d of %d entries", m, n, len(values))
	}
	return nil
}

// free returns how many rules can still be given a slot.
func (s *slots) free() int { return len(s.rules) - len(s.byRule) }

// newRules counts the rules that have no slot yet.
func (s *slots) newRules(rules []owner) int {
	n := 0
	for i := range rules {
		if _, ok := s.byRule[rules[i].ruleKey]; !ok {
			n++
		}
	}
	return n
}

// bucketIndex is where in rule_buckets the rule's bucket is. A new form of the bucket
// has a new id and so the other of a slot's two buckets: the old image goes on with the
// old one.
func bucketIndex(slot uint32, id uint64) uint32 { return 2*slot + uint32(id&1) }

// form returns the part of a rule's slot that a change of the bucket's form changes.
func (l limit) form() (f narthexRuleSlot) {
	if l.action != policy.ActionPolice {
		return f
	}
	f.Interval, f.Burst = uint64(l.interval), l.burst
	if l.atOnce > 0 {
		f.Interval, f.Burst = atOnceInterval, l.atOnce
	}
	if l.per != policy.PerRule {
		f.PerSource, f.BitsV4, f.BitsV6, f.Key = 1, uint8(l.per.V4), uint8(l.per.V6), keyHash(l.per.Key)
	}
	return f
}

// atOnceInterval is in place of the interval in the slot of a limit that has places and no bucket.
const atOnceInterval = math.MaxUint64

// keyHash tells what has a bucket for each of its values from anything else; 0: nothing has.
func keyHash(key policy.PerKey) uint64 {
	if key.Kind == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(key.Kind + " " + key.Name))
	return binary.LittleEndian.Uint64(sum[:]) | 1
}

func sameForm(a, b *narthexRuleSlot) bool {
	return a.Interval == b.Interval && a.Burst == b.Burst && a.PerSource == b.PerSource && sameSharers(a, b)
}

// sameSharers reports whether the buckets of two forms are of the same sources or values.
func sameSharers(a, b *narthexRuleSlot) bool {
	return a.BitsV4 == b.BitsV4 && a.BitsV6 == b.BitsV6 && a.Key == b.Key
}

// clone returns a copy that can change.
func (s *slots) clone() *slots {
	return &slots{
		slices.Clone(s.rules), maps.Clone(s.byRule), slices.Clone(s.services), maps.Clone(s.byName),
		slices.Clone(s.classes), maps.Clone(s.byClass), s.capacity, s.flows,
	}
}

// assignRules gives each rule a slot and says what has to be written for that. There is
// room.
func (c *change) assignRules() error {
	next := uint32(0)
	for _, r := range ruleOwners(c.state.Tables) {
		want := r.form()
		slot, known := c.slots.byRule[r.ruleKey]
		if known && sameForm(&c.slots.rules[slot], &want) {
			continue
		}
		if !known {
			for c.slots.rules[next].Name[0] != 0 {
				next++
			}
			slot = next
		}
		if err := c.takeSlot(slot, known, r.ruleKey, want); err != nil {
			return err
		}
	}
	return nil
}

// takeSlot makes a slot a rule's, with a bucket of the wanted form. The image in force
// goes on with the slot's other bucket, whatever becomes of this change.
func (c *change) takeSlot(slot uint32, known bool, key ruleKey, want narthexRuleSlot) error {
	old := c.slots.rules[slot]
	want.Name, want.Kind, want.Id = nameBytes(key.name), key.kind, old.Id+1
	if known && keepsSources(&old, &want) {
		want.Id = old.Id
	}
	var time uint64 // a full bucket
	if known {
		want.Base = old.Base
		var err error
		if time, err = c.in.objects.carryLevel(slot, &old, &want); err != nil {
			return err
		}
	}
	c.writes = append(c.writes, slotWrite{slot, !known, want, time})
	c.slots.rules[slot] = want
	c.slots.byRule[key] = slot
	return nil
}

// writeSlot prepares a slot's maps.
func (o *objects) writeSlot(w *slotWrite) error {
	if w.fresh {
		if err := resetSlot[narthexCounts](o.RuleCounts, w.slot); err != nil {
			return err
		}
	}
	if err := o.RuleBuckets.Put(bucketIndex(w.slot, w.owner.Id), w.time); err != nil {
		return fmt.Errorf("preparing the bucket of rule %q: %w", nameString(w.owner.Name[:]), err)
	}
	if err := o.RuleSlots.Put(w.slot, &w.owner); err != nil {
		return fmt.Errorf("assigning a slot to rule %q: %w", nameString(w.owner.Name[:]), err)
	}
	return nil
}

// keepsSources reports whether the per-source buckets of a rule go on under a new form. A
// bucket's state is the time until it is full, so what a source has spent keeps it out as
// long as before, or until the tokens of a smaller burst are back. Under a higher rate it
// would be kept out longer than the rule says: its buckets start anew.
func keepsSources(old, want *narthexRuleSlot) bool {
	if old.Interval == atOnceInterval || want.Interval == atOnceInterval { // places that are taken are given back to whom they are of
		return old.Interval == want.Interval && old.PerSource == want.PerSource && sameSharers(old, want)
	}
	return old.PerSource == 1 && want.PerSource == 1 && sameSharers(old, want) && want.Interval >= old.Interval
}

// releaseRules frees the slots of rules that are no more. Their id stays, so that the
// next owner's sources are told from theirs.
func (in *Instance) releaseRules(rules []owner) error {
	keep := make(map[ruleKey]bool, len(rules))
	for i := range rules {
		keep[rules[i].ruleKey] = true
	}
	for key, slot := range in.slots.byRule {
		if keep[key] {
			continue
		}
		free := narthexRuleSlot{Id: in.slots.rules[slot].Id}
		if err := in.objects.RuleSlots.Put(slot, &free); err != nil {
			return fmt.Errorf("freeing the slot of rule %q: %w", key.name, err)
		}
		in.slots.rules[slot] = free
		delete(in.slots.byRule, key)
	}
	return nil
}

// assignServices gives each service and pool a slot for its counters and its room. Slots whose
// room is not empty yet are left to those that wait there.
func (s *slots) assignServices(names []string, busy func(slot uint32) bool) error {
	for _, name := range names {
		if _, ok := s.byName[name]; ok {
			continue
		}
		slot := uint32(0)
		for int(slot) < len(s.services) && (s.services[slot] != "" || busy(slot)) {
			slot++
		}
		if int(slot) == len(s.services) {
			return fmt.Errorf("no room for service %q: an instance has at most %d, those of the policy before included", name, len(s.services))
		}
		s.services[slot], s.byName[name] = name, slot
	}
	return nil
}

// writeServices prepares the slots of services that are new.
func (o *objects) writeServices(before, after *slots) error {
	for name, slot := range after.byName {
		if before.services[slot] == name {
			continue
		}
		if err := resetSlot[narthexCounts](o.ServiceCounts, slot); err != nil {
			return err
		}
		if err := resetSlot[uint64](o.ConnectionCounts, slot); err != nil {
			return err
		}
		if err := o.resetRoom(slot); err != nil {
			return err
		}
		if err := o.nameService(slot, name); err != nil {
			return err
		}
	}
	return nil
}

func (o *objects) nameService(slot uint32, name string) error {
	if err := o.ServiceSlots.Put(slot, &narthexServiceSlot{Name: nameBytes(name)}); err != nil {
		return fmt.Errorf("assigning a slot to service %q: %w", name, err)
	}
	return nil
}

func (in *Instance) releaseServices(names []string) error {
	keep := map[string]bool{}
	for _, name := range names {
		keep[name] = true
	}
	for name, slot := range in.slots.byName {
		if keep[name] {
			continue
		}
		if err := in.objects.nameService(slot, ""); err != nil {
			return err
		}
		in.slots.services[slot] = ""
		delete(in.slots.byName, name)
	}
	return nil
}

// assignClasses gives each class a slot, which it keeps for as long as there are slots for
// others: requests of a class that is in the policy no more may still wait.
func (s *slots) assignClasses(classes []policy.ClassTable, busy func(slot uint32) bool) error {
	wanted := map[string]bool{}
	for _, c := range classes {
		wanted[c.Name] = true
	}
	for _, c := range classes {
		if _, ok := s.byClass[c.Name]; ok {
			continue
		}
		slot := slices.Index(s.classes, "")
		for i := 0; slot < 0 && i < len(s.classes); i++ {
			if !wanted[s.classes[i]] && !busy(uint32(i)) {
				slot = i
			}
		}
		if slot < 0 {
			return fmt.Errorf("no room for class %q while requests of earlier policies' classes still wait: try again in a moment", c.Name)
		}
		delete(s.byClass, s.classes[slot])
		s.classes[slot], s.byClass[c.Name] = c.Name, uint32(slot)
	}
	return nil
}

// writeClasses prepares the slots of classes that are new.
func (o *objects) writeClasses(before, after *slots) error {
	for name, slot := range after.byClass {
		if before.classes[slot] == name {
			continue
		}
		if err := o.resetClass(slot); err != nil {
			return err
		}
		if err := o.forgetLearned(slot); err != nil {
			return err
		}
		if err := o.ClassSlots.Put(slot, &narthexClassSlot{Name: nameBytes(name)}); err != nil {
			return fmt.Errorf("assigning a slot to class %q: %w", name, err)
		}
	}
	return nil
}
