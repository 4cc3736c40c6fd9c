// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
)

// Range is the addresses from First to Last, both included and of one family.
type Range struct {
	First, Last netip.Addr
}

// PrefixRange returns the addresses of a prefix.
func PrefixRange(p netip.Prefix) Range {
	p = p.Masked()
	host := lowBits(p.Addr().BitLen() - p.Bits())
	first := toBits(p.Addr())
	return Range{p.Addr(), bits128{first.hi | host.hi, first.lo | host.lo}.addr(p.Addr().Is4())}
}

// String returns an address, a prefix where the range is one, else FIRST-LAST.
func (r Range) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	if p := largestPrefix(r.First, r.Last); PrefixRange(p).Last == r.Last {
		return p.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// Prefixes returns the fewest prefixes that make up the range, in order.
func (r Range) Prefixes() []netip.Prefix {
	var out []netip.Prefix
	for first := r.First; ; {
		p := largestPrefix(first, r.Last)
		out = append(out, p)
		last := PrefixRange(p).Last
		if last == r.Last {
			return out
		}
		first = last.Next()
	}
}

// largestPrefix returns the largest prefix that begins at first and does not go past last:
// as many host bits as first has zeros at its end, and no more than fit.
func largestPrefix(first, last netip.Addr) netip.Prefix {
	f, l := toBits(first), toBits(last)
	host := min(f.trailingZeros(), first.BitLen())
	for host > 0 {
		b := lowBits(host)
		if end := (bits128{f.hi | b.hi, f.lo | b.lo}); !l.less(end) {
			break
		}
		host--
	}
	return netip.PrefixFrom(first, first.BitLen()-host)
}

// bits128 is an address as a number.
type bits128 struct{ hi, lo uint64 }

func toBits(a netip.Addr) bits128 {
	if a.Is4() {
		b := a.As4()
		return bits128{0, uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return bits128{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// lowBits returns the number whose lowest n bits are set.
func lowBits(n int) bits128 {
	return bits128{1<<max(n-64, 0) - 1, 1<<min(n, 64) - 1}
}

func (b bits128) addr(is4 bool) netip.Addr {
	if is4 {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], uint32(b.lo))
		return netip.AddrFrom4(a)
	}
	var a [16]byte
	binary.BigEndian.PutUint64(a[:8], b.hi)
	binary.BigEndian.PutUint64(a[8:], b.lo)
	return netip.AddrFrom16(a)
}

func (b bits128) less(c bits128) bool {
	return b.hi < c.hi || b.hi == c.hi && b.lo < c.lo
}

// trailingZeros returns how many of the lowest bits are zero, 128 at most.
func (b bits128) trailingZeros() int {
	if b.lo != 0 {
		return bits.TrailingZeros64(b.lo)
	}
	return 64 + bits.TrailingZeros64(b.hi)
}

// PortRange is the ports from First to Last, both included.
type PortRange struct {
	First, Last uint16
}

// String returns 80 or 1024-65535.
func (r PortRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// ParseRange reads an address, a prefix or FIRST-LAST.
func ParseRange(s string) (Range, error) { return parseRange(s) }
