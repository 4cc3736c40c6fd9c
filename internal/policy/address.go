// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"strconv"
	"strings"
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

// parseRange reads an address, a prefix or FIRST-LAST.
func parseRange(s string) (Range, error) {
	switch {
	case s == "*" || s == "any" || s == "all":
		return Range{}, fmt.Errorf("%s is not an address; to match anybody, leave the key out", quote(s))
	case strings.ContainsAny(s, " \t"):
		return Range{}, fmt.Errorf("%s has spaces in it; write %s", quote(s), quote(strings.Join(strings.Fields(s), "")))
	case strings.Contains(s, "/") && strings.Contains(s, "-"):
		return Range{}, fmt.Errorf("%s mixes a range and a prefix length; write 10.2.0.5-10.2.0.9 or 10.2.0.0/24", quote(s))
	case strings.Contains(s, "/"):
		return parsePrefix(s)
	}
	first, last, isRange := strings.Cut(s, "-")
	a, err := parseAddr(first)
	if err != nil {
		return Range{}, err
	}
	if !isRange {
		return Range{a, a}, nil
	}
	b, err := parseAddr(last)
	switch {
	case err != nil:
		return Range{}, err
	case a.Is4() != b.Is4():
		return Range{}, fmt.Errorf("%s begins in one address family and ends in the other; write two ranges", quote(s))
	case b.Less(a):
		return Range{}, fmt.Errorf("%s ends before it begins; write %s-%s", quote(s), b, a)
	}
	return Range{a, b}, nil
}

func parsePrefix(s string) (Range, error) {
	addr, length, _ := strings.Cut(s, "/")
	a, err := parseAddr(addr)
	var mapped *mappedError
	if errors.As(err, &mapped) {
		return Range{}, mappedPrefix(s, mapped.v4, length)
	}
	if err != nil {
		return Range{}, err
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return Range{}, fmt.Errorf("%s has no valid prefix length; write %s%s", quote(s), a, likelyLength(a, length))
	}
	if r := PrefixRange(p); r.First != a {
		return Range{}, fmt.Errorf("%s has bits set beyond its length; write %s, or %s for the one address", quote(s), p.Masked(), a)
	}
	return PrefixRange(p), nil
}

// mappedPrefix says how to write a prefix of IPv4 addresses in IPv6 form.
func mappedPrefix(s string, v4 netip.Addr, length string) error {
	bits, err := strconv.Atoi(length)
	if err != nil || bits < 96 || bits > 128 {
		return fmt.Errorf("%s is an IPv4 address in IPv6 form with a length that is none of IPv4; write it as IPv4, %s/24 for instance", quote(s), v4)
	}
	return fmt.Errorf("%s is an IPv4 prefix in IPv6 form; write %s", quote(s), netip.PrefixFrom(v4, bits-96).Masked())
}

// likelyLength guesses the length that was meant by a netmask.
func likelyLength(a netip.Addr, length string) string {
	if m, err := netip.ParseAddr(length); err == nil && m.Is4() && a.Is4() {
		if ones, bits := net.IPMask(m.AsSlice()).Size(); bits != 0 {
			return fmt.Sprintf("/%d", ones)
		}
	}
	return fmt.Sprintf("/0 to %s/%d", a, a.BitLen())
}

// mappedError refuses an IPv4 address in IPv6 form: packets carry IPv4 addresses as IPv4,
// and two ways to write one address hide mistakes.
type mappedError struct{ v4 netip.Addr }

func (e *mappedError) Error() string {
	return fmt.Sprintf("\"::ffff:%s\" is an IPv4 address in IPv6 form; write %s", e.v4, e.v4)
}

// parseAddr reads an address without a zone.
func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return a, fmt.Errorf("%s is not an IP address%s", quote(s), addressHint(s))
	case a.Zone() != "":
		return a, fmt.Errorf("%s names a zone, which a packet does not carry; write %s", quote(s), a.WithZone(""))
	case a.Is4In6():
		return a, &mappedError{a.Unmap()}
	}
	return a, nil
}

func addressHint(s string) string {
	switch {
	case s == "":
		return "; write one as 192.0.2.1 or 2001:db8::1"
	case strings.Trim(s, "0123456789.") == "" && strings.Count(s, ".") == 3:
		return "; write four numbers from 0 to 255 without leading zeros"
	case strings.Trim(s, "0123456789.") == "":
		return "; write all four numbers, as 192.0.2.0/24"
	case strings.Contains(s, ":"):
		return "; write one as 2001:db8::1"
	}
	return "; names are not looked up: write one as 192.0.2.1 or 2001:db8::1"
}

// parsePorts reads a port or FIRST-LAST.
func parsePorts(s string) (PortRange, error) {
	first, last, isRange := strings.Cut(s, "-")
	a, err := strconv.ParseUint(first, 10, 16)
	b := a
	if err == nil && isRange {
		b, err = strconv.ParseUint(last, 10, 16)
	}
	switch {
	case err != nil:
		return PortRange{}, fmt.Errorf("%s is not a port or a range of ports; write 1024 or 1024-65535", quote(s))
	case b < a:
		return PortRange{}, fmt.Errorf("%s ends before it begins; write %d-%d", quote(s), b, a)
	}
	return PortRange{uint16(a), uint16(b)}, nil
}

// parseListen reads ADDRESS:PORT or *:PORT.
func parseListen(s string) (Listen, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return Listen{}, fmt.Errorf("%s is not an address and port; write %s", quote(s), likelyListen(s))
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return Listen{}, fmt.Errorf(`%s has no valid port; write one port from 1 to 65535, as "*:80"`, quote(s))
	}
	if host == "*" {
		return Listen{Port: uint16(n)}, nil
	}
	if host == "" {
		return Listen{}, fmt.Errorf(`%s names no address; write "*:%d" for every local address`, quote(s), n)
	}
	a, err := parseAddr(host)
	var mapped *mappedError
	switch {
	case errors.As(err, &mapped):
		return Listen{}, fmt.Errorf(`%s is an IPv4 address in IPv6 form; write "%s:%d"`, quote(s), mapped.v4, n)
	case err != nil:
		return Listen{}, err
	case a.IsUnspecified():
		return Listen{}, fmt.Errorf(`%s is no address of a packet; write "*:%d" for every local address`, quote(s), n)
	case a.IsMulticast():
		return Listen{}, fmt.Errorf("%s is a multicast address, which no TCP server has; write an address of this host", quote(s))
	}
	return Listen{a, uint16(n)}, nil
}

func likelyListen(s string) string {
	if last := strings.LastIndexByte(s, ':'); last > 0 {
		if a, err := netip.ParseAddr(s[:last]); err == nil && a.Is6() {
			return strconv.Quote(net.JoinHostPort(s[:last], s[last+1:]))
		}
	}
	if _, err := netip.ParseAddr(s); err == nil {
		return strconv.Quote(net.JoinHostPort(s, "80"))
	}
	if n, err := strconv.ParseUint(s, 10, 16); err == nil && n > 0 {
		return fmt.Sprintf(`"*:%d" for every local address`, n)
	}
	return `"*:80", "192.0.2.1:80" or "[2001:db8::1]:80"`
}

// String returns the listen as in a policy.
func (l Listen) String() string {
	if !l.Addr.IsValid() {
		return fmt.Sprintf("*:%d", l.Port)
	}
	return netip.AddrPortFrom(l.Addr, l.Port).String()
}
