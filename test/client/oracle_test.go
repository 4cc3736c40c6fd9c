// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
)

// content is what is in the records with which a connection begins; lost: until there is what is
// no record of a handshake.
func content(b []byte) (all []byte, lost bool) {
	for len(b) > 0 {
		if b[0] != 22 || len(b) > 1 && b[1] != 3 {
			return all, true
		}
		if len(b) < 5 {
			return all, false
		}
		size := int(binary.BigEndian.Uint16(b[3:]))
		if size == 0 || size > 1<<14 {
			return all, true
		}
		b = b[5:]
		here := b[:min(size, len(b))]
		all, b = append(all, here...), b[len(here):]
	}
	return all, false
}

// cursor is what is still to be read of a message; bad once it was not enough.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if n > len(c.b) {
		c.bad, c.b = true, nil
		return nil
	}
	taken := c.b[:n]
	c.b = c.b[n:]
	return taken
}

func (c *cursor) number(width int) int {
	n := 0
	for _, b := range c.take(width) {
		n = n<<8 | int(b)
	}
	return n
}

func (c *cursor) vector(width int) []byte { return c.take(c.number(width)) }

// oracleNames reads the names in a connection's first bytes. complete: the ClientHello ends in them.
func oracleNames(b []byte) (n Names, complete bool) {
	all, lost := content(b)
	if len(all) > 0 && all[0] != 1 {
		return Names{Step: Lost}, true
	}
	c := cursor{b: all}
	c.take(1)
	message := c.vector(3)
	if c.bad {
		return Names{Step: Lost}, lost
	}
	return oracleMessage(message), true
}

func oracleMessage(message []byte) Names {
	c := cursor{b: message}
	c.take(34)
	c.vector(1)
	c.vector(2)
	c.vector(1)
	n := Names{Step: End}
	seen := map[int]bool{}
	if !c.bad && len(c.b) == 0 {
		return n
	}
	extensions := cursor{b: c.vector(2)}
	bad := c.bad || len(c.b) > 0
	for !bad && len(extensions.b) > 0 {
		kind := extensions.number(2)
		data := cursor{b: extensions.vector(2)}
		bad = extensions.bad
		switch kind {
		case 0:
			bad = bad || seen[kind] || !n.oracleServer(data)
		case 16:
			bad = bad || seen[kind] || !n.oracleProtocols(data)
		case 0xfe0d:
			n.ECH = true
		}
		seen[kind] = true
	}
	if bad {
		return Names{Step: Lost}
	}
	return n
}

// oracleServer reads the content of server_name.
func (n *Names) oracleServer(data cursor) bool {
	list := cursor{b: data.vector(2)}
	if data.bad || len(data.b) > 0 || len(list.b) == 0 {
		return false
	}
	for len(list.b) > 0 {
		kind, name := list.number(1), list.vector(2)
		if list.bad {
			return false
		}
		if kind != 0 {
			continue
		}
		if n.Server != "" || len(name) == 0 || len(name) > 255 || bytes.IndexByte(name, 0) >= 0 {
			return false
		}
		n.Server = string(name)
	}
	return true
}

// oracleProtocols reads the content of ALPN.
func (n *Names) oracleProtocols(data cursor) bool {
	list := cursor{b: data.vector(2)}
	if data.bad || len(data.b) > 0 || len(list.b) == 0 {
		return false
	}
	for len(list.b) > 0 {
		p := list.vector(1)
		if list.bad || len(p) == 0 {
			return false
		}
		if len(n.Protocols)+1+len(p) > 256 {
			n.Cut = true
			continue
		}
		n.Protocols += string(append([]byte{byte(len(p))}, p...))
	}
	return true
}

