// SPDX-License-Identifier: Apache-2.0

// Package http runs the data path's HTTP scanner on this machine and in the kernel, and
// compares what it says with plain Go that was written from RFC 9112, and with net/http.
//
// The .h files here that are links to files below bpf/ are not included by their names here.
// They make the go command rebuild this package when one of them changes, which it would not
// do for a file outside of the package's folder.
package http

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra -Wno-unused -I${SRCDIR}/../../bpf
#include "native.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// chunkSize is the most that is read at once.
const chunkSize = C.HTTP_CHUNK

// maxLength is the longest body, or chunk of one, that is followed.
const maxLength = C.HTTP_MAX_LENGTH

// steps translates enum http_step.
var steps = map[C.int]Step{C.HTTP_MORE: More, C.HTTP_END: End, C.HTTP_LOST: Lost}

// flagBits translates enum http_flag.
var flagBits = []struct {
	bit  C.__u8
	flag func(*Framing) *bool
}{
	{C.HTTP_CLOSES, func(f *Framing) *bool { return &f.Closes }},
	{C.HTTP_CHUNKED, func(f *Framing) *bool { return &f.Chunked }},
	{C.HTTP_UPGRADE, func(f *Framing) *bool { return &f.Upgrade }},
	{C.HTTP_EXPECT, func(f *Framing) *bool { return &f.Expect }},
	{C.HTTP_HEAD_METHOD, func(f *Framing) *bool { return &f.Head }},
}

// result puts together what struct http_head says after a number of bytes.
func result(step Step, used int, length uint64, flags uint8, size int, inBody bool) (Result, error) {
	switch {
	case step == Lost:
		return Result{Step: Lost}, nil
	case step == More && !inBody:
		return Result{Step: More, Used: used}, nil
	case step == End && inBody:
		return Result{}, errors.New("http_in_body() is true behind the body")
	case inBody:
		length = 0 // http_scan()'s own
	}
	f, err := framing(length, flags)
	return Result{step, used, f, size, inBody}, err
}

// framing translates what a head that has ended says.
func framing(length uint64, flags uint8) (Framing, error) {
	f := Framing{Length: length}
	for _, b := range flagBits {
		*b.flag(&f) = C.__u8(flags)&b.bit != 0
		flags &^= uint8(b.bit)
	}
	if flags != 0 {
		return f, fmt.Errorf("flags %#x are not defined", flags)
	}
	return f, nil
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

// fill puts bytes into the chunk, and behind them what must not matter, as what other bytes
// left there must not.
func (a *arena) fill(b, behind []byte) *C.struct_http_chunk {
	copy(a.chunk[copy(a.chunk, b):], behind)
	return (*C.struct_http_chunk)(unsafe.Pointer(unsafe.SliceData(a.chunk)))
}

// scanner is a struct http_head and the chunk by way of which it gets bytes.
type scanner struct {
	head C.struct_http_head
	a    *arena
}

// scan is http_scan() on at most chunkSize bytes.
func (s *scanner) scan(b, behind []byte) (Step, int, error) {
	used := C.__u32(1 << 31)
	step, ok := steps[C.native_scan(&s.head, s.a.fill(b, behind), C.__u32(len(b)), &used)]
	switch {
	case !ok:
		return "", 0, fmt.Errorf("http_scan() returned what it does not define")
	case int(used) > len(b) || step == More && int(used) != len(b):
		return "", 0, fmt.Errorf("http_scan() used %d of %d bytes and says %s", used, len(b), step)
	}
	return step, int(used), nil
}

// skip is http_skip().
func (s *scanner) skip(n int) int { return int(C.native_skip(&s.head, C.__u32(n))) }

// result says what is known after a number of bytes, at which the scan ended with the step.
func (s *scanner) result(step Step, used int) (Result, error) {
	return result(step, used, uint64(s.head.length), uint8(s.head.flags), int(s.head.size), bool(C.native_in_body(&s.head)))
}

// readAnswer is read_response() on at most chunkSize bytes.
func (a *arena) readAnswer(b, behind []byte) Answer {
	var got C.struct_http_answer
	C.native_read_response(&got, a.fill(b, behind), C.__u32(len(b)))
	return Answer{int(got.status), bool(got.closes), bool(got.ended)}
}
