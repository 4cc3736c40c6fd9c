// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// isTold sends a SYN with a sequence number so far behind the next of the client's connection. The answer is what
// that connection expects, whose numbers a client that has forgotten it resets it with.
func (c *client) isTold(beyond uint32) {
	c.t.Helper()
	syn := lab.Segment{Seq: c.Next + beyond, SYN: true}
	res := c.send(syn, dropsFor("forged"))
	_, tcp := sound(c.t, res.frame)
	res.is(c.t, tcxRedirect, c.toldWindow(layers.TCP{Seq: c.Ack, Ack: c.Next, Window: tcp.Window}, ""))
}

// A client that has forgotten a half-open connection is told what the server expects, whatever its new sequence
// number, and the reset that it answers with goes to the server.
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

// So it is with a part of a head in a slot, also of a SYN cookie, which has no socket.
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

// A request that the stack has dropped is to come again, of a connection that is half open still: the reset of a
// client that has forgotten it goes to the server.
func TestGateForgottenUntaken(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1")
		c := r.clientAt(t, base)
		c.loses(c.says(get), serves.and(known))
		time.Sleep(silence)
		c.drops(c.says(get[:5]), dropsFor("race").and(pauses))
		c.drops(c.bare(), dropsFor("handshake"))
		c.passes(lab.Segment{Seq: c.Next, RST: true}, nothing)
	}
}
