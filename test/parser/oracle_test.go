// SPDX-License-Identifier: Apache-2.0

package parser

import (
	"encoding/binary"
	"net/netip"
)

// Bounds that bpf/parse/packet.h promises.
const (
	acceptedTags = 2   // VLAN tags of a SYN that is accepted
	readTags     = 8   // VLAN tags that are read through
	extensions   = 8   // IPv6 extension headers before a fragment header or TCP
	headers      = 512 // bytes up to the end of the TCP header
)

// oracle reads a frame as the RFCs describe it, header by header, each cut off the front of
// what is left. It shares nothing with the C code but the promised bounds.
type oracle struct {
	frame []byte
	at    int // offset of the next header
}

// stop is how a step of the oracle ends the reading.
type stop struct{ Result }

// oracleSays says what bpf/parse/packet.h should say of a frame of which these bytes are at hand.
func oracleSays(frame []byte) (result Result) {
	o := oracle{frame: frame}
	defer func() {
		if s, ok := recover().(*stop); ok {
			result = s.Result
		}
	}()
	tags, etherType := o.ethernet()
	switch etherType {
	case 0x0800:
		result = o.ipv4()
	case 0x86dd:
		result = o.ipv6()
	default:
		result = Result{Kind: Pass, Reason: NotIP}
	}
	if tags > acceptedTags && (result.Kind == SYN || result.Kind == Anomaly) {
		result.Kind, result.Reason = Anomaly, VLANTags
	}
	return result
}

// take returns the next header of n bytes, which need not end within the bounds.
func (o *oracle) take(n int) []byte {
	if o.at+n > len(o.frame) {
		panic(&stop{Result{Kind: Truncated}})
	}
	h := o.frame[o.at : o.at+n]
	o.at += n
	return h
}

// fits tells whether n more bytes are within the bounds.
func (o *oracle) fits(n int) bool { return o.at+n <= headers }

func be16(b []byte) int { return int(binary.BigEndian.Uint16(b)) }

// ethernet reads both addresses, the VLAN tags (IEEE 802.1Q: a tag's type, then two bytes of
// control information) and the type of what follows.
func (o *oracle) ethernet() (tags, etherType int) {
	o.take(12)
	etherType = be16(o.take(2))
	if !isTag(etherType) {
		return 0, etherType
	}
	// A tagged frame is read as far as its last tag could be, which is well within the
	// 58 bytes of the shortest tagged SYN.
	if len(o.frame) < 12+4*readTags+2 {
		panic(&stop{Result{Kind: Truncated}})
	}
	for isTag(etherType) {
		if tags++; tags > readTags {
			panic(&stop{Result{Kind: Anomaly, Reason: VLANTags}})
		}
		o.take(2)
		etherType = be16(o.take(2))
	}
	return tags, etherType
}

func isTag(etherType int) bool { return etherType == 0x8100 || etherType == 0x88a8 }

// ipv4 reads RFC 791.
func (o *oracle) ipv4() Result {
	h := o.take(20)
	length, total := int(h[0]&0xf)*4, be16(h[2:])
	if total == 0 {
		total = 1 << 32 // what is still to be segmented may be longer than the field can say
	}
	offset, more := be16(h[6:])&0x1fff, h[6]&0x20 != 0
	from, to := netip.AddrFrom4([4]byte(h[12:])), netip.AddrFrom4([4]byte(h[16:]))
	switch {
	case h[0]>>4 != 4 || length < 20:
		return Result{Kind: Pass, Reason: Malformed}
	case h[9] != 6:
		return Result{Kind: Pass, Reason: NotTCP}
	case offset != 0:
		return Result{Kind: Pass, Reason: FragmentTail}
	case total < length:
		return Result{Kind: Pass, Reason: Malformed}
	}
	o.at += length - 20 // options need not be there, if the TCP header is not either
	if more {
		return o.fragment(total-length, from, to)
	}
	return o.tcp(total-length, from, to)
}

// ipv6 reads RFC 8200.
func (o *oracle) ipv6() Result {
	h := o.take(40)
	from, to := netip.AddrFrom16([16]byte(h[8:])), netip.AddrFrom16([16]byte(h[24:]))
	if h[0]>>4 != 6 {
		return Result{Kind: Pass, Reason: Malformed}
	}
	beyond := Result{Kind: Anomaly, Reason: Extension, Src: from, Dst: to}
	end := o.at + be16(h[4:])
	if end == o.at {
		end = 1 << 32 // RFC 2675: the length is in an option, which is not read
	}
	next := h[6]
	for range extensions {
		if !isExtension(next) {
			break
		}
		if !o.fits(2) {
			return beyond
		}
		ext := o.take(2)
		next = ext[0]
		if o.at += int(ext[1])*8 + 6; o.at > headers {
			return beyond
		}
	}
	if next == 44 {
		if !o.fits(8) {
			return beyond
		}
		frag := o.take(8)
		next = frag[0]
		if frag[2] != 0 || frag[3]&0xf8 != 0 {
			return Result{Kind: Pass, Reason: FragmentTail}
		}
		if frag[3]&1 != 0 && next == 6 {
			return o.fragment(end-o.at, from, to)
		}
	}
	switch {
	case isExtension(next) || next == 44:
		return beyond
	case next != 6:
		return Result{Kind: Pass, Reason: NotTCP}
	case !o.fits(20):
		return beyond
	}
	return o.tcp(end-o.at, from, to)
}

// isExtension: hop-by-hop options, routing, destination options.
func isExtension(next byte) bool { return next == 0 || next == 43 || next == 60 }

// fragment judges the first of several fragments, with size bytes in it.
func (o *oracle) fragment(size int, from, to netip.Addr) Result {
	r := Result{Kind: Anomaly, Reason: Fragment, Src: from, Dst: to}
	if size >= 4 && o.fits(4) && o.at+4 <= len(o.frame) {
		r.ports(o.take(4))
	}
	return r
}

func (r *Result) ports(b []byte) {
	r.Ports = true
	r.SrcPort, r.DstPort = uint16(be16(b)), uint16(be16(b[2:]))
}

// tcp reads RFC 9293, with size bytes of header and data.
func (o *oracle) tcp(size int, from, to netip.Addr) Result {
	h := o.take(20)
	length, flags := int(h[12]>>4)*4, h[13]
	const fin, syn, rst, ack = 1, 2, 4, 16
	switch {
	case flags&syn == 0 || flags&ack != 0:
		return Result{Kind: Pass, Reason: NotSYN}
	case length < 20 || length > size:
		return Result{Kind: Pass, Reason: Malformed}
	}
	r := Result{Kind: SYN, Src: from, Dst: to}
	r.ports(h)
	if flags&(fin|rst) != 0 {
		r.Kind, r.Reason = Anomaly, SYNFlags
	} else if size > length {
		r.Kind, r.Reason = Anomaly, SYNData
	}
	return r
}
