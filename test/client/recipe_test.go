// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"narthex/test/draw"
)

// recipe makes what clients say of themselves.
type recipe struct{ draw.Recipe }

// vector is bytes behind their number, of so many bytes, which is wrong at times.
func (r *recipe) vector(width int, b []byte) []byte {
	n := len(b)
	n = draw.Unlikely(r, 96, n, n+1, n-1, 0, 1, n+256, 0xffff)
	return append(binary.BigEndian.AppendUint32(nil, uint32(n))[4-width:], b...)
}

// text makes a name.
func (r *recipe) text() []byte {
	s := draw.Pick(r, "www.example.org", "a", "example.org.", "WWW.Example.Org", "xn--bcher-kva.example", "192.0.2.1",
		strings.Repeat("x", 63)+".example", strings.Repeat("y", 255), "\xff\x80")
	return []byte(draw.Unlikely(r, 48, s, "", strings.Repeat("z", 256), strings.Repeat("z", 600), "a\x00b", "\x00"))
}

// serverName makes the content of a server_name extension.
func (r *recipe) serverName() []byte {
	var list []byte
	for range draw.Unlikely(r, 32, 1, 0, 2) {
		list = append(append(list, 0), r.vector(2, r.text())...)
	}
	for range draw.Unlikely(r, 16, 0, 1, 2) {
		other := append([]byte{draw.Pick[byte](r, 1, 255)}, r.vector(2, r.text())...)
		list = draw.Pick(r, append(list, other...), append(other, list...))
	}
	return r.vector(2, list)
}

// protocols makes the content of an ALPN extension.
func (r *recipe) protocols() []byte {
	var list []byte
	for range draw.Unlikely(r, 8, 2, 1, 3, 5, 20, 0) {
		p := draw.Pick(r, "h2", "http/1.1", "x", "acme-tls/1", "\x0a\x0a", strings.Repeat("p", 84), strings.Repeat("q", 253), strings.Repeat("r", 255))
		list = append(list, r.vector(1, []byte(draw.Unlikely(r, 64, p, "")))...)
	}
	return r.vector(2, list)
}

// extension makes one, with its type and length.
func (r *recipe) extension(kind uint16, content []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, kind), r.vector(2, content)...)
}

// extensions makes them all, in any order.
func (r *recipe) extensions() []byte {
	var all [][]byte
	for range draw.Unlikely(r, 8, 1, 0, 2) {
		all = append(all, r.extension(0, r.serverName()))
	}
	for range draw.Unlikely(r, 8, 1, 0, 2) {
		all = append(all, r.extension(16, r.protocols()))
	}
	for range r.Below(6) {
		kind := draw.Pick[uint16](r, 0x0a0a, 43, 51, 35, 41, 21, 0xff01, 0xfe0d, 1, 15, 17, 0x1000)
		size := draw.Pick(r, 0, 1, 4, 32, 200, 1216, 4000)
		other := r.extension(kind, bytes.Repeat([]byte{draw.Pick[byte](r, 0, 22, 1, 16, 255)}, size))
		all = slices.Insert(all, r.Below(len(all)+1), other)
	}
	return bytes.Join(all, nil)
}

// message makes a ClientHello.
func (r *recipe) message() []byte {
	b := append([]byte{3, 3}, bytes.Repeat([]byte{draw.Pick[byte](r, 0x5a, 0, 22)}, 32)...)
	b = append(b, r.vector(1, bytes.Repeat([]byte{7}, draw.Pick(r, 32, 0, 1)))...)
	b = append(b, r.vector(2, bytes.Repeat([]byte{0x13, 1}, draw.Pick(r, 3, 1, 20, 300)))...)
	b = append(b, r.vector(1, make([]byte, draw.Pick(r, 1, 2)))...)
	if !r.Rarely(32) {
		b = append(b, r.vector(2, r.extensions())...)
	}
	return append([]byte{draw.Unlikely[byte](r, 128, 1, 2)}, r.vector(3, b)...)
}

// records cuts a message into records.
func (r *recipe) records(message []byte) []byte {
	var b []byte
	for pieces := draw.Pick(r, 0, 1, 2, 4, 8, 255); len(message) > 0; pieces-- {
		n := min(len(message), 1<<14)
		if pieces > 0 {
			n = min(n, draw.Pick(r, 1, 2, 3, 4, 5, 100, 505, 507, 512, 600))
		}
		b = append(b, draw.Unlikely[byte](r, 250, 22, 23, 'G'), 3, 1)
		b = append(binary.BigEndian.AppendUint16(b, uint16(n)), message[:n]...)
		message = message[n:]
	}
	return b
}

// hello makes a ClientHello in its records, with something behind it at times.
func (r *recipe) hello() []byte {
	message := append(r.message(), draw.Pick(r, "", "", "\x01\x00\x00\x01", "\x00")...)
	return r.Damage(append(r.records(message), draw.Pick(r, "", "\x14\x03\x03\x00\x01\x01")...), 8)
}

