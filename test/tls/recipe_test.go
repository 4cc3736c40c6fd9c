// SPDX-License-Identifier: Apache-2.0

package tls

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// recipe turns bytes into decisions, so that a fuzzer that changes bytes changes one
// decision of a stream that makes sense otherwise. When the bytes are used up, every decision
// falls on its first, plain, option.
type recipe []byte

// below returns a number below n, at most 256.
func (r *recipe) below(n int) int {
	if len(*r) == 0 {
		return 0
	}
	b := (*r)[0]
	*r = (*r)[1:]
	return int(b) % n
}

// rarely is true once in n times.
func (r *recipe) rarely(n int) bool { return r.below(n) == n-1 }

// pick returns one of the options.
func pick[T any](r *recipe, options ...T) T { return options[r.below(len(options))] }

// unlikely returns the first option but once in n times.
func unlikely[T any](r *recipe, n int, plain T, options ...T) T {
	if r.rarely(n) {
		return pick(r, options...)
	}
	return plain
}

// stream builds a ClientHello and what follows: valid but for what the recipe says to do
// otherwise.
func (r *recipe) stream() []byte {
	size := pick(r, 0x200, 0, 1, 5, 100, 508, 509, 1700, 1<<14-4, 1<<14, 20_000)
	said := unlikely(r, 16, size, size+1, size-1, size+1<<16, 0) & 0xffffff
	message := binary.BigEndian.AppendUint32(nil, unlikely[uint32](r, 24, clientHello, 0, 2, 0x16, 0xff)<<24|uint32(said))
	message = append(message, bytes.Repeat([]byte{pick[byte](r, 0, 3, handshake, clientHello, 0xff)}, size)...)
	message = append(message, bytes.Repeat([]byte{clientHello}, unlikely(r, 16, 0, 1, 3, 40, 600))...)
	var b []byte
	for pieces := pick(r, 0, 1, 2, 4, 8, 16); len(message) > 0; pieces-- {
		n := len(message)
		if pieces > 0 {
			n = min(n, pick(r, 1, 2, 3, 4, 5, 100, 505, 506, 507, 512, 600, maxRecord))
		}
		b = append(r.record(b, min(n, unlikely(r, 64, maxRecord, maxRecord+1))), message[:n]...)
		message = message[n:]
		if r.rarely(64) {
			b = append(r.record(b, 0), "between"...)
		}
	}
	b = append(b, pick(r, "", "\x14\x03\x03\x00\x01\x01", "\x16\x03\x03\x00\x04\x01\x00\x00\x00", "\x00")...)
	return r.damage(b)
}

// record appends a record's header.
func (r *recipe) record(b []byte, n int) []byte {
	b = append(b, unlikely[byte](r, 64, handshake, 20, 21, 23, 0, 0x80, 'G'), unlikely[byte](r, 64, 3, 0, 2, 4), pick[byte](r, 1, 3, 0, 4, 0xff))
	return binary.BigEndian.AppendUint16(b, unlikely(r, 64, uint16(n), 0, uint16(n+1), uint16(n-1), maxRecord, maxRecord+1, 0xffff))
}

// damage changes, removes or doubles a few bytes of some streams, mostly of their beginning.
func (r *recipe) damage(b []byte) []byte {
	if !r.rarely(4) {
		return b
	}
	for range 1 + r.below(3) {
		at := pick(r, r.below(16), r.below(256)<<8|r.below(256)) % len(b)
		switch r.below(3) {
		case 0:
			b[at] ^= 1 << r.below(8)
		case 1:
			b = slices.Delete(b, at, at+1)
		case 2:
			end := min(len(b), at+1+r.below(20))
			b = slices.Insert(b, at, bytes.Clone(b[at:end])...)
		}
		if len(b) == 0 {
			break
		}
	}
	return b
}
