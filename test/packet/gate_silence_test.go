// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// silence is long enough for a flow to be looked at again.
const silence = 230 * time.Millisecond

// pauses is what the silence of somebody changes whose body is missing.
var pauses = change{"paused": 1, "in service": -1}

// bare is the acknowledgement of all that the client has got.
func (c *client) bare() lab.Segment {
	return lab.Segment{Seq: c.Next, Ack: c.Ack, ACK: true, Window: 500}
}

// looks has the gate look at what is due after a silence, with a packet that means nothing:
// as often as it takes, for each packet looks at a few flows, and there are those of other
// tests.
func (c *client) looks(want change) {
	c.t.Helper()
	time.Sleep(silence)
	f := c.frame(c.bare())
	c.r.expects(c.t, want, func() {
		for range 10 {
			c.r.run(c.t, c.r.in, f, 0).is(c.t, tcxNext, f)
		}
	})
}

const postTen = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"

// A request whose body does not come leaves service, and takes its turn when it goes on.
func TestGatePauses(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		t.Run(base, func(t *testing.T) {
			r := g.room(t, "concurrency: 1")
			c, first := r.clientAt(t, base), r.client(t)
			c.asks(postTen, serves.and(known))
			c.passes(c.bare(), nothing)
			c.looks(pauses)
			c.looks(nothing)
			c.drops(after(c.says("0"), "1"), dropsFor("gap"))
			c.passes(back(c.says(""), 5), nothing)
			c.asks("01234", serves)
			c.asks("5", nothing)
			c.looks(nothing) // something had come
			c.looks(pauses)

			first.asks(get, serves.and(known))
			s, want := c.says("6789"+get), c.says("6789")
			want.PSH = false
			c.send(s, waits).is(t, tcxNext, unpadded(c.frame(c.bare())))
			c.drops(s, dropsFor("held"))
			c.passes(c.bare(), nothing)
			first.replies(ok, ends)
			c.released(c.frame(want))
			c.Next += 4
			c.looks(nothing) // all of it is there: the server works
			c.replies(ok, ends)
			c.asks(get, serves)
		})
	}
}

// So does one whose chunks do not come.
func TestGatePausesInChunks(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1")
	c := r.client(t)
	c.asks(chunkedPost+"5\r\nhe", serves.and(known))
	c.looks(pauses)
	c.asks("llo\r\n", serves)
	c.looks(pauses)
	c.asks("0\r\n\r\n", serves)
	c.looks(nothing)
	c.replies(ok, ends)
	c.asks(get, serves)
}

// A paused request may be answered, and is over then; and its client may be rejected.
func TestGatePausedEnds(t *testing.T) {
	g := newGate(t)
	t.Run("answered", func(t *testing.T) {
		r := g.room(t, "concurrency: 1")
		c := r.client(t)
		c.asks(postTen, serves.and(known))
		c.looks(pauses)
		c.replies(ok, nothing)
		c.asks("01234", nothing)
		s, want := c.says("56789"+get), c.says("56789")
		want.PSH = false
		c.passesAs(c.frame(s), c.frame(want), passesFor("cut"))
		c.Next += 5
		c.asks(get, serves)
	})
	t.Run("rejected", func(t *testing.T) {
		r := g.room(t, "concurrency: 1", "queue: {size: 0}")
		c, first := r.client(t), r.client(t)
		c.asks(postTen, serves.and(known))
		c.looks(pauses)
		first.asks(get, serves.and(known))
		res := c.send(c.says("01234"), arrives.and(rejects("queue_full"), change{"flows": -1}))
		res.is(t, tcxRedirect, c.told(layers.TCP{Seq: c.Ack, Ack: c.Next + 5, PSH: true, FIN: true}, rejected))
	})
	t.Run("bad chunks", func(t *testing.T) {
		r := g.room(t, "concurrency: 1")
		c := r.client(t)
		c.asks(chunkedPost, serves.and(known))
		c.looks(pauses)
		res := c.send(c.says("x"), rejects("malformed").and(change{"flows": -1}))
		res.is(t, tcxRedirect, c.told(layers.TCP{Seq: c.Ack, Ack: c.Next + 1, PSH: true, FIN: true}, badRequest))
	})
}

