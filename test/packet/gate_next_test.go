// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// post is a request with a body.
func post(body string) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// idle is a connection whose first request has been answered.
func (r *room) idle(t *testing.T, base string) *client {
	t.Helper()
	c := r.clientAt(t, base)
	c.asks(get, serves.and(known))
	c.replies(ok, ends)
	time.Sleep(tick)
	return c
}

// tick is longer than one of the kernel's clock, by which the gate tells who spoke last.
const tick = 12 * time.Millisecond

// back is a segment that begins so many bytes earlier, with other bytes there.
func back(s lab.Segment, n int) lab.Segment {
	s.Seq -= uint32(n)
	s.Payload = append([]byte(strings.Repeat("o", n)), s.Payload...)
	return s
}

// gapTold sends a segment that comes before others. It has to be dropped, and its client told from where on
// something is missing, and that this has come: the window is the server's.
func (c *client) gapTold(s lab.Segment) {
	c.t.Helper()
	res := c.send(s, dropsFor("gap"))
	_, tcp := sound(c.t, res.frame)
	block := binary.BigEndian.AppendUint32(nil, s.Seq)
	block = binary.BigEndian.AppendUint32(block, s.Seq+uint32(len(s.Payload)))
	nop := layers.TCPOption{OptionType: layers.TCPOptionKindNop}
	sack := layers.TCPOption{OptionType: layers.TCPOptionKindSACK, OptionLength: 10, OptionData: block}
	options := append(echoed(s), nop, nop, sack)
	res.is(c.t, tcxRedirect, c.toldWindow(layers.TCP{Seq: c.Ack, Ack: c.Next, Window: tcp.Window}, "", options...))
	if tcp.Window == 0 {
		c.t.Error("the client may send nothing, and has to send what is missing")
	}
}

func TestGateNextRequest(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1")
		c := r.idle(t, base)
		c.passes(back(c.says(""), 7), nothing)                                 // old data
		c.passes(lab.Segment{Seq: c.Next - 1, Ack: c.Ack, ACK: true}, nothing) // keep-alive
		c.gapTold(after(c.says("x"), get))
		s := after(c.says("x"), get)
		s.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindNop}, lab.Timestamps(1, 2)}
		c.gapTold(s)
		s.Ack++ // of what the server has not said
		c.drops(s, dropsFor("gap"))
		s = after(c.says("x"), get)
		s.Seq += 1 << 24 // beyond the window
		c.drops(s, dropsFor("gap"))
		c.asks(get, serves)
		c.Next -= uint32(len(get))
		c.passes(c.says(get), nothing) // sent again
		c.Next += uint32(len(get))
		c.drops(c.says(get), dropsFor("pipelined"))
		c.drops(after(c.says("x"), get), dropsFor("pipelined"))
		c.replies(ok, ends)
		c.asks(get, serves) // and now it is not
		c.replies(ok, ends)
		c.passes(lab.Segment{Seq: c.Next, Ack: c.Ack, ACK: true, FIN: true}, nothing)
		c.passes(lab.Segment{Seq: c.Next + 1, RST: true}, nothing)
	}
}

