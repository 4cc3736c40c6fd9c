// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// early sends a segment that comes before another one, and passes.
func (c *client) early(s lab.Segment) {
	c.t.Helper()
	f := c.frame(s)
	c.sendFrame(f, nothing).is(c.t, tcxNext, f)
	nettest.Check(c.t, c.SendFrame(f))
}

// Where nothing is held back, what cannot be followed passes. The connection goes on as one that is older than
// the gate, and is not ended for that when requests may have to wait.
func TestGateUnfollowedWhileLenient(t *testing.T) {
	g := newGate(t)
	const strict = "concurrency: 1"
	pipelines := func(c *client) {
		c.asks(get, serves)
		c.asks(get, nothing)
		c.replies(ok, ends)
	}
	for name, settings := range map[string][]string{"unlimited": {unlimited}, "shadow": {strict, "mode: shadow"}} {
		for _, base := range []string{lowBase, v6Base} {
			t.Run(name+", goes on "+base, func(t *testing.T) {
				r := g.room(t, settings...)
				c := r.idle(t, base)
				pipelines(c)
				c.asks(get, serves) // it is counted again
				c.replies(ok, ends)
			})
			t.Run(name+", pipelined "+base, func(t *testing.T) {
				r := g.room(t, settings...)
				c := r.idle(t, base)
				pipelines(c)
				r.set(t, strict)
				c.asks(get, serves)
				c.replies(ok, ends)
				c.asks(get, serves)
				c.replies(ok, ends)
				c.gapTold(after(c.says(get), get))
			})
			t.Run(name+", chunks out of order "+base, func(t *testing.T) {
				r := g.room(t, settings...)
				c := r.idle(t, base)
				c.asks(chunkedPost, serves)
				const one, two = "5\r\nhello\r\n", "3\r\nyou\r\n"
				c.early(after(c.says(one), two))
				c.asks(one, nothing)
				c.Next += uint32(len(two))
				c.reads(two)
				r.set(t, strict)
				c.asks("0\r\n\r\n", nothing)
				c.replies(ok, ends)
				c.asks(get, serves)
			})
			t.Run(name+", chunks after a pause "+base, func(t *testing.T) {
				r := g.room(t, strict)
				c := r.idle(t, base)
				c.looks(nothing)
				c.asks(chunkedPost, serves)
				c.looks(pauses)
				r.set(t, settings...)
				const one, two = "5\r\nhello\r\n", "3\r\nyou\r\n"
				c.early(after(c.says(one), two))
				c.asks(one, serves) // its turn
				c.Next += uint32(len(two))
				c.reads(two)
				r.set(t, strict)
				c.asks("0\r\n\r\n", nothing)
				c.replies(ok, ends)
				c.asks(get, serves)
			})
		}
	}
}

// But what begins where the server has answered must be a request, and a connection is spared until its next
// request is known.
func TestGateUnfollowedIsEnded(t *testing.T) {
	g := newGate(t)
	flows := g.entries(t, "flows", "flow")
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, unlimited)
		early, late, known := r.idle(t, base), r.idle(t, base), r.idle(t, base)
		for _, c := range []*client{early, late, known} {
			c.asks(get, serves)
			c.asks(get, nothing)
			c.replies(ok, ends)
			if c != early {
				flows.unread(c.Next, 1)
			}
		}
		r.set(t, "concurrency: 1")
		early.asks(get, serves)
		early.replies(ok, ends)
		late.send(late.says("\x01"), rejects("malformed").and(change{"flows": -1}))
		known.asks(get, serves)
		known.replies(ok, ends)
		known.asks("POST / HTTP/1.1\r\nContent-Length: 1073741825\r\n\r\n", serves)
		known.replies(ok, ends)
		known.breaksOff(get)
	}
}

// unread has bytes of the connection with that next request have passed while nothing was held back, at a time.
func (e *entries) unread(next, when uint32) {
	e.t.Helper()
	key, value := e.find("next", next)
	binary.NativeEndian.PutUint32(e.number(value, "unread_since"), when)
	nettest.Check(e.t, e.m.Put(key, value))
}

// breaksOff says what the connection is ended for.
func (c *client) breaksOff(data string) {
	c.t.Helper()
	want := c.told(layers.TCP{FIN: true, Seq: c.Ack, Ack: c.Next + uint32(len(data))}, "")
	c.send(c.says(data), dropsFor("unfollowed").and(change{"flows": -1})).is(c.t, tcxRedirect, want)
}

// The rest of a head that the stack has dropped has its connection ended, not dropped for ever.
func TestGateUntakenWhileLenient(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, unlimited)
		c := r.idle(t, base)
		c.asks(get[:5], serves)
		c.loses(c.says(get[5:]), nothing)
		r.set(t, "concurrency: 1")
		c.drops(after(c.says("x"), get[6:]), dropsFor("forged"))
		c.asks(get[5:], serves.and(ends)) // as one that was under way
	}
}

// What is said with a wrong checksum does not have a connection forgotten.
func TestGateUnfollowedForged(t *testing.T) {
	g := newGate(t)
	r := g.room(t, unlimited)
	c := r.idle(t, lowBase)
	c.asks(get, serves)
	c.asks(get, nothing)
	c.replies(ok, ends)
	for _, limit := range []string{unlimited, "concurrency: 1"} {
		r.set(t, limit)
		c.sendFrame(c.bad(c.says(get)), dropsFor("checksum")).is(t, tcxDrop, nil)
	}
	c.asks(get, serves)
}
