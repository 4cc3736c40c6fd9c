// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"testing"

	"github.com/gopacket/gopacket/layers"

	"narthex/internal/lab"
)

// A line may change any bit of a packet. The stack does not take such a segment, so it says nothing to the gate either:
// what comes after it goes on as if it had not come.
func TestGateUnsound(t *testing.T) {
	g := newGate(t)
	const window, sum = 14 + 20 + 14, 14 + 20 + 16 // of a frame over IPv4
	// damaged has a bit of a segment's frame changed, in the IP header or in what TCP sums up.
	damaged := func(c *client, s lab.Segment, at int) {
		t.Helper()
		f := c.frame(s)
		f[at] ^= 8
		c.sendFrame(f, dropsFor("checksum")).is(t, tcxDrop, nil)
	}
	everywhere := func(c *client, s lab.Segment) {
		t.Helper()
		for _, at := range []int{14 + 8 /* its time to live */, window, sum} {
			damaged(c, s, at)
		}
	}
	t.Run("requests and chunks", func(t *testing.T) {
		r := g.room(t, "concurrency: 1")
		c := r.clientAt(t, lowBase)
		everywhere(c, c.says(chunkedPost))
		c.asks(chunkedPost, serves.and(known))
		for _, part := range []string{"3\r\nab", "c\r\n", "0\r\n\r\n"} {
			everywhere(c, c.says(part))
			c.asks(part, nothing)
		}
		c.replies(ok, ends)
		everywhere(c, c.says(get))
		c.asks(get, serves)
		everywhere(c, c.says(get)) // what comes ahead
		c.replies(ok, ends)
	})
	t.Run("requests of a flow in short form", func(t *testing.T) {
		r := g.room(t, "concurrency: 64")
		c := r.clientAt(t, lowBase)
		everywhere(c, c.says(get))
		c.asks(get, serves.and(known))
		c.replies(ok, ends)
		everywhere(c, c.says(get))
		c.asks(get, serves)
	})
	t.Run("what a rejected client acknowledges", func(t *testing.T) {
		r, _ := g.busy(t, "queue: {size: 0}")
		c := r.clientAt(t, lowBase)
		s, end := c.says(get), c.Next+uint32(len(get))
		told := c.told(layers.TCP{Seq: c.Ack, Ack: end, PSH: true, FIN: true}, rejected)
		c.send(s, rejects("queue_full").and(change{"arrived": 1})).is(t, tcxRedirect, told)
		for _, bare := range []lab.Segment{
			{Seq: end, RST: true}, {Seq: end, Ack: c.Ack + uint32(len(rejected)) + 1, ACK: true},
		} {
			damaged(c, bare, window)
			c.send(s, dropsFor("farewell")).is(t, tcxRedirect, told)
		}
	})
}
