// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"encoding/binary"
	"math/bits"
)

// Flags of segments.
const (
	flagFIN = 1
	flagSYN = 2
	flagRST = 4
	flagPSH = 8
	flagACK = 16
)

// Offsets in a frame.
const (
	etherSize = 14
	ip4Size   = 20
	ip6Size   = 40
	tcpSize   = 20
)

// segment is what a frame says.
type segment struct {
	seq, ack uint32
	flags    uint8
	data     []byte
	options  []byte // a multiple of four bytes
	clock    uint32 // timestamp; 0: none
	echo     uint32
	sound    bool // its checksum holds
	left     bool // it is what a device expects that is to complete it; of what was parsed
}

// end is the sequence number behind it.
func (s *segment) end() uint32 {
	end := s.seq + uint32(len(s.data))
	if s.flags&flagFIN != 0 {
		end++
	}
	if s.flags&flagSYN != 0 {
		end++
	}
	return end
}

// before says whether a sequence number comes before another one.
func before(a, b uint32) bool { return int32(a-b) < 0 }

// sum is the one's complement sum of bytes as words of the machine, not folded.
func sum(b []byte) uint64 {
	var s, c uint64
	for ; len(b) >= 8; b = b[8:] {
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b), c)
	}
	if len(b) > 0 {
		var rest [8]byte
		copy(rest[:], b)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(rest[:]), c)
	}
	s, c = bits.Add64(s, c, 0)
	s += c
	return s>>32 + s&0xffffffff
}

func fold(s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// ends are the two ends of a connection, as a frame from the first to the second has them.
type ends struct {
	v6             bool
	from, to       [16]byte
	sport, dport   uint16
	fromMAC, toMAC byte
}

func (e ends) swapped() ends {
	e.from, e.to = e.to, e.from
	e.sport, e.dport = e.dport, e.sport
	e.fromMAC, e.toMAC = e.toMAC, e.fromMAC
	return e
}

func (e *ends) addressSize() int {
	if e.v6 {
		return 16
	}
	return 4
}

// l4 is where the TCP header begins.
func (e *ends) l4() int {
	if e.v6 {
		return etherSize + ip6Size
	}
	return etherSize + ip4Size
}

// pseudo is the sum of the pseudo header.
func (e *ends) pseudo(size int) uint64 {
	n := e.addressSize()
	return sum(e.from[:n]) + sum(e.to[:n]) + uint64(bits.ReverseBytes16(6)) + uint64(bits.ReverseBytes16(uint16(size)))
}

// put writes the segment's frame into b and returns it. With partial its checksum is left to
// the device.
func (s *segment) put(b []byte, e *ends, partial bool) []byte {
	options := len(s.options)
	if s.clock != 0 {
		options += 12
	}
	l4 := e.l4()
	size := tcpSize + options + len(s.data)
	b = b[:l4+size]
	clear(b[:l4+tcpSize])
	b[0], b[5], b[6], b[11] = 2, e.toMAC, 2, e.fromMAC
	b[12], b[13] = 0x08, 0x00
	if e.v6 {
		b[12], b[13] = 0x86, 0xdd
	}
	e.putIP(b[etherSize:], size)
	t := b[l4:]
	binary.BigEndian.PutUint16(t, e.sport)
	binary.BigEndian.PutUint16(t[2:], e.dport)
	binary.BigEndian.PutUint32(t[4:], s.seq)
	binary.BigEndian.PutUint32(t[8:], s.ack)
	t[12], t[13] = byte(tcpSize+options)/4<<4, s.flags
	binary.BigEndian.PutUint16(t[14:], 0xffff)
	at := tcpSize
	if s.clock != 0 {
		binary.BigEndian.PutUint32(t[at:], 0x0101080a)
		binary.BigEndian.PutUint32(t[at+4:], s.clock)
		binary.BigEndian.PutUint32(t[at+8:], s.echo)
		at += 12
	}
	at += copy(t[at:], s.options)
	copy(t[at:], s.data)
	check := e.pseudo(size)
	if partial {
		binary.LittleEndian.PutUint16(t[16:], fold(check))
		return b
	}
	check += sum(t)
	if !s.sound {
		check += 0x101
	}
	binary.LittleEndian.PutUint16(t[16:], ^fold(check))
	return b
}

func (e *ends) putIP(ip []byte, size int) {
	if e.v6 {
		ip[0], ip[6], ip[7] = 0x60, 6, 64
		binary.BigEndian.PutUint16(ip[4:], uint16(size))
		copy(ip[8:], e.from[:])
		copy(ip[24:], e.to[:])
		return
	}
	ip[0], ip[6], ip[8], ip[9] = 0x45, 0x40, 64, 6
	binary.BigEndian.PutUint16(ip[2:], uint16(ip4Size+size))
	copy(ip[12:16], e.from[:])
	copy(ip[16:20], e.to[:])
	binary.LittleEndian.PutUint16(ip[10:], ^fold(sum(ip[:ip4Size])))
}

// parse reads a frame without VLAN tags. The data stay where they are.
func parse(b []byte, e *ends, s *segment) bool {
	if len(b) < etherSize+ip4Size+tcpSize {
		return false
	}
	*e, *s = ends{fromMAC: b[11], toMAC: b[5]}, segment{}
	ip := b[etherSize:]
	size := 0
	switch binary.BigEndian.Uint16(b[12:]) {
	case 0x0800:
		if ip[0] != 0x45 || ip[9] != 6 || fold(sum(ip[:ip4Size])) != 0xffff {
			return false
		}
		size = int(binary.BigEndian.Uint16(ip[2:])) - ip4Size
		copy(e.from[:4], ip[12:])
		copy(e.to[:4], ip[16:])
	case 0x86dd:
		if len(ip) < ip6Size+tcpSize || ip[6] != 6 {
			return false
		}
		e.v6 = true
		size = int(binary.BigEndian.Uint16(ip[4:]))
		copy(e.from[:], ip[8:])
		copy(e.to[:], ip[24:])
	default:
		return false
	}
	t := b[e.l4():]
	if size > len(t) || size < tcpSize {
		return false
	}
	t = t[:size]
	header := int(t[12]>>4) * 4
	if header < tcpSize || header > size {
		return false
	}
	e.sport, e.dport = binary.BigEndian.Uint16(t), binary.BigEndian.Uint16(t[2:])
	s.seq, s.ack = binary.BigEndian.Uint32(t[4:]), binary.BigEndian.Uint32(t[8:])
	s.flags = t[13]
	s.options, s.data = t[tcpSize:header], t[header:]
	if len(s.options) >= 12 && binary.BigEndian.Uint32(s.options) == 0x0101080a {
		s.clock, s.echo = binary.BigEndian.Uint32(s.options[4:]), binary.BigEndian.Uint32(s.options[8:])
	}
	s.sound = fold(e.pseudo(size)+sum(t)) == 0xffff
	s.left = binary.LittleEndian.Uint16(t[16:]) == fold(e.pseudo(size))
	return true
}
