// SPDX-License-Identifier: Apache-2.0

package parser

import (
	"encoding/binary"
	"slices"
	"testing"
)

// cat joins the headers of a frame.
func cat(headers ...[]byte) []byte { return slices.Concat(headers...) }

// num is a field of two bytes.
func num(n int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) }

// eth is an Ethernet header up to the type. Tags are VLAN identifiers; those above 4095 stand
// for one in an 802.1ad tag.
func eth(etherType int, tags ...int) []byte {
	b := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
	for _, tag := range tags {
		tpid := 0x8100
		if tag > 4095 {
			tpid = 0x88a8
		}
		b = cat(b, num(tpid), num(tag&4095))
	}
	return cat(b, num(etherType))
}

const ad = 4096 // makes an identifier that of an 802.1ad tag

// ip4 is an IPv4 packet with the given number of words of options.
func ip4(options int, payload []byte) []byte {
	h := make([]byte, 20+4*options)
	h[0], h[8], h[9] = 0x40|byte(5+options), 64, 6
	copy(h[2:], num(len(h)+len(payload)))
	copy(h[12:], []byte{192, 0, 2, 1, 198, 51, 100, 1})
	return cat(h, payload)
}

// ip6 is an IPv6 packet that begins with the header next.
func ip6(next byte, payload ...[]byte) []byte {
	h := make([]byte, 40)
	h[0], h[6], h[7] = 0x60, next, 64
	copy(h[8:], []byte{0x20, 1, 0xd, 0xb8, 1, 15: 1})
	copy(h[24:], []byte{0x20, 1, 0xd, 0xb8, 2, 15: 1})
	body := cat(payload...)
	copy(h[4:], num(len(body)))
	return cat(h, body)
}

// ext is an extension header of 8 + 8·units bytes, with options in it.
func ext(next byte, units int) []byte {
	return cat([]byte{next, byte(units)}, options(6+8*units))
}

// route is a routing header of type 0 that is done with.
func route(next byte, units int) []byte {
	return cat([]byte{next, byte(units)}, make([]byte, 6+8*units))
}

// exts are n destination option headers, the last of which says next.
func exts(n int, next byte, units int) []byte {
	return cat(slices.Repeat(ext(60, units), n-1), ext(next, units))
}

// frag is a fragment header with the 16 bits of offset and flag.
func frag(next byte, field int) []byte { return cat([]byte{next, 0}, num(field), []byte{0, 0, 0, 7}) }

// tcp is a segment with the given flags, and data.
func tcp(flags byte, data ...byte) []byte {
	h := make([]byte, 20)
	copy(h, num(40000))
	copy(h[2:], num(80))
	h[12], h[13] = 5<<4, flags
	return cat(h, data)
}

const (
	fin, syn, rst, ack = 1, 2, 4, 16
	v4, v6             = 0x0800, 0x86dd
)

// with returns a copy with bytes changed from an offset on.
func with(b []byte, at int, values ...byte) []byte {
	b = slices.Clone(b)
	copy(b[at:], values)
	return b
}

