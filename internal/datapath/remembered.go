// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"narthex/internal/policy"
)

// Remembered is what is remembered of one client: an IPv4 address, or an IPv6 /64.
type Remembered struct {
	Client netip.Prefix
	Class  int           // index into Tables.Classes of the class that it is learned in
	Left   time.Duration // for which it is yet
}

// ClientPrefix is the client that an address belongs to, as the programs tell clients apart.
func ClientPrefix(from netip.Addr) netip.Prefix {
	bits := 64
	if from = from.Unmap().WithZone(""); from.Is4() {
		bits = 32
	}
	return netip.PrefixFrom(from, bits).Masked()
}

// prefix is the client of a key.
func (k *narthexClient) prefix() netip.Prefix { return ClientPrefix(address(k.Address, k.V6)) }

// Blocked lists the clients whose connections are refused.
func (in *Instance) Blocked() ([]Remembered, error) {
	return remembered(in, func(o *objects) *ebpf.Map { return o.BlockedClients }, func(until *uint64) (uint64, int) { return *until, policy.NotLearned })
}

// Learned lists the clients that are learned in a class.
func (in *Instance) Learned() ([]Remembered, error) {
	return remembered(in, func(o *objects) *ebpf.Map { return o.LearnedClients }, func(l *narthexLearned) (uint64, int) {
		return l.Until, in.classIn(l.Class)
	})
}

// classIn is the class of the policy in force that has a slot; -1: none.
func (in *Instance) classIn(slot uint32) int {
	return slices.IndexFunc(in.applied.Tables.Classes, func(c policy.ClassTable) bool { return in.slots.byClass[c.Name] == slot })
}

// remembered lists what a map has of clients whose time has not come, by address. What comes and goes meanwhile
// may be missing.
func remembered[V any](in *Instance, table func(*objects) *ebpf.Map, read func(*V) (until uint64, class int)) ([]Remembered, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil || in.applied.Tables == nil {
		return nil, errNoPolicy
	}
	t, err := now()
	if err != nil {
		return nil, err
	}
	var list []Remembered
	err = eachClient(table(in.objects), func(key *narthexClient, v *V) {
		if until, class := read(v); until > t && (class >= 0 || class == policy.NotLearned) {
			list = append(list, Remembered{key.prefix(), class, time.Duration(until - t)})
		}
	})
	slices.SortFunc(list, func(a, b Remembered) int { return a.Client.Addr().Compare(b.Client.Addr()) })
	return slices.CompactFunc(list, func(a, b Remembered) bool { return a.Client == b.Client }), err
}

var errNoPolicy = errors.New("no policy is in force")

// eachClient calls do with each entry of a map of clients, which may change meanwhile.
func eachClient[V any](m *ebpf.Map, do func(key *narthexClient, v *V)) error {
	var key narthexClient
	var v V
	all := m.Iterate()
	for all.Next(&key, &v) {
		do(&key, &v)
	}
	if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return fmt.Errorf("reading map %s: %w", m, err)
	}
	return nil
}

// Block has the connections of a client refused for so long.
func (in *Instance) Block(from netip.Addr, long time.Duration) error {
	return in.remember(func(until uint64) error {
		if err := in.objects.BlockedClients.Put(clientKey(from), until); err != nil {
			return fmt.Errorf("blocking %s: %w", from, err)
		}
		if before, _ := strconv.ParseUint(recorded(in.objects.Journal, keyBlocked), 10, 64); before < until {
			if err := record(in.objects.Journal, keyBlocked, strconv.FormatUint(until, 10)); err != nil {
				return err
			}
		}
		return in.lookForBlocked()
	}, long)
}

// Learn has a client be of a class (an index into Tables.Classes) for so long, whatever it was learned as.
func (in *Instance) Learn(from netip.Addr, class int, long time.Duration) error {
	return in.remember(func(until uint64) error {
		if class < 0 || class >= len(in.applied.Tables.Classes) {
			return fmt.Errorf("no class %d is in force", class)
		}
		slot := in.slots.byClass[in.applied.Tables.Classes[class].Name]
		if err := in.objects.LearnedClients.Put(clientKey(from), &narthexLearned{Until: until, Class: slot}); err != nil {
			return fmt.Errorf("learning %s: %w", from, err)
		}
		return nil
	}, long)
}

func (in *Instance) remember(put func(until uint64) error, long time.Duration) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil || in.applied.Tables == nil {
		return errNoPolicy
	}
	t, err := now()
	if err != nil {
		return err
	}
	return put(t + uint64(long))
}

// lookForBlocked has the programs look whether clients are blocked, where no rule of the policy blocks any.
func (in *Instance) lookForBlocked() error {
	var first narthexPage
	if err := in.objects.image.Lookup(zero, &first); err != nil {
		return fmt.Errorf("reading the policy in force: %w", err)
	}
	if h := headerOf(&first); h.Blocks == 0 {
		h.Blocks = 1
		if err := in.objects.image.Put(zero, &first); err != nil {
			return fmt.Errorf("changing the policy in force: %w", err)
		}
	}
	return nil
}

