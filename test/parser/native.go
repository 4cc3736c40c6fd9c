// SPDX-License-Identifier: Apache-2.0

// Package parser runs the data path's C code on this machine, where a test can do what the
// verifier and a kernel do not allow: call it a million times on hostile bytes and compare
// what it says with plain Go that was written from the RFCs.
package parser

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra -Wno-unused -I${SRCDIR}/../../bpf
#include "native.h"
*/
import "C"

import (
	"fmt"
	"net/netip"
	"unsafe"

	_ "narthex/test/source" // compile again when bpf/ changes
)

// kinds and reasons translate the C enumerations.
var kinds = map[C.int]Kind{
	C.PARSED_SYN: SYN, C.PARSED_ANOMALY: Anomaly, C.PARSED_PASS: Pass, C.PARSED_TRUNCATED: Truncated,
}

var reasons = map[C.__u8]Reason{
	C.REASON_NOT_IP: NotIP, C.REASON_NOT_TCP: NotTCP, C.REASON_NOT_SYN: NotSYN, C.REASON_MALFORMED: Malformed,
	C.REASON_FRAGMENT_TAIL: FragmentTail, C.REASON_FRAGMENT: Fragment, C.REASON_VLAN_TAGS: VLANTags,
	C.REASON_EXTENSION: Extension, C.REASON_SYN_DATA: SYNData, C.REASON_SYN_FLAGS: SYNFlags,
}

// arenaSize is larger than any frame of the tests.
const arenaSize = 1 << 16

// arena is memory that ends at a page that nobody may touch.
type arena struct{ memory []byte }

// parse is parse() of bpf/parse/packet.h on a frame that ends where the guard page begins.
func (a *arena) parse(frame []byte) (Result, error) {
	at := a.memory[arenaSize-len(frame):]
	copy(at, frame)
	end := unsafe.Add(unsafe.Pointer(unsafe.SliceData(a.memory)), arenaSize)
	var p C.struct_packet
	kind, ok := kinds[C.native_parse(unsafe.Add(end, -len(frame)), end, &p)]
	if !ok {
		return Result{}, fmt.Errorf("parse() returned what it does not define")
	}
	r := Result{Kind: kind}
	if kind == Truncated {
		return r, nil // says nothing else
	}
	if kind != SYN {
		if r.Reason, ok = reasons[p.anomaly]; !ok {
			return Result{}, fmt.Errorf("parse() gave reason %d, which is not one of a parser", p.anomaly)
		}
	} else if p.anomaly != 0 {
		return Result{}, fmt.Errorf("parse() called a frame a plain SYN and gave reason %d", p.anomaly)
	}
	if kind == Pass {
		return r, nil
	}
	if p.has_address != 0 {
		r.Src, r.Dst = address(p.v6 != 0, p.src), address(p.v6 != 0, p.dst)
	}
	if p.has_ports != 0 {
		r.Ports = true
		r.SrcPort, r.DstPort = uint16(p.sport), uint16(p.dport)
	}
	return r, nil
}

// address undoes the form of an address in a trie key.
func address(v6 bool, words [2]C.__u64) netip.Addr {
	var b [16]byte
	for i := range b {
		b[i] = byte(words[i/8] >> (56 - 8*(i%8)))
	}
	if !v6 {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16(b)
}

// siphash13 is siphash13() of bpf/policy/siphash.h.
func siphash13(key [2]uint64, a, b, c uint64) uint64 {
	return uint64(C.native_siphash13(C.__u64(key[0]), C.__u64(key[1]), C.__u64(a), C.__u64(b), C.__u64(c)))
}
