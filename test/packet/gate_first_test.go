// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"narthex/internal/datapath"
	"narthex/internal/lab"
	"narthex/test/nettest"
)

func netipPort(a netip.AddrPort, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr(), port)
}

const lowBase = "10.77.2.0"

// busy opens a room in which one request is in service, and no other may be.
func (g *gate) busy(t *testing.T, settings ...string) (*room, *client) {
	t.Helper()
	r := g.room(t, append(settings, "concurrency: 1")...)
	c := r.client(t)
	c.asks(get, serves.and(known))
	return r, c
}

// asks sends a request that passes, and moves on past it.
func (c *client) asks(request string, want change) {
	c.t.Helper()
	c.passes(c.says(request), want)
	c.Next += uint32(len(request))
}

// The way of the first request of a connection, whatever the listener is.
func TestGateFirstRequest(t *testing.T) {
	g := newGate(t)
	for _, mptcp := range []bool{false, true} {
		for _, base := range []string{lowBase, v6Base} {
			t.Run(fmt.Sprintf("mptcp=%v/%s", mptcp, base), func(t *testing.T) {
				firstRequest(t, g.roomOf(t, mptcp, "concurrency: 1"), base)
			})
		}
	}
}

func firstRequest(t *testing.T, r *room, base string) {
	c, other := r.clientAt(t, base), r.clientAt(t, base)
	c.drops(lab.Segment{Seq: c.Next, Ack: c.Ack, ACK: true}, dropsFor("handshake"))
	c.passes(c.says(get), serves.and(known))
	c.passes(c.says(get), nothing) // sent again
	c.passes(lab.Segment{Seq: c.Next + uint32(len(get)), Ack: c.Ack, ACK: true}, nothing)

	held := other.says(get)
	held.Options = []layers.TCPOption{lab.Timestamps(1000, 0)}
	other.drops(held, waits.and(known))
	other.drops(held, dropsFor("held"))
	other.drops(lab.Segment{Seq: other.Next, Ack: other.Ack, ACK: true}, dropsFor("held"))
	c.Next += uint32(len(get))
	c.replies(ok, ends)
	other.released(other.frame(held))
	other.passes(held, nothing)
	other.Next += uint32(len(get))
	other.replies(ok, ends)
}

// Numbers that nobody sends who got the SYN-ACK take nothing and end nothing.
func TestGateForgedFirst(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1")
	c := r.client(t)
	for _, by := range []uint32{1, ^uint32(0), 1000, 1 << 31} {
		for _, change := range []func(*lab.Segment){
			func(s *lab.Segment) { s.Seq += by },
			func(s *lab.Segment) { s.Ack += by },
		} {
			for _, data := range []string{get, ""} {
				for _, fin := range []bool{false, true} {
					s := c.says(data)
					s.FIN = fin
					change(&s)
					c.drops(s, dropsFor("forged"))
				}
			}
		}
	}
	stranger := r.client(t)
	stranger.From = netipPort(stranger.From, 4001) // nobody has heard of it
	f := stranger.frame(stranger.says(get))
	stranger.sendFrame(f, nothing).is(t, tcxNext, f)
	c.asks(get, serves.and(known))
}

// A client that leaves without having asked for anything.
func TestGateEmptyClose(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1")
	c := r.client(t)
	res := c.send(lab.Segment{Seq: c.Next, Ack: c.Ack, ACK: true, FIN: true}, dropsFor("handshake"))
	res.is(t, tcxRedirect, c.told(layers.TCP{FIN: true, Seq: c.Ack, Ack: c.Next + 1}, ""))
	c.isGone()

	c = r.client(t)
	c.passes(lab.Segment{Seq: c.Next, RST: true}, nothing)
}

