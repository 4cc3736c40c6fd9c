// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/layers"

	"narthex/internal/datapath"
)

const shopPolicy = `
version: 1
services:
  - {name: shop, listen: ["*:80", "[fd00::2]:8080"]}
  - {name: trial, listen: ["*:81"], mode: shadow}
connections:
  - {name: blocked, from: [192.0.2.0/24, "2001:db8:bad::/48"], action: drop}
  - {name: friend, from: [198.51.100.7, "2001:db8:f::1"], action: pass}
  - {name: ports, from: [203.0.113.0/24], from_port: 1000-1999, action: drop}
  - {name: known, from: [10.2.0.0/16], rate: 100/s, burst: 1000}
`

var (
	passed  = datapath.Counts{Passed: 1}
	dropped = datapath.Counts{Dropped: 1}
	would   = datapath.Counts{WouldDrop: 1}
)

func reason(name string, c datapath.Counts) counters { return counters{"reason " + name: c} }

func forShop(name string, c datapath.Counts) counters {
	return counters{"service shop": c, name: c}
}

func forTrial(name string, c datapath.Counts) counters {
	return counters{"service trial": c, name: c}
}

// Each case is a frame, whether it is dropped, and all counters that it moves.
var decisions = []struct {
	name  string
	frame *frame
	drop  bool
	count counters
	short bool // shorter than the kernel lets a test of a tcx program be
}{
	// Rules.
	{"SYN, no rule", syn("203.0.113.1:4000", "10.0.0.1:80"), false, forShop("reason no_rule", passed), false},
	{"SYN6, no rule", syn("[2001:db8::1]:4000", "[fd00::1]:80"), false, forShop("reason no_rule", passed), false},
	{"blocked", syn("192.0.2.255:4000", "10.0.0.1:80"), true, forShop("rule blocked", dropped), false},
	{"blocked6", syn("[2001:db8:bad:ffff::1]:4000", "[fd00::1]:80"), true, forShop("rule blocked", dropped), false},
	{"beside blocked", syn("192.0.3.0:4000", "10.0.0.1:80"), false, forShop("reason no_rule", passed), false},
	{"beside blocked6", syn("[2001:db8:bae::1]:4000", "[fd00::1]:80"), false, forShop("reason no_rule", passed), false},
	{"friend", syn("198.51.100.7:4000", "10.0.0.1:80"), false, forShop("rule friend", passed), false},
	{"friend6", syn("[2001:db8:f::1]:4000", "[fd00::1]:80"), false, forShop("rule friend", passed), false},
	{"port below the range", syn("203.0.113.1:999", "10.0.0.1:80"), false, forShop("reason no_rule", passed), false},
	{"first port", syn("203.0.113.1:1000", "10.0.0.1:80"), true, forShop("rule ports", dropped), false},
	{"last port", syn("203.0.113.1:1999", "10.0.0.1:80"), true, forShop("rule ports", dropped), false},
	{"port above the range", syn("203.0.113.1:2000", "10.0.0.1:80"), false, forShop("reason no_rule", passed), false},
	{"a token", syn("10.2.3.4:4000", "10.0.0.1:80"), false, forShop("rule known", passed), false},

	// Services.
	{"another port", syn("192.0.2.1:4000", "10.0.0.1:82"), false, reason("no_service", passed), false},
	{"forwarded", syn("192.0.2.1:4000", "10.0.0.2:80"), false, reason("no_service", passed), false},
	{"any address of a local prefix", syn("192.0.2.1:4000", "10.9.0.200:80"), true, forShop("rule blocked", dropped), false},
	{"127.0.0.0/8", syn("192.0.2.1:4000", "127.1.2.3:80"), true, forShop("rule blocked", dropped), false},
	{"::1", syn("[2001:db8:bad::1]:4000", "[::1]:80"), true, forShop("rule blocked", dropped), false},
	{"specific listen", syn("[2001:db8:bad::1]:4000", "[fd00::2]:8080"), true, forShop("rule blocked", dropped), false},
	{"its other port", syn("[2001:db8:bad::1]:4000", "[fd00::2]:80"), false, reason("no_service", passed), false},
	{"its port elsewhere", syn("[2001:db8:bad::1]:4000", "[fd00::1]:8080"), false, reason("no_service", passed), false},
	{"shadow, blocked", syn("192.0.2.1:4000", "10.0.0.1:81"), false, forTrial("rule blocked", would), false},
	{"shadow, no rule", syn("203.0.113.1:4000", "10.0.0.1:81"), false, forTrial("reason no_rule", passed), false},

	// Not the start of a connection.
	{"ACK", with(func(f *frame) { f.tcp = layers.TCP{ACK: true} }), false, reason("not_syn", passed), false},
	{"SYN+ACK", with(func(f *frame) { f.tcp.ACK = true }), false, reason("not_syn", passed), false},
	{"RST", with(func(f *frame) { f.tcp = layers.TCP{RST: true} }), false, reason("not_syn", passed), false},
	{"no flags", with(func(f *frame) { f.tcp = layers.TCP{} }), false, reason("not_syn", passed), false},
	{"data", with(func(f *frame) { f.tcp, f.payload = layers.TCP{ACK: true, PSH: true}, []byte("GET / HTTP/1.1\r\n") }), false, reason("not_syn", passed), false},
	{"UDP", with(func(f *frame) { f.raw = set(23, 17) }), false, reason("not_tcp", passed), false},
	{"ARP", with(func(f *frame) { f.raw = set(13, 6) }), false, reason("not_ip", passed), false},
	{"UDP6", with6(func(f *frame) { f.raw = set(20, 17) }), false, reason("not_tcp", passed), false},
	{"no next header", with6(func(f *frame) { f.raw = set(20, 59) }), false, reason("not_tcp", passed), false},
	{"ESP6", with6(func(f *frame) { f.raw = set(20, 50) }), false, reason("not_tcp", passed), false},

	// SYNs with something about them.
	{"ECN", with(func(f *frame) { f.tcp.ECE, f.tcp.CWR = true, true }), true, forShop("rule blocked", dropped), false},
	{"TCP options", with(func(f *frame) {
		f.tcp.Options = []layers.TCPOption{{OptionType: 2, OptionLength: 4, OptionData: []byte{5, 180}}}
	}), true, forShop("rule blocked", dropped), false},
	{"IP options", with(func(f *frame) { f.ip4.Options = options4() }), true, forShop("rule blocked", dropped), false},
	{"do not fragment", with(func(f *frame) { f.ip4.Flags = layers.IPv4DontFragment }), true, forShop("rule blocked", dropped), false},
	{"frame padding is not data", with(func(f *frame) { f.raw = func(b []byte) []byte { return append(b, 1, 2, 3, 4, 5, 6) } }), true, forShop("rule blocked", dropped), false},
	{"SYN with data", good(func(f *frame) { f.payload = []byte("x") }), true, forShop("reason syn_data", dropped), false},
	{"SYN with data, 6", good6(func(f *frame) { f.payload = []byte("x") }), true, forShop("reason syn_data", dropped), false},
	{"SYN with data to no service", good(func(f *frame) { f.payload, f.to = []byte("x"), addrPort("10.0.0.1:82") }), false, reason("no_service", passed), false},
	{"SYN with data, shadow", good(func(f *frame) { f.payload, f.to = []byte("x"), addrPort("10.0.0.1:81") }), false, forTrial("reason syn_data", would), false},
	{"SYN+FIN", good(func(f *frame) { f.tcp.FIN = true }), true, forShop("reason syn_flags", dropped), false},
	{"SYN+RST", good(func(f *frame) { f.tcp.RST = true }), true, forShop("reason syn_flags", dropped), false},
	{"SYN+FIN+RST, 6", good6(func(f *frame) { f.tcp.FIN, f.tcp.RST = true, true }), true, forShop("reason syn_flags", dropped), false},
	{"SYN+FIN to no service", good(func(f *frame) { f.tcp.FIN, f.to = true, addrPort("10.0.0.1:82") }), false, reason("no_service", passed), false},
	{"jumbogram's length", good6(func(f *frame) { f.raw = set(18, 0, 0) }), true, forShop("reason syn_data", dropped), false},

	// Headers that no stack accepts.
	{"IHL 4", good(func(f *frame) { f.raw = set(14, 0x44) }), false, reason("malformed", passed), false},
	{"version 5", good(func(f *frame) { f.raw = set(14, 0x55) }), false, reason("malformed", passed), false},
	{"version 4 in IPv6", good6(func(f *frame) { f.raw = set(14, 0x40) }), false, reason("malformed", passed), false},
	{"total length below the header", good(func(f *frame) { f.raw = set(16, 0, 19) }), false, reason("malformed", passed), false},
	{"total length within TCP", good(func(f *frame) { f.raw = set(16, 0, 39) }), false, reason("malformed", passed), false},
	{"data offset 4", good(func(f *frame) { f.raw = set(46, 0x40) }), false, reason("malformed", passed), false},
	{"frame ends in TCP", good(func(f *frame) { f.raw = cut(53) }), false, reason("malformed", passed), false},
	{"frame ends in IP", good(func(f *frame) { f.raw = cut(33) }), false, reason("malformed", passed), true},
	{"frame ends in IPv6", good6(func(f *frame) { f.raw = cut(53) }), false, reason("malformed", passed), true},
	{"Ethernet header alone", good(func(f *frame) { f.raw = cut(14) }), false, reason("malformed", passed), true},

	// Fragments.
	{"first fragment", good(func(f *frame) { f.ip4.Flags = layers.IPv4MoreFragments }), true, forShop("reason fragment", dropped), false},
	{"first fragment of 8 bytes", good(func(f *frame) { f.ip4.Flags, f.raw = layers.IPv4MoreFragments, tiny }), true, forShop("reason fragment", dropped), false},
	{"first fragment of no SYN", good(func(f *frame) { f.ip4.Flags, f.tcp = layers.IPv4MoreFragments, layers.TCP{ACK: true} }), true, forShop("reason fragment", dropped), false},
	{"first fragment to no service", good(func(f *frame) { f.ip4.Flags, f.to = layers.IPv4MoreFragments, addrPort("10.0.0.1:82") }), false, reason("no_service", passed), false},
	{"later fragment", good(func(f *frame) { f.ip4.FragOffset = 1 }), false, reason("fragment_tail", passed), false},
	{"first fragment 6", good6(func(f *frame) { f.ext = []extension{fragment(0, true)} }), true, forShop("reason fragment", dropped), false},
	{"first fragment 6 to no service", good6(func(f *frame) { f.ext, f.to = []extension{fragment(0, true)}, addrPort("[fd00::1]:82") }), false, reason("no_service", passed), false},
	{"later fragment 6", good6(func(f *frame) { f.ext = []extension{fragment(8, true)} }), false, reason("fragment_tail", passed), false},
	{"atomic fragment", good6(func(f *frame) { f.ext = []extension{fragment(0, false)} }), false, forShop("reason no_rule", passed), false},
	{"atomic fragment, blocked", with6(func(f *frame) { f.ext = []extension{fragment(0, false)} }), true, forShop("rule blocked", dropped), false},
	{"first fragment without ports", good6(func(f *frame) {
		f.ext, f.raw = []extension{fragment(0, true), padding(layers.IPProtocolIPv6Destination, 1)}, cut(14+40+8+8)
	}), true, forShop("reason extension", dropped), false},
	{"the same to an address of no service", good6(func(f *frame) {
		f.to = addrPort("[fd00::9]:80")
		f.ext, f.raw = []extension{fragment(0, true), padding(layers.IPProtocolIPv6Destination, 1)}, cut(14+40+8+8)
	}), false, reason("no_service", passed), false},
	{"first fragment cut in its chain", good6(func(f *frame) {
		f.ext, f.raw = []extension{fragment(0, true)}, cut(14+40+8+2)
	}), true, forShop("reason fragment", dropped), false},

	// Extension headers.
	{"hop by hop", with6(func(f *frame) { f.ext = []extension{padding(layers.IPProtocolIPv6HopByHop, 1)} }), true, forShop("rule blocked", dropped), false},
	{"three headers", with6(func(f *frame) {
		f.ext = []extension{padding(layers.IPProtocolIPv6HopByHop, 2), padding(layers.IPProtocolIPv6Routing, 3), padding(layers.IPProtocolIPv6Destination, 1)}
	}), true, forShop("rule blocked", dropped), false},
	{"eight headers", with6(func(f *frame) { f.ext = repeat(8, padding(layers.IPProtocolIPv6Destination, 1)) }), true, forShop("rule blocked", dropped), false},
	{"nine headers", good6(func(f *frame) { f.ext = repeat(9, padding(layers.IPProtocolIPv6Destination, 1)) }), true, forShop("reason extension", dropped), false},
	{"nine headers to another port", good6(func(f *frame) {
		f.ext, f.to = repeat(9, padding(layers.IPProtocolIPv6Destination, 1)), addrPort("[fd00::1]:82")
	}), true, forShop("reason extension", dropped), false},
	{"nine headers to an address of no service", good6(func(f *frame) {
		f.ext, f.to = repeat(9, padding(layers.IPProtocolIPv6Destination, 1)), addrPort("[fd00::9]:80")
	}), false, reason("no_service", passed), false},
	{"a header beyond 512 bytes", good6(func(f *frame) { f.ext = []extension{padding(layers.IPProtocolIPv6Destination, 60)} }), true, forShop("reason extension", dropped), false},
	{"a header of 400 bytes", with6(func(f *frame) { f.ext = []extension{padding(layers.IPProtocolIPv6Destination, 50)} }), true, forShop("rule blocked", dropped), false},
	{"data behind a header", good6(func(f *frame) {
		f.ext, f.payload = []extension{padding(layers.IPProtocolIPv6Destination, 1)}, []byte("x")
	}), true, forShop("reason syn_data", dropped), false},
	{"frame ends in a header", good6(func(f *frame) {
		f.ext, f.raw = []extension{padding(layers.IPProtocolIPv6Destination, 1)}, cut(14+40+1)
	}), false, reason("malformed", passed), false},

	// VLAN tags.
	{"one tag", with(func(f *frame) { f.tags = []uint16{10} }), true, forShop("rule blocked", dropped), false},
	{"priority tag", with(func(f *frame) { f.tags = []uint16{0} }), true, forShop("rule blocked", dropped), false},
	{"802.1ad", with(func(f *frame) {
		f.tags, f.tagTypes = []uint16{10, 20}, []layers.EthernetType{layers.EthernetTypeQinQ, layers.EthernetTypeDot1Q}
	}), true, forShop("rule blocked", dropped), false},
	{"two tags, 6", with6(func(f *frame) { f.tags = []uint16{10, 20} }), true, forShop("rule blocked", dropped), false},
	{"two tags and options", with(func(f *frame) { f.tags, f.ip4.Options = []uint16{1, 2}, options4() }), true, forShop("rule blocked", dropped), false},
	{"three tags", good(func(f *frame) { f.tags = []uint16{1, 2, 3} }), true, forShop("reason vlan_tags", dropped), false},
	{"three tags to no service", good(func(f *frame) { f.tags, f.to = []uint16{1, 2, 3}, addrPort("10.0.0.1:82") }), false, reason("no_service", passed), false},
	{"three tags, not a SYN", good(func(f *frame) { f.tags, f.tcp = []uint16{1, 2, 3}, layers.TCP{ACK: true} }), false, reason("not_syn", passed), false},
	{"eight tags, 6", good6(func(f *frame) { f.tags = []uint16{0, 0, 0, 0, 0, 0, 0, 0} }), true, forShop("reason vlan_tags", dropped), false},
	{"nine tags", good(func(f *frame) { f.tags = []uint16{0, 0, 0, 0, 0, 0, 0, 0, 0} }), true, reason("vlan_tags", dropped), false},
	{"tagged ARP", with(func(f *frame) { f.tags, f.raw = []uint16{5}, set(17, 6) }), false, reason("not_ip", passed), false},
}