// The server says what it thinks of a request that has paused while the rest of its body waits: an interim
// answer is not its end, a final one is.
func TestGateAnswersThePaused(t *testing.T) {
	g := newGate(t)
	const goOn, hints = "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
	for _, texts := range [][]string{{goOn}, {goOn + hints}, {hints, goOn}} {
		r := g.room(t, "concurrency: 1")
		c, first := r.client(t), r.client(t)
		c.asks(postTen, serves.and(known))
		c.looks(pauses)
		first.asks(get, serves.and(known))
		s := c.says("0123456789")
		c.send(s, waits).is(t, tcxNext, unpadded(c.frame(c.bare())))
		for _, text := range texts {
			c.replies(text, nothing)
			c.drops(s, dropsFor("held"))
		}
		first.replies(ok, ends)
		c.released(c.frame(s))
		c.Next += 10
		c.replies(ok, ends)
		c.asks(get, serves)
	}
	for _, text := range []string{ok, goOn + ok, "HTTP/1.1 101 Switching Protocols\r\n\r\n"} {
		r := g.room(t, "concurrency: 1")
		c, first := r.client(t), r.client(t)
		c.asks(postTen, serves.and(known))
		c.looks(pauses)
		first.asks(get, serves.and(known))
		c.send(c.says("0123456789"), waits).is(t, tcxNext, unpadded(c.frame(c.bare())))
		c.replies(text, givesUp.and(passesFor("pipelined"), change{"flows": 1})) // it stays
	}
}

// With last_byte a server that has begun to answer works on the request, whether its body has come or not: the
// place is kept as soon as anything is said, and taken again as soon as that is no interim answer.
func TestGateAnswersEarly(t *testing.T) {
	g := newGate(t)
	const begun, answer = "HTTP/1.1 200", " OK\r\nContent-Length: 3\r\n\r\nabc"
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1", "service_ends: last_byte")
		t.Run("in service "+base, func(t *testing.T) {
			c := r.clientAt(t, base)
			c.asks(postTen, serves.and(known))
			c.replies("HTTP/1.1 1", nothing)
			c.looks(nothing)
			c.replies("00 Continue\r\n\r\n", nothing)
			c.looks(pauses)
			c.replies(begun[:11], nothing)
			c.replies(begun[11:], serves)
			c.looks(nothing)
			c.replies(answer, ends)
		})
		t.Run("its rest waits "+base, func(t *testing.T) {
			c, first := r.clientAt(t, base), r.clientAt(t, base)
			c.asks(postTen, serves.and(known))
			c.looks(pauses)
			first.asks(get, serves.and(known))
			c.send(c.says("0123456789"), waits).is(t, tcxNext, unpadded(c.frame(c.bare())))
			c.replies(begun, givesUp.and(passesFor("pipelined"), serves, change{"flows": 1}))
			c.passes(c.says("0123456789"), nothing)
			c.Next += 10
			c.replies(answer[:len(answer)-1], nothing)
			c.looks(nothing)
			first.replies(ok, ends)
			c.replies(answer[len(answer)-1:], ends)
		})
	}
}

// Who has no body to send, or has an answer, is not paused.
func TestGateDoesNotPause(t *testing.T) {
	g := newGate(t)
	for _, request := range []string{get, post("0123456789"), chunkedPost + "0\r\n\r\n"} {
		r := g.room(t, "concurrency: 1")
		c := r.client(t)
		c.asks(request, serves.and(known))
		c.looks(nothing)
		c.looks(nothing)
	}
	r := g.room(t, "concurrency: 1", "service_ends: close")
	c := r.client(t)
	c.asks(postTen, serves.and(known))
	c.replies(ok, nothing)
	c.looks(nothing)
	c.looks(nothing)
}

// hello is a ClientHello in its record.
func hello(t *testing.T) string {
	t.Helper()
	return helloOf(t, &tls.Config{InsecureSkipVerify: true})
}

// helloOf is that of a client with settings.
func helloOf(t *testing.T, cfg *tls.Config) string {
	t.Helper()
	here, there := net.Pipe()
	defer there.Close()
	go func() { _ = tls.Client(here, cfg).Handshake() }()
	b := make([]byte, 16<<10)
	n, err := there.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// reset is what the client of a connection that is not HTTP is told.
func (c *client) reset(end uint32) []byte {
	return c.told(layers.TCP{Seq: c.Ack, Ack: end, RST: true}, "")
}

// A tls connection waits with its ClientHello, and leaves service when nobody says anything.
func TestGateTLS(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		t.Run(base, func(t *testing.T) {
			r := g.room(t, "concurrency: 1", "protocol: tls")
			c, other := r.clientAt(t, base), r.clientAt(t, base)
			h := hello(t)
			c.drops(c.bare(), dropsFor("handshake"))
			c.asks(h, serves.and(known))
			c.looks(nothing) // it is the server's turn
			s := other.says(h)
			other.drops(s, waits.and(known))
			other.drops(s, dropsFor("held"))
			c.replies("hello, client", nothing)
			c.looks(nothing)
			c.looks(ends)
			other.released(other.frame(s))
			other.Next += uint32(len(h))
			other.replies("hello, client", nothing)

			c.send(c.says("more"), waits).is(t, tcxNext, unpadded(c.frame(c.bare())))
			other.looks(nothing)
			other.looks(ends)
			c.released(c.frame(c.says("more")))
			c.Next += 4
			c.asks("and more", nothing)
			c.replies("answer", nothing)
			c.replies("that goes on", nothing)
			c.answers(layers.TCP{FIN: true, ACK: true, Seq: c.Ack, Ack: c.Next}, "", ends)
		})
	}
}

