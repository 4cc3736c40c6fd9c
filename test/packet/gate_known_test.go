// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"narthex/internal/lab"
)

// ahead is the release of a known source.
var ahead = releases.and(change{"ahead": 1})

// knowing opens a room of one place whose lower class knows who was answered.
func (g *gate) knowing(t *testing.T) *room {
	t.Helper()
	r := g.room(t, "concurrency: 1")
	text := strings.Replace(roomPolicy, "priority: 2", "priority: 2, known: 10m", 1)
	r.apply(t, fmt.Sprintf(text, r.port-8000, r.port, ", concurrency: 1"))
	return r
}

// next has the room release what waits next, which has to be the client's frame.
func (c *client) next(frame []byte, want change) {
	c.t.Helper()
	res := c.r.kick(c.t, want)
	res.mark = 0
	res.is(c.t, tcxRedirect, unpadded(frame))
	c.lands(res)
}

// held is a client whose request waits.
type held struct {
	*client
	frame []byte
}

// hold has the client's request wait.
func (c *client) hold() held {
	c.t.Helper()
	s := c.says(get)
	c.drops(s, waits.and(known))
	return held{c, c.frame(s)}
}

// queue has a stranger wait for the room's only place, and behind it the client again, on a new connection. The
// place is free then.
func (r *room) queue(t *testing.T, c *client) (stranger, again held) {
	t.Helper()
	first := r.client(t)
	first.asks(get, serves.and(known))
	stranger, again = r.client(t).hold(), c.again().hold()
	first.replies(ok, ends)
	return stranger, again
}

// served has the request released that waits next, which has to be this one, and answered.
func (h held) served(release change) {
	h.t.Helper()
	h.next(h.frame, release)
	h.Next += uint32(len(get))
	h.replies(ok, ends)
}

// TestGateKnown has a client answered, or not, and then ask again behind a stranger.
func TestGateKnown(t *testing.T) {
	g := newGate(t)
	answered := func(answer string) func(*client) {
		return func(c *client) { c.replies(answer, ends) }
	}
	for _, c := range []struct {
		name    string
		answers func(*client)
		known   bool
	}{
		{"200", answered(ok), true},
		{"204", answered("HTTP/1.1 204 No Content\r\n\r\n"), true},
		{"304", answered("HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n"), true},
		{"400", answered("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"), false},
		{"503", answered("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"), false},
		{"a continue before 404", func(c *client) {
			c.replies("HTTP/1.1 100 Continue\r\n\r\n", nothing)
			c.replies("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", ends)
		}, false},
		{"with a body in pieces", func(c *client) {
			c.replies("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234", ends)
			c.replies("56789", nothing)
		}, true},
		{"in chunks", func(c *client) {
			c.replies("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n", ends)
			c.replies("0\r\n\r\n", nothing)
		}, true},
	} {
		for _, base := range []string{lowBase, v6Base} {
			t.Run(c.name+" "+base, func(t *testing.T) {
				r := g.knowing(t)
				v := r.clientAt(t, base)
				v.asks(get, serves.and(known))
				c.answers(v)
				stranger, again := r.queue(t, v)
				if c.known {
					again.served(ahead)
					stranger.next(stranger.frame, releases)
				} else {
					stranger.served(releases)
					again.next(again.frame, releases)
				}
			})
		}
	}
}

// An answer that is not all there earns nothing: one whose client has taken the half of it, or resets.
func TestGateKnownNotYet(t *testing.T) {
	g := newGate(t)
	r := g.knowing(t)
	v := r.client(t)
	v.asks(get, serves.and(known))
	v.replies("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234", ends)
	v.passes(lab.Segment{Seq: v.Next, RST: true}, nothing)
	stranger, again := r.queue(t, v)
	stranger.served(releases)
	again.next(again.frame, releases)
}

// The end of the connection ends an answer that has no length.
func TestGateKnownByTheEnd(t *testing.T) {
	g := newGate(t)
	r := g.knowing(t)
	v := r.client(t)
	v.asks(get, serves.and(known))
	v.answers(layers.TCP{ACK: true, PSH: true, Seq: v.Ack, Ack: v.Next}, "HTTP/1.1 200 OK\r\n\r\n01234", ends).is(t, tcxNext, nil)
	v.Ack += uint32(len("HTTP/1.1 200 OK\r\n\r\n01234"))
	v.answers(layers.TCP{ACK: true, FIN: true, Seq: v.Ack, Ack: v.Next}, "", nothing).is(t, tcxNext, nil)
	_, again := r.queue(t, v)
	again.next(again.frame, ahead)
}
