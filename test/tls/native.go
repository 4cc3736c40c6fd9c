// SPDX-License-Identifier: Apache-2.0

// Package tls runs the data path's scanner for the beginning of a TLS connection on this
// machine and in the kernel, and compares what it says with plain Go, and with what TLS
// clients send.
//
// The .h files here that are links to files below bpf/ are not included by their names here.
// They make the go command rebuild this package when one of them changes, which it would not
// do for a file outside of the package's folder.
package tls

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra -Wno-unused -I${SRCDIR}/../../bpf
#include "native.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// chunkSize is the most that is read at once.
const chunkSize = C.HTTP_CHUNK

// maxRecord is the longest content of a record.
const maxRecord = C.TLS_MAX_RECORD

// Step is what a scan ends with.
type Step string

const (
	More Step = "the ClientHello goes on"
	End  Step = "it has ended, and its record"
	Lost Step = "it is none"
)

// steps translates enum http_step.
var steps = map[uint32]Step{C.HTTP_MORE: More, C.HTTP_END: End, C.HTTP_LOST: Lost}

// Result is what is known of the bytes of a connection.
type Result struct {
	Step
	Used int // bytes: all, or up to the end, or to the byte that makes it lost
}

// arena is a chunk that ends at a page that nobody may touch: a read beyond its end is a
// fault and not a surprise.
type arena struct {
	chunk []byte
	whole []byte
}

func newArena() (*arena, error) {
	page := unix.Getpagesize()
	whole, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("mapping an arena: %w", err)
	}
	if err := unix.Mprotect(whole[page:], unix.PROT_NONE); err != nil {
		return nil, fmt.Errorf("guarding an arena: %w", err)
	}
	return &arena{whole[page-chunkSize : page], whole}, nil
}

func (a *arena) close() error { return unix.Munmap(a.whole) }

// scanner is a struct tls_hello and the chunk by way of which it gets bytes.
type scanner struct {
	hello C.struct_tls_hello
	a     *arena
}

// scan is tls_scan() on at most chunkSize bytes, behind which there is what must not matter.
func (s *scanner) scan(b []byte, behind byte) (Step, int, error) {
	for i := copy(s.a.chunk, b); i < chunkSize; i++ {
		s.a.chunk[i] = behind
	}
	used := C.__u32(1 << 31)
	chunk := (*C.struct_http_chunk)(unsafe.Pointer(unsafe.SliceData(s.a.chunk)))
	step, ok := steps[uint32(C.native_scan(&s.hello, chunk, C.__u32(len(b)), &used))]
	switch {
	case !ok:
		return "", 0, fmt.Errorf("tls_scan() returned what it does not define")
	case int(used) > len(b) || step == More && int(used) != len(b):
		return "", 0, fmt.Errorf("tls_scan() used %d of %d bytes and says %s", used, len(b), step)
	}
	return step, int(used), nil
}

// skip is tls_skip().
func (s *scanner) skip(n int) int { return int(C.native_skip(&s.hello, C.__u32(n))) }
