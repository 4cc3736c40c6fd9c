// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"narthex/internal/policy"
)

// sourceWays is how many per-source buckets share a set.
const sourceWays = len(narthexSourceSet{}.Way)

// sourceSetsAtOnce is how many are copied at once to be counted.
const sourceSetsAtOnce = 64

// Bucket is the state of one token bucket.
type Bucket struct {
	Known  bool          // false: the source was not seen under this rule, or was forgotten
	Tokens float64       // tokens in it now; negative if a newcomer has to make up for an evicted source
	Full   time.Duration // until it is full without further SYNs
}

// now returns CLOCK_MONOTONIC in nanoseconds, the programs' clock.
func now() (uint64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("reading the clock: %w", err)
	}
	return uint64(ts.Nano()), nil
}

// level turns a theoretical arrival time into tokens.
func level(arrival, now, interval uint64, burst uint32) Bucket {
	b := Bucket{Known: true, Tokens: float64(burst)}
	if arrival > now && interval > 0 {
		b.Full = time.Duration(arrival - now)
		b.Tokens -= float64(arrival-now) / float64(interval)
	}
	return b
}

// carryLevel returns the theoretical arrival time at which a rule's bucket goes on in a
// new form: with as many tokens as it had, up to its new depth.
func (o *objects) carryLevel(slot uint32, old, want *narthexRuleSlot) (uint64, error) {
	if old.PerSource != 0 || want.PerSource != 0 || old.Interval == 0 || want.Interval == 0 || old.Interval == atOnceInterval || want.Interval == atOnceInterval {
		return 0, nil
	}
	var arrival uint64
	if err := o.RuleBuckets.Lookup(bucketIndex(slot, old.Id), &arrival); err != nil {
		return 0, fmt.Errorf("reading a bucket: %w", err)
	}
	t, err := now()
	if err != nil {
		return 0, err
	}
	have := math.Min(level(arrival, t, old.Interval, old.Burst).Tokens, float64(want.Burst))
	return t + uint64((float64(want.Burst)-have)*float64(want.Interval)), nil
}

// RateOf stands for the rate of a rule in place of the number of one of its limits.
const RateOf = -1

// Bucket reads the bucket that a SYN from that source to the given rule (an index into
// the Tables.Rules in force) would take a token from: for its rate, or for one of its limits.
func (in *Instance) Bucket(rule, limit int, from netip.Addr) (Bucket, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil || in.applied.Tables == nil || rule >= len(in.applied.Tables.Rules) {
		return Bucket{}, errNoRule
	}
	r := &in.applied.Tables.Rules[rule]
	if limit == RateOf {
		return in.bucket(connectionCell(r, in.slots), r.Burst, from, "")
	}
	return in.limitBucket(connectionKey(r), r.Limits, limit, from, "")
}

// RequestBucket is Bucket for a request of that source, with a value of what the buckets go by, and a
// request rule (an index into the Tables.Requests.Rules in force).
func (in *Instance) RequestBucket(rule, limit int, from netip.Addr, value string) (Bucket, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil || in.applied.Tables == nil || rule >= len(in.applied.Tables.RequestRules()) {
		return Bucket{}, errNoRule
	}
	r := &in.applied.Tables.Requests.Rules[rule]
	if limit == RateOf {
		return in.bucket(requestCell(r, in.slots), r.Burst, from, value)
	}
	return in.limitBucket(requestKey(r), r.Limits, limit, from, value)
}

func (in *Instance) limitBucket(rule ruleKey, limits []policy.LimitTable, limit int, from netip.Addr, value string) (Bucket, error) {
	if limit >= len(limits) {
		return Bucket{}, errNoRule
	}
	l := &limits[limit]
	return in.bucket(ruleCell(boundLimit(l), -1, in.slots, in.slots.byRule[rule.limit(limit)]), l.Burst, from, value)
}

var errNoRule = errors.New("no such rule is in force")

func (in *Instance) bucket(r *narthexRule, burst uint32, from netip.Addr, value string) (Bucket, error) {
	t, err := now()
	if err != nil {
		return Bucket{}, err
	}
	switch r.By {
	case uint8(narthexLimitByBY_PACE):
		return in.pacedBucket(r, t)
	case uint8(narthexLimitByBY_PLACES):
		return in.places(r, from, value)
	}
	if r.PerSource == 0 {
		var arrival uint64
		if err := in.objects.RuleBuckets.Lookup(bucketIndex(r.Slot, r.Id), &arrival); err != nil {
			return Bucket{}, fmt.Errorf("reading a bucket: %w", err)
		}
		return level(arrival, t, r.Interval, burst), nil
	}
	arrival, known, err := in.objects.sourceTime(r, from, value)
	b := level(arrival, t, r.Interval, burst)
	b.Known = known
	return b, err
}