// address makes an address in text.
func (r *recipe) address() string {
	group := func() string { return draw.Pick(r, "0", "1", "db8", "2001", "ffff", "00a", "FFFF", "12345", "g", "") }
	octet := func() string {
		return draw.Unlikely(r, 24, draw.Pick(r, "0", "1", "10", "255", "99", "127"), "256", "01", "", "1000", "f", "00")
	}
	four := func() string { return octet() + "." + octet() + "." + octet() + "." + octet() }
	var s string
	switch r.Below(4) {
	case 0:
		s = four()
	case 1:
		var parts []string
		for range draw.Unlikely(r, 4, 8, 7, 9, 6, 1) {
			parts = append(parts, draw.Unlikely(r, 16, draw.Pick(r, "0", "1", "db8", "2001", "ffff"), group()))
		}
		s = strings.Join(parts, ":")
	case 2:
		for range r.Below(9) {
			s += draw.Unlikely(r, 16, draw.Pick(r, "0", "1", "db8", "2001", "ffff"), group()) + ":"
		}
		s += ":"
		for range r.Below(9) {
			s += ":" + draw.Unlikely(r, 16, draw.Pick(r, "0", "1", "db8", "2001", "ffff"), group())
		}
		s = strings.Replace(s, ":::", "::", 1)
	case 3:
		s = draw.Pick(r, "::ffff:", "::", "64:ff9b::", "1:2:3:4:5:6:", "1::2:3:4:5:", "1:2:3:4:5::6:", "1:2:3:4:5:6:7:", "::FFFF:0:") + four()
	}
	if draw.Pick(r, false, false, true) {
		s = "[" + s + draw.Unlikely(r, 16, "]", "", "]]")
	}
	s += draw.Pick(r, "", "", "", ":80", ":0", ":65535", ":65536", ":00080", ":", ":+1", ":8o", "%eth0", ":123456789012345678901")
	blank := func() string {
		return draw.Unlikely(r, 4, "", " ", "\t", " \t  ", strings.Repeat(" ", r.Below(130)), "\n", "\v")
	}
	return blank() + s + blank()
}

// forwarded makes a list.
func (r *recipe) forwarded() string {
	var s string
	for range r.Below(12) {
		s += draw.Pick(r, ", ", ",", " , ", ",,", "\t,", " ", "") + draw.Pick(r, "192.0.2.1", "2001:db8::1", "a", "x y", "unknown", strings.Repeat("z", 70), strings.Repeat(" ", 64), "")
	}
	return s + draw.Pick(r, "", ",", " ", ", ,")
}

// proxyText makes a PROXY header of version 1.
func (r *recipe) proxyText() []byte {
	four, six := func() string { return draw.Pick(r, "192.0.2.1", "10.0.0.1", "255.255.255.255", "0.0.0.0") },
		func() string {
			return draw.Pick(r, "2001:db8::1", "::", "::ffff:192.0.2.7", "ffff:f00f:ffff:ffff:ffff:ffff:ffff:ffff", "::1")
		}
	family, address := "TCP4", four
	if r.Below(2) == 1 {
		family, address = "TCP6", six
	}
	address = draw.Unlikely(r, 16, address, func() string { return strings.Trim(r.address(), " ") }, four, six)
	space := func() string { return draw.Unlikely(r, 64, " ", "  ", "", "\t") }
	port := func() string {
		return draw.Unlikely(r, 16, draw.Pick(r, "80", "0", "65535", "1"), "65536", "080", "00", "", "+1", "999999", "8o")
	}
	s := "PROXY" + space() + draw.Unlikely(r, 32, family, "TCP5", "UDP4", "tcp4", "") + space() + address() + space() + address() + space() + port() + space() + port()
	s = draw.Unlikely(r, 8, s, "PROXY UNKNOWN", "PROXY UNKNOWN ffff:: :: 1 2", "PROXY UNKNOWN "+strings.Repeat("x", 60+r.Below(60)), "PROXY UNKNOWNS", "PROXY")
	return []byte(s + draw.Unlikely(r, 24, "\r\n", "\n", "\r", "\r\r\n", "") + draw.Pick(r, "", "GET / HTTP/1.1\r\n\r\n", "PROXY"))
}

// proxyBinary makes one of version 2.
func (r *recipe) proxyBinary() []byte {
	b := append([]byte("\r\n\r\n\x00\r\nQUIT\n"), draw.Unlikely[byte](r, 8, 0x21, 0x20, 0x22, 0x11, 0x31))
	family := draw.Pick[byte](r, 0x11, 0x21, 0x11, 0x21, 0x12, 0x22, 0x31, 0x32, 0, 0x10, 0x41, 0x13, 0xff)
	size := map[byte]int{0x11: 12, 0x21: 36}[family]
	size = draw.Unlikely(r, 16, size, size-1, 0, 8, 216, 20)
	size = max(size, 0) + draw.Pick(r, 0, 0, 7, 100, 440, 480, 1500, 2048-36)
	n := draw.Unlikely(r, 16, size, size+1, size-1, 2048, 2049, 0, 0xffff)
	b = binary.BigEndian.AppendUint16(append(b, family), uint16(n))
	block := bytes.Repeat([]byte{draw.Pick[byte](r, 0xc0, 0, 0xff)}, size)
	if r.Below(4) == 0 {
		copy(block, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc0\x00\x02\x01")
	}
	return append(append(b, block...), draw.Pick(r, "", "GET / HTTP/1.1\r\n\r\n")...)
}

// proxy makes a header of either.
func (r *recipe) proxy() []byte {
	if r.Below(2) == 0 {
		return r.Damage(r.proxyText(), 8)
	}
	return r.Damage(r.proxyBinary(), 8)
}
