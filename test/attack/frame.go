// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// TCP flags.
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
)

// Segment is a TCP segment as an attacker makes it.
type Segment struct {
	From, To   netip.AddrPort
	Seq, Ack   uint32
	Flags      byte
	Window     uint16 // 64240 if 0
	MSS        bool   // the option MSS, as on a SYN
	Timestamps [2]uint32
	Payload    []byte
	Fragment   bool // as the first fragment of a packet whose rest never comes
	BadSum     bool // with a wrong checksum
}

// framer writes frames; the packages for tests build the same ones, but not by the million.
type framer struct{ src, dst net.HardwareAddr }

const (
	ethernetBytes = 14
	fragmentBytes = 8 // IPv6's header for it
)

// frame appends a frame to b[:0] and returns it. The device pads short ones.
func (f framer) frame(b []byte, s *Segment) []byte {
	options := optionsOf(s)
	size := 20 + len(options) + len(s.Payload)
	b = append(append(b[:0], f.dst...), f.src...)
	if s.To.Addr().Is4() {
		b = ipv4(b, s, size)
	} else {
		b = ipv6(b, s, size)
	}
	l4 := len(b)
	b = binary.BigEndian.AppendUint16(b, s.From.Port())
	b = binary.BigEndian.AppendUint16(b, s.To.Port())
	b = binary.BigEndian.AppendUint32(b, s.Seq)
	b = binary.BigEndian.AppendUint32(b, s.Ack)
	b = append(b, byte(20+len(options))<<2, s.Flags)
	window := s.Window
	if window == 0 {
		window = 64240
	}
	b = binary.BigEndian.AppendUint16(b, window)
	b = append(b, 0, 0, 0, 0) // checksum, urgent pointer
	b = append(append(b, options...), s.Payload...)
	sum := checksum(b[l4:], pseudo(s, size))
	if s.BadSum {
		sum ^= 0x5555
	}
	binary.BigEndian.PutUint16(b[l4+16:], sum)
	return b
}

func optionsOf(s *Segment) []byte {
	var o []byte
	if s.MSS {
		o = append(o, 2, 4, 0x05, 0xa0) // 1440 suits IPv6 too
	}
	if s.Timestamps != [2]uint32{} {
		o = append(o, 1, 1, 8, 10)
		o = binary.BigEndian.AppendUint32(o, s.Timestamps[0])
		o = binary.BigEndian.AppendUint32(o, s.Timestamps[1])
	}
	return o
}

func ipv4(b []byte, s *Segment, size int) []byte {
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IP)
	l3 := len(b)
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(20+size))
	b = append(b, byte(s.Seq>>8), byte(s.Seq)) // identification
	if s.Fragment {
		b = append(b, 0x20, 0) // more fragments
	} else {
		b = append(b, 0x40, 0) // don't fragment
	}
	b = append(b, 64, unix.IPPROTO_TCP, 0, 0)
	b = append(append(b, s.From.Addr().AsSlice()...), s.To.Addr().AsSlice()...)
	binary.BigEndian.PutUint16(b[l3+10:], checksum(b[l3:], 0))
	return b
}

func ipv6(b []byte, s *Segment, size int) []byte {
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IPV6)
	b = append(b, 0x60, 0, 0, 0)
	next := byte(unix.IPPROTO_TCP)
	if s.Fragment {
		size += fragmentBytes
		next = unix.IPPROTO_FRAGMENT
	}
	b = binary.BigEndian.AppendUint16(b, uint16(size))
	b = append(b, next, 64)
	b = append(append(b, s.From.Addr().AsSlice()...), s.To.Addr().AsSlice()...)
	if s.Fragment {
		b = append(b, unix.IPPROTO_TCP, 0, 0, 1) // offset 0, more fragments
		b = binary.BigEndian.AppendUint32(b, s.Seq)
	}
	return b
}

// pseudo sums the pseudo header (RFC 9293, 3.1).
func pseudo(s *Segment, size int) (sum uint64) {
	sum = unix.IPPROTO_TCP + uint64(size)
	for _, a := range []netip.Addr{s.From.Addr(), s.To.Addr()} {
		if a.Is4() {
			b := a.As4()
			sum = words(b[:], sum)
		} else {
			b := a.As16()
			sum = words(b[:], sum)
		}
	}
	return sum
}

// words adds big-endian 16-bit words to a sum.
func words(b []byte, sum uint64) uint64 {
	for len(b) >= 4 {
		w := binary.BigEndian.Uint32(b)
		sum += uint64(w>>16) + uint64(w&0xffff)
		b = b[4:]
	}
	for i, c := range b {
		sum += uint64(c) << (8 * ((i + 1) % 2))
	}
	return sum
}

// checksum is the Internet checksum (RFC 1071).
func checksum(b []byte, sum uint64) uint16 {
	sum = words(b, sum)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