// What waits is released as it came, with the cut and the checksum that it needs, whatever
// was appended.
func TestGateAppends(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
	g := newGate(t)
	for _, c := range []struct {
		name  string
		parts []string // as the client sends them
		whole string   // what is released
	}{
		{"body", []string{head, "01234", "56789"}, head + "0123456789"},
		{"pipelined request", []string{get + get}, get},
		{"body and more", []string{head + "0123456789GET"}, head + "0123456789"},
		{"chunks", []string{"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "3\r\nabc\r\n"}, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"},
		{"all chunks and more", []string{"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", "c\r\n0\r\n", "\r\nGET"}, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
	} {
		for _, base := range []string{lowBase, v6Base} {
			t.Run(c.name+" "+base, func(t *testing.T) {
				r, first := g.busy(t)
				p := r.clientAt(t, base)
				s := p.says(c.parts[0])
				whole := s
				// What goes on, or has more behind it, is acknowledged as far as it waits.
				acked := len(c.parts[0]) != len(c.whole)
				end := func(sent int) uint32 { return p.Next + uint32(min(sent, len(c.whole))) }
				sent := len(c.parts[0])
				if acked {
					p.acknowledged(s, end(sent), waits.and(known))
				} else {
					p.drops(s, waits.and(known))
				}
				for _, part := range c.parts[1:] {
					p.acknowledged(after(after(s, part), part), end(sent), dropsFor("held")) // a gap
					s = after(s, part)
					sent += len(part)
					p.acknowledged(s, end(sent), dropsFor("held"))
					p.acknowledged(s, end(sent), dropsFor("held")) // again
				}
				first.replies(ok, ends)
				whole.PSH = len(c.parts) > 1 || len(c.parts[0]) == len(c.whole)
				whole.Payload = []byte(c.whole)
				if acked {
					p.releasedKept(p.frame(whole))
					p.Next += uint32(len(c.whole))
					p.replies(ok, endsKept)
				} else {
					p.released(p.frame(whole))
				}
			})
		}
	}
}

// A held request gets the timestamps of the client's latest segment.
func TestGateRefreshesTimestamps(t *testing.T) {
	g := newGate(t)
	nop := layers.TCPOption{OptionType: layers.TCPOptionKindNop}
	r, first := g.busy(t)
	c := r.client(t)
	s := c.says(get)
	s.Options = []layers.TCPOption{nop, nop, lab.Timestamps(1000, 0)}
	c.drops(s, waits.and(known))
	s.Options = []layers.TCPOption{nop, nop, lab.Timestamps(3000, 0)}
	c.drops(s, dropsFor("held"))
	late := s
	late.Options = []layers.TCPOption{nop, nop, lab.Timestamps(2000, 0)}
	c.drops(late, dropsFor("held"))
	first.replies(ok, ends)
	c.released(c.frame(s))
}

// FIN and RST with the exact number give a held request up; with others they do nothing.
func TestGateGivesUp(t *testing.T) {
	g := newGate(t)
	r, _ := g.busy(t)
	size := uint32(len(get))
	for _, by := range []uint32{^uint32(0), 1, size + 1, 1 << 20} {
		c := r.client(t)
		c.drops(c.says(get), waits.and(known))
		c.drops(lab.Segment{Seq: c.Next + by, RST: true}, dropsFor("forged"))
		c.drops(lab.Segment{Seq: c.Next + by, Ack: c.Ack, ACK: true, FIN: true}, dropsFor("held"))
		s := after(c.says(get), "x") // not the end of what has come
		s.FIN, s.Seq = true, s.Seq+by
		c.drops(s, dropsFor("held"))
	}
	for _, at := range []uint32{0, size} {
		c := r.client(t)
		c.drops(c.says(get), waits.and(known))
		c.send(lab.Segment{Seq: c.Next + at, Ack: c.Ack, ACK: true, RST: true}, givesUp).is(t, tcxNext, c.resets(c.Next))
	}
	for _, base := range []string{lowBase, v6Base} {
		c := r.clientAt(t, base)
		c.drops(c.says(get), waits.and(known))
		res := c.send(lab.Segment{Seq: c.Next + size, Ack: c.Ack, ACK: true, FIN: true}, givesUp)
		res.is(t, tcxRedirect, c.told(layers.TCP{FIN: true, Seq: c.Ack, Ack: c.Next + size + 1}, ""))
		c.isGone()
		c.drops(lab.Segment{Seq: c.Next + size + 1, Ack: c.Ack + 1, ACK: true}, dropsFor("farewell"))
	}
}

// Where the accept queue is full the stack would drop a request that is let in: it waits.
func TestGateCrowded(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 5")
		raw, err := r.listen.SyscallConn()
		nettest.Check(t, err)
		nettest.Check(t, raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) }))
		nettest.Check(t, err)
		first, second := r.clientAt(t, base), r.clientAt(t, base)
		frame := first.frame(first.says(get))
		first.send(first.says(get), serves.and(known)).is(t, tcxNext, frame)
		nettest.Check(t, first.SendFrame(frame)) // nobody accepts it
		state, err := first.Await(patience, func(s *lab.Segment) bool { return s.ACK && !s.SYN && s.Ack == first.Next+uint32(len(get)) })
		nettest.Check(t, err)
		if state == nil {
			t.Fatal("the kernel does not acknowledge what it got")
		}
		second.drops(second.says(get), waits.and(known))
		r.kick(t, dropsFor("accept_queue")).is(t, tcxDrop, nil)
		first.reads(get)
		time.Sleep(20 * time.Millisecond) // a queue that was full is looked at again with the kernel's next tick
		second.released(second.frame(second.says(get)))
	}
}