// A segment with bytes of two requests passes as far as the first goes, and has the lengths
// and checksums of that.
func TestGateCuts(t *testing.T) {
	g := newGate(t)
	nop := layers.TCPOption{OptionType: layers.TCPOptionKindNop}
	plain := func(*frame) {}
	for _, c := range []struct {
		name, base string
		change     func(*frame)
	}{
		{"v4", lowBase, plain},
		{"v6", v6Base, plain},
		{"IP options", lowBase, func(f *frame) { f.ip4.Options = options4() }},
		{"timestamps", lowBase, func(f *frame) { f.tcp.Options = []layers.TCPOption{nop, nop, lab.Timestamps(1, 2)} }},
		{"timestamps, v6", v6Base, func(f *frame) { f.tcp.Options = []layers.TCPOption{nop, nop, lab.Timestamps(1, 2)} }},
		{"VLAN tag in the frame", lowBase, func(f *frame) { f.tags = []uint16{7} }},
		{"two of them, v6", v6Base, func(f *frame) { f.tags = []uint16{7, 8} }},
		{"ECN", lowBase, func(f *frame) { f.tcp.ECE, f.ip4.TOS = true, 3 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := g.room(t, "concurrency: 1")
			p := r.idle(t, c.base)
			for _, old := range []int{1, 8, 31, 512, 1201} {
				for _, next := range []string{get, "G"} {
					s := back(p.says(next), old)
					s.FIN = true
					want := s
					want.Payload, want.FIN, want.PSH = s.Payload[:old], false, false
					in, out := p.framed(s, c.change), unpadded(p.framed(want, c.change))
					p.passesAs(in, out, passesFor("cut"))
					// The same in service.
					p.asks(get, serves)
					s = back(p.says(next), old)
					want = s
					want.Payload, want.PSH = s.Payload[:old], false
					in, out = p.framed(s, c.change), unpadded(p.framed(want, c.change))
					p.passesAs(in, out, passesFor("cut"))
					in[len(unpadded(in))-1] ^= 1
					p.sendFrame(in, dropsFor("checksum")).is(t, tcxDrop, nil)
					p.replies(ok, ends)
				}
			}
		})
	}
}

// A request that brings the beginning of the next one is cut, when it passes as when it waits.
func TestGatePipelined(t *testing.T) {
	g := newGate(t)
	for _, first := range []string{get, post("0123456789")} {
		for _, more := range []string{"G", get} {
			r := g.room(t, "concurrency: 1")
			c := r.client(t)
			s, want := c.says(first+more), c.says(first)
			want.PSH = false
			c.passesAs(c.frame(s), c.frame(want), serves.and(known, passesFor("cut")))
			c.Next += uint32(len(first))
			c.replies(ok, ends)
			s, want = c.says(first+more), c.says(first)
			want.PSH = false
			c.passesAs(c.frame(s), c.frame(want), serves.and(passesFor("cut")))
		}
	}
}

func TestGateBody(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1")
	body := strings.Repeat("body of a request ", 300)
	head := strings.TrimSuffix(post(body), body)
	c := r.client(t)
	c.asks(head, serves.and(known))
	c.asks(body[:1000], nothing)
	c.asks(body[1000:2000], nothing)
	c.passes(back(c.says(""), 1500), nothing)
	for rest := body[2000:]; rest != ""; rest = rest[min(1001, len(rest)):] {
		c.asks(rest[:min(1001, len(rest))], nothing)
	}
	c.drops(c.says(get), dropsFor("pipelined"))
	want := back(c.says(""), 20)
	want.PSH = false
	c.passesAs(c.frame(back(c.says(get), 20)), c.frame(want), passesFor("cut"))
	c.passes(back(c.says(""), 20), nothing)
	c.replies(ok, ends)
	c.asks(get, serves)
}

// A head that comes in pieces passes as it comes where nothing can wait.
func TestGateLenientPieces(t *testing.T) {
	g := newGate(t)
	r := g.room(t, unlimited)
	c := r.client(t)
	c.asks("G", serves.and(known))
	for _, b := range "ET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n123" {
		c.asks(string(b), nothing)
	}
	c.replies(ok, ends)
	c.asks("GET / HT", serves)
	c.asks("TP/1.1\r\n\r\nGET", nothing)
	c.replies(ok, ends)
}

const chunkedPost = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"

// A body in chunks is followed to its end, and the next request is found there.
func TestGateChunks(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1")
		c := r.clientAt(t, base)
		c.asks(chunkedPost, serves.and(known))
		for _, part := range []string{"3\r\nab", "c", "\r", "\n1", "0;x=y\r\n0123456789ABCDEF\r\n0", "\r\nTrailer: z\r\n\r"} {
			c.gapTold(after(after(c.says(part), part), part))
			c.asks(part, nothing)
		}
		s, want := c.says("\n"+get), c.says("\n")
		want.PSH = false
		c.passesAs(c.frame(s), c.frame(want), passesFor("cut"))
		c.Next++
		c.drops(c.says(get), dropsFor("pipelined"))
		c.replies(ok, ends)
		c.asks(get, serves)
		c.replies(ok, ends)
	}
}

