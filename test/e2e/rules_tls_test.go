// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"testing"

	"narthex/internal/datapath"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

const rulesTLSPolicy = `
version: 1
services:
  - {name: limited, listen: ["*:443"], protocol: tls, concurrency: 16}
  - {name: free, listen: ["*:8443"], protocol: tls}
classes:
  - {name: gold, priority: 1}
  - {name: silver, priority: 2}
  - {name: bronze, priority: 3}
connections:
  - {name: vips, from: [10.77.2.0/24, "fd77::2:0/112"], class: silver}
requests:
  - {name: read, path: "*", method: "*", host: "*", action: drop}
  - {name: h3, alpn: h3, action: drop}
  - {name: banned, sni: [banned.example, "*.banned.example"], action: drop}
  - {name: refused, sni: "refused.*", action: reject}
  - {name: health, sni: health.example, action: pass}
  - {name: rated, sni: "rated.example", rate: 1/h, burst: 24, class: gold}
  - {name: tenant, sni: "*.a.example", class: gold}
`

// tlsCase is a ClientHello and what the rules make of it.
type tlsCase struct {
	name  string
	sni   string
	alpn  []string // "http/1.1" if empty
	rule  string   // that decides, if any
	fate  fate     // reached if empty
	class string   // gold, or empty: the connection's
	free  bool     // not counted
}

var tlsCases = []tlsCase{
	{name: "no name"},
	{name: "no rule", sni: "example"},
	{name: "class", sni: "www.a.example", rule: "tenant", class: "gold"},
	{name: "case", sni: "WWW.A.Example", rule: "tenant", class: "gold"},
	{name: "nearly", sni: "a.example"},
	{name: "drop", sni: "banned.example", rule: "banned", fate: cutOff},
	{name: "drop by the end", sni: "www.banned.example", rule: "banned", fate: cutOff},
	{name: "reject is a reset", sni: "refused.example", rule: "refused", fate: cutOff},
	{name: "pass", sni: "health.example", rule: "health", free: true},
	{name: "protocol", sni: "www.a.example", alpn: []string{"http/1.1", "h3"}, rule: "h3", fate: cutOff},
	{name: "rate", sni: "rated.example", rule: "rated", class: "gold"},
}

// comes has a client begin with a ClientHello, and ask.
func (c tlsCase) comes(s *scene, service, hello string, cut func([]byte) [][]byte, l *ledger) {
	s.t.Helper()
	w, class := bronze, "bronze"
	if s.v6 {
		w, class = gold, "silver"
	}
	v := s.visit(w)
	defer v.conn.Close()
	v.conn = &cutConn{v.conn, cut}
	v.secure(func(cfg *tls.Config) {
		cfg.ServerName = c.sni
		if c.alpn != nil {
			cfg.NextProtos = c.alpn
		}
	})
	m, want := mark(), fate(or(string(c.fate), string(reached)))
	if got := v.meets(v.tries(to("/" + m))); got != want {
		s.t.Errorf("%s, %s: %s, want %s", c.name, hello, got, want)
	}
	if s.sawMark(m) != (want == reached) {
		s.t.Errorf("%s, %s: the server was asked: %v", c.name, hello, want != reached)
	}
	counts := datapath.Counts{Passed: 1}
	if want != reached {
		counts = datapath.Counts{Dropped: 1}
	}
	if c.rule != "" {
		l.counts(c.rule, counts)
	}
	if want == reached && !c.free {
		l.arrives(service, or(c.class, class), 1)
	}
}

// Of TLS the names in the ClientHello decide, once per connection and however it comes.
func TestRulesTLS(t *testing.T) {
	t.Parallel()
	r := newRuled(t, map[string]uint16{"limited": 443, "free": 8443})
	_, err := origin.Start(r.v4.server, origin.Config{
		Listen:  append(r.listen("limited"), r.listen("free")...),
		Control: []netip.AddrPort{r.v4.tell}, TLS: true,
	})
	nettest.Check(t, err)
	r.enforce(rulesTLSPolicy)
	l := r.opened()
	t.Run("cases", func(t *testing.T) {
		for _, service := range []string{"limited", "free"} {
			for _, v6 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/v6=%v", service, v6), func(t *testing.T) {
					t.Parallel()
					for i, hello := range hellos {
						for _, c := range tlsCases {
							if c.rule != "rated" || i%2 == 0 { // 6 of 11 ways in 4 situations
								c.comes(r.at(t, service, v6), service, hello.name, hello.cut, l)
							}
						}
					}
				})
			}
		}
	})
	r.agrees(t, l)
	s := r.at(t, "limited", false)
	v := s.private(bronze, func(cfg *tls.Config) { cfg.ServerName = "rated.example" })
	if got := v.meets(v.tries(to("/"))); got != cutOff {
		t.Errorf("beyond the rate: %s", got)
	}
	garbage := s.visit(bronze)
	garbage.send("\x16\x03\x01\x00\x05hello, no name\r\n\r\n")
	_, _, err = garbage.answer()
	if err == nil {
		t.Error("a server of TLS understands something else")
	}
	l.counts("rated", datapath.Counts{Dropped: 1})
	l.arrives("limited", "bronze", 1)
	r.agrees(t, l)
}
