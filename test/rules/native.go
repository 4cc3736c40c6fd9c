// SPDX-License-Identifier: Apache-2.0

// Package rules runs the source that reads heads of requests and finds their rules on this
// machine and in the kernel, and compares what it says with plain Go: what package httphead
// reads, and the first rule that matches one by one.
package rules

/*
#cgo CFLAGS: -std=gnu11 -O2 -g -fno-strict-aliasing -Wall -Wextra -Wno-unused -Wno-unknown-pragmas -I${SRCDIR}/../../bpf
#include "native.h"
*/
import "C"

import (
	"net/netip"
	"unsafe"

	"narthex/internal/datapath"
	"narthex/internal/httphead"
	"narthex/internal/policy"
	_ "narthex/test/source" // compile again when bpf/ changes
)

// chunkSize is the most that is read at once.
const chunkSize = 512

// mostHead is the longest head that fits a slot behind its headers.
const mostHead = C.MAX_SLOT_SIZE - 66

// noRule says that no rule matches.
const noRule = -1

// found is what reading a head comes to.
type found struct {
	rule             int // noRule: none
	refused, complex bool
}

// request is what is read of a head. Cookies are among the headers if they are not asked for one by
// one, and there are no parameters of the query then; the Host header never is.
type request httphead.Request

// reader is the source compiled for this machine, with an image in force.
type reader struct {
	values [1 << 17]byte
}

// use puts an image in force.
func (r *reader) use(im *image) {
	C.native_image(unsafe.Pointer(&im.bytes[0]), C.__u32(len(im.bytes)/pageSize))
}

func first(b []byte) *C.__u8 { return (*C.__u8)(unsafe.SliceData(b)) }

// frame returns the length of the head that the bytes begin with, 0 if the framing pass does
// not accept one.
func frame(b []byte, piece int) int {
	return int(C.native_frame(first(b), C.__u32(len(b)), C.__u32(piece)))
}

// ends are the client of a request and where it comes to, of one family.
type ends struct {
	from netip.Addr
	to   netip.AddrPort
}

// words returns an address as it is looked up.
func words(a netip.Addr) [2]uint64 {
	key := policy.NewKey(a, 0)
	return [2]uint64(key[:2])
}

// match finds the rule of a head, which is in a packet or in a slot.
func (r *reader) match(head []byte, slot bool, e ends) found {
	b := C.struct_between{port: C.__u16(e.to.Port()), v6: flag(!e.from.Is4())}
	for i := range b.client {
		b.client[i], b.server[i] = C.__u64(words(e.from)[i]), C.__u64(words(e.to.Addr())[i])
	}
	f := C.native_match(first(head), C.__u32(len(head)), C.bool(slot), b)
	out := found{rule: noRule, refused: bool(f.refused), complex: bool(f.complex)}
	if f.rule != C.NO_MATCH {
		out.rule = int(f.rule)
	}
	return out
}

// key is the hash by which a bucket is found for the head that was matched, 0: by its source.
func (r *reader) key(key int) uint64 { return uint64(C.native_key(C.__u8(key))) }

// keyHash is that of a value, 0 of none.
func keyHash(value string) uint64 {
	if value == "" {
		return 0
	}
	return datapath.ValueHash(value, [2]uint64{C.KEY_FIRST, C.KEY_SECOND})
}

// read reads all of a head in pieces of so many bytes. False: it is refused.
func (r *reader) read(head []byte, piece int, cookies bool) (*request, bool) {
	n := C.native_read(first(head), C.__u32(len(head)), C.__u32(piece), C.bool(cookies), first(r.values[:]), C.__u32(len(r.values)))
	switch n {
	case C.READ_REFUSED:
		return nil, false
	case C.READ_ENDLESS:
		return &request{Method: "a head without an end"}, true
	}
	q := &request{}
	for b := r.values[:n]; len(b) > 0; {
		end := 3 + int(b[1]) + int(b[2])<<8
		q.add(C.int(b[0]), string(b[3:end]))
		b = b[end:]
	}
	return q, true
}

// add adds a value that is complete.
func (q *request) add(kind C.int, value string) {
	switch kind {
	case C.VALUE_METHOD:
		q.Method = value
	case C.VALUE_HOST:
		q.Host = value
	case C.VALUE_PATH:
		q.Path = value
	case C.VALUE_NAME:
		q.Headers = append(q.Headers, httphead.Field{Name: value})
	case C.VALUE_HEADER:
		q.Headers[len(q.Headers)-1].Value = value
	case C.VALUE_CRUMB:
		q.Cookies = append(q.Cookies, httphead.Field{Name: value})
	case C.VALUE_KEY:
		q.Query.Parameters = append(q.Query.Parameters, httphead.Field{Name: value})
	case C.VALUE_PARAMETER:
		q.Query.Parameters[len(q.Query.Parameters)-1].Value = value
	case C.VALUE_COOKIE:
		q.Cookies[len(q.Cookies)-1].Value = value
	}
}
