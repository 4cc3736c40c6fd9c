// SPDX-License-Identifier: Apache-2.0

package parser

import "net/netip"

// Use is what Linux makes of a frame.
type Use string

const (
	Nothing    Use = "nothing that starts a connection"
	Connection Use = "a connection"
	Head       Use = "the first of several fragments of what may be a connection's start"
)

// linuxMakes says what Linux 6.18 makes of a frame that is sent to it, as far as it may start a TCP
// connection, with where it goes. Where that depends on more than the frame (checksums, IPv4
// options, which VLANs are configured), it says what is the most that can come of it. It
// follows the order in which the kernel does things; the names of its functions stand at each.
func linuxMakes(frame []byte) (Use, netip.AddrPort) {
	if len(frame) < 14 {
		return Nothing, netip.AddrPort{}
	}
	etherType, rest := be16(frame[12:]), frame[14:]
	// __netif_receive_skb_core(): takes one tag off after the other, as long as they are of
	// VLAN 0 or of one for which there is a device.
	for etherType == 0x8100 || etherType == 0x88a8 {
		if len(rest) < 4 {
			return Nothing, netip.AddrPort{}
		}
		etherType, rest = be16(rest[2:]), rest[4:]
	}
	switch etherType {
	case 0x0800:
		return linuxIPv4(rest)
	case 0x86dd:
		return linuxIPv6(rest)
	}
	return Nothing, netip.AddrPort{} // below 0x600: 802.2, in which Linux takes no IP
}

// linuxIPv4 is ip_rcv_core() and ip_local_deliver().
func linuxIPv4(b []byte) (Use, netip.AddrPort) {
	if len(b) < 20 || b[0]>>4 != 4 {
		return Nothing, netip.AddrPort{}
	}
	header, total := int(b[0]&15)*4, be16(b[2:])
	if total == 0 {
		// iph_totlen(): of a packet that is still to be segmented (GSO), which a sender on a
		// veth or tap device may hand over with PACKET_VNET_HDR or a virtio header.
		total = len(b)
	}
	if header < 20 || len(b) < total || total < header || b[9] != 6 {
		return Nothing, netip.AddrPort{}
	}
	to, payload := netip.AddrFrom4([4]byte(b[16:])), b[header:total] // what is left is padding
	if fragment := be16(b[6:]); fragment&0x1fff != 0 {
		return Nothing, netip.AddrPort{}
	} else if fragment&0x2000 != 0 {
		return linuxHead(payload, to)
	}
	return linuxTCP(payload, to)
}

// linuxHead is ip_frag_queue() and its like of IPv6: they refuse a fragment without data, and
// count only whole units of eight bytes of any but the last.
func linuxHead(payload []byte, to netip.Addr) (Use, netip.AddrPort) {
	if len(payload) < 8 {
		return Nothing, netip.AddrPort{}
	}
	return Head, netip.AddrPortFrom(to, uint16(be16(payload[2:])))
}

// linuxIPv6 is ip6_rcv_core() and ip6_protocol_deliver_rcu(), which takes any number of
// extension headers in any order, but for hop-by-hop options, which must be the first.
func linuxIPv6(b []byte) (Use, netip.AddrPort) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return Nothing, netip.AddrPort{}
	}
	next, length, to := b[6], be16(b[4:]), netip.AddrFrom16([16]byte(b[24:]))
	b = b[40:]
	if length != 0 || next != 0 {
		if len(b) < length {
			return Nothing, netip.AddrPort{}
		}
		b = b[:length]
	}
	for i, atomic := 0, false; ; i++ {
		switch {
		case next == 6:
			return linuxTCP(b, to)
		case len(b) < 8:
			return Nothing, netip.AddrPort{}
		case next == 44:
			if atomic || length == 0 { // ipv6_frag_rcv(): once; not in a jumbogram
				return Nothing, netip.AddrPort{}
			}
			atomic = true
			next = b[0]
			field := be16(b[2:])
			b = b[8:]
			if field&0xfff8 != 0 {
				return Nothing, netip.AddrPort{}
			}
			if field&1 != 0 {
				if next != 6 && !isExtension(next) {
					return Nothing, netip.AddrPort{}
				}
				return linuxHead(b, to)
			}
		case next == 0 && i == 0, next == 43, next == 60:
			size := (int(b[1]) + 1) * 8
			if len(b) < size {
				return Nothing, netip.AddrPort{}
			}
			next, b = b[0], b[size:]
		default:
			return Nothing, netip.AddrPort{}
		}
	}
}

// linuxTCP is tcp_v4_rcv(), and what tcp_rcv_state_process() does for a listener.
func linuxTCP(b []byte, to netip.Addr) (Use, netip.AddrPort) {
	if len(b) < 20 || b[12]>>4 < 5 || int(b[12]>>4)*4 > len(b) {
		return Nothing, netip.AddrPort{}
	}
	if b[13]&(1|2|4|16) != 2 { // of FIN, SYN, RST and ACK the SYN alone
		return Nothing, netip.AddrPort{}
	}
	return Connection, netip.AddrPortFrom(to, uint16(be16(b[2:])))
}