// A socket counts what it sends only when it has sent it, and by then the client may have acknowledged it and gone
// on. Such data passes from behind a gap in a chunk, and the client is told of a gap with framing in it.
func TestGateAcksWhatTheSocketIsSending(t *testing.T) {
	g := newGate(t)
	const interim = "HTTP/1.1 100 Continue\r\n\r\n"
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1")
		c := r.clientAt(t, base)
		c.asks(chunkedPost+"8\r\nab", serves.and(known))
		c.answers(layers.TCP{ACK: true, PSH: true, Seq: c.Ack, Ack: c.Next}, interim, nothing).is(t, tcxNext, nil)
		c.Ack += uint32(len(interim)) // of which the socket knows nothing
		c.gapTold(after(c.says("cdefgh\r\n0"), "\r\n\r\n"))
		f := c.frame(after(c.says("cd"), "ef"))
		c.sendFrame(f, nothing).is(t, tcxNext, f)
	}
}

// Chunks that cannot be followed end the connection.
func TestGateBadChunks(t *testing.T) {
	g := newGate(t)
	for _, bad := range []string{"x", "3\nabc", "3\r\nabcd\r\n", "0\r\nContent-Length: 3\r\n"} {
		for _, base := range []string{lowBase, v6Base} {
			r := g.room(t, "concurrency: 1")
			c := r.clientAt(t, base)
			c.asks(chunkedPost+"5\r\nhello\r\n", serves.and(known))
			end := c.Next + uint32(len(bad))
			res := c.send(c.says(bad), ends.and(rejects("malformed"), change{"flows": -1}))
			res.is(t, tcxRedirect, c.told(layers.TCP{Seq: c.Ack, Ack: end, PSH: true, FIN: true}, badRequest))
		}
	}
	// Where nothing can wait it goes on.
	r := g.room(t, unlimited)
	c := r.client(t)
	c.asks(chunkedPost, serves.and(known))
	c.asks("x", nothing)
	c.replies(ok, ends)
	c.asks(get, serves)
}

// Where the next request begins is not known after a body that is too long: the connection
// ends behind the answer.
func TestGateUnfollowed(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1")
	c := r.client(t)
	c.asks("POST / HTTP/1.1\r\nContent-Length: 1073741825\r\n\r\n", serves.and(known))
	c.asks("some of it", nothing)
	c.replies(ok, ends)
	c.passes(back(c.says(""), 5), nothing)
	c.breaksOff(get)
}

// A further request waits, while what its segment acknowledges goes on.
func TestGateNextWaits(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		t.Run(base, func(t *testing.T) {
			r := g.room(t, "concurrency: 1")
			c, first := r.idle(t, base), r.client(t)
			first.asks(get, serves.and(known))
			s := c.says(get)
			ack := s
			ack.Payload, ack.PSH = nil, false
			c.send(s, waits).is(t, tcxNext, unpadded(c.frame(ack)))
			c.drops(s, dropsFor("held"))
			c.passes(ack, nothing)
			c.drops(back(c.says(""), 5), dropsFor("held"))
			c.answers(layers.TCP{ACK: true, Seq: c.Ack - uint32(len(ok)), Ack: c.Next}, ok, nothing).is(t, tcxNext, nil) // sent again
			first.replies(ok, ends)
			c.released(c.frame(s))
			c.passes(s, nothing)
			c.Next += uint32(len(get))
			c.replies(ok, ends)
		})
	}
}

// settles has the server's stack know that the client has got all that it sent.
func (c *client) settles() {
	c.t.Helper()
	nettest.Check(c.t, c.SendFrame(c.frame(c.bare())))
	raw, err := c.conn.(*net.TCPConn).SyscallConn()
	nettest.Check(c.t, err)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		var info *unix.TCPInfo
		var failed error
		err := raw.Control(func(fd uintptr) { info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
		nettest.Check(c.t, errors.Join(err, failed))
		if info.Unacked == 0 {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("%d segments are not acknowledged", info.Unacked)
		}
	}
}

// Of a request that waits nothing goes on where the stack knows what its segment acknowledges.
func TestGateNextSaysNothingNew(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1")
		c, first := r.idle(t, base), r.client(t)
		first.asks(get, serves.and(known))
		c.settles()
		s := c.says(get)
		c.drops(s, waits)
		first.replies(ok, ends)
		c.released(c.frame(s))
	}
}