// A client leaves whose request was let in, and which the stack has dropped: no socket will tell that
// it is over.
func TestGateLeavesEarly(t *testing.T) {
	g := newGate(t)
	for _, cookies := range []bool{false, true} {
		if cookies {
			nettest.Check(t, g.rig.Server.Sysctl("ipv4/tcp_syncookies", "2"))
			defer func() { nettest.Check(t, g.rig.Server.Sysctl("ipv4/tcp_syncookies", "1")) }()
		}
		for _, base := range []string{lowBase, v6Base} {
			c, _ := g.resetBehind(t, base)
			g.stopWatching(t) // a busy machine may let so much time pass that a look finds what the reset is to say
			c.drops(lab.Segment{Seq: c.Next + 1, RST: true}, dropsFor("forged"))
			time.Sleep(onItsWay)
			bad := c.frame(lab.Segment{Seq: c.Next, RST: true})
			bad[14+map[string]int{lowBase: 20, v6Base: 40}[base]+16] ^= 1 // its checksum
			if res := c.sendFrame(bad, dropsFor("checksum")); res.verdict != tcxDrop {
				t.Errorf("a reset with a wrong checksum: verdict %d", int32(res.verdict))
			}
			reset := lab.Segment{Seq: c.Next, RST: true}
			c.send(reset, ends.and(change{"flows": -1})).is(t, tcxNext, c.frame(reset))
		}
	}
}

// onItsWay is the time that the gate leaves a request to get to the stack.
const onItsWay = 100 * time.Millisecond

// resetBehind opens a room and sends a request that passes, and a reset right behind it, which must be dropped.
// A busy machine may let more than onItsWay pass between them: that tells nothing, and it is done anew.
func (g *gate) resetBehind(t *testing.T, base string) (c *client, passed result) {
	t.Helper()
	for range 10 {
		r := g.room(t, "concurrency: 1")
		c = r.clientAt(t, base)
		asks, reset := c.frame(c.says(get)), c.frame(lab.Segment{Seq: c.Next, RST: true})
		before, began := r.reading(t), time.Now()
		passed = r.run(t, r.in, asks, 0)
		dropped := r.run(t, r.in, reset, 0)
		if time.Since(began) >= onItsWay {
			continue
		}
		r.changed(t, before, serves.and(known, dropsFor("race")))
		passed.is(t, tcxNext, asks)
		dropped.is(t, tcxDrop, nil)
		return c, passed
	}
	t.Fatalf("ten times %v and more passed between a request and what came right behind it", onItsWay)
	return nil, result{}
}

