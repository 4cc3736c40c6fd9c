// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"testing"

	"github.com/gopacket/gopacket/layers"
)

// A connection that has had its requests is ended by the next one that its client repeats by itself, as if the
// server had closed it; another method passes.
func TestGateRequests(t *testing.T) {
	g := newGate(t)
	for _, limit := range []string{"concurrency: 2", unlimited} {
		for _, base := range []string{lowBase, v6Base} {
			t.Run(limit+" "+base, func(t *testing.T) {
				r := g.room(t, limit, "requests_per_connection: 2")
				for _, last := range []string{get, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"} {
					c := r.clientAt(t, base)
					c.asks(get, serves.and(known))
					c.replies(ok, ends)
					c.asks(get, serves)
					c.replies(ok, ends)
					const post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
					c.asks(post, serves)
					c.replies(ok, ends)
					want := c.told(layers.TCP{FIN: true, Seq: c.Ack, Ack: c.Next + uint32(len(last))}, "")
					c.send(c.says(last), dropsFor("requests").and(change{"flows": -1})).is(t, tcxRedirect, want)
				}
			})
		}
	}
}

// A request that the stack dropped and that comes again is one.
func TestGateRequestsAgain(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 2", "requests_per_connection: 2")
	by, c := r.idle(t, lowBase), r.idle(t, lowBase)
	by.looks(nothing)
	c.loses(c.says(get), serves)
	by.looks(untaken)
	c.asks(get, serves)
	c.replies(ok, ends)
	c.send(c.says(get), dropsFor("requests").and(change{"flows": -1}))
}
