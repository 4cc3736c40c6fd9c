// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"narthex/internal/httphead"
	"narthex/internal/ja4"
	"narthex/internal/policy"
)

// reader takes bytes from the beginning. What is not there is taken for nothing.
type reader []byte

// next takes n bytes, or what is left.
func (r *reader) next(n int) reader {
	n = min(n, len(*r))
	taken := (*r)[:n]
	*r = (*r)[n:]
	return taken
}

// number takes a number of n bytes.
func (r *reader) number(n int) int {
	v := 0
	for _, b := range r.next(n) {
		v = v<<8 | int(b)
	}
	return v
}

// vector takes what stands behind its length of n bytes.
func (r *reader) vector(n int) reader {
	length := r.number(n)
	return r.next(length)
}

// readHello returns which server a ClientHello (RFC 8446, 4.1.2) names, which protocols, and its
// fingerprint; nil if it has none of them. It goes as far as there is a copy.
func readHello(text []byte) *policy.RequestView {
	const handshake, clientHello, serverName, protocols = 22, 1, 0, 16
	r := reader(text)
	var message reader
	for len(r) > 0 && r.number(1) == handshake { // a hello may come in several records
		r.next(2)
		message = append(message, r.vector(2)...)
	}
	if message.number(1) != clientHello {
		return nil
	}
	message.next(3 + 2 + 32) // length, version, random
	message.vector(1)        // session
	message.vector(2)        // cipher suites
	message.vector(1)        // compressions
	var name string
	var offered []string
	message.next(2)
	for len(message) > 0 {
		kind := message.number(2)
		extension := message.vector(2)
		switch kind {
		case serverName:
			names := extension.vector(2)
			if names.number(1) == 0 {
				name = httphead.ServerName(string(names.vector(2)))
			}
		case protocols:
			for list := extension.vector(2); len(list) > 0; {
				offered = append(offered, string(list.vector(1)))
			}
		}
	}
	print, ok := ja4.Of(text)
	if name == "" && !ok && len(offered) == 0 {
		return nil
	}
	return policy.ViewOfHello(name, offered, print)
}