// A ClientHello in pieces gathers.
func TestGateTLSGathers(t *testing.T) {
	g := newGate(t)
	h := hello(t)
	for _, cuts := range [][]int{{1}, {3, 5, 6, 9}, {100, 101, len(h) - 1}} {
		for _, base := range []string{lowBase, v6Base} {
			for _, held := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/%s/held=%v", cuts, base, held), func(t *testing.T) {
					r := g.room(t, "concurrency: 1", "protocol: tls")
					c, first := r.clientAt(t, base), r.client(t)
					if held {
						first.asks(h, serves.and(known))
					}
					var parts []string
					from := 0
					for _, cut := range append(cuts, len(h)) {
						parts = append(parts, h[from:cut])
						from = cut
					}
					c.gather(parts, h, false, held, known)
					if held {
						first.replies("hello", nothing)
						first.answers(layers.TCP{FIN: true, ACK: true, Seq: first.Ack, Ack: first.Next}, "", ends)
						c.releasedKept(c.frame(c.says(h)))
					}
					c.Next += uint32(len(h))
					c.replies("hello", change{"slots": -1})
				})
			}
		}
	}
}

// What is no TLS takes its turn as it is.
func TestGateTLSOther(t *testing.T) {
	g := newGate(t)
	for _, text := range []string{get, "\x00", "\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00"} {
		r := g.room(t, "concurrency: 1", "protocol: tls")
		c, other := r.client(t), r.client(t)
		c.asks(text, serves.and(known))
		other.drops(other.says(text), waits.and(known))
		c.answers(layers.TCP{FIN: true, ACK: true, Seq: c.Ack, Ack: c.Next}, "", ends)
		other.released(other.frame(other.says(text)))
	}
}

// Who is not served is reset, again and again until it takes it.
func TestGateTLSRejects(t *testing.T) {
	g := newGate(t)
	h := hello(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1", "protocol: tls", "queue: {size: 0}")
		first, c := r.client(t), r.clientAt(t, base)
		first.asks(h, serves.and(known))
		end := c.Next + uint32(len(h))
		c.send(c.says(h), arrives.and(rejects("queue_full"))).is(t, tcxRedirect, c.reset(end))
		c.isGone()
		for range 2 {
			c.send(c.says(h), dropsFor("farewell")).is(t, tcxRedirect, c.reset(end))
		}
		c.drops(lab.Segment{Seq: end, RST: true}, dropsFor("farewell"))
	}
}

// A tcp connection waits at the end of its handshake.
func TestGateTCP(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		t.Run(base, func(t *testing.T) {
			r := g.room(t, "concurrency: 1", "protocol: tcp")
			c, other := r.clientAt(t, base), r.clientAt(t, base)
			f := c.frame(c.bare())
			res := c.sendFrame(f, serves.and(known))
			res.is(t, tcxNext, f)
			c.lands(res)
			c.accept()
			c.replies("welcome", nothing) // it speaks first
			other.drops(other.bare(), waits.and(known))
			other.drops(other.bare(), dropsFor("held"))
			c.looks(nothing)
			c.looks(ends)
			other.released(other.frame(other.bare()))
			other.accept()
			other.looks(ends) // nobody has said anything

			other.asks("hello", serves)
			other.looks(nothing) // the client was the last
			c.send(c.says("back"), waits).is(t, tcxNext, unpadded(c.frame(c.bare())))
			other.replies("hello", nothing)
			other.looks(nothing)
			other.looks(ends)
			c.released(c.frame(c.says("back")))
			c.Next += 4
			c.passes(lab.Segment{Seq: c.Next, Ack: c.Ack, ACK: true, FIN: true}, nothing)
			c.answers(layers.TCP{FIN: true, ACK: true, Seq: c.Ack, Ack: c.Next + 1}, "", ends)
		})
	}
}

// What a client says while its connection waits comes with it.
func TestGateTCPAppends(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		for _, late := range []bool{false, true} { // the acknowledgement was lost
			r := g.room(t, "concurrency: 1", "protocol: tcp")
			first, c := r.client(t), r.clientAt(t, base)
			first.asks("first", serves.and(known))
			s := c.says("hello")
			want := c.says("hello, world")
			if late {
				c.drops(s, waits.and(known))
			} else {
				c.drops(c.bare(), waits.and(known))
				c.drops(s, dropsFor("held"))
				want.PSH = false
			}
			c.drops(after(after(s, ", wor"), "ld"), dropsFor("held")) // a gap
			c.drops(after(s, ", world"), dropsFor("held"))
			first.answers(layers.TCP{FIN: true, ACK: true, Seq: first.Ack, Ack: first.Next}, "", ends)
			c.released(c.frame(want))
		}
	}
}