func changed(f *frame, change func(*frame)) *frame {
	change(f)
	return f
}

// with is a SYN from a blocked source, changed.
func with(change func(*frame)) *frame { return changed(syn("192.0.2.1:4000", "10.0.0.1:80"), change) }

func with6(change func(*frame)) *frame {
	return changed(syn("[2001:db8:bad::1]:4000", "[fd00::1]:80"), change)
}

// good is a SYN that no rule is about, changed.
func good(change func(*frame)) *frame { return changed(syn("203.0.113.1:4000", "10.0.0.1:80"), change) }

func good6(change func(*frame)) *frame {
	return changed(syn("[2001:db8::1]:4000", "[fd00::1]:80"), change)
}

// set overwrites bytes of the frame.
func set(at int, to ...byte) func([]byte) []byte {
	return func(b []byte) []byte { copy(b[at:], to); return b }
}

// cut shortens the frame.
func cut(length int) func([]byte) []byte {
	return func(b []byte) []byte { return b[:length] }
}

// tiny makes the IPv4 packet end after eight bytes of TCP.
func tiny(b []byte) []byte {
	b[16], b[17] = 0, 28
	return b[:14+28]
}

func repeat(n int, e extension) []extension {
	var all []extension
	for range n {
		all = append(all, e)
	}
	return all
}

