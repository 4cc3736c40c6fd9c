// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"testing"
)

// The vectors here are what bpf/policy/siphash.h and bpf/policy/bucket.h gave, compiled natively;
// test/parser holds these against a SipHash written from the paper.

func TestSiphash13(t *testing.T) {
	for _, v := range []struct {
		key   [2]uint64
		words [3]uint64
		want  uint64
	}{
		{[2]uint64{0, 0}, [3]uint64{0, 0, 0}, 0xb96acf5305c4939e},
		{[2]uint64{0x0706050403020100, 0x0f0e0d0c0b0a0908}, [3]uint64{0x1716151413121110, 0x1f1e1d1c1b1a1918, 0x2726252423222120}, 0x23459ad7103f961f},
		{[2]uint64{0x0123456789abcdef, 0xfedcba9876543210}, [3]uint64{1, 0xc633640100000000, 0xffffffffffffffff}, 0xd7d914071000d222},
		{[2]uint64{0xffffffffffffffff, 0xffffffffffffffff}, [3]uint64{0x300000001, 0x20010db800010000, 0}, 0x9a281d2206fee74c},
	} {
		if got := siphash13(v.key, v.words[:]...); got != v.want {
			t.Errorf("siphash13(%#x, %#x) is %#x, not %#x", v.key, v.words, got, v.want)
		}
	}
}

func TestSourceTag(t *testing.T) {
	key := [2]uint64{0x0706050403020100, 0x0f0e0d0c0b0a0908}
	for _, v := range []struct {
		from           string
		bitsV4, bitsV6 uint8
		want           uint64
	}{
		{"198.51.100.1", 32, 64, 0x4c851cc0ea7631f},
		{"::ffff:198.51.100.1", 32, 64, 0x4c851cc0ea7631f},
		{"198.51.100.1", 24, 64, 0x79a7d2a71e632f21},
		{"198.51.100.1", 0, 64, 0xc8c3b871d19f037},
		{"2001:db8:1:2:3:4:5:6", 32, 48, 0xaf9a32a26d531231},
		{"2001:db8:1:2:3:4:5:6", 32, 64, 0xc8d4f7caeee8cbc1},
		{"2001:db8:1:2:3:4:5:6", 32, 100, 0x6a521f478a17ed3b},
		{"2001:db8:1:2:3:4:5:6", 32, 128, 0xf0c76c3fe722f663},
	} {
		r := &narthexRule{Id: 0x300000001, BitsV4: v.bitsV4, BitsV6: v.bitsV6}
		if got := sourceTag(r, netip.MustParseAddr(v.from), "", key); got != v.want {
			t.Errorf("the tag of %s under /%d, /%d is %#x, not %#x", v.from, v.bitsV4, v.bitsV6, got, v.want)
		}
	}
}