// A request with a wrong checksum takes nothing, and the right one that comes after it is
// treated as if it were the first.
func TestGateWrongChecksum(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r, first := g.busy(t)
		c := r.clientAt(t, base)
		bad := c.frame(c.says(get))
		bad[len(bad)-1] ^= 1
		before := r.reading(t)
		r.run(t, g.in, bad, 0).is(t, tcxDrop, nil)
		if n := r.reading(t); n["checksum dropped"] != before["checksum dropped"]+1 || n["slots"] != before["slots"] || n["waiting"] != 0 {
			t.Errorf("counters %v, before %v", n, before)
		}
		if res := r.run(t, g.in, c.frame(c.says(get)), 0); res.verdict != tcxDrop {
			t.Errorf("%s: the request passes into a full room: verdict %d", base, int32(res.verdict))
		}
		if n := r.reading(t); n["waiting"] != 1 || n["in service"] != 1 {
			t.Errorf("%d wait, %d are in service", n["waiting"], n["in service"])
		}
		first.replies(ok, ends)
		c.released(c.frame(c.says(get)))
	}
}

// The answers to requests that there is no room for, and what their clients still hear.
func TestGateRejects(t *testing.T) {
	g := newGate(t)
	nop := layers.TCPOption{OptionType: layers.TCPOptionKindNop}
	for _, c := range []struct {
		name, settings, text string
	}{
		{"503", "", rejected},
		{"429", ", reject: {status: 429, retry_after: 0s}", "HTTP/1.1 429 Too Many Requests\r\nCache-Control: no-store\r\nRefused-By: narthex\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"},
		{"reset", ", reject: {reset: true}", ""},
	} {
		for _, base := range []string{lowBase, v6Base} {
			for _, stamped := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/timestamps=%v", c.name, base, stamped), func(t *testing.T) {
					r, _ := g.busy(t, "queue: {size: 0}"+c.settings)
					p := r.clientAt(t, base)
					s := p.says(get)
					var echoed []layers.TCPOption
					if stamped {
						s.Options = []layers.TCPOption{nop, nop, lab.Timestamps(1000, 5)}
						echoed = []layers.TCPOption{nop, nop, lab.Timestamps(5, 1000)}
					}
					end := p.Next + uint32(len(get))
					answer := layers.TCP{Seq: p.Ack, Ack: end, PSH: c.text != "", FIN: c.text != "", RST: c.text == ""}
					p.send(s, arrives.and(rejects("queue_full"))).is(t, tcxRedirect, p.told(answer, c.text, echoed...))
					p.isGone()
					if c.text != "" {
						farewells(t, p, s, c.text, echoed)
					}
				})
			}
		}
	}
}

// farewells sends what a client sends that has been rejected.
func farewells(t *testing.T, p *client, s lab.Segment, text string, echoed []layers.TCPOption) {
	t.Helper()
	end, over := p.Next+uint32(len(s.Payload)), p.Ack+uint32(len(text))+1
	// The request again: our answer was lost.
	p.send(s, dropsFor("farewell")).is(t, tcxRedirect, p.told(layers.TCP{Seq: p.Ack, Ack: end, PSH: true, FIN: true}, text, echoed...))
	p.drops(lab.Segment{Seq: end, Ack: over, ACK: true}, dropsFor("farewell"))
	fin := lab.Segment{Seq: end, Ack: over, ACK: true, FIN: true, Options: s.Options}
	p.send(fin, dropsFor("farewell")).is(t, tcxRedirect, p.told(layers.TCP{Seq: over, Ack: end + 1}, "", echoed...))
	p.drops(lab.Segment{Seq: end + 1, RST: true}, dropsFor("farewell"))
	p.passes(lab.Segment{Seq: end + 1, Ack: over, ACK: true}, nothing) // forgotten
}

