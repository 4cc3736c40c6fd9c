// SPDX-License-Identifier: Apache-2.0

package parser

import (
	"encoding/binary"
	"math/bits"
	"testing"

	"pgregory.net/rapid"
)

// sip is SipHash-c-d as in section 2 of Aumasson and Bernstein, "SipHash: a fast short-input
// PRF" (2012), on words that the caller has made of the message.
func sip(c, d int, key [2]uint64, words ...uint64) uint64 {
	v0, v1 := key[0]^0x736f6d6570736575, key[1]^0x646f72616e646f6d
	v2, v3 := key[0]^0x6c7967656e657261, key[1]^0x7465646279746573
	rounds := func(n int) {
		for range n {
			v0, v2 = v0+v1, v2+v3
			v1, v3 = bits.RotateLeft64(v1, 13)^v0, bits.RotateLeft64(v3, 16)^v2
			v0 = bits.RotateLeft64(v0, 32)
			v2, v0 = v2+v1, v0+v3
			v1, v3 = bits.RotateLeft64(v1, 17)^v2, bits.RotateLeft64(v3, 21)^v0
			v2 = bits.RotateLeft64(v2, 32)
		}
	}
	for _, m := range words {
		v3 ^= m
		rounds(c)
		v0 ^= m
	}
	v2 ^= 0xff
	rounds(d)
	return v0 ^ v1 ^ v2 ^ v3
}

// TestReferenceSipHash holds the reference against the test vector of the paper's appendix A:
// SipHash-2-4 of the bytes 0 to 14.
func TestReferenceSipHash(t *testing.T) {
	message := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15: 15}
	key := [2]uint64{0x0706050403020100, 0x0f0e0d0c0b0a0908}
	got := sip(2, 4, key, binary.LittleEndian.Uint64(message), binary.LittleEndian.Uint64(message[8:]))
	if want := uint64(0xa129ca6149be45e5); got != want {
		t.Errorf("SipHash-2-4 is %#x, not %#x", got, want)
	}
}

// TestSipHash: bpf/policy/siphash.h is SipHash-1-3 of three words, without the word that holds
// the length.
func TestSipHash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
		key := [2]uint64{word("key0"), word("key1")}
		a, b, c := word("a"), word("b"), word("c")
		if got, want := siphash13(key, a, b, c), sip(1, 3, key, a, b, c); got != want {
			t.Errorf("siphash13(%x, %x, %x, %x) is %#x, not %#x", key, a, b, c, got, want)
		}
	})
}
