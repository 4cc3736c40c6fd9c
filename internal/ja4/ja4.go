// SPDX-License-Identifier: Apache-2.0

// Package ja4 makes the JA4 fingerprint of a ClientHello in plain Go, as the data path makes it
// (bpf/parse/ja4.h).
package ja4

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// Length is how many bytes a fingerprint has.
const Length = 36

// Most is how many ciphers, extensions and signature algorithms, of each, a ClientHello may offer
// that has a fingerprint.
const Most = 128

// The extensions that are read.
const (
	serverName        = 0
	signatures        = 13
	protocols         = 16
	supportedVersions = 43
)

// bytes is what is still to be read; bad once it was not enough.
type bytes struct {
	b   []byte
	bad bool
}

func (r *bytes) take(n int) []byte {
	if n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}

func (r *bytes) number(size int) int {
	n := 0
	for _, b := range r.take(size) {
		n = n<<8 | int(b)
	}
	return n
}

// vector takes what stands behind its length, of so many bytes.
func (r *bytes) vector(size int) []byte { return r.take(r.number(size)) }

// alone takes a vector behind which there may be nothing.
func (r *bytes) alone(size int) []byte {
	v := r.vector(size)
	r.bad = r.bad || len(r.b) > 0
	return v
}

// numbers splits a list of numbers of two bytes. What stands for nothing (RFC 8701) is left out.
func (r *bytes) numbers(list []byte) []uint16 {
	var out []uint16
	r.bad = r.bad || len(list)%2 > 0
	for ; len(list) > 1; list = list[2:] {
		if v := uint16(list[0])<<8 | uint16(list[1]); !isGrease(v) {
			out = append(out, v)
		}
	}
	return out
}

func isGrease(v uint16) bool { return v&0x0f0f == 0x0a0a && v>>8 == v&0xff }

// message puts together the handshake message with which a connection begins. Nil: it is no
// ClientHello, or not all of it is there.
func message(b []byte) []byte {
	var all []byte
	for len(b) >= 5 && b[0] == 22 && b[1] == 3 {
		size := int(b[3])<<8 | int(b[4])
		if size == 0 || size > 1<<14 {
			break
		}
		b = b[5:]
		here := b[:min(size, len(b))]
		all, b = append(all, here...), b[len(here):]
		if len(all) > 0 && all[0] != 1 {
			return nil
		}
		r := bytes{b: all}
		r.take(1)
		if m := r.vector(3); !r.bad {
			return m
		}
	}
	return nil
}

// hello is what a ClientHello says, as far as a fingerprint goes.
type hello struct {
	version                        uint16
	named, protocol                bool
	first, last                    byte // of the first protocol
	ciphers, extensions, signature []uint16
	count                          int // of extensions, all of them
}

// Of returns the fingerprint of the ClientHello that a connection's first bytes begin with. There is
// none of what is cut off, does not add up, or offers more than Most.
func Of(b []byte) (fingerprint string, ok bool) {
	h, ok := read(message(b))
	if !ok || max(len(h.ciphers), len(h.extensions), len(h.signature)) > Most {
		return "", false
	}
	sni := "i"
	if h.named {
		sni = "d"
	}
	a := fmt.Sprintf("t%s%s%02d%02d%s", h.versionText(), sni, min(len(h.ciphers), 99), min(h.count, 99), h.protocolText())
	slices.Sort(h.ciphers)
	slices.Sort(h.extensions)
	rest := list(h.extensions)
	if len(h.signature) > 0 {
		rest += "_" + list(h.signature)
	}
	return a + "_" + digits(list(h.ciphers)) + "_" + digits(rest), true
}

// digits are the first of a text's hash.
func digits(text string) string {
	if text == "" {
		return strings.Repeat("0", 12)
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:12]
}

func list(numbers []uint16) string {
	var words []string
	for _, n := range numbers {
		words = append(words, fmt.Sprintf("%04x", n))
	}
	return strings.Join(words, ",")
}

func read(message []byte) (h hello, ok bool) {
	r := bytes{b: message}
	h.version = uint16(r.number(2))
	r.take(32)  // random
	r.vector(1) // session
	h.ciphers = r.numbers(r.vector(2))
	r.vector(1) // compressions
	if r.bad {
		return h, false
	}
	if len(r.b) == 0 {
		return h, true
	}
	seen := map[int]bool{}
	extensions := bytes{b: r.alone(2)}
	for len(extensions.b) > 0 && !r.bad {
		kind := extensions.number(2)
		e := bytes{b: extensions.vector(2)}
		r.bad = extensions.bad || !h.extension(kind, &e, seen[kind])
		seen[kind] = true
	}
	return h, !r.bad
}

// extension reads one. It reports whether it may be there.
func (h *hello) extension(kind int, e *bytes, again bool) bool {
	if isGrease(uint16(kind)) {
		return true
	}
	h.count++
	if kind != serverName && kind != protocols {
		h.extensions = append(h.extensions, uint16(kind))
	}
	switch kind {
	case serverName:
		h.named = true
	case protocols:
		h.protocol = true
		all := bytes{b: e.alone(2)}
		name := all.vector(1)
		if e.bad || all.bad || len(name) == 0 {
			return false
		}
		h.first, h.last = name[0], name[len(name)-1]
	case signatures:
		h.signature = e.numbers(e.alone(2))
	case supportedVersions:
		h.version = 0
		for _, v := range e.numbers(e.alone(1)) {
			h.version = max(h.version, v)
		}
	default:
		return true
	}
	return !e.bad && !again
}

func (h *hello) versionText() string {
	if text, ok := map[uint16]string{0x0304: "13", 0x0303: "12", 0x0302: "11", 0x0301: "10", 0x0300: "s3"}[h.version]; ok {
		return text
	}
	return "00"
}

// protocolText is the first and the last character of the first protocol, or of its bytes in digits.
func (h *hello) protocolText() string {
	plain := func(b byte) bool { return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' }
	switch {
	case !h.protocol:
		return "00"
	case plain(h.first) && plain(h.last):
		return string([]byte{h.first, h.last})
	}
	return fmt.Sprintf("%x%x", h.first>>4, h.last&15)
}
