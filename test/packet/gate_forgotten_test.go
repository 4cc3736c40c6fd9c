// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"testing"

	"github.com/gopacket/gopacket/layers"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// isTold sends a SYN that begins so far behind what the client's connection has come to: it is answered with what
// is expected of that, and a reset of that number ends it.
func (c *client) isTold(beyond uint32) {
	c.t.Helper()
	syn := lab.Segment{Seq: c.Next + beyond, SYN: true}
	res := c.send(syn, dropsFor("forged"))
	_, tcp := sound(c.t, res.frame)
	res.is(c.t, tcxRedirect, c.toldWindow(layers.TCP{Seq: c.Ack, Ack: c.Next, Window: tcp.Window}, ""))
}

// Who has forgotten a connection of which the server knows no more than the SYN gets to know what it expects,
// wherever the new one begins, and what the client says to that ends the old one.
func TestGateForgottenRequestSocket(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1")
		c := r.clientAt(t, base)
		for _, beyond := range []uint32{0, 1000, 1 << 16, 1 << 20, 1 << 31, 1<<32 - 2} {
			c.isTold(beyond)
		}
		c.passes(lab.Segment{Seq: c.Next - 1, SYN: true}, nothing) // its own
		c.passes(lab.Segment{Seq: c.Next, RST: true}, nothing)
	}
}

// So it is where a part of a head is in a slot, of a SYN cookie too, which no socket knows of.
func TestGateForgottenHead(t *testing.T) {
	for _, cookies := range []string{"1", "2"} {
		t.Run(cookies, func(t *testing.T) {
			g := newGate(t)
			nettest.Check(t, g.rig.Server.Sysctl("ipv4/tcp_syncookies", cookies))
			defer func() { nettest.Check(t, g.rig.Server.Sysctl("ipv4/tcp_syncookies", "1")) }()
			for _, base := range []string{lowBase, v6Base} {
				r := g.room(t, "concurrency: 1")
				c := r.clientAt(t, base)
				c.acknowledged(c.says(get[:10]), c.Next+10, gathers.and(known))
				for _, beyond := range []uint32{1000, 1 << 20} {
					c.isTold(beyond)
				}
				c.send(lab.Segment{Seq: c.Next, RST: true}, scatters).is(t, tcxNext, nil)
			}
		})
	}
}