// headerOf is the header of an image, by its first page.
func headerOf(p *narthexPage) *narthexHeader { return (*narthexHeader)(unsafe.Pointer(p)) }

// keyBlocked is where the journal has until when somebody is blocked by hand.
const keyBlocked = "blocked"

// anyBlocked says whether somebody may be blocked by hand.
func (o *objects) anyBlocked() (bool, error) {
	until, _ := strconv.ParseUint(recorded(o.Journal, keyBlocked), 10, 64)
	t, err := now()
	return until > t, err
}

// Unblock forgets the blocked clients that have an address in one of the prefixes, and says which.
func (in *Instance) Unblock(within []netip.Prefix) ([]netip.Prefix, error) {
	return forget[uint64](in, func(o *objects) *ebpf.Map { return o.BlockedClients }, within)
}

// Unlearn does the same with learned ones.
func (in *Instance) Unlearn(within []netip.Prefix) ([]netip.Prefix, error) {
	return forget[narthexLearned](in, func(o *objects) *ebpf.Map { return o.LearnedClients }, within)
}

func forget[V any](in *Instance, table func(*objects) *ebpf.Map, within []netip.Prefix) (gone []netip.Prefix, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil {
		return nil, errNoPolicy
	}
	m := table(in.objects)
	var keys []narthexClient
	err = eachClient(m, func(key *narthexClient, _ *V) {
		if slices.ContainsFunc(within, key.prefix().Overlaps) {
			keys = append(keys, *key)
		}
	})
	for i := range keys {
		switch failed := m.Delete(&keys[i]); {
		case failed == nil:
			gone = append(gone, keys[i].prefix())
		case !errors.Is(failed, ebpf.ErrKeyNotExist):
			err = errors.Join(err, fmt.Errorf("forgetting %s: %w", keys[i].prefix(), failed))
		}
	}
	return gone, err
}

// FillBucket fills the bucket that a connection from that source would take a token from under a rule (an index
// into Tables.Rules), for its rate or one of its limits, or says that there is none: the source was not seen.
func (in *Instance) FillBucket(rule, limit int, from netip.Addr) (bool, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil || in.applied.Tables == nil || rule >= len(in.applied.Tables.Rules) {
		return false, errNoRule
	}
	r := &in.applied.Tables.Rules[rule]
	if limit == RateOf {
		return in.objects.fill(connectionCell(r, in.slots), from)
	}
	return in.fillLimit(connectionKey(r), r.Limits, limit, from)
}

// FillRequestBucket is FillBucket for a request rule (an index into Tables.Requests.Rules).
func (in *Instance) FillRequestBucket(rule, limit int, from netip.Addr) (bool, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil || in.applied.Tables == nil || rule >= len(in.applied.Tables.RequestRules()) {
		return false, errNoRule
	}
	r := &in.applied.Tables.Requests.Rules[rule]
	if limit == RateOf {
		return in.objects.fill(requestCell(r, in.slots), from)
	}
	return in.fillLimit(requestKey(r), r.Limits, limit, from)
}

func (in *Instance) fillLimit(rule ruleKey, limits []policy.LimitTable, limit int, from netip.Addr) (bool, error) {
	if limit >= len(limits) {
		return false, errNoRule
	}
	return in.objects.fill(ruleCell(boundLimit(&limits[limit]), -1, in.slots, in.slots.byRule[rule.limit(limit)]), from)
}

func (o *objects) fill(r *narthexRule, from netip.Addr) (bool, error) {
	if r.By != uint8(narthexLimitByBY_RATE) {
		return false, nil // what it has it is given every moment, or by who ends
	}
	if r.PerSource == 0 {
		if err := o.RuleBuckets.Put(bucketIndex(r.Slot, r.Id), uint64(0)); err != nil {
			return false, fmt.Errorf("filling a bucket: %w", err)
		}
		return true, nil
	}
	at, way, err := o.findSource(r, from, "")
	if err != nil || way < 0 {
		return false, err
	}
	memory, err := o.SourceSets.Memory()
	if err != nil {
		return false, fmt.Errorf("mapping the buckets of sources: %w", err)
	}
	// Eight bytes at once: what others of the set take meanwhile stays taken.
	offset := int64(at)*int64(unsafe.Sizeof(narthexSourceSet{})) + int64(way)*int64(unsafe.Sizeof(narthexSource{})) + int64(unsafe.Offsetof(narthexSource{}.Time))
	if _, err := memory.WriteAt(make([]byte, 8), offset); err != nil {
		return false, fmt.Errorf("filling the bucket of %s: %w", from, err)
	}
	return true, nil
}