// The server closes an idle connection while its next request waits: its close must not come
// before the rejection.
func TestGateClosedWhileHeld(t *testing.T) {
	g := newGate(t)
	for _, tcp := range []layers.TCP{{FIN: true, ACK: true}, {RST: true}, {RST: true, ACK: true}} {
		r := g.room(t, "concurrency: 1")
		c, first := r.idle(t, lowBase), r.client(t)
		first.asks(get, serves.and(known))
		c.send(c.says(get), waits)
		tcp.Seq, tcp.Ack = c.Ack, c.Next
		c.answers(tcp, "", change{"waiting": -1}).is(t, tcxDrop, nil)
		c.answers(tcp, "", nothing).is(t, tcxDrop, nil)
		end := c.Next + uint32(len(get))
		res := r.kick(t, rejects("closed").and(change{"slots": -1, "flows": -1}))
		res.is(t, tcxRedirect, c.told(layers.TCP{Seq: c.Ack, Ack: end, PSH: true, FIN: true}, rejected))
		first.replies(ok, ends)
	}
}

// A further request with a wrong checksum moves nothing on.
func TestGateNextWrongChecksum(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1")
	c, first := r.idle(t, lowBase), r.client(t)
	first.asks(get, serves.and(known))
	bad := c.frame(c.says(get))
	bad[len(bad)-1] ^= 1
	r.run(t, g.in, bad, 0).is(t, tcxDrop, nil)
	before := r.reading(t)
	r.run(t, g.in, c.frame(c.says(get)), 0).is(t, tcxNext, nil)
	if n := r.reading(t); n["waiting"] != before["waiting"]+1 || n["in service"] != 1 {
		t.Errorf("%d wait, %d are in service", n["waiting"], n["in service"])
	}
}

// A request that is rejected on a connection that has been served before.
func TestGateNextRejected(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1", "queue: {size: 0}")
	c, first := r.idle(t, lowBase), r.client(t)
	first.asks(get, serves.and(known))
	end := c.Next + uint32(len(get))
	res := c.send(c.says(get), arrives.and(rejects("queue_full"), change{"flows": -1}))
	res.is(t, tcxRedirect, c.told(layers.TCP{Seq: c.Ack, Ack: end, PSH: true, FIN: true}, rejected))
}

// Who has all that the server's stack has sent of an answer, which has more to send, asks too early: the rest
// would be taken for the next answer, and end its service.
func TestGateUnsentAnswer(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1")
		c := r.idle(t, base)
		nettest.Check(t, c.SendFrame(c.frame(lab.Segment{Seq: c.Next, Ack: c.Ack, ACK: true}))) // whose window is closed
		time.Sleep(20 * time.Millisecond)
		_, err := c.conn.Write([]byte("the rest"))
		nettest.Check(t, err)
		c.drops(c.says(get), dropsFor("pipelined"))
	}
}

// A request that was given up after max_service goes on: its chunks, and the end of its body with what comes
// behind it.
func TestGateGoesOnWhenGivenUp(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 2", "queue: {max_service: 1s}")
		chunked, sized, by := r.idle(t, base), r.idle(t, base), r.idle(t, base)
		chunked.asks(chunkedPost+"5\r\nhe", serves)
		sized.asks(postTen+"01234", serves)
		time.Sleep(1300 * time.Millisecond)
		by.asks(get, arrives.and(change{"admitted": 1, "in service": -1, "served": 2, "lost": 2}))
		by.replies(ok, ends)
		chunked.asks("llo\r\n", nothing)
		chunked.asks("0\r\n\r\n", nothing)
		s, want := sized.says("56789"+get), sized.says("56789")
		want.PSH = false
		sized.passesAs(sized.frame(s), sized.frame(want), passesFor("cut"))
		sized.Next += 5
		sized.drops(sized.says(get), dropsFor("pipelined"))
		for _, c := range []*client{chunked, sized} {
			c.replies(ok, nothing)
			c.asks(get, serves)
			c.replies(ok, ends)
		}
	}
}