// Requests that are rejected after they have waited.
func TestGateRejectsWaiting(t *testing.T) {
	g := newGate(t)
	gone := change{"slots": -1, "flows": -1}
	size := uint32(len(get))
	answered := func(c *client, res result) {
		t.Helper()
		res.is(t, tcxRedirect, c.told(layers.TCP{Seq: c.Ack, Ack: c.Next + size, PSH: true, FIN: true}, rejected))
		c.isGone()
	}
	t.Run("max_wait", func(t *testing.T) {
		r, _ := g.busy(t, "queue: {max_wait: 1ms}")
		c := r.client(t)
		c.drops(c.says(get), waits.and(known))
		answered(c, r.outwaits(t, gone.and(rejects("max_wait"), change{"waiting": -1})))
	})
	t.Run("target", func(t *testing.T) {
		r, _ := g.busy(t, "queue: {target: 1ms, max_wait: 60s}")
		c := r.client(t)
		c.drops(c.says(get), waits.and(known))
		r.outwaits(t, change{}) // it has waited for the target, but not for long
		answered(c, r.outwaits(t, gone.and(rejects("target"), change{"waiting": -1})))
	})
	t.Run("displaced", func(t *testing.T) {
		r, first := g.busy(t, "queue: {size: 1}")
		low, high := r.client(t), r.clientAt(t, highBase)
		low.drops(low.says(get), waits.and(known))
		// One waits still, another one.
		high.drops(high.says(get), waits.and(known, change{"waiting": -1}))
		answered(low, r.kick(t, gone.and(rejects("displaced"))))
		r.kick(t, nothing).is(t, tcxDrop, nil)
		low = r.client(t)
		low.send(low.says(get), arrives.and(rejects("queue_full"))).is(t, tcxRedirect, nil)
		first.replies(ok, ends)
		high.released(high.frame(high.says(get)))
	})
	t.Run("no_server", func(t *testing.T) {
		r, first := g.busy(t)
		c := r.client(t)
		c.drops(c.says(get), waits.and(known))
		first.replies(ok, ends)
		nettest.Check(t, r.listen.Close())
		res := r.kick(t, gone.and(rejects("no_server"), change{"waiting": -1}))
		res.is(t, tcxRedirect, c.told(layers.TCP{Seq: c.Ack, Ack: c.Next + size, PSH: true, FIN: true}, rejected))
	})
}

// When slots run out, those who wait of lower classes make room, and those of other services keep some.
func TestGateMemoryIsShared(t *testing.T) {
	const slots, spare = 64, 64 / 32
	g := smallGate(t, slots, 2*slots)
	r, first := g.busy(t, "queue: {max_wait: 60s}") // until then nobody makes room
	ofOnePlace(slots)
	var low []*client
	for range slots - spare {
		c := r.client(t)
		c.drops(c.says(get), waits.and(known))
		low = append(low, c)
	}
	late := r.client(t)
	late.send(late.says(get), arrives.and(rejects("queue_full"))).is(t, tcxRedirect, nil)
	late.isGone()
	high := r.clientAt(t, highBase)
	high.drops(high.says(get), waits.and(known, change{"waiting": -1}))
	size := uint32(len(get))
	res := r.kick(t, change{"slots": -1, "flows": -1}.and(rejects("displaced")))
	res.is(t, tcxRedirect, low[0].told(layers.TCP{Seq: low[0].Ack, Ack: low[0].Next + size, PSH: true, FIN: true}, rejected))
	low[0].isGone()
	first.replies(ok, ends)
	high.released(high.frame(high.says(get)))
}

// A service takes what others do not need, but for their shares.
func TestGateServiceHasItsShare(t *testing.T) {
	const slots, spare, share = 64, 64 / 32, 64 / 4 / 2
	g := smallGate(t, slots, 2*slots)
	other := g.room(t)
	r, _ := g.busy(t)
	second := fmt.Sprintf(`}, {name: room-%d, listen: ["*:%d"], concurrency: 1`, other.port-8000, other.port)
	r.apply(t, fmt.Sprintf(roomPolicy, r.port-8000, r.port, ", concurrency: 1"+second))
	for range slots - spare - share {
		c := r.client(t)
		c.drops(c.says(get), waits.and(known))
	}
	late := r.client(t)
	late.send(late.says(get), arrives.and(rejects("queue_full"))).is(t, tcxRedirect, nil)
	late.isGone()
	here := other.client(t) // counters are the first service's
	here.passes(here.says(get), known)
	for range share {
		c := other.client(t)
		c.drops(c.says(get), known.and(change{"slots": 1}))
	}
	c := other.client(t)
	c.send(c.says(get), nothing).is(t, tcxRedirect, nil)
}