// sourceTime finds a source as find_source() in bpf/policy/bucket.h does.
func (o *objects) sourceTime(r *narthexRule, from netip.Addr, value string) (arrival uint64, known bool, err error) {
	index, way, err := o.findSource(r, from, value)
	if err != nil {
		return 0, false, err
	}
	var set narthexSourceSet
	if err := o.SourceSets.Lookup(index, &set); err != nil {
		return 0, false, fmt.Errorf("reading a set of sources: %w", err)
	}
	if way >= 0 {
		return set.Way[way].Time, true, nil
	}
	arrival = math.MaxUint64
	for _, s := range set.Way {
		arrival = min(arrival, s.Time)
	}
	return arrival, false, nil
}

// findSource returns where a source's bucket is: a set, and the way in it; -1: nowhere.
func (o *objects) findSource(r *narthexRule, from netip.Addr, value string) (index uint32, way int, err error) {
	var secret narthexSecret
	if err := o.SourceSecret.Lookup(zero, &secret); err != nil {
		return 0, -1, fmt.Errorf("reading the secret: %w", err)
	}
	tag := sourceTag(r, from, value, secret.Key)
	var set narthexSourceSet
	index = uint32(tag>>32) & (o.SourceSets.MaxEntries() - 1)
	if err := o.SourceSets.Lookup(index, &set); err != nil {
		return 0, -1, fmt.Errorf("reading a set of sources: %w", err)
	}
	return index, slices.IndexFunc(set.Way[:], func(s narthexSource) bool { return s.Tag == tag }), nil
}

// sourceTag is source_tag() of bpf/policy/bucket.h, by a value if there is one, and else by a source.
func sourceTag(r *narthexRule, from netip.Addr, value string, key [2]uint64) uint64 {
	if value != "" {
		return siphash13(key, r.Id, ValueHash(value, key), 1) | 1
	}
	k := policy.NewKey(from, 0)
	high, low := k[0]&maskHigh(int(r.BitsV4)), ^uint64(0)
	if !from.Unmap().Is4() {
		high, low = k[0]&maskHigh(int(r.BitsV6)), k[1]&maskHigh(int(r.BitsV6)-64)
	}
	return siphash13(key, r.Id, high, low) | 1
}

// ValueHash is what note_key() of bpf/match/key.h makes of a value.
func ValueHash(value string, key [2]uint64) uint64 {
	padded := append([]byte(value), make([]byte, 7)...)
	var words []uint64
	for i := 0; i < len(value); i += 8 {
		words = append(words, binary.LittleEndian.Uint64(padded[i:]))
	}
	return siphash13(key, append(words, uint64(len(value)))...) | 1
}

func maskHigh(length int) uint64 {
	return ^uint64(0) << (64 - min(max(length, 0), 64))
}

// siphash13 is siphash13() of bpf/policy/siphash.h.
func siphash13(key [2]uint64, words ...uint64) uint64 {
	v := [4]uint64{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573}
	round := func() {
		v[0] += v[1]
		v[1] = bits.RotateLeft64(v[1], 13) ^ v[0]
		v[0] = bits.RotateLeft64(v[0], 32)
		v[2] += v[3]
		v[3] = bits.RotateLeft64(v[3], 16) ^ v[2]
		v[0] += v[3]
		v[3] = bits.RotateLeft64(v[3], 21) ^ v[0]
		v[2] += v[1]
		v[1] = bits.RotateLeft64(v[1], 17) ^ v[2]
		v[2] = bits.RotateLeft64(v[2], 32)
	}
	for _, w := range words {
		v[3] ^= w
		round()
		v[0] ^= w
	}
	v[2] ^= 0xff
	round()
	round()
	round()
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

// SourceUse is how the table of per-source buckets is used.
type SourceUse struct {
	Size int // buckets that there can be
	Used int // buckets that some source has
	Debt int // of these, those that are not full: what an eviction would weigh on others
}

// Sources counts the per-source buckets.
func (in *Instance) Sources() (SourceUse, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil {
		return SourceUse{}, errors.New("instance is closed")
	}
	t, err := now()
	if err != nil {
		return SourceUse{}, err
	}
	// Mapped: the kernel copies entry by entry, which takes several times as long.
	memory, err := in.objects.SourceSets.Memory()
	if err != nil {
		return SourceUse{}, fmt.Errorf("mapping the buckets of sources: %w", err)
	}
	var part [sourceSetsAtOnce]narthexSourceSet
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&part)), unsafe.Sizeof(part))
	u := SourceUse{Size: int(in.objects.SourceSets.MaxEntries()) * sourceWays}
	for left, at := u.Size/sourceWays, int64(0); left > 0; left -= sourceSetsAtOnce {
		n := min(left, sourceSetsAtOnce)
		if _, err := memory.ReadAt(bytes[:n*int(unsafe.Sizeof(part[0]))], at); err != nil {
			return SourceUse{}, fmt.Errorf("reading the buckets of sources: %w", err)
		}
		at += int64(n) * int64(unsafe.Sizeof(part[0]))
		for i := range part[:n] {
			for _, s := range part[i].Way {
				if s.Tag != 0 {
					u.Used++
				}
				if s.Time > t {
					u.Debt++
				}
			}
		}
	}
	return u, nil
}