// oracleAddress is what net/netip says.
func oracleAddress(s string) (netip.Addr, bool) {
	if len(s) > 128 || strings.Contains(s, "%") {
		return netip.Addr{}, false
	}
	s = strings.Trim(s, " \t")
	if both, err := netip.ParseAddrPort(s); err == nil {
		return both.Addr().Unmap(), true
	}
	inner, bracket := strings.CutPrefix(s, "[")
	if bracket {
		if s, bracket = strings.CutSuffix(inner, "]"); !bracket {
			return netip.Addr{}, false
		}
	}
	addr, err := netip.ParseAddr(s)
	if err != nil || bracket && addr.Is4() {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}

// oracleElements are those of a list that are not empty, the last first.
func oracleElements(s string) []string {
	var all []string
	for s != "" {
		at := strings.LastIndexByte(s, ',')
		if e := strings.Trim(s[at+1:], " \t"); e != "" {
			all = append(all, e)
		}
		s = s[:max(at, 0)]
	}
	return all
}

const signature = "\r\n\r\n\x00\r\nQUIT\n"

// oracleProxy says where a PROXY header ends.
func oracleProxy(b []byte) (Step, int) {
	s := string(b)
	starts := func(with string) bool {
		n := min(len(s), len(with))
		return s[:n] == with[:n]
	}
	switch {
	case starts("PROXY ") && len(s) <= 6 || starts(signature) && len(s) <= 12:
		return More, len(b)
	case starts("PROXY "):
		return oracleLine(s)
	case !starts(signature) || s[12]>>4 != 2:
		return Lost, 0
	case len(s) < 16:
		return More, len(b)
	}
	size := int(binary.BigEndian.Uint16(b[14:]))
	switch {
	case size > 2048:
		return Lost, 0
	case len(s) < 16+size:
		return More, len(b)
	}
	return End, 16 + size
}

// oracleLine does for a line, which begins right.
func oracleLine(s string) (Step, int) {
	line := s[:min(len(s), 107)]
	at := strings.IndexFunc(line, func(r rune) bool { return r < ' ' })
	switch {
	case at < 0 && len(line) <= 106, at >= 0 && line[at:] == "\r" && at < 106 && len(s) == at+1:
		return More, len(s)
	case at >= 0 && strings.HasPrefix(line[at:], "\r\n"):
		return End, at + 2
	}
	return Lost, 0
}

// oracleClient says what a PROXY header says, which is whole.
func oracleClient(b []byte) (Client, netip.Addr) {
	if b[0] == 'P' {
		return oracleLineClient(strings.TrimSuffix(string(b), "\r\n"))
	}
	command, family, block := b[12], b[13], b[16:]
	switch {
	case command == 0x20:
		return Own, netip.Addr{}
	case command != 0x21 || family>>4 > 3 || family&15 > 2:
		return Malformed, netip.Addr{}
	case family == 0x11 && len(block) >= 12:
		return Given, netip.AddrFrom4([4]byte(block))
	case family == 0x21 && len(block) >= 36:
		return Given, netip.AddrFrom16([16]byte(block)).Unmap()
	case family == 0x11 || family == 0x21:
		return Malformed, netip.Addr{}
	}
	return Own, netip.Addr{}
}

func oracleLineClient(line string) (Client, netip.Addr) {
	words := strings.Split(line, " ")
	if words[1] == "UNKNOWN" {
		return Own, netip.Addr{}
	}
	if len(words) != 6 {
		return Malformed, netip.Addr{}
	}
	src, bad1 := netip.ParseAddr(words[2])
	dst, bad2 := netip.ParseAddr(words[3])
	v4 := words[1] == "TCP4"
	if bad1 != nil || bad2 != nil || !v4 && words[1] != "TCP6" || src.Is4() != v4 || dst.Is4() != v4 || src.Zone()+dst.Zone() != "" {
		return Malformed, netip.Addr{}
	}
	for _, port := range words[4:] {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || strconv.FormatUint(n, 10) != port {
			return Malformed, netip.Addr{}
		}
	}
	return Given, src.Unmap()
}
