// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// SYN describes a frame that opens a TCP connection.
type SYN struct {
	SrcMAC, DstMAC net.HardwareAddr
	Tags           []VLANTag // outermost first
	From, To       netip.AddrPort
	Seq            uint32
}

// NewSYN describes a SYN from the lab's client device to its server device; from need
// not be an address that the client has.
func (l *Lab) NewSYN(from, to netip.AddrPort) (SYN, error) {
	src, err := l.Client.MAC(Dev)
	if err != nil {
		return SYN{}, err
	}
	dst, err := l.Server.MAC(Dev)
	if err != nil {
		return SYN{}, err
	}
	return SYN{SrcMAC: src, DstMAC: dst, From: from, To: to, Seq: 1}, nil
}

// Frame returns the frame with correct checksums.
func (s SYN) Frame() ([]byte, error) {
	return frame(s.SrcMAC, s.DstMAC, s.Tags, s.From, s.To, &layers.TCP{
		SrcPort: layers.TCPPort(s.From.Port()),
		DstPort: layers.TCPPort(s.To.Port()),
		Seq:     s.Seq,
		SYN:     true,
		Window:  64240,
		Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{0x05, 0xb4}}},
	}, nil)
}

// frame returns an Ethernet frame with the segment, with lengths and checksums filled in.
func frame(srcMAC, dstMAC net.HardwareAddr, tags []VLANTag, from, to netip.AddrPort, tcp *layers.TCP, payload []byte) ([]byte, error) {
	ethertype, ip := network(from.Addr(), to.Addr(), tcp)

	var stack []gopacket.SerializableLayer
	types := append(tagTypes(tags), ethertype)
	stack = append(stack, &layers.Ethernet{SrcMAC: srcMAC, DstMAC: dstMAC, EthernetType: types[0]})
	for i, tag := range tags {
		stack = append(stack, &layers.Dot1Q{VLANIdentifier: tag.ID, Type: types[i+1]})
	}
	stack = append(stack, ip, tcp, gopacket.Payload(payload))

	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, stack...); err != nil {
		return nil, fmt.Errorf("build a segment from %s to %s: %w", from, to, err)
	}
	return buf.Bytes(), nil
}

// network returns the IP header for the segment and its Ethernet type.
func network(from, to netip.Addr, tcp *layers.TCP) (layers.EthernetType, gopacket.SerializableLayer) {
	src, dst := net.IP(from.AsSlice()), net.IP(to.AsSlice())
	if from.Is4() {
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: src, DstIP: dst}
		// Fails only for layers that are not IP.
		_ = tcp.SetNetworkLayerForChecksum(ip)
		return layers.EthernetTypeIPv4, ip
	}
	ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: src, DstIP: dst}
	_ = tcp.SetNetworkLayerForChecksum(ip)
	return layers.EthernetTypeIPv6, ip
}

// tagTypes returns the Ethernet types that announce the tags.
func tagTypes(tags []VLANTag) []layers.EthernetType {
	var types []layers.EthernetType
	for _, t := range tags {
		types = append(types, layers.EthernetType(t.proto()))
	}
	return types
}
