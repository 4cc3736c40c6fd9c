// SPDX-License-Identifier: Apache-2.0

package parser

import (
	"encoding/binary"
	"slices"

	"narthex/test/draw"
)

// recipe makes frames.
type recipe struct{ draw.Recipe }

func (r *recipe) uint16() uint16 { return uint16(r.Below(256))<<8 | uint16(r.Below(256)) }

// some returns n bytes.
func (r *recipe) some(n int) []byte {
	b := make([]byte, n)
	r.Recipe = r.Recipe[copy(b, r.Recipe):]
	return b
}

// frame builds a frame: a valid SYN but for what the recipe says to do otherwise.
func (r *recipe) frame() []byte {
	b := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
	for range draw.Pick(r, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 7, 8, 9, 10) {
		b = binary.BigEndian.AppendUint16(b, draw.Pick[uint16](r, 0x8100, 0x88a8, 0x8100, 0x88a8, 0x8100, 0x88a8, 0x8100, 0x88a8, 0x8100, 0x88a8, 0x9100))
		b = binary.BigEndian.AppendUint16(b, draw.Pick[uint16](r, 0, 10, 0xe000, 0x0fff))
	}
	ip := len(b) + 2
	if r.Rarely(2) {
		b = r.ipv6(binary.BigEndian.AppendUint16(b, 0x86dd))
	} else {
		b = r.ipv4(binary.BigEndian.AppendUint16(b, 0x0800))
	}
	if r.Rarely(16) { // another protocol, of which some have an IP header in them
		binary.BigEndian.PutUint16(b[ip-2:], draw.Pick[uint16](r, 0x0806, 0x8847, 0x8864, 0x0040, 0x86dd, 0x0800))
	}
	return r.damage(b)
}

// ipv4 appends an IPv4 packet.
func (r *recipe) ipv4(b []byte) []byte {
	options := draw.Pick(r, 0, 0, 0, 1, 5, 10) * 4
	at := len(b)
	b = append(b, make([]byte, 20+options)...)
	h := b[at:]
	h[0] = 4<<4 | byte(len(h)/4)
	binary.BigEndian.PutUint16(h[6:], draw.Pick[uint16](r, 0, 0x4000, 0, 0x4000, 0x2000, 0x2001, 0x0010, 0x8000, 0xa000))
	h[8], h[9] = 64, draw.Pick[byte](r, 6, 6, 6, 6, 6, 6, 17, 1, 4, 51)
	copy(h[12:], []byte{192, 0, 2, byte(r.Below(256)), 198, 51, 100, byte(1 + r.Below(4))})
	for i := 20; i < len(h); i++ {
		h[i] = 1 // no operation
	}
	b = r.tcp(b)
	binary.BigEndian.PutUint16(b[at+2:], uint16(r.length(len(b)-at)))
	return b
}

// ipv6 appends an IPv6 packet.
func (r *recipe) ipv6(b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, 40)...)
	b[at], b[at+7] = 6<<4, 64
	copy(b[at+8:], []byte{0x20, 1, 0xd, 0xb8, 1, 15: byte(r.Below(256))})
	copy(b[at+24:], []byte{0x20, 1, 0xd, 0xb8, 2, 15: byte(1 + r.Below(4))})
	next := at + 6 // where the number of the next header goes
	for range draw.Pick(r, 0, 0, 1, 1, 2, 3, 6, 7, 8, 9, 12) {
		number := draw.Pick[byte](r, 60, 0, 43, 60, 44, 60, 43, 60)
		b[next] = number
		next = len(b)
		b = r.extension(b, number)
	}
	b[next] = draw.Pick[byte](r, 6, 6, 6, 6, 6, 6, 6, 17, 58, 59, 50, 51, 41, 0, 44)
	b = r.tcp(b)
	payload := r.length(len(b) - at - 40)
	if r.Rarely(24) {
		payload = 0 // a jumbogram, if it were so long
	}
	binary.BigEndian.PutUint16(b[at+4:], uint16(payload))
	return b
}

// extension appends an extension header whose first byte is still to be set.
func (r *recipe) extension(b []byte, number byte) []byte {
	if number == 44 {
		field := draw.Pick[uint16](r, 0, 0, 0, 1, 1, 8, 9, 6)
		b = append(b, 0, 0)
		b = binary.BigEndian.AppendUint16(b, field)
		return append(b, r.some(4)...)
	}
	units := draw.Pick(r, 0, 0, 0, 0, 1, 2, 5, 20, 45, 58, 255)
	if r.Rarely(4) {
		// As long as it takes to end near the bound of what is read.
		units = max(0, (headers-len(b))/8-r.Below(6))
	}
	if number == 43 {
		b = append(b, 0, byte(units), draw.Pick[byte](r, 0, 2, 3, 4), byte(r.Below(2)))
		return append(b, make([]byte, 4+8*units)...)
	}
	return append(append(b, 0, byte(units)), options(6+8*units)...)
}

// options are n bytes of as few options as possible, of an experimental kind (RFC 4727) that
// whoever does not know it skips: Linux refuses more than 7 bytes of padding in a row.
func options(n int) []byte {
	var b []byte
	for n > len(b) {
		size := min(n-len(b), 257)
		if n-len(b)-size == 1 {
			size-- // an option has at least two bytes
		}
		b = append(append(b, 0x1e, byte(size-2)), make([]byte, size-2)...)
	}
	return b
}

// tcp appends a TCP segment.
func (r *recipe) tcp(b []byte) []byte {
	options := draw.Pick(r, 0, 5, 0, 10, 1) * 4
	h := make([]byte, 20+options)
	binary.BigEndian.PutUint16(h, r.uint16())
	binary.BigEndian.PutUint16(h[2:], draw.Pick[uint16](r, 80, 443, 80, 8080))
	h[12] = byte(len(h)/4) << 4
	const fin, syn, rst, psh, ack, urg, ece, cwr = 1, 2, 4, 8, 16, 32, 64, 128
	h[13] = draw.Pick[byte](r, syn, syn, syn, syn|ece|cwr, syn|ack, ack, ack|psh, syn|fin, syn|rst, syn|fin|rst, fin, rst,
		syn|psh|urg, 0, 255, syn|ack|rst)
	if r.Rarely(12) {
		h[12] = byte(r.Below(16)) << 4
	}
	for i := 20; i < len(h); i++ {
		h[i] = 1 // no operation
	}
	return append(append(b, h...), make([]byte, draw.Pick(r, 0, 0, 0, 0, 1, 4, 100))...)
}

// length returns the true length, mostly.
func (r *recipe) length(is int) int {
	if !r.Rarely(8) {
		return is
	}
	return max(0, draw.Pick(r, is-1, is+1, 0, 19, 20, 21, is-8, is-20, is-40, 39, 65535, int(r.uint16())))
}

// damage does what no sender's stack does: padding, cuts, changed bytes.
func (r *recipe) damage(b []byte) []byte {
	if r.Rarely(3) {
		b = append(b, make([]byte, draw.Pick(r, 6, 1, 40))...) // Ethernet pads to 60 bytes
	}
	for r.Rarely(4) {
		b[(r.Below(256)|r.Below(2)<<8)%len(b)] = byte(r.Below(256))
	}
	if r.Rarely(6) {
		b = b[:int(r.uint16())%(len(b)+1)]
	}
	return slices.Clip(b)
}
