// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Stats is one reading of all counters.
type Stats struct {
	Rules    []Counts // like Tables.Rules of the state in force
	Requests []Counts // of requests, like Tables.Requests.Rules
	Services []Counts // like Tables.Services
	// What limits of rules have refused, by rule: those of connections, and those of requests.
	RuleLimits, RequestLimits [][]uint64
	Reasons                   map[string]Counts // by reason, of packets decided without a rule; only non-zero ones
	// Connections are those that were established with the servers of services with a waiting room, by others
	// than this machine; like Tables.Services.
	Connections []uint64
}

// reasonNames are the names of enum reason in bpf/abi/reasons.h.
var reasonNames = [narthexReasonREASON_LEN]string{
	narthexReasonREASON_NOT_IP:         "not_ip",
	narthexReasonREASON_NOT_TCP:        "not_tcp",
	narthexReasonREASON_NOT_SYN:        "not_syn",
	narthexReasonREASON_MALFORMED:      "malformed",
	narthexReasonREASON_FRAGMENT_TAIL:  "fragment_tail",
	narthexReasonREASON_NO_SERVICE:     "no_service",
	narthexReasonREASON_NO_RULE:        "no_rule",
	narthexReasonREASON_NO_POLICY:      "no_policy",
	narthexReasonREASON_MAP_FAULT:      "map_fault",
	narthexReasonREASON_PULL_FAULT:     "pull_fault",
	narthexReasonREASON_FRAGMENT:       "fragment",
	narthexReasonREASON_VLAN_TAGS:      "vlan_tags",
	narthexReasonREASON_EXTENSION:      "extension",
	narthexReasonREASON_SYN_DATA:       "syn_data",
	narthexReasonREASON_SYN_FLAGS:      "syn_flags",
	narthexReasonREASON_CONTENDED:      "contended",
	narthexReasonREASON_SOURCES:        "sources",
	narthexReasonREASON_UPPER:          "upper",
	narthexReasonREASON_HANDSHAKE:      "handshake",
	narthexReasonREASON_FORGED:         "forged",
	narthexReasonREASON_GAP:            "gap",
	narthexReasonREASON_PIPELINED:      "pipelined",
	narthexReasonREASON_HELD:           "held",
	narthexReasonREASON_CHECKSUM:       "checksum",
	narthexReasonREASON_UNFOLLOWED:     "unfollowed",
	narthexReasonREASON_UNKNOWN_FLOW:   "unknown_flow",
	narthexReasonREASON_NESTING:        "nesting",
	narthexReasonREASON_CLONE_FAULT:    "clone_fault",
	narthexReasonREASON_ACCEPT_QUEUE:   "accept_queue",
	narthexReasonREASON_FAREWELL:       "farewell",
	narthexReasonREASON_RACE:           "race",
	narthexReasonREASON_CUT:            "cut",
	narthexReasonREASON_GATHERED:       "gathered",
	narthexReasonREASON_UNWATCHED:      "unwatched",
	narthexReasonREASON_BLOCKED:        "blocked",
	narthexReasonREASON_NO_SNI:         "no_sni",
	narthexReasonREASON_SHED:           "shed",
	narthexReasonREASON_UNTAKEN:        "untaken",
	narthexReasonREASON_OUTDATED:       "outdated",
	narthexReasonREASON_PARKED:         "parked",
	narthexReasonREASON_NO_SOCKET:      "no_socket",
	narthexReasonREASON_STALLED:        "stalled",
	narthexReasonREASON_REQUESTS:       "requests",
	narthexReasonREASON_AT_ONCE:        "at_once",
	narthexReasonREASON_NO_PROGRAM:     "no_program",
	narthexReasonREASON_NO_JA4:         "no_ja4",
	narthexReasonREASON_NO_CLASS:       "no_class",
	narthexReasonREASON_H2C_IGNORED:    "h2c_ignored",
	narthexReasonREASON_ASKED_TO_CLOSE: "asked_to_close",
	narthexReasonREASON_RECALLED:       "recalled",
}

// ReasonNames returns the names of all reasons, by number.
func ReasonNames() []string { return reasonNames[:] }

