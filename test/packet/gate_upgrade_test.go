// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"strings"
	"testing"
)

// offer is a request as clients send it that speak HTTP/2, too. Upgrade begins at an even place in it, or an odd one.
func offer(method, odd, name string) string {
	return method + " / HTTP/1.1\r\nHost: x" + odd + "\r\nConnection: Upgrade, HTTP2-Settings\r\n" + name + ": h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
}

var ignoresH2C = passesFor("h2c_ignored")

// A server is not shown that a client would go on in HTTP/2: so it stays in HTTP/1, where all is decided on.
func TestGateIgnoresUpgrade(t *testing.T) {
	g := newGate(t)
	for _, odd := range []string{"", "y"} {
		for _, base := range []string{lowBase, v6Base} {
			asked, shown := offer("GET", odd, "Upgrade"), offer("GET", odd, "Xpgrade")
			t.Run(fmt.Sprintf("passes %s%s", base, odd), func(t *testing.T) {
				r := g.room(t, "concurrency: 1")
				c := r.clientAt(t, base)
				c.passesAs(c.frame(c.says(asked)), c.frame(c.says(shown)), serves.and(known, ignoresH2C))
				c.Next += uint32(len(asked))
				c.replies(ok, ends)
				c.passesAs(c.frame(c.says(asked)), c.frame(c.says(shown)), serves.and(ignoresH2C))
				c.Next += uint32(len(asked))
				c.replies(ok, ends)
				c.asks(get, serves)
			})
			t.Run(fmt.Sprintf("waits %s%s", base, odd), func(t *testing.T) {
				r := g.room(t, "concurrency: 1")
				first, c := r.client(t), r.clientAt(t, base)
				first.asks(get, serves.and(known))
				c.drops(c.says(asked), waits.and(known, ignoresH2C))
				first.replies(ok, ends)
				c.released(c.frame(c.says(shown)))
			})
			t.Run(fmt.Sprintf("again %s%s", base, odd), func(t *testing.T) {
				r := g.room(t, "concurrency: 2")
				c := r.clientAt(t, base)
				c.loses(c.says(asked), serves.and(known, ignoresH2C))
				c.passesAs(c.frame(c.says(asked)), c.frame(c.says(shown)), ignoresH2C)
			})
			for _, at := range []int{10, strings.Index(asked, "Upgrade: ") + 3, strings.Index(asked, "h2c") + 1, len(asked) - 1} {
				for _, held := range []bool{false, true} {
					t.Run(fmt.Sprintf("in pieces from %d on, held=%v %s%s", at, held, base, odd), func(t *testing.T) {
						r := g.room(t, "concurrency: 1")
						first, c := r.client(t), r.clientAt(t, base)
						if held {
							first.asks(get, serves.and(known))
						}
						s := c.says(asked[:at])
						c.acknowledged(s, s.Seq+uint32(at), gathers.and(known))
						s = after(s, asked[at:])
						whole := c.frame(c.says(shown))
						if held {
							c.acknowledged(s, c.Next+uint32(len(asked)), turnsHeld.and(ignoresH2C))
							first.replies(ok, ends)
							c.releasedKept(whole)
							return
						}
						res := c.send(s, turns.and(ignoresH2C))
						res.is(t, tcxNext, whole)
						c.lands(res)
					})
				}
			}
		}
	}
}

// It is served as any other: with a body in chunks, among other protocols, where rules decide.
func TestGateIgnoresUpgradeOfAny(t *testing.T) {
	g := newGate(t)
	for _, asked := range []string{
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nUpgrade: h2c\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nContent-Length: 3\r\nUPGRADE:foo,\tH2C ,h2\r\n\r\nabc",
		"GET / HTTP/1.1\r\nX-Upgrade: h2c\r\nUpgrade: websocket, h2c\r\nupgrades: h2c\r\n" + strings.Repeat("x: "+strings.Repeat("y", 95)+"\r\n", 9) + "\r\n",
		"GET / HTTP/1.1\r\n" + strings.Repeat("x: "+strings.Repeat("y", 95)+"\r\n", 9) + "Upgrade: h2c\r\n\r\n",
	} {
		r := g.room(t, "concurrency: 1")
		c := r.client(t)
		at := strings.Index(strings.ToLower(asked), "\nupgrade:") + 1
		shown := asked[:at] + "X" + asked[at+1:]
		c.passesAs(c.frame(c.says(asked)), c.frame(c.says(shown)), serves.and(known, ignoresH2C))
		c.Next += uint32(len(asked))
		c.replies(ok, ends)
		c.asks(get, serves)
	}
}

// Behind a PROXY header it is found as well.
func TestGateIgnoresUpgradeOfProxies(t *testing.T) {
	g := newGate(t)
	const proxy = "PROXY TCP4 192.0.2.1 192.0.2.2 4000 80\r\n"
	asked, shown := proxy+offer("GET", "", "Upgrade"), proxy+offer("GET", "", "Xpgrade")
	for _, at := range []int{0, 20, len(proxy) + 80} {
		r := g.room(t, "concurrency: 1", "trusted_proxies: 10.77.0.0/16")
		c := r.client(t)
		s, want := c.says(asked), serves.and(known)
		if at > 0 {
			s = c.says(asked[:at])
			c.acknowledged(s, s.Seq+uint32(at), gathers.and(known))
			s, want = after(s, asked[at:]), turns
		}
		res := c.send(s, want.and(ignoresH2C))
		res.is(t, tcxNext, c.frame(c.says(shown)))
		c.lands(res)
	}
}

// Who is refused it, and who may have it.
func TestGateUpgradeAsThePolicySays(t *testing.T) {
	g := newGate(t)
	asked := offer("GET", "", "Upgrade")
	r := g.room(t, "concurrency: 1", "h2c: reject")
	c := r.client(t)
	res := c.send(c.says(asked), rejects("h2c"))
	if res.verdict != tcxRedirect {
		t.Errorf("verdict %d, want it refused", int32(res.verdict))
	}
	r = g.room(t, "concurrency: 1", "h2c: pass")
	r.client(t).asks(asked, serves.and(known))
}
