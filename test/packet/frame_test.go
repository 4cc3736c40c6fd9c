// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// frame describes a frame. The tables start from a valid SYN and change one thing.
type frame struct {
	tags     []uint16 // VLAN identifiers, outer first
	tagTypes []layers.EthernetType
	from, to netip.AddrPort
	tcp      layers.TCP
	payload  []byte
	ip4      layers.IPv4 // what is set here overrides
	ext      []extension // IPv6 extension headers in order
	raw      func([]byte) []byte
}

// extension is an IPv6 extension header: its number and its bytes but for the first, the
// next header.
type extension struct {
	number layers.IPProtocol
	rest   []byte
}

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// syn returns a plain SYN between two addresses of one family.
func syn(from, to string) *frame {
	return &frame{from: addrPort(from), to: addrPort(to), tcp: layers.TCP{SYN: true, Window: 64240}}
}

// options4 are IPv4 options of 40 bytes, the most there can be.
func options4() []layers.IPv4Option {
	var o []layers.IPv4Option
	for range 40 {
		o = append(o, layers.IPv4Option{OptionType: 1})
	}
	return o
}

// bytes builds the frame.
func (f *frame) bytes(t testing.TB) []byte {
	t.Helper()
	return f.between(t, net.HardwareAddr{2, 0, 0, 0, 0, 2}, net.HardwareAddr{2, 0, 0, 0, 0, 1})
}

// between builds the frame with other hardware addresses.
func (f *frame) between(t testing.TB, src, dst net.HardwareAddr) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: src, DstMAC: dst}
	stack := []gopacket.SerializableLayer{eth}
	next := &eth.EthernetType
	for i, id := range f.tags {
		*next = layers.EthernetTypeDot1Q
		if i < len(f.tagTypes) {
			*next = f.tagTypes[i]
		}
		tag := &layers.Dot1Q{VLANIdentifier: id}
		next = &tag.Type
		stack = append(stack, tag)
	}
	tcp := f.tcp
	tcp.SrcPort, tcp.DstPort = layers.TCPPort(f.from.Port()), layers.TCPPort(f.to.Port())
	if f.from.Addr().Is4() {
		*next = layers.EthernetTypeIPv4
		ip := f.ip4
		ip.Version, ip.TTL, ip.Protocol = 4, 64, layers.IPProtocolTCP
		ip.SrcIP, ip.DstIP = f.from.Addr().AsSlice(), f.to.Addr().AsSlice()
		stack = append(stack, &ip)
		_ = tcp.SetNetworkLayerForChecksum(&ip)
	} else {
		*next = layers.EthernetTypeIPv6
		ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP,
			SrcIP: f.from.Addr().AsSlice(), DstIP: f.to.Addr().AsSlice()}
		stack = append(stack, ip)
		_ = tcp.SetNetworkLayerForChecksum(ip)
		if len(f.ext) > 0 {
			ip.NextHeader = f.ext[0].number
			stack = append(stack, gopacket.Payload(chain(f.ext)))
		}
	}
	stack = append(stack, &tcp, gopacket.Payload(f.payload))
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...); err != nil {
		t.Fatal(err)
	}
	b := buf.Bytes()
	if f.raw != nil {
		b = f.raw(b)
	}
	return b
}

// chain returns the bytes of extension headers, the last of which leads to TCP.
func chain(ext []extension) []byte {
	var b []byte
	for i, e := range ext {
		next := layers.IPProtocolTCP
		if i+1 < len(ext) {
			next = ext[i+1].number
		}
		b = append(append(b, byte(next)), e.rest...)
	}
	return b
}

// padding is a header of options, n times eight bytes long.
func padding(number layers.IPProtocol, n int) extension {
	rest := make([]byte, 8*n-1)
	rest[0] = byte(n - 1)
	for at := 1; at < len(rest); { // PadN options
		size := min(len(rest)-at, 250)
		rest[at] = 1
		if size == 1 {
			rest[at] = 0
		} else {
			rest[at+1] = byte(size - 2)
		}
		at += size
	}
	return extension{number, rest}
}

// fragment is a fragment header.
func fragment(offset int, more bool) extension {
	off := uint16(offset) &^ 7
	if more {
		off |= 1
	}
	return extension{layers.IPProtocolIPv6Fragment, []byte{0, byte(off >> 8), byte(off), 0, 0, 0, 7}}
}