// Of heads that come in pieces the oldest gives way, but not to sources of which there are many.
func TestGateManyOfOnePlaceDisplaceThemselves(t *testing.T) {
	const size = 64
	g := smallGate(t, 2*size, 4*size)
	r, _ := g.busy(t, "queue: {size: 64}")
	part := func(c *client, want change) { c.acknowledged(c.says(get[:10]), c.Next+10, want) }
	honest := r.clientAt(t, v6Base)
	part(honest, gathers.and(known))
	for range size - 1 {
		part(r.client(t), gathers.and(known))
	}
	late := r.client(t)
	late.send(late.says(get[:10]), rejects("queue_full")).is(t, tcxRedirect, nil)
	late.isGone()
	honest.acknowledged(after(honest.says(get[:10]), get[10:]), honest.Next+uint32(len(get)), turnsHeld)
	part(r.client(t), gathers.and(known, change{"gathering": -1}))
	r.kick(t, change{"slots": -1, "flows": -1}.and(rejects("displaced")))
}

// When slots or flows run out, requests are rejected.
func TestGateMemory(t *testing.T) {
	g := smallGate(t, 1, 3)
	r, first := g.busy(t)
	held, second := r.client(t), r.client(t)
	held.drops(held.says(get), waits.and(known))
	second.send(second.says(get), arrives.and(rejects("no_slot"))).is(t, tcxRedirect, nil)
	second.isGone()
	r.set(t, "concurrency: 10")
	third, fourth := r.client(t), r.client(t)
	held.released(held.frame(held.says(get)))
	third.asks(get, serves.and(known))
	fourth.send(fourth.says(get), rejects("no_flow")).is(t, tcxRedirect, nil)
	fourth.isGone()
	first.replies(ok, ends)
	third.replies(ok, ends)
}

// What there is no room for in a slot the client sends again, and it passes then.
func TestGateLongerThanSlot(t *testing.T) {
	g := smallGate(t, 1, 3)
	r, first := g.busy(t)
	c := r.client(t)
	long := c.says("GET /" + strings.Repeat("long", 700) + " HTTP/1.1\r\nHost: x\r\n\r\n")
	room := datapath.MinSlotSize - 14 - 20 - 20
	short := long
	short.PSH, short.Payload = false, long.Payload[:room]
	c.drops(long, waits.and(known))
	c.drops(long, dropsFor("held"))
	first.replies(ok, ends)
	c.released(c.frame(short))
	c.Next += uint32(room)
	c.asks(string(long.Payload[room:]), nothing)
	c.drops(c.says(get), dropsFor("pipelined"))
	c.replies(ok, ends)
}

// Headers of other lengths than usual are left as they are in requests that are held, and are
// no part of answers.
func TestGateOddHeaders(t *testing.T) {
	g := newGate(t)
	nop := layers.TCPOption{OptionType: layers.TCPOptionKindNop}
	for _, c := range []struct {
		name, base string
		change     func(*frame)
	}{
		{"IP options", lowBase, func(f *frame) { f.ip4.Options = options4() }},
		{"extension headers", v6Base, func(f *frame) {
			f.ext = []extension{padding(layers.IPProtocolIPv6HopByHop, 1), padding(layers.IPProtocolIPv6Destination, 1)}
		}},
		{"VLAN tag in the frame", lowBase, func(f *frame) { f.tags = []uint16{7} }},
		{"two of them", v6Base, func(f *frame) { f.tags = []uint16{7, 8} }},
		{"odd TCP options", lowBase, func(f *frame) {
			f.tcp.Options = []layers.TCPOption{lab.Timestamps(1, 0), nop, nop, nop, nop, nop}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, first := g.busy(t, "queue: {size: 1}")
			held, other := r.clientAt(t, c.base), r.clientAt(t, c.base)
			f := held.framed(held.says(get), c.change)
			held.sendFrame(f, waits.and(known)).is(t, tcxDrop, nil)
			want := other.told(layers.TCP{Seq: other.Ack, Ack: other.Next + uint32(len(get)), PSH: true, FIN: true}, rejected)
			odd := other.framed(other.says(get), c.change)
			res := other.sendFrame(odd, arrives.and(rejects("queue_full")))
			if tags := len(odd) - len(other.frame(other.says(get))); strings.Contains(c.name, "VLAN") || c.name == "two of them" {
				want = append(append(want[:12:12], odd[12:12+tags]...), want[12:]...)
			}
			res.is(t, tcxRedirect, want)
			first.replies(ok, ends)
			held.released(f)
		})
	}
}