// Stats reads the counters.
func (in *Instance) Stats() (Stats, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil || in.applied.Tables == nil {
		return Stats{}, errors.New("no policy is in force")
	}
	t := in.applied.Tables
	s := Stats{Services: make([]Counts, len(t.Services)), Reasons: map[string]Counts{}}
	rules, err := readAllCounts(in.objects.RuleCounts)
	if err != nil {
		return Stats{}, err
	}
	for _, r := range ruleOwners(t) {
		slot := in.slots.byRule[r.ruleKey]
		live := rules[slot]
		all, limits := &s.Rules, &s.RuleLimits
		if r.kind%kindsOfRules == requestRule {
			all, limits = &s.Requests, &s.RequestLimits
		}
		now := live.plus(in.slots.rules[slot].Base)
		if r.isLimit() {
			of := &(*limits)[len(*limits)-1]
			*of = append(*of, now.Dropped)
			continue
		}
		*all, *limits = append(*all, now), append(*limits, nil)
	}
	for i := range t.Services {
		var err error
		if s.Services[i], err = readCounts(in.objects.ServiceCounts, in.slots.byName[t.Services[i].Name]); err != nil {
			return Stats{}, err
		}
		n, err := readConnections(in.objects.ConnectionCounts, in.slots.byName[t.Services[i].Name])
		if err != nil {
			return Stats{}, err
		}
		s.Connections = append(s.Connections, n)
	}
	for i, name := range reasonNames {
		c, err := readCounts(in.objects.ReasonCounts, uint32(i))
		if err != nil {
			return Stats{}, err
		}
		if c.Matched() > 0 {
			s.Reasons[name] = c
		}
	}
	return s, nil
}

// readAllCounts sums all slots over the CPUs, read with one call.
func readAllCounts(m *ebpf.Map) ([]Counts, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	perCPU := make([]narthexCounts, cpus*int(m.MaxEntries()))
	var cursor ebpf.MapBatchCursor
	n, err := m.BatchLookup(&cursor, make([]uint32, m.MaxEntries()), perCPU, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("reading counters from map %s: %w", m, err)
	}
	sums := make([]Counts, n)
	for i := range sums {
		for _, c := range perCPU[i*cpus : (i+1)*cpus] {
			sums[i] = sums[i].plus(c)
		}
	}
	return sums, nil
}

// readCounts sums a slot over the CPUs.
func readCounts(m *ebpf.Map, slot uint32) (Counts, error) {
	var perCPU []narthexCounts
	if err := m.Lookup(slot, &perCPU); err != nil {
		return Counts{}, fmt.Errorf("reading counters from map %s: %w", m, err)
	}
	var sum Counts
	for _, c := range perCPU {
		sum = sum.plus(c)
	}
	return sum, nil
}

// readConnections sums the connections of a slot over the CPUs.
func readConnections(m *ebpf.Map, slot uint32) (sum uint64, err error) {
	var perCPU []uint64
	if err := m.Lookup(slot, &perCPU); err != nil {
		return 0, fmt.Errorf("reading counters from map %s: %w", m, err)
	}
	for _, n := range perCPU {
		sum += n
	}
	return sum, nil
}

// resetSlot starts the counters of a slot at zero. No image in force uses it.
func resetSlot[T any](m *ebpf.Map, slot uint32) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	if err := m.Put(slot, make([]T, cpus)); err != nil {
		return fmt.Errorf("resetting counters in map %s: %w", m, err)
	}
	return nil
}

// MapBytes returns the kernel memory that the instance's maps hold, the policy image
// included.
func (in *Instance) MapBytes() (uint64, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil {
		return 0, errors.New("instance is closed")
	}
	all := in.objects.pinnedMaps()
	all["scratch"] = in.objects.Scratch
	if in.objects.image != nil {
		all[imageName] = in.objects.image
	}
	var sum uint64
	for name, m := range all {
		info, err := m.Info()
		if err != nil {
			return 0, fmt.Errorf("reading the size of map %q: %w", name, err)
		}
		bytes, _ := info.Memlock()
		sum += bytes
	}
	return sum, nil
}

// IsUsual reports whether what counts under a reason is how requests are held, and nobody's loss:
// segments that the gate answers for itself, or that are sent again.
func IsUsual(reason string) bool {
	switch reason {
	case "handshake", "pipelined", "held", "farewell", "cut", "gathered", "parked", "h2c_ignored", "recalled", "asked_to_close":
		return true
	}
	return false
}