// frames are what the parser must know by heart; they seed the fuzzer as well.
var frames = []struct {
	name   string
	frame  []byte
	kind   Kind
	reason Reason
	use    Use // what Linux makes of it; Nothing if empty
}{
	{"IPv4", cat(eth(v4), ip4(0, tcp(syn))), SYN, "", Connection},
	{"IPv6", cat(eth(v6), ip6(6, tcp(syn))), SYN, "", Connection},
	{"ECN", cat(eth(v4), ip4(0, tcp(syn|0xc0))), SYN, "", Connection},
	{"padding", cat(eth(v4), ip4(0, tcp(syn)), make([]byte, 6)), SYN, "", Connection},
	{"IPv4 options", cat(eth(v4), ip4(1, tcp(syn))), SYN, "", Connection},
	{"most IPv4 options", cat(eth(v4), ip4(10, tcp(syn))), SYN, "", Connection},

	{"1 tag", cat(eth(v4, 10), ip4(0, tcp(syn))), SYN, "", Connection},
	{"priority tag", cat(eth(v6, 0), ip6(6, tcp(syn))), SYN, "", Connection},
	{"2 tags", cat(eth(v4, ad+5, 10), ip4(0, tcp(syn))), SYN, "", Connection},
	{"2 priority tags", cat(eth(v4, 0, 0), ip4(0, tcp(syn))), SYN, "", Connection},
	{"3 priority tags", cat(eth(v4, 0, 0, 0), ip4(0, tcp(syn))), Anomaly, VLANTags, Connection},
	{"7 tags", cat(eth(v6, ad, ad, 0, 0, 0, 0, 0), ip6(6, tcp(syn))), Anomaly, VLANTags, Connection},
	{"8 tags", cat(eth(v4, 0, 0, 0, 0, 0, 0, 0, 0), ip4(0, tcp(syn))), Anomaly, VLANTags, Connection},
	{"8 tags, not a SYN", cat(eth(v4, 0, 0, 0, 0, 0, 0, 0, 0), ip4(0, tcp(ack))), Pass, NotSYN, ""},
	{"8 tags, ARP", cat(eth(0x806, 0, 0, 0, 0, 0, 0, 0, 0), make([]byte, 28)), Pass, NotIP, ""},
	{"9 tags", cat(eth(v4, 0, 0, 0, 0, 0, 0, 0, 0, 0), ip4(0, tcp(syn))), Anomaly, VLANTags, Connection},
	{"3 tags, first fragment", cat(eth(v4, 0, 0, 0), with(ip4(0, tcp(syn)), 6, 0x20)), Anomaly, VLANTags, Head},
	{"QinQ of old", cat(eth(0x9100), num(10), num(v4), ip4(0, tcp(syn))), Pass, NotIP, ""},

	{"802.2 SNAP", cat(eth(48), []byte{0xaa, 0xaa, 3, 0, 0, 0}, num(v4), ip4(0, tcp(syn))), Pass, NotIP, ""},
	{"MPLS", cat(eth(0x8847), []byte{0, 1, 1, 64}, ip4(0, tcp(syn))), Pass, NotIP, ""},
	{"PPPoE", cat(eth(0x8864), []byte{0x11, 0, 0, 1, 0, 42, 0, 0x21}, ip4(0, tcp(syn))), Pass, NotIP, ""},

	{"IHL 4", cat(eth(v4), with(ip4(0, tcp(syn)), 0, 0x44)), Pass, Malformed, ""},
	{"version 6 in IPv4", cat(eth(v4), with(ip4(0, tcp(syn)), 0, 0x65)), Pass, Malformed, ""},
	{"version 4 in IPv6", cat(eth(v6), with(ip6(6, tcp(syn)), 0, 0x40)), Pass, Malformed, ""},
	{"total below header", cat(eth(v4), with(ip4(0, tcp(syn)), 3, 19)), Pass, Malformed, ""},
	{unsegmented, cat(eth(v4), with(ip4(0, tcp(syn, make([]byte, 2000)...)), 2, 0, 0)), Anomaly, SYNData, Connection},
	{"total within TCP", cat(eth(v4), with(ip4(0, tcp(syn)), 3, 39)), Pass, Malformed, ""},
	{"total beyond frame", cat(eth(v4), with(ip4(0, tcp(syn)), 3, 41)), Anomaly, SYNData, ""},
	{"payload within TCP", cat(eth(v6), with(ip6(6, tcp(syn)), 5, 19)), Pass, Malformed, ""},
	{"payload within options", cat(eth(v6), with(ip6(60, ext(6, 0), tcp(syn)), 5, 4)), Pass, Malformed, ""},
	{"data offset 4", cat(eth(v4), ip4(0, with(tcp(syn), 12, 4<<4))), Pass, Malformed, ""},
	{"data offset beyond", cat(eth(v4), ip4(0, with(tcp(syn), 12, 6<<4))), Pass, Malformed, ""},

	{"ACK", cat(eth(v4), ip4(0, tcp(ack))), Pass, NotSYN, ""},
	{"SYN+ACK", cat(eth(v4), ip4(0, tcp(syn|ack))), Pass, NotSYN, ""},
	{"RST", cat(eth(v4), ip4(0, tcp(rst))), Pass, NotSYN, ""},
	{"no flag", cat(eth(v4), ip4(0, tcp(0))), Pass, NotSYN, ""},
	{"SYN+FIN", cat(eth(v4), ip4(0, tcp(syn|fin))), Anomaly, SYNFlags, ""},
	{"SYN+RST", cat(eth(v6), ip6(6, tcp(syn|rst))), Anomaly, SYNFlags, ""},
	{"SYN with data", cat(eth(v4), ip4(0, tcp(syn, 'G'))), Anomaly, SYNData, Connection},
	{"SYN with data, IPv6", cat(eth(v6), ip6(6, tcp(syn, 'G'))), Anomaly, SYNData, Connection},

	{"UDP", cat(eth(v4), with(ip4(0, tcp(syn)), 9, 17)), Pass, NotTCP, ""},
	{"AH", cat(eth(v6), ip6(51, []byte{6, 4, 0, 0, 0, 0, 0, 1}, make([]byte, 16), tcp(syn))), Pass, NotTCP, ""},
	{"ESP", cat(eth(v6), ip6(60, ext(50, 0), tcp(syn))), Pass, NotTCP, ""},
	{"no next header", cat(eth(v6), ip6(59, tcp(syn))), Pass, NotTCP, ""},
	{"TCP after no next header", cat(eth(v6), ip6(60, ext(59, 0), tcp(syn))), Pass, NotTCP, ""},

	{"first fragment", cat(eth(v4), with(ip4(0, tcp(syn)), 6, 0x20)), Anomaly, Fragment, Head},
	{"first fragment of 8 bytes", cat(eth(v4), with(ip4(0, tcp(syn)[:8]), 6, 0x20)), Anomaly, Fragment, Head},
	{"first fragment of 2 bytes", cat(eth(v4), with(ip4(0, tcp(syn)[:2]), 6, 0x20)), Anomaly, Fragment, ""},
	{"later fragment", cat(eth(v4), with(ip4(0, tcp(syn)), 7, 1)), Pass, FragmentTail, ""},
	{"reserved flag", cat(eth(v4), with(ip4(0, tcp(syn)), 6, 0x80)), SYN, "", Connection},
	{"first fragment, IPv6", cat(eth(v6), ip6(44, frag(6, 1), tcp(syn), make([]byte, 4))), Anomaly, Fragment, Head},
	{"later fragment, IPv6", cat(eth(v6), ip6(44, frag(6, 8), tcp(syn))), Pass, FragmentTail, ""},
	{"atomic fragment", cat(eth(v6), ip6(44, frag(6, 0), tcp(syn))), SYN, "", Connection},
	{"2 atomic fragments", cat(eth(v6), ip6(44, frag(44, 0), frag(6, 0), tcp(syn))), Anomaly, Extension, ""},
	{"options behind atomic fragment", cat(eth(v6), ip6(44, frag(60, 0), ext(6, 0), tcp(syn))), Anomaly, Extension, Connection},
	{"first fragment of options", cat(eth(v6), ip6(44, frag(60, 1), ext(6, 0))), Anomaly, Extension, Head},
	{"first fragment of UDP", cat(eth(v6), ip6(44, frag(17, 1), tcp(syn))), Pass, NotTCP, ""},

	{"hop-by-hop", cat(eth(v6), ip6(0, ext(6, 0), tcp(syn))), SYN, "", Connection},
	{"routing", cat(eth(v6), ip6(43, route(6, 2), tcp(syn))), SYN, "", Connection},
	{"destination", cat(eth(v6), ip6(60, ext(6, 1), tcp(syn))), SYN, "", Connection},
	{"all, as in RFC 8200", cat(eth(v6), ip6(0, ext(43, 0), route(60, 2), ext(44, 0), frag(6, 0), tcp(syn))), SYN, "", Connection},
	{"hop-by-hop later", cat(eth(v6), ip6(60, ext(0, 0), ext(6, 0), tcp(syn))), SYN, "", ""},
	{"8 extensions", cat(eth(v6), ip6(60, exts(8, 6, 0), tcp(syn))), SYN, "", Connection},
	{"8 extensions, fragment", cat(eth(v6), ip6(60, exts(8, 44, 0), frag(6, 0), tcp(syn))), SYN, "", Connection},
	{"9 extensions", cat(eth(v6), ip6(60, exts(9, 6, 0), tcp(syn))), Anomaly, Extension, Connection},
	{"9 extensions, UDP", cat(eth(v6), ip6(60, exts(9, 17, 0), tcp(syn))), Anomaly, Extension, ""},
	// Headers come in units of 8 bytes and tags in units of 4: of 512 bytes, 510 can be met.
	{"506 bytes", cat(eth(v6), ip6(60, ext(6, 53), tcp(syn))), SYN, "", Connection},
	{"510 bytes", cat(eth(v6, 0), ip6(60, ext(6, 53), tcp(syn))), SYN, "", Connection},
	{"514 bytes", cat(eth(v6), ip6(60, ext(6, 54), tcp(syn))), Anomaly, Extension, Connection},
	{"options of 2048 bytes", cat(eth(v6), ip6(60, ext(6, 255), tcp(syn))), Anomaly, Extension, Connection},
	{"fragment header beyond", cat(eth(v6), ip6(60, ext(44, 56), frag(6, 0), tcp(syn))), Anomaly, Extension, Connection},
	{"ports of first fragment beyond", cat(eth(v6), ip6(60, ext(44, 55), frag(6, 1), tcp(syn), make([]byte, 4))), Anomaly, Fragment, Head},

	{"jumbogram", cat(eth(v6), with(ip6(0, ext(6, 0), tcp(syn)), 5, 0)), Anomaly, SYNData, Connection},
	{"length 0", cat(eth(v6), with(ip6(6, tcp(syn)), 5, 0)), Anomaly, SYNData, ""},

	{"nothing", nil, Truncated, "", ""},
	{"13 bytes", eth(v4)[:13], Truncated, "", ""},
	{"no IP header", eth(v4), Truncated, "", ""},
	{"no TCP header", cat(eth(v4), ip4(0, nil)), Truncated, "", ""},
}

// TestFrames says of each frame what it is, and of each of its prefixes that it is read
// without a fault and does not say otherwise.
func TestFrames(t *testing.T) {
	a := testArena(t)
	for _, f := range frames {
		t.Run(f.name, func(t *testing.T) {
			cuts := make([]int, len(f.frame)+1)
			for i := range cuts {
				cuts[i] = i
			}
			got := checkFrame(t, a, f.frame, cuts...)
			if got.Kind != f.kind || got.Reason != f.reason {
				t.Errorf("parse() says %v, not %s (%s)", got, f.kind, f.reason)
			}
			want := f.use
			if want == "" {
				want = Nothing
			}
			if use, _ := linuxMakes(f.frame); use != want {
				t.Errorf("Linux makes of it %s, not %s", use, want)
			}
		})
	}
}