// Whoever is of a higher class goes first.
func TestGateOrder(t *testing.T) {
	g := newGate(t)
	r, first := g.busy(t)
	order := []*client{r.clientAt(t, highBase), r.clientAt(t, highBase), r.client(t), r.client(t)}
	for _, i := range []int{2, 0, 3, 1} {
		order[i].drops(order[i].says(get), waits.and(known))
	}
	r.kick(t, nothing).is(t, tcxDrop, nil) // nothing is due
	for _, c := range order {
		first.replies(ok, ends)
		c.released(c.frame(c.says(get)))
		r.kick(t, nothing).is(t, tcxDrop, nil)
		c.Next += uint32(len(get))
		first = c
	}
	first.replies(ok, ends)
	if n := r.reading(t); n["in service"] != 0 || n["waiting"] != 0 {
		t.Errorf("%d are in service and %d wait", n["in service"], n["waiting"])
	}
}

// While the kernel answers with cookies there is no request socket.
func TestGateCookies(t *testing.T) {
	g := newGate(t)
	nettest.Check(t, g.rig.Server.Sysctl("ipv4/tcp_syncookies", "2"))
	defer func() { nettest.Check(t, g.rig.Server.Sysctl("ipv4/tcp_syncookies", "1")) }()
	for _, base := range []string{lowBase, v6Base} {
		t.Run(base, func(t *testing.T) {
			r := g.room(t, "concurrency: 1")
			c, other := r.clientAt(t, base), r.clientAt(t, base)
			c.drops(lab.Segment{Seq: c.Next, Ack: c.Ack, ACK: true}, dropsFor("handshake"))
			forged := c.says(get)
			forged.Ack += 1 << 20
			c.send(forged, nothing).is(t, tcxNext, c.frame(forged)) // the kernel knows it for what it is
			c.asks(get, serves.and(known))
			other.drops(other.says(get), waits.and(known))
			c.replies(ok, ends)
			other.released(other.frame(other.says(get)))
		})
	}
}

// Of a connection with a cookie that was ended here no socket tells that: what its client sends again is no
// new request.
func TestGateRejectsCookies(t *testing.T) {
	g := newGate(t)
	nettest.Check(t, g.rig.Server.Sysctl("ipv4/tcp_syncookies", "2"))
	defer func() { nettest.Check(t, g.rig.Server.Sysctl("ipv4/tcp_syncookies", "1")) }()
	for _, base := range []string{lowBase, v6Base} {
		t.Run(base, func(t *testing.T) {
			r, _ := g.busy(t, "queue: {max_wait: 1ms}")
			c := r.clientAt(t, base)
			c.drops(c.says(get), waits.and(known))
			told := c.told(layers.TCP{Seq: c.Ack, Ack: c.Next + uint32(len(get)), PSH: true, FIN: true}, rejected)
			r.outwaits(t, change{"slots": -1, "flows": -1, "waiting": -1}.and(rejects("max_wait"))).is(t, tcxRedirect, told)
			c.send(c.says(get), dropsFor("farewell")).is(t, tcxRedirect, told)
		})
	}
}

// Connections older than the gate: where the server spoke last, or nobody has, a request begins, and nothing else
// passes. What is sent again passes, and bytes that others come before, or come with others again, do not.
func TestGateStrangers(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1")
	stranger := func() *client {
		c := r.client(t)
		nettest.Check(t, c.SendACK())
		c.accept()
		c.passes(lab.Segment{Seq: c.Next, Ack: c.Ack, ACK: true}, nothing)
		return c
	}
	c, other := stranger(), stranger()
	c.asks(get, serves.and(known))
	// The server is told what the client acknowledges, and no more.
	s := other.says(get)
	told := s
	told.Payload, told.PSH = nil, false
	other.send(s, waits.and(known)).is(t, tcxNext, unpadded(other.frame(told)))

	split := stranger()
	split.send(split.says("GET /den"), gathers.and(known))

	early := stranger()
	s = early.says("x" + get)
	s.Seq--
	told = early.says("x")
	told.Seq--
	told.PSH = false
	early.send(s, passesFor("cut")).is(t, tcxNext, unpadded(early.frame(told)))
	late := stranger()
	s = late.says(get[1:])
	s.Seq++
	late.drops(s, dropsFor("gap"))
	ahead := stranger()
	s = ahead.says(get)
	s.Ack++
	ahead.drops(s, dropsFor("forged"))

	odd := stranger()
	odd.send(odd.says("\x01\x02 the midst of nothing"), rejects("malformed"))
}