func TestDecisions(t *testing.T) {
	s := share(t, shopPolicy)
	for _, h := range s.hooks {
		for _, c := range decisions {
			if c.short && h.name == "tcx" {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", h.name, c.name), func(t *testing.T) {
				before := s.counters(t)
				if drop := h.send(t, c.frame.bytes(t)); drop != c.drop {
					t.Errorf("dropped: %v, want %v", drop, c.drop)
				}
				if diff := cmp.Diff(c.count, s.counters(t).since(before)); diff != "" {
					t.Errorf("counters (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// A frame whose first buffer ends within its headers is decided like any other.
func TestPieces(t *testing.T) {
	s := share(t, shopPolicy)
	h := &s.hooks[0]
	if !h.cutsFrames(t) {
		t.Skip("the kernel's test runs have a frame's beginning in one piece")
	}
	for _, c := range decisions {
		b := c.frame.bytes(t)
		for _, linear := range []int{14, 18, 34, 54, 60, 100} {
			if linear >= len(b) {
				continue
			}
			before := s.counters(t)
			if drop := h.sendPieces(t, b, linear); drop != c.drop {
				t.Errorf("%s, %d bytes in the first buffer: dropped %v, want %v", c.name, linear, drop, c.drop)
			}
			if diff := cmp.Diff(c.count, s.counters(t).since(before)); diff != "" {
				t.Errorf("%s, %d bytes in the first buffer: counters (-want +got):\n%s", c.name, linear, diff)
			}
		}
	}
}

// Without ports it cannot be known which service on an address a packet is for. One that
// only counts must not have it dropped, one that enforces must.
func TestShadowWithoutPorts(t *testing.T) {
	s := share(t, `
version: 1
services:
  - {name: shop, listen: ["[fd00::2]:80"]}
  - {name: trial, listen: ["[fd00::1]:80", "[fd00::2]:81"], mode: shadow}
`)
	for _, h := range s.hooks {
		for to, want := range map[string]counters{
			"[fd00::1]:80": forTrial("reason extension", would),
			"[fd00::2]:81": forShop("reason extension", dropped),
		} {
			before := s.counters(t)
			f := good6(func(f *frame) { f.to, f.ext = addrPort(to), repeat(9, padding(layers.IPProtocolIPv6Destination, 1)) })
			if drop := h.send(t, f.bytes(t)); drop != (want["reason extension"] == dropped) {
				t.Errorf("%s to %s: dropped %v", h.name, to, drop)
			}
			if diff := cmp.Diff(want, s.counters(t).since(before)); diff != "" {
				t.Errorf("%s to %s: counters (-want +got):\n%s", h.name, to, diff)
			}
		}
	}
}

// A device above that is policed itself gets its frames undecided.
func TestUpperDevice(t *testing.T) {
	s := share(t, shopPolicy, datapath.Target{Name: "lo", Index: 1, XDP: "off", Uppers: []net.HardwareAddr{{2, 0, 0, 0, 0, 9}}})
	for _, h := range s.hooks {
		for _, c := range []struct {
			frame *frame
			drop  bool
			count counters
		}{
			{with(func(*frame) {}), true, forShop("rule blocked", dropped)},
			{with(func(f *frame) { f.raw = set(0, 2, 0, 0, 0, 0, 9) }), false, reason("upper", passed)},
			{with(func(f *frame) { f.raw, f.to = set(0, 2, 0, 0, 0, 0, 9), addrPort("10.0.0.1:82") }), false, reason("no_service", passed)},
		} {
			before := s.counters(t)
			if drop := h.send(t, c.frame.bytes(t)); drop != c.drop {
				t.Errorf("%s: dropped %v, want %v", h.name, drop, c.drop)
			}
			if diff := cmp.Diff(c.count, s.counters(t).since(before)); diff != "" {
				t.Errorf("%s: counters (-want +got):\n%s", h.name, diff)
			}
		}
	}
}
