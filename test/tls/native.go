// SPDX-License-Identifier: Apache-2.0

// Package tls runs the data path's scanner for the beginning of a TLS connection on this
// machine and in the kernel, and compares what it says with plain Go, and with what TLS
// clients send.
package tls

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra -Wno-unused -I${SRCDIR}/../../bpf
#include "native.h"
*/
import "C"

import (
	"unsafe"

	_ "narthex/test/source" // compile again when bpf/ changes
	"narthex/test/twin"
)

// chunkSize is the most that is read at once.
const chunkSize = C.HTTP_CHUNK

// chunkRoom is that with what may be read ahead.
const chunkRoom = C.sizeof_struct_http_chunk

// maxRecord is the longest content of a record.
const maxRecord = C.TLS_MAX_RECORD

// Step is what a scan ends with.
type Step = twin.Step

const (
	More = twin.More
	End  = twin.End
	Lost = twin.Lost
)

// steps translates enum http_step.
var steps = twin.Steps{C.HTTP_MORE: More, C.HTTP_END: End, C.HTTP_LOST: Lost}

// Result is what is known of the bytes of a connection.
type Result twin.Result

// arena is a chunk that ends at a page that nobody may touch.
type arena struct{ chunk []byte }

// fill puts bytes into the chunk, and behind them what must not matter.
func (a *arena) fill(b []byte, behind byte) *C.struct_http_chunk {
	twin.Fill(a.chunk, b, behind)
	return (*C.struct_http_chunk)(unsafe.Pointer(unsafe.SliceData(a.chunk)))
}

// scanner is a struct tls_hello and the chunk by way of which it gets bytes.
type scanner struct {
	hello C.struct_tls_hello
	a     *arena
}

// Scan is tls_scan().
func (s *scanner) Scan(b []byte, at int) (Step, int, error) {
	used := C.__u32(1 << 31)
	step := C.native_scan(&s.hello, s.a.fill(b, byte(at)), C.__u32(len(b)), &used)
	return steps.After(uint32(step), int(used), len(b))
}

// Skip is tls_skip().
func (s *scanner) Skip(n int) int { return int(C.native_skip(&s.hello, C.__u32(n))) }