// Forged ends of a handshake take nothing, exact ends give up.
func TestGateTCPEnds(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1", "protocol: tcp")
		first := r.client(t)
		first.asks("first", serves.and(known))
		c := r.clientAt(t, base)
		for _, by := range []uint32{1, ^uint32(0), 1 << 20} {
			s := c.bare()
			s.Ack += by
			c.drops(s, dropsFor("forged"))
			s = c.bare()
			s.Seq += by
			c.drops(s, dropsFor("forged"))
		}
		c.drops(c.bare(), waits.and(known))
		for _, by := range []uint32{1, ^uint32(0), 1 << 20} {
			c.drops(lab.Segment{Seq: c.Next + by, RST: true}, dropsFor("forged"))
		}
		fin := c.bare()
		fin.FIN = true
		res := c.send(fin, givesUp)
		res.is(t, tcxRedirect, c.told(layers.TCP{FIN: true, Seq: c.Ack, Ack: c.Next + 1}, ""))
		c.isGone()
		c = r.clientAt(t, base)
		c.drops(c.bare(), waits.and(known))
		c.send(lab.Segment{Seq: c.Next, Ack: c.Ack, ACK: true, RST: true}, givesUp).is(t, tcxNext, c.resets(c.Next))
	}
}

// Who is not served is reset.
func TestGateTCPRejects(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1", "protocol: tcp", "queue: {size: 0}")
		first, c := r.client(t), r.clientAt(t, base)
		first.asks("first", serves.and(known))
		c.send(c.bare(), arrives.and(rejects("queue_full"))).is(t, tcxRedirect, c.reset(c.Next))
		c.isGone()
		s := c.says("hello")
		c.send(s, dropsFor("farewell")).is(t, tcxRedirect, c.reset(c.Next+5))
	}
}

// A request that came with a SYN cookie, and that the stack drops, has nothing whose end would say that it is
// over: it leaves service all the same. If its client sends it again it takes its turn as if it had not come
// before; and one that did become a connection is served until it is answered.
func TestGateCookieIsLost(t *testing.T) {
	g := newGate(t)
	nettest.Check(t, g.rig.Server.Sysctl("ipv4/tcp_syncookies", "2"))
	defer func() { nettest.Check(t, g.rig.Server.Sysctl("ipv4/tcp_syncookies", "1")) }()
	for _, protocol := range []string{"http", "tls"} {
		for _, base := range []string{lowBase, v6Base} {
			t.Run(protocol+" "+base, func(t *testing.T) {
				r := g.room(t, "concurrency: 2", "protocol: "+protocol)
				c, other := r.clientAt(t, base), r.clientAt(t, base)
				other.asks(get, serves.and(known))
				c.send(c.says(get), serves.and(known)).is(t, tcxNext, c.frame(c.says(get)))
				other.looks(ends.and(change{"flows": -1}))
				c.asks(get, serves.and(known))
				other.looks(nothing)
				if protocol == "http" {
					c.replies(ok, ends)
					other.replies(ok, ends)
					return
				}
				c.replies("hello", nothing) // for nobody to be watched beyond this test
				other.replies("hello", nothing)
				other.looks(nothing) // the server has spoken
				other.looks(change{"in service": -2, "served": 2})
			})
		}
	}
}

// Where nothing waits, pieces of a ClientHello pass as they come. Whose client leaves out the rest is not in
// service: the server owes nothing. One that is whole is, for as long as it takes.
func TestGateHelloIsLeftOut(t *testing.T) {
	g := newGate(t)
	h := hello(t)
	for _, base := range []string{lowBase, v6Base} {
		t.Run(base, func(t *testing.T) {
			r := g.room(t, "concurrency: 1", "protocol: tls", "mode: shadow")
			c, other := r.clientAt(t, base), r.clientAt(t, base)
			for _, c := range []*client{c, other} {
				nettest.Check(t, c.SendACK())
				c.accept()
			}
			c.asks(h[:11], serves.and(known))
			c.looks(ends)
			c.looks(nothing)
			c.asks(h[11:], serves)
			c.looks(nothing)
			c.replies("hello, client", nothing)
			c.looks(nothing) // the server has spoken
			c.looks(ends)

			other.asks(h[:11], serves.and(known))
			other.asks(h[11:], nothing)
			other.looks(nothing)
			other.replies("hello, client", nothing)
			other.looks(nothing)
			other.looks(ends)
		})
	}
}
