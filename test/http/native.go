// SPDX-License-Identifier: Apache-2.0

// Package http runs the data path's HTTP scanner on this machine and in the kernel, and
// compares what it says with plain Go that was written from RFC 9112, and with net/http.
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

	_ "narthex/test/source" // compile again when bpf/ changes
	"narthex/test/twin"
)

// chunkSize is the most that is read at once.
const chunkSize = C.HTTP_CHUNK

// chunkRoom is that with what may be read ahead.
const chunkRoom = C.sizeof_struct_http_chunk

// maxLength is the longest body, or chunk of one, that is followed.
const maxLength = C.HTTP_MAX_LENGTH

// steps translates enum http_step.
var steps = twin.Steps{C.HTTP_MORE: More, C.HTTP_END: End, C.HTTP_LOST: Lost}

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
	{C.HTTP_H2C, func(f *Framing) *bool { return &f.H2C }},
	{C.HTTP_ENDLESS, func(f *Framing) *bool { return &f.Endless }},
}

// said is struct http_head, and what its functions make of it.
type said struct {
	length                    uint64
	flags                     uint8
	seen                      uint16
	size                      uint32
	inBody, pastLine, preface bool
}

// result puts together what struct http_head says after a number of bytes.
func result(step Step, used int, h said) (Result, error) {
	h2c := h.seen&C.HTTP_SEEN_H2C != 0
	switch {
	case step == Lost:
		if h.preface != h2c && h.flags&C.HTTP_H2C == 0 {
			return Result{}, errors.New("HTTP_SEEN_H2C and http_is_preface() differ before the head's end")
		}
		return Result{Step: Lost, Preface: h.preface}, nil
	case h.preface || h2c != (h.flags&C.HTTP_H2C != 0):
		return Result{}, errors.New("HTTP_SEEN_H2C is wrong")
	case step == More && !h.inBody:
		if int(h.size) != used {
			return Result{}, fmt.Errorf("of %d bytes the head has %d", used, h.size)
		}
		return Result{Step: More, Used: used, Line: h.pastLine}, nil
	case step == End && h.inBody:
		return Result{}, errors.New("http_in_body() is true behind the body")
	case h.inBody:
		h.length = 0 // http_scan()'s own
	}
	f, err := framing(h.length, h.flags)
	return Result{Step: step, Used: used, Framing: f, Head: int(h.size), InBody: h.inBody, Line: h.pastLine}, err
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

// arena is a chunk that ends at a page that nobody may touch.
type arena struct{ chunk []byte }

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

// endings is what may be behind the bytes in a chunk; it must not matter.
var endings = [][]byte{{0}, []byte("\n\n"), []byte("\r\n\r\n"), []byte("ose, "), []byte(":\t,"), []byte("1.1\r"), {0xff, 0xff}, []byte("/ HTTP/1.1")}

// Scan is http_scan().
func (s *scanner) Scan(b []byte, at int) (Step, int, error) {
	used := C.__u32(1 << 31)
	behind := endings[(at+len(b))%len(endings)]
	step := C.native_scan(&s.head, s.a.fill(b, behind), C.__u32(len(b)), &used)
	return steps.After(uint32(step), int(used), len(b))
}

// Read says what is known of a connection's first bytes, read in whole chunks.
func Read(b []byte) (Result, error) {
	s := scanner{a: &arena{make([]byte, chunkRoom)}}
	for at := 0; at < len(b); {
		step, used, err := s.Scan(b[at:min(len(b), at+chunkSize)], at)
		if err != nil {
			return Result{}, err
		}
		at += used
		if step != More {
			return s.result(step, at)
		}
	}
	return s.result(More, len(b))
}

// Skip is http_skip().
func (s *scanner) Skip(n int) int { return int(C.native_skip(&s.head, C.__u32(n))) }

// result says what is known after a number of bytes, at which the scan ended with the step.
func (s *scanner) result(step Step, used int) (Result, error) {
	return result(step, used, said{
		uint64(s.head.length), uint8(s.head.flags), uint16(s.head.seen), uint32(s.head.size),
		bool(C.native_in_body(&s.head)), bool(C.native_past_line(&s.head)), bool(C.native_is_preface(&s.head)),
	})
}

// answerScanner is a struct http_answer and the chunk by way of which it gets bytes.
type answerScanner struct {
	answer C.struct_http_answer
	a      *arena
}

// newAnswerScanner reads labels, too.
func newAnswerScanner(a *arena) answerScanner {
	s := answerScanner{a: a}
	s.answer.head.labels = 1
	return s
}

// Scan is answer_scan().
func (s *answerScanner) Scan(b []byte, at int) (Step, int, error) {
	used := C.__u32(1 << 31)
	behind := endings[(at+len(b))%len(endings)]
	step := C.native_answer_scan(&s.answer, s.a.fill(b, behind), C.__u32(len(b)), &used)
	return steps.After(uint32(step), int(used), len(b))
}

// Skip is http_skip().
func (s *answerScanner) Skip(n int) int { return int(C.native_skip(&s.answer.head, C.__u32(n))) }

// result says what is known after a number of bytes, at which the scan ended with the step.
func (s *answerScanner) result(step Step, used int) Answer {
	h := &s.answer.head
	return answerOf(step, used, int(s.answer.status), int(s.answer.at), uint8(h.flags), uint16(h.seen), uint64(h.length), labelOf(h))
}

// labelOf returns what Narthex-Class says; Go does not see into a union.
func labelOf(h *C.struct_http_head) Label {
	l := C.native_label(h)
	return Label{uint32(l.class), int(l.lasts)}
}

// answerOf puts together what struct http_answer says.
func answerOf(step Step, used, status, at int, flags uint8, seen uint16, length uint64, label Label) Answer {
	if step == Lost {
		return Answer{Step: Lost}
	}
	a := Answer{Step: step, Used: used}
	if at == C.STATUS_SIZE {
		a.Status = status
	}
	a.Chunked = flags&C.HTTP_CHUNKED != 0
	if a.Ended = step == End || a.Chunked; !a.Ended {
		return a
	}
	a.Sized = seen&C.HTTP_SEEN_LENGTH != 0
	if a.Sized && flags&C.HTTP_ENDLESS == 0 {
		a.Length = length
	}
	a.Label = label
	a.Closes = flags&C.HTTP_CLOSES != 0
	a.Keeps = seen&C.HTTP_SEEN_KEEP_ALIVE != 0 && seen&C.HTTP_SEEN_CLOSE == 0
	return a
}
