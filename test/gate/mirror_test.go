// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// Of the sources of a network, which differ in their last bits alone, a fair share is copied, and
// another one under another seed; under a wider mask some of those under a narrower one.
func TestMirrorChoosesFairly(t *testing.T) {
	const hosts = 4096
	address := func(v6 bool, i int) netip.Addr {
		if v6 { // a source is a /64
			b := netip.MustParseAddr("2001:db8:7::1").As16()
			binary.BigEndian.PutUint16(b[6:], uint16(i))
			return netip.AddrFrom16(b)
		}
		return netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
	}
	for _, v6 := range []bool{false, true} {
		for _, seed := range []uint32{0, 1, 0x5eed5eed} {
			for bits := 1; bits <= 5; bits++ {
				var count [2]int // by the last bit
				for i := range hosts {
					chosen := mirrors(address(v6, i), bits, seed)
					if chosen {
						count[i%2]++
					}
					if chosen && !mirrors(address(v6, i), bits-1, seed) {
						t.Fatalf("%v is copied if one source of %d is, but not if one of %d is", address(v6, i), 1<<bits, 1<<(bits-1))
					}
				}
				want := hosts >> bits / 2
				for last, n := range count {
					if n < want/2 || n > 2*want {
						t.Errorf("v6=%v, seed %#x, one of %d: %d of the addresses that end in %d are copied, want some %d", v6, seed, 1<<bits, n, last, want)
					}
				}
			}
		}
	}
	same := 0
	for i := range hosts {
		if mirrors(address(false, i), 1, 1) == mirrors(address(false, i), 1, 2) {
			same++
		}
	}
	if same < hosts*4/10 || same > hosts*6/10 {
		t.Errorf("two seeds agree about %d of %d sources", same, hosts)
	}
}
