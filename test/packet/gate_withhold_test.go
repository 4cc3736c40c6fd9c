// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// large is a request with a body that no slot takes.
var large = post(strings.Repeat("0123456789", 10_000))

// withheld sends the first bytes of a large request, which has to wait. Its connection is known to the stack:
// that gets all but the first bytes, in whose place are options that mean nothing, and its server gets nothing.
func (c *client) withheld(n int) (first lab.Segment) {
	c.t.Helper()
	first = c.says(large[:n])
	rest := first
	rest.Seq += 4
	rest.Payload = first.Payload[4:]
	out := c.framed(rest, func(f *frame) {
		for range 4 {
			f.tcp.Options = append(f.tcp.Options, layers.TCPOption{OptionType: layers.TCPOptionKindNop})
		}
	})
	res := c.sendFrame(c.framed(first, func(*frame) {}), waits)
	res.is(c.t, tcxNext, unpadded(out))
	nettest.Check(c.t, c.SendFrame(res.frame))
	return first
}

func TestGateWithholds(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1")
		other, c := r.idle(t, base), r.idle(t, base)
		other.asks(get, serves)
		first := c.withheld(1000)
		// The stack says that the beginning is missing, and has to take that for sent.
		c.answers(layers.TCP{ACK: true, Seq: c.Ack, Ack: first.Seq}, "", nothing).is(t, tcxRedirect, nil)
		c.drops(first, dropsFor("held"))
		second := after(first, large[1000:2000])
		f := c.framed(second, func(*frame) {})
		f[len(f)-1] ^= 1
		c.sendFrame(f, dropsFor("checksum")).is(t, tcxDrop, nil)
		third := after(second, large[2000:3000])
		for _, s := range []lab.Segment{third, second} {
			f := c.frame(s)
			res := c.sendFrame(f, nothing)
			res.is(t, tcxNext, f)
			nettest.Check(t, c.SendFrame(res.frame))
		}
		c.drops(lab.Segment{Seq: first.Seq + uint32(len(large)), Ack: c.Ack, ACK: true, Payload: []byte(get)}, dropsFor("held"))
		other.replies(ok, ends)
		head := first
		head.Payload, head.PSH = first.Payload[:strings.Index(large, "\r\n\r\n")+4], false
		c.released(c.frame(head))
		c.reads(large[len(head.Payload):3000])
		c.answers(layers.TCP{ACK: true, Seq: c.Ack, Ack: first.Seq + 3000}, "", nothing).is(t, tcxNext, nil)
	}
}

// Who gives up a request whose body has gone ahead says so behind that.
func TestGateWithheldIsGivenUp(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1")
	other, c := r.idle(t, lowBase), r.idle(t, lowBase)
	other.asks(get, serves)
	first := c.withheld(1000)
	for _, wrong := range []uint32{999, 1001} {
		c.drops(lab.Segment{Seq: first.Seq + wrong, Ack: c.Ack, ACK: true, RST: true}, dropsFor("forged"))
	}
	res := c.send(lab.Segment{Seq: first.Seq + 1000, Ack: c.Ack, ACK: true, RST: true}, givesUp)
	res.is(t, tcxNext, unpadded(c.resets(first.Seq)))
}

// A body in chunks goes ahead as far as it is read.
func TestGateWithheldChunks(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1")
	other, c := r.idle(t, lowBase), r.idle(t, lowBase)
	other.asks(get, serves)
	body := fmt.Sprintf("%x\r\n%s\r\n", 1000, strings.Repeat("x", 1000))
	first := c.says("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
	res := c.send(first, waits)
	nettest.Check(t, c.SendFrame(res.frame))
	last := after(first, body+"0\r\n\r\n")
	c.drops(after(after(first, body), "0\r\n\r\n"), dropsFor("gap"))
	f := c.frame(last)
	res = c.send(last, nothing)
	res.is(t, tcxNext, f)
	nettest.Check(t, c.SendFrame(res.frame))
	c.drops(last, dropsFor("held"))
	c.drops(after(last, get), dropsFor("held"))
	other.replies(ok, ends)
	res = r.kick(t, releases)
	nettest.Check(t, c.SendFrame(res.frame))
	c.reads(string(first.Payload) + string(last.Payload))
	c.Next = last.Seq + uint32(len(last.Payload))
	c.replies(ok, ends)
	c.asks(get, serves)
}

// What somebody else says while a request waits, beyond what its client has sent, does not get to the stack. Bytes
// that are there already are no reason to end the connection at its next request.
func TestGateForgedBeyond(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1")
		other, c := r.idle(t, base), r.idle(t, base)
		other.asks(get, serves)
		first := c.says(get)
		c.send(first, waits)
		beyond := lab.Segment{Seq: c.Next + 5000, Ack: c.Ack, ACK: true, FIN: true}
		c.drops(beyond, dropsFor("held"))
		nettest.Check(t, c.SendFrame(c.frame(beyond))) // past the gate
		other.replies(ok, ends)
		c.released(c.frame(first))
		c.Next = first.Seq + uint32(len(get))
		c.replies(ok, ends)
		c.send(c.says(get), serves)
		c.replies(ok, ends)
	}
}
