// SPDX-License-Identifier: Apache-2.0

package tls

import (
	"bytes"
	"encoding/binary"

	"narthex/test/draw"
)

// recipe makes the beginning of a TLS connection.
type recipe struct{ draw.Recipe }

// stream builds a ClientHello and what follows: valid but for what the recipe says to do
// otherwise.
func (r *recipe) stream() []byte {
	size := draw.Pick(r, 0x200, 0, 1, 5, 100, 508, 509, 1700, 1<<14-4, 1<<14, 20_000)
	said := draw.Unlikely(r, 16, size, size+1, size-1, size+1<<16, 0) & 0xffffff
	message := binary.BigEndian.AppendUint32(nil, draw.Unlikely[uint32](r, 24, clientHello, 0, 2, 0x16, 0xff)<<24|uint32(said))
	message = append(message, bytes.Repeat([]byte{draw.Pick[byte](r, 0, 3, handshake, clientHello, 0xff)}, size)...)
	message = append(message, bytes.Repeat([]byte{clientHello}, draw.Unlikely(r, 16, 0, 1, 3, 40, 600))...)
	var b []byte
	for pieces := draw.Pick(r, 0, 1, 2, 4, 8, 16); len(message) > 0; pieces-- {
		n := len(message)
		if pieces > 0 {
			n = min(n, draw.Pick(r, 1, 2, 3, 4, 5, 100, 505, 506, 507, 512, 600, maxRecord))
		}
		b = append(r.record(b, min(n, draw.Unlikely(r, 64, maxRecord, maxRecord+1))), message[:n]...)
		message = message[n:]
		if r.Rarely(64) {
			b = append(r.record(b, 0), "between"...)
		}
	}
	b = append(b, draw.Pick(r, "", "\x14\x03\x03\x00\x01\x01", "\x16\x03\x03\x00\x04\x01\x00\x00\x00", "\x00")...)
	return r.Damage(b, 4)
}

// record appends a record's header.
func (r *recipe) record(b []byte, n int) []byte {
	b = append(b, draw.Unlikely[byte](r, 64, handshake, 20, 21, 23, 0, 0x80, 'G'), draw.Unlikely[byte](r, 64, 3, 0, 2, 4), draw.Pick[byte](r, 1, 3, 0, 4, 0xff))
	return binary.BigEndian.AppendUint16(b, draw.Unlikely(r, 64, uint16(n), 0, uint16(n+1), uint16(n-1), maxRecord, maxRecord+1, 0xffff))
}
