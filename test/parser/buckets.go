// SPDX-License-Identifier: Apache-2.0

package parser

/*
#include "native.h"
*/
import "C"

import (
	"fmt"
	"net/netip"
	"unsafe"
)

// Sizes of the table of sources.
const (
	sourceWays = C.SOURCE_WAYS // of a set, as shipped
	testSets   = C.TEST_SETS   // at most
)

// noTime is a theoretical arrival time that the programs never write.
const noTime = ^uint64(0)

// policer is a rule with a bucket, of its own or per source.
type policer struct {
	ID        uint64
	Interval  uint64 // ns
	Burst     uint64
	AtOnce    uint64 // so many at once, in place of a bucket; 0: it is a bucket
	PerSource bool
	Bits4     int
	Bits6     int
}

func (p policer) String() string {
	return fmt.Sprintf("rule %d: a token per %d ns, burst %d", p.ID, p.Interval, p.Burst)
}

func (p policer) cell() C.struct_rule {
	r := C.struct_rule{
		interval: C.__u64(p.Interval), tolerance: C.__u64(p.Interval * (p.Burst - 1)), id: C.__u64(p.ID),
		action: C.ACTION_POLICE, bits_v4: C.__u8(p.Bits4), bits_v6: C.__u8(p.Bits6),
	}
	if p.PerSource {
		r.per_source = 1
	}
	if p.AtOnce > 0 {
		r.by, r.interval, r.tolerance = C.BY_PLACES, 0, C.__u64(p.AtOnce)
	}
	return r
}

// from is a SYN from that address.
func from(addr netip.Addr) C.struct_packet {
	var p C.struct_packet
	b := addr.AsSlice()
	if addr.Is6() {
		p.v6 = 1
	}
	for i := range b {
		p.src[i/8] |= C.__u64(b[i]) << (56 - 8*(i%8))
	}
	return p
}

// resetBuckets empties all buckets, of which there are that many sets with that many ways.
func resetBuckets(sets, ways int, key [2]uint64) {
	C.native_buckets_reset(C.__u32(sets), C.__u32(ways), C.__u64(key[0]), C.__u64(key[1]))
}

// police is police() of bpf/policy/bucket.h; it tells whether a token was taken.
func police(p policer, addr netip.Addr, now uint64) bool {
	rule, packet := p.cell(), from(addr)
	return C.native_police(&rule, &packet, C.__u64(now)) != 0
}

// takeAll is take_tokens() of bpf/policy/limits.h: whether there was a token or a place of each of the limits, and
// what gives the places back.
func takeAll(limits []policer, addr netip.Addr, now uint64) (taken bool, leave func()) {
	cells, packet := make([]C.struct_rule, len(limits)), from(addr)
	for i, l := range limits {
		cells[i] = l.cell()
		cells[i].slot = C.__u32(i)
	}
	var places C.__u64
	taken = C.native_take_limits(&cells[0], C.__u32(len(cells)), &packet, C.__u64(now), &places) != 0
	return taken, func() { C.native_leave_places(places) }
}

// refusedBy is how often the i-th limit was the one that had none.
func refusedBy(i int) uint64 { return uint64(C.native_refused(C.__u32(i))) }

// sourceTag is the tag of the source's bucket under the rule.
func sourceTag(p policer, addr netip.Addr) uint64 {
	rule, packet := p.cell(), from(addr)
	return uint64(C.native_source_tag(&rule, &packet))
}

// way finds the source with that tag: its theoretical arrival time, or noTime; and the
// earliest of its set, among that many ways.
func way(tag uint64, ways int) (own, earliest uint64) {
	set := C.native_source_set(C.__u64(tag))
	own, earliest = noTime, noTime
	for _, s := range unsafe.Slice(&set.way[0], ways) {
		if uint64(s.tag) == tag {
			own = uint64(s.time)
		}
		earliest = min(earliest, uint64(s.time))
	}
	return own, earliest
}