// What the client of such a connection had begun to say goes on, and counts as one, whatever the limit. Where the
// server has answered a request begins.
func TestGateUnderway(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1")
	for range 2 {
		c := r.client(t)
		nettest.Check(t, c.SendACK())
		c.accept()
		const begun = "POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\nits"
		nettest.Check(t, c.Send([]byte(begun)))
		c.reads(begun)
		c.passes(c.says("GET /den"), serves.and(known))
		c.Next += 8
		c.passes(c.says("\x01\x02"), nothing)
		c.Next += 2
		c.replies(ok, ends)
	}
}

// Clients whose rule says pass go by the waiting room.
func TestGateExempt(t *testing.T) {
	g := newGate(t)
	r, _ := g.busy(t)
	c := r.clientAt(t, exemptBase)
	c.passes(lab.Segment{Seq: c.Next, Ack: c.Ack, ACK: true}, nothing)
	c.passes(c.says(get), nothing)
}

// Where nobody can have to wait, and in shadow mode, no byte is changed.
func TestGateLenient(t *testing.T) {
	g := newGate(t)
	for name, settings := range map[string][]string{"unlimited": {unlimited}, "shadow": {"concurrency: 1", "mode: shadow"}} {
		t.Run(name, func(t *testing.T) {
			shadow := change{}
			if name == "shadow" {
				shadow = change{"would hold": 1}
			}
			r := g.room(t, settings...)
			c, other := r.client(t), r.client(t)
			c.passes(lab.Segment{Seq: c.Next, Ack: c.Ack, ACK: true}, nothing)
			c.passes(c.says(get+get), serves.and(known)) // pipelined
			c.passes(after(c.says(get), get), nothing)
			other.passes(other.says(get), serves.and(known, shadow))
			c.Next += 2 * uint32(len(get))
			c.replies(ok, ends)
			other.passes(lab.Segment{Seq: other.Next, Ack: other.Ack, ACK: true, FIN: true}, nothing)
			other.passes(lab.Segment{Seq: other.Next + 5, RST: true}, nothing)
		})
	}
}

// Packets of our own.
func TestGateMarks(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1")
	c := r.client(t)
	f := c.frame(lab.Segment{Seq: c.Next, Ack: c.Ack, ACK: true}) // would be absorbed
	r.expects(t, nothing, func() { r.run(t, g.in, f, g.mark|markOurs).is(t, tcxNext, f) })
	// A kick that comes in from outside is none, and anybody else's mark is left alone.
	for _, mark := range []uint32{g.mark | markKick, 5} {
		r.expects(t, dropsFor("handshake"), func() {
			if res := r.run(t, g.in, f, mark); res.verdict != tcxDrop {
				t.Errorf("mark %#x: verdict %d", mark, int32(res.verdict))
			}
		})
	}
	out := (&frame{from: c.To, to: c.From, tcp: layers.TCP{ACK: true}, payload: []byte(ok)}).bytes(t)
	for _, mark := range []uint32{5, g.mark | markOurs} {
		r.expects(t, nothing, func() {
			if res := r.run(t, g.out, out, mark); res.verdict != tcxNext || res.mark != mark || !cmp.Equal(res.frame, out) {
				t.Errorf("mark %#x going out: %+v", mark, res)
			}
		})
	}
	r.kick(t, nothing).is(t, tcxDrop, nil)
	r.expects(t, nothing, func() { r.run(t, g.out, out, g.mark|markKick|0x3ff) }) // of no room
}
