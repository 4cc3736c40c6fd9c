// SPDX-License-Identifier: Apache-2.0

// Package gate runs the source of the gate's programs on this machine, in a small world of its
// own: a clock, clients that send what they like, a stack with sockets, a server behind it. What
// the gate does there is compared with a model of a flow in plain Go, and with what must hold
// whatever happens.
package gate

/*
#cgo CFLAGS: -std=gnu11 -O2 -g -fno-strict-aliasing -Wall -Wextra -Wno-unused -Wno-unknown-pragmas -I${SRCDIR}/../../bpf
#include "native.h"
*/
import "C"

import (
	"net/netip"
	"unsafe"

	"narthex/internal/policy"
	_ "narthex/test/source" // compile again when bpf/ changes
)

// Verdicts.
const (
	next     = -1
	drop     = 2
	redirect = 7
)

// States of sockets.
const (
	established = C.BPF_TCP_ESTABLISHED
	finWait     = 4
	timeWait    = C.BPF_TCP_TIME_WAIT
	closed      = C.BPF_TCP_CLOSE
	closeWait   = C.BPF_TCP_CLOSE_WAIT
	lastAck     = 9
	listening   = C.BPF_TCP_LISTEN
	synReceived = C.BPF_TCP_NEW_SYN_RECV
)

// native is what the programs see of the world.
type native struct {
	w *C.struct_world
}

type (
	meta   = C.struct_meta
	key    = C.struct_flow_key
	out    = C.struct_out
	census = C.struct_census
	known  = C.struct_known
	socket = C.struct_socket
)

func (n native) open(s sizes, p *C.struct_policy) {
	C.world_open(&C.struct_sizes{slots: C.__u32(s.slots), slot_size: C.__u32(s.slotSize), flows: C.__u32(s.flows), farewells: C.__u32(s.farewells)}, p)
}

// sizes are what user space sizes.
type sizes struct{ slots, slotSize, flows, farewells int }

func (n native) in(frame []byte, m *meta) int {
	return int(C.world_in((*C.__u8)(unsafe.SliceData(frame)), C.__u32(len(frame)), m))
}

func (n native) out(frame []byte, m *meta) int {
	return int(C.world_out((*C.__u8)(unsafe.SliceData(frame)), C.__u32(len(frame)), m))
}

func (n native) outs() []out { return n.w.out[:n.w.out_count] }

func (n native) bytes(o *out) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(n.w.out_bytes), o.at)), o.length)
}

func (n native) fault() string { return C.GoString(&n.w.fault[0]) }

func (n native) census() (c census) {
	C.world_census(&c)
	return c
}

func (n native) flow(k *key) (f known, ok bool) {
	ok = bool(C.world_flow(k, &f))
	return f, ok
}

func (n native) room() *C.struct_room { return C.world_room() }

// contender is a source in a contest for places.
type contender struct {
	connections int
	cost        int // ns in service
	fresh       bool
	network     int // of contenders with the same each is a value of one source; 0: it is a source
	madeUp      bool
}

// contest divides places among sources in the order of a class, and returns the time in service that each has had.
func contest(all []contender, places, requests int) (served []float64, wrong string) {
	native{&C.the_world}.open(sizes{slots: 8192, slotSize: 2048, flows: 16, farewells: 16}, &C.struct_policy{})
	in := make([]C.struct_contender, len(all))
	for i, c := range all {
		in[i] = C.struct_contender{connections: C.__u32(c.connections), cost: C.__u64(c.cost), network: C.__u32(c.network)}
		if c.fresh {
			in[i].fresh = 1
		}
		if c.madeUp {
			in[i].made_up = 1
		}
	}
	var seen C.struct_census
	C.world_contest(&seen, &in[0], C.__u32(len(in)), C.__u32(places), C.__u32(requests))
	for i := range in {
		served = append(served, float64(in[i].served))
	}
	return served, C.GoString(&seen.wrong[0])
}

// mirrors reports whether what a source does is copied, under a mask of so many bits.
func mirrors(source netip.Addr, bits int, seed uint32) bool {
	key := policy.NewKey(source, 0)
	return bool(C.world_mirrors(C.__u64(key[0]), C.__u64(key[1]), C.bool(source.Is6()), C.__u32(1<<bits-1), C.__u32(seed)))
}
