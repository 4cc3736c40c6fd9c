// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"bytes"
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"narthex/internal/httphead"
	"narthex/internal/policy"
)

// said is what an arrival says, read once for both policies.
type said struct {
	bytes     []byte
	truncated bool // the copy ends before the head does
	forwarded bool // whom a proxy has named is in X-Forwarded-For, not in a PROXY header

	http    *policy.RequestView // nil: refused, or its first line is longer than the copy
	query   bool                // its query is refused where rules ask for queries
	isHTTP  bool                // it was read
	refused bool
	tls     *policy.RequestView
	isHello bool
}

// proxyV2Size is how many bytes of a PROXY header of version 2 there always are.
const proxyV2Size = 16

// proxyV2 is how it begins.
var proxyV2 = []byte("\r\n\r\n\x00\r\nQUIT\n")

// hear takes what an arrival says without the PROXY header before it.
func hear(a *Arrival) *said {
	b := a.Head
	if bytes.HasPrefix(b, []byte("PROXY ")) {
		_, b, _ = bytes.Cut(b, []byte("\r\n"))
	} else if bytes.HasPrefix(b, proxyV2) && len(b) >= proxyV2Size {
		b = b[min(len(b), proxyV2Size+int(b[14])<<8+int(b[15])):]
	}
	return &said{bytes: b}
}

// view returns what rules of a service see of it, nil if nothing; or that it is refused.
func (s *said) view(room *policy.RoomTable, rules *policy.RequestTables) (v *policy.RequestView, refused bool) {
	switch room.Protocol {
	case policy.TLS:
		if !s.isHello {
			s.tls, s.isHello = readHello(s.bytes), true
		}
		return s.tls, false
	case policy.TCP:
		return nil, false
	}
	if room.H2C == policy.H2CPass && bytes.HasPrefix(s.bytes, []byte("PRI * HTTP/2.0")) {
		return nil, false
	}
	s.readHTTP()
	return s.http, s.refused || s.query && rules != nil && rules.Query
}

// readHTTP reads a head as far as there is a copy of it.
func (s *said) readHTTP() {
	if s.isHTTP {
		return
	}
	s.isHTTP = true
	head, err := httphead.Read(s.bytes)
	if s.truncated = isOpen(err); s.truncated {
		whole := s.bytes[:bytes.LastIndexByte(s.bytes, '\n')+1]
		head, err = httphead.Read(append(bytes.Clone(whole), "\r\n"...))
	}
	if err != nil {
		s.refused = !isOpen(err)
		return
	}
	s.http = policy.ViewOf(head)
	s.http.Cut = s.truncated
	s.query = head.Query.Refused != ""
}

// isOpen reports whether a head could not be read because it does not end.
func isOpen(err error) bool { return err != nil && !errors.As(err, new(httphead.Refused)) }

// whose says whose request it is.
type whose struct {
	from    netip.Addr
	proxied bool // a trusted proxy sends it
	named   bool // and says for whom, by an address that is no trusted proxy's
}

// client returns whose request it is that a trusted proxy sends.
func (s *said) client(of *side, service int, a *Arrival) whose {
	if a.Real.IsValid() && !s.forwarded {
		return whose{a.Real, true, !of.tables.Trusts(service, a.Real)}
	}
	return s.forwardedFor(of, service, a.Client.Addr())
}

// isForwarded reports whether the kernel has read the client in X-Forwarded-For: then another
// policy that trusts other proxies may read another one there.
func (s *said) isForwarded(live *side, a *Arrival) bool {
	service, ok := live.service(a)
	if !ok || !a.Real.IsValid() || live.tables.Services[service].Room.Protocol != policy.HTTP {
		return true
	}
	s.readHTTP()
	return s.forwardedFor(live, service, a.Client.Addr()).from == a.Real
}

// forwardedFor returns whom X-Forwarded-For names, or the proxy.
func (s *said) forwardedFor(of *side, service int, proxy netip.Addr) whose {
	w := whose{from: proxy, proxied: true}
	if s.http == nil {
		return w
	}
	trusted := func(a netip.Addr) bool { return of.tables.Trusts(service, a) }
	if client, firm := ForwardedFor(s.http.Headers, trusted); client.IsValid() {
		w.from, w.named = client, firm
	}
	return w
}

// line is how a request begins, for people to read: bounded, and without what steers a terminal.
func (s *said) line() string {
	if s == nil {
		return ""
	}
	line, _, _ := bytes.Cut(s.bytes, []byte("\n"))
	text := strings.TrimSuffix(string(line), "\r")
	if s.isHello && s.tls != nil {
		text = "TLS " + s.tls.Text(policy.FieldSNI)
	}
	const longest = 120
	quoted := strconv.QuoteToASCII(text[:min(len(text), longest)])
	return quoted[1 : len(quoted)-1]
}
