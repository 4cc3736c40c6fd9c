// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// parseRange reads an address, a prefix or FIRST-LAST.
func parseRange(s string) (Range, error) {
	switch {
	case s == "*" || s == "any" || s == "all":
		return Range{}, fmt.Errorf("%s is not an address; to match anybody, leave the key out", quote(s))
	case strings.ContainsAny(s, ", \t"):
		return Range{}, several(s, parseRange, "[10.0.0.0/8, 11.0.0.0/8]")
	case strings.Contains(s, "/") && strings.Contains(s, "-") && !strings.Contains(s, "/-"):
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

// several refuses what has spaces or commas in it: one value, or some that should be a
// list.
func several[T any](s string, parse func(string) (T, error), example string) error {
	if one := strings.Join(strings.Fields(s), ""); one != s && !strings.Contains(one, ",") {
		if _, err := parse(one); err == nil {
			return fmt.Errorf("%s has spaces in it; write %q", quote(s), one)
		}
	}
	parts := strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(", \t", r) })
	for i, part := range parts {
		if _, err := parse(part); err != nil {
			return fmt.Errorf("%s is not one value; write several as a list, as %s", quote(s), example)
		}
		if strings.Contains(part, ":") {
			parts[i] = strconv.Quote(part)
		}
	}
	return fmt.Errorf("%s is several values; write a list: [%s]", quote(s), strings.Join(parts[:min(len(parts), 8)], ", "))
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
		return Range{}, fmt.Errorf("%s has no valid prefix length; write %s", quote(s), likelyPrefix(a, length))
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
		return fmt.Errorf("%s is an IPv4 address in IPv6 form with a length that is none of IPv4; write it as IPv4, %s for instance", quote(s), netip.PrefixFrom(v4, 24).Masked())
	}
	return fmt.Errorf("%s is an IPv4 prefix in IPv6 form; write %s", quote(s), netip.PrefixFrom(v4, bits-96).Masked())
}

// likelyPrefix guesses the prefix that was meant by a netmask.
func likelyPrefix(a netip.Addr, length string) string {
	if m, err := netip.ParseAddr(length); err == nil && m.Is4() && a.Is4() {
		if ones, bits := net.IPMask(m.AsSlice()).Size(); bits != 0 {
			return netip.PrefixFrom(a, ones).Masked().String()
		}
	}
	host := min(toBits(a).trailingZeros(), a.BitLen())
	return fmt.Sprintf("%s/%d to %s/%d", a, a.BitLen()-host, a, a.BitLen())
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
		return a, fmt.Errorf("%s names a zone, which a packet does not carry; write %s", quote(s), a.WithZone("").Unmap())
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
	if strings.ContainsAny(s, ", \t") {
		return PortRange{}, several(s, parsePorts, "[80, 1024-65535]")
	}
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
	case hasLeadingZero(first) || isRange && hasLeadingZero(last):
		return PortRange{}, leadingZero(s, PortRange{uint16(a), uint16(b)}.String())
	}
	return PortRange{uint16(a), uint16(b)}, nil
}
