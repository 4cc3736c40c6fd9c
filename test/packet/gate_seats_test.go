// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"testing"

	"narthex/internal/lab"
)

// parks is what changes when the flow of another connection gives way.
var parks = passesFor("parked").and(change{"flows": -1})

// parkedAt fills a table of four flows with idle connections, and has the first give way to a fifth.
func (g *gate) parkedAt(t *testing.T, base string) (parked, other *client) {
	t.Helper()
	r := g.room(t, "concurrency: 1")
	parked = r.idle(t, base)
	for range 3 {
		other = r.idle(t, base)
	}
	fifth := r.clientAt(t, base)
	fifth.asks(get, serves.and(known, parks))
	fifth.replies(ok, ends)
	return parked, other
}

// Idle connections give way to new ones, the longest idle first, and go on as if they had not.
func TestGateIdleGiveWay(t *testing.T) {
	for _, base := range []string{lowBase, v6Base} {
		c, other := smallGate(t, 1, 4).parkedAt(t, base)
		c.drops(after(c.says("x"), get), dropsFor("gap"))
		c.passes(lab.Segment{Seq: c.Next - 1, Ack: c.Ack, ACK: true}, nothing) // keep-alive
		c.passes(back(c.says(""), 7), nothing)
		want := back(c.says(""), 7)
		want.PSH = false
		c.passesAs(c.frame(back(c.says(get), 7)), c.frame(want), passesFor("cut"))
		early := c.says(get)
		early.Ack--
		c.drops(early, dropsFor("pipelined"))
		c.asks(get, serves.and(known, parks))
		c.drops(c.says(get), dropsFor("pipelined"))
		c.replies(ok, ends)
		other.asks(get, serves)
		other.replies(ok, ends)
	}
}

// What such a connection goes on with is a request, however little of it comes at once, and what is none is
// answered 400: nothing gets by.
func TestGateParkedIsNoStranger(t *testing.T) {
	for _, base := range []string{lowBase, v6Base} {
		c, _ := smallGate(t, 4, 4).parkedAt(t, base)
		c.acknowledged(c.says("GET /den"), c.Next+8, gathers.and(known, parks))
		res := c.send(after(c.says("GET /den"), "ied HTTP/1.1\r\nHost: x\r\n\r\n"), turns)
		if res.verdict != tcxNext {
			t.Fatalf("verdict %d, want it passed", int32(res.verdict))
		}
		c.lands(res)
		c, _ = smallGate(t, 4, 4).parkedAt(t, base)
		c.send(c.says("\x16\x03\x01 or what not\r\n\r\n"), rejects("malformed").and(passesFor("parked"), change{"flows": -1})).is(t, tcxRedirect, nil)
	}
}

// Connections that have asked for something do not give way where requests may have to wait, nor those of which it
// is not known where the next request begins.
func TestGateBusyDoNotGiveWay(t *testing.T) {
	g := smallGate(t, 1, 2)
	r := g.room(t, "concurrency: 4")
	a, b := r.client(t), r.client(t)
	a.asks(get, serves.and(known))
	b.asks(postTen, serves.and(known))
	c := r.client(t)
	c.send(c.says(get), rejects("no_flow")).is(t, tcxRedirect, nil)
	b.replies(ok, ends) // before its body has come
	c = r.client(t)
	c.send(c.says(get), rejects("no_flow")).is(t, tcxRedirect, nil)
	a.replies(ok, ends)
	c = r.client(t)
	c.asks(get, serves.and(known, parks))
}

// follows has a client's first request pass, and its connection be followed. By chance the few seats that are tried
// for it are all taken, and then the flow of another gives way though there is place for both.
func (g *gate) follows(t *testing.T, counts *room, c *client) {
	t.Helper()
	places := func() int {
		now := counts.reading(t)
		return now["flows"] + now["parked passed"]
	}
	before := places()
	res := g.run(t, g.in, c.frame(c.says(get)), 0)
	res.is(t, tcxNext, nil)
	c.lands(res)
	if n := places() - before; n != 1 {
		t.Fatalf("%d places more are taken, want 1", n)
	}
}

// Where nothing is held back everybody gives way, and a service beyond its share does not get what others need.
func TestGateFlowsAreShared(t *testing.T) {
	const flows, spare, share = 64, 64 / 32, 64 / 4 / 2
	g := smallGate(t, 1, flows)
	other := g.room(t)
	r := g.room(t)
	for _, limit := range []string{unlimited, "concurrency: 64"} {
		settings := limit + ", service_ends: last_byte" // so that no flow has the short form
		second := fmt.Sprintf(`}, {name: room-%d, listen: ["*:%d"], concurrency: 2`, other.port-8000, other.port)
		r.apply(t, fmt.Sprintf(roomPolicy, r.port-8000, r.port, ", "+settings+second))
		strict := limit != unlimited
		for r.reading(t)["flows"] < flows-spare-share {
			g.follows(t, r, r.client(t))
		}
		c := r.client(t)
		if strict {
			c.send(c.says(get), rejects("no_flow")).is(t, tcxRedirect, nil)
		} else {
			res := c.send(c.says(get), serves.and(known, parks, ends))
			res.is(t, tcxNext, nil)
		}
		g.follows(t, r, other.client(t)) // counters are the first service's
	}
}
