// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"crypto/tls"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"

	"narthex/internal/datapath"
	"narthex/internal/ja4"
	"narthex/test/nettest"
)

// namedHello is a ClientHello that names its server, so that all of it is in order.
func namedHello(t *testing.T) string {
	t.Helper()
	return helloOf(t, &tls.Config{ServerName: "a.example"})
}

// printOf is the fingerprint of a ClientHello, in plain Go.
func printOf(t *testing.T, hello string) string {
	t.Helper()
	p, ok := ja4.Of([]byte(hello))
	if !ok {
		t.Fatal("the ClientHello has no fingerprint")
	}
	return p
}

// printRoom is a room for TLS that rejects who has a fingerprint.
func (g *gate) printRoom(t *testing.T, pattern string, settings ...string) *room {
	t.Helper()
	all := append([]string{"concurrency: 1", "protocol: tls"}, settings...)
	// The form of the room's policy ends with what closes the rules.
	all[len(all)-1] += fmt.Sprintf("}]\nrequests: [{name: print-%d, ja4: %q, action: reject", rooms.Load(), pattern)
	return g.room(t, all...)
}

// unmatched returns a fingerprint of the same kind that is not this one.
func unmatched(print string) string {
	last := byte('0')
	if print[len(print)-1] == last {
		last = '1'
	}
	return print[:len(print)-1] + string(last)
}

// ruledOut is what a request comes to that a rule rejects before it takes its turn.
var ruledOut = rejects("rule")

// A rule with a fingerprint holds for ClientHellos that have it, and for no others.
func TestGateJA4(t *testing.T) {
	g := newGate(t)
	h := namedHello(t)
	print := printOf(t, h)
	for _, base := range []string{lowBase, v6Base} {
		for _, pattern := range []string{print, print[:10] + "*", "*" + print[23:], "*" + print[10:23] + "*", "*"} {
			t.Run(base+" "+pattern, func(t *testing.T) {
				r := g.printRoom(t, pattern)
				c := r.clientAt(t, base)
				c.send(c.says(h), ruledOut).is(t, tcxRedirect, c.reset(c.Next+uint32(len(h))))
				c.isGone()
			})
		}
		for _, pattern := range []string{unmatched(print), "t10*", "*" + unmatched(print)[23:], "*_000000000000_*"} {
			t.Run(base+" not "+pattern, func(t *testing.T) {
				c := g.printRoom(t, pattern).clientAt(t, base)
				c.asks(h, serves.and(known))
			})
		}
	}
}

// A ClientHello in pieces has the fingerprint of the whole one.
func TestGateJA4Gathers(t *testing.T) {
	g := newGate(t)
	h := namedHello(t)
	for _, first := range []int{1, 5, 9, 43, 100, len(h) - 1} {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			r := g.printRoom(t, printOf(t, h))
			c := r.client(t)
			s := c.says(h[:first])
			c.acknowledged(s, s.Seq+uint32(first), gathers.and(known))
			c.acknowledged(s, s.Seq+uint32(first), dropsFor("held")) // it is sent again
			res := c.send(after(s, h[first:]), ruledOut.and(change{"slots": -1, "gathering": -1, "flows": -1}))
			if res.verdict != tcxRedirect {
				t.Errorf("verdict %d", res.verdict)
			}
			c.isGone()

			c = g.printRoom(t, unmatched(printOf(t, h))).client(t)
			c.gather([]string{h[:first], h[first:]}, h, false, false, known)
		})
	}
}

// What has no fingerprint is counted, and decided on without one.
func TestGateNoJA4(t *testing.T) {
	g := newGate(t)
	broken := []byte(namedHello(t))
	broken[5+4+2+32] = 255 // the session is longer than there are bytes
	for _, text := range []string{string(broken), get, "\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00"} {
		c := g.printRoom(t, "*").client(t)
		c.asks(text, serves.and(known, passesFor("no_ja4"), passesFor("no_sni")))
	}
}

// Where no rule asks for fingerprints none is made.
func TestGateWithoutJA4(t *testing.T) {
	g := newGate(t)
	c := g.room(t, "concurrency: 1", "protocol: tls}]\nrequests: [{name: other, sni: \"a.*\", action: reject").client(t)
	c.asks(get, serves.and(known, passesFor("no_sni"))) // it would be counted as one without a fingerprint
}

// The fingerprint is that of the ClientHello behind a PROXY header.
func TestGateJA4Proxied(t *testing.T) {
	g := newGate(t)
	h := namedHello(t)
	const v1 = "PROXY TCP4 192.0.2.1 192.0.2.2 4000 443\r\n"
	const v2 = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc0\x00\x02\x02\x0f\xa0\x01\xbb"
	for _, header := range []string{v1, v2} {
		for _, first := range []int{0, 3, len(header), len(header) + 100} {
			t.Run(fmt.Sprintf("%d of %d", first, len(header)), func(t *testing.T) {
				for _, pattern := range []string{printOf(t, h), unmatched(printOf(t, h))} {
					r := g.printRoom(t, pattern, "trusted_proxies: [10.77.0.0/16]")
					c, text, want := r.client(t), header+h, ruledOut
					if pattern != printOf(t, h) {
						want = serves
					}
					s := c.says(text)
					if first > 0 {
						s = c.says(text[:first])
						c.acknowledged(s, s.Seq+uint32(first), gathers.and(known))
						s = after(s, text[first:])
						c.r.run(t, c.r.in, c.frame(s), 0)
					} else if pattern == printOf(t, h) {
						c.send(s, want)
					} else {
						c.send(s, want.and(known))
					}
					stats, err := r.Stats()
					nettest.Check(t, err)
					got, counts := stats.Requests[0], datapath.Counts{}
					if pattern == printOf(t, h) {
						counts.Dropped = 1
					}
					if got != counts {
						t.Errorf("%s: %+v, want %+v", pattern, got, counts)
					}
				}
			})
		}
	}
}

// Without the program that makes fingerprints rules are asked without one, and nothing stays behind: neither a
// slot nor a place.
func TestGateWithoutFingerprintProgram(t *testing.T) {
	g := smallGate(t, 8, 8)
	programs, err := ebpf.LoadPinnedMap(g.pin("maps", "next_programs"), nil)
	nettest.Check(t, err)
	defer programs.Close()
	nettest.Check(t, programs.Delete(uint32(2)))
	h := namedHello(t)
	r := g.printRoom(t, printOf(t, h))
	c := r.client(t)
	c.asks(h, serves.and(known, passesFor("no_program")))
	c.replies("hello", nothing)
	c.looks(nothing)
	c.looks(ends)

	c = r.client(t)
	s := c.says(h[:100])
	c.acknowledged(s, s.Seq+100, gathers.and(known))
	res := c.send(after(s, h[100:]), turns.and(passesFor("no_program")))
	res.is(t, tcxNext, c.frame(c.whole([]string{h[:100], h[100:]}, h, false)))
	c.lands(res)
	c.Next += uint32(len(h))
	c.replies("hello", change{"slots": -1})
}
