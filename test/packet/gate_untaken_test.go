// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// untaken is what changes when a request is found not to have got to the stack.
var untaken = pauses.and(passesFor("untaken"))

// bad is the frame of a segment with a wrong checksum.
func (c *client) bad(s lab.Segment) []byte {
	c.t.Helper()
	f, network := c.frame(s), 20
	if c.From.Addr().Is6() {
		network = 40
	}
	f[14+network+16] ^= 1
	return f
}

// loses sends a segment that the gate lets in, as the change says, and the stack does not get.
func (c *client) loses(s lab.Segment, want change) {
	c.t.Helper()
	if res := c.sendFrame(c.frame(s), want); res.verdict != tcxNext {
		c.t.Errorf("verdict %d, want %d", int32(res.verdict), tcxNext)
	}
}

// A request that is let in and that the stack drops does not keep its place. It takes its turn when it comes
// again, and what comes with it meanwhile does not make a connection of which nothing is known.
func TestGateUntaken(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		t.Run("first "+base, func(t *testing.T) {
			r := g.room(t, "concurrency: 2")
			by, c := r.idle(t, base), r.clientAt(t, base)
			c.loses(c.says(get), serves.and(known))
			c.drops(c.bare(), dropsFor("handshake"))
			by.looks(untaken.and(change{"flows": -1}))
			by.looks(nothing)
			c.asks(get, serves.and(known))
			by.looks(nothing)
			c.replies(ok, ends)
		})
		t.Run("first, again "+base, func(t *testing.T) {
			r := g.room(t, "concurrency: 2")
			by, c := r.idle(t, base), r.clientAt(t, base)
			c.loses(c.says(get), serves.and(known))
			time.Sleep(silence)
			c.asks(get, nothing) // the packet that has it looked at brings it
			by.looks(nothing)
			c.replies(ok, ends)
		})
		t.Run("later "+base, func(t *testing.T) {
			r := g.room(t, "concurrency: 2")
			by, c := r.idle(t, base), r.idle(t, base)
			by.looks(nothing)
			c.loses(c.says(get), serves)
			by.looks(untaken)
			c.asks(get, serves)
			by.looks(nothing)
			c.replies(ok, ends)
		})
		for _, body := range []string{"0123456789", "0123456789" + get} {
			t.Run("body first "+base, func(t *testing.T) {
				r := g.room(t, "concurrency: 2")
				by, c := r.idle(t, base), r.clientAt(t, base)
				c.loses(c.says(postTen), serves.and(known))
				time.Sleep(silence)
				c.drops(after(c.says(postTen), body), dropsFor("gap").and(untaken, change{"flows": -1}))
				by.looks(nothing)
			})
		}
	}
}

// What the stack has beyond a head that it has dropped was read as that request's: it must not become another
// one's, so the request is not taken anew.
func TestGateUntakenBeforeBody(t *testing.T) {
	g := newGate(t)
	flows := g.entries(t, "flows", "flow")
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 2")
		by, c := r.idle(t, base), r.idle(t, base)
		by.looks(nothing)
		c.loses(c.says(postTen), serves)
		beyond := c.frame(after(c.says(postTen), "0123456789"))
		c.sendFrame(beyond, nothing).is(t, tcxNext, beyond)
		nettest.Check(t, c.SendFrame(beyond))
		by.looks(nothing) // it was going on
		by.looks(nothing) // the same head may come again, and passes
		flows.since(c, 1)
		by.looks(pauses)
		res := c.send(c.says("POST /"), dropsFor("unfollowed").and(change{"flows": -1}))
		if res.verdict != tcxRedirect {
			t.Errorf("another head: verdict %d, want it refused", int32(res.verdict))
		}
	}
}

// Chunks that the stack has dropped come again: their request keeps its place for two seconds of that, however
// long it has been in service, and what comes then is compared with what was read.
func TestGateUntakenChunks(t *testing.T) {
	g := newGate(t)
	flows := g.entries(t, "flows", "flow")
	for _, base := range []string{lowBase, v6Base} {
		for _, again := range []bool{true, false} {
			r := g.room(t, "concurrency: 2")
			by, c := r.idle(t, base), r.idle(t, base)
			by.looks(nothing)
			begin := c.Next
			c.asks(chunkedPost+"5\r\nhe", serves)
			c.loses(c.says("llo\r\n"), nothing)
			flows.sinceAt(begin, 1)
			by.looks(nothing) // it was going on
			by.looks(nothing)
			if again {
				c.asks("llo\r\n", nothing)
				c.asks("0\r\n\r\n", nothing)
				c.replies(ok, ends)
				c.asks(get, serves)
				continue
			}
			flows.lacks(begin, 100)
			by.looks(pauses)
		}
	}
}

// lacks has the stack have lacked bytes of a request at so many looks.
func (e *entries) lacks(begin uint32, looks byte) {
	e.t.Helper()
	key, value := e.find("start", begin)
	value[e.at["lacks"]] = looks
	nettest.Check(e.t, e.m.Put(key, value))
}

// So it is with a head that the gate has acknowledged: it is put before the stack again, and at last rejected.
func TestGateUntakenInPieces(t *testing.T) {
	g := newGate(t)
	flows := g.entries(t, "flows", "flow")
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 2")
		by, c := r.idle(t, base), r.clientAt(t, base)
		by.looks(nothing)
		c.acknowledged(c.says(get[:10]), c.Next+10, gathers.and(known))
		c.send(after(c.says(get[:10]), get[10:]), turns) // and the stack loses it
		by.looks(nothing)
		r.kick(t, nothing).is(t, tcxRedirect, nil) // again, and loses it
		flows.since(c, 1)
		by.looks(pauses.and(change{"arrived": 1, "held": 1}))
		want := c.told(layers.TCP{Seq: c.Ack, Ack: c.Next + uint32(len(get)), PSH: true, FIN: true}, rejected)
		r.kick(t, rejects("no_server").and(change{"slots": -1, "flows": -1})).is(t, tcxRedirect, want)
	}
}

// A request of a SYN cookie that the gate has acknowledged is put before the listener until that has it: no SYN
// in its client's name, nor the daemon's sweep, ends it. What the listener does not take is rejected at last.
func TestGateUntakenCookie(t *testing.T) {
	g := smallGate(t, 16, 16)
	flows := g.entries(t, "flows", "flow")
	nettest.Check(t, g.rig.Server.Sysctl("ipv4/tcp_syncookies", "2"))
	defer func() { nettest.Check(t, g.rig.Server.Sysctl("ipv4/tcp_syncookies", "1")) }()
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 2")
		by, c := r.idle(t, base), r.clientAt(t, base)
		by.looks(nothing)
		c.acknowledged(c.says(get[:10]), c.Next+10, gathers.and(known))
		c.send(after(c.says(get[:10]), get[10:]), turns) // and the stack loses it
		flows.since(c, 1)
		c.drops(lab.Segment{Seq: c.Next + 1000, SYN: true}, dropsFor("forged"))
		r.expects(t, nothing, func() { nettest.Check(t, g.rig.Server.Do(g.Sweep)) })
		by.looks(pauses.and(change{"arrived": 1, "held": 1}))
		c.isTold(1000)
		want := c.told(layers.TCP{Seq: c.Ack, Ack: c.Next + uint32(len(get)), PSH: true, FIN: true}, rejected)
		r.kick(t, rejects("no_server").and(change{"slots": -1, "flows": -1})).is(t, tcxRedirect, want)
	}
}

// since has the client's request be in service since so many nanoseconds behind the boot of the machine.
func (e *entries) since(c *client, ns uint64) {
	e.t.Helper()
	e.sinceAt(c.Next, ns)
}

// sinceAt does the same with a request that begins at a sequence number.
func (e *entries) sinceAt(begin uint32, ns uint64) {
	e.t.Helper()
	key, value := e.find("start", begin)
	binary.NativeEndian.PutUint64(value[e.at["since"]:], ns)
	nettest.Check(e.t, e.m.Put(key, value))
}

// A ClientHello that the stack has dropped may name another server when it comes again: it is read anew.
func TestGateHelloAgain(t *testing.T) {
	g := newGate(t)
	flows := g.entries(t, "flows", "flow")
	h, other := hello(t), hello(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 2", "protocol: tls")
		c := r.clientAt(t, base)
		c.loses(c.says(h), serves.and(known))
		flows.since(c, ^uint64(0)>>1)
		c.drops(c.says(other), dropsFor("race")) // the first may be on its way
		flows.since(c, 1)
		gone := ends.and(change{"flows": -1})
		if res := c.sendFrame(c.bad(c.says(other)), dropsFor("race")); res.verdict != tcxDrop {
			t.Errorf("one with a wrong checksum: verdict %d", int32(res.verdict))
		}
		c.drops(c.says(other), dropsFor("race").and(gone))
		c.asks(other, serves.and(known))
		c.replies("hello, client", nothing)
		by := r.clientAt(t, base)
		by.asks(h, serves.and(known))
		by.replies("hello, client", nothing)
		by.looks(nothing)
		by.looks(change{"in service": -2, "served": 2})
	}
}

// kickPast kicks the room until it releases something, which it does at the same tick of the kernel's clock at
// which nothing else could be.
func (r *room) kickPast(t *testing.T, stuck, want change) result {
	t.Helper()
	f := syn("10.77.3.3:1", "10.77.0.1:1").bytes(t)
	slot := r.slot(t)
	for range 200 {
		before := r.reading(t)
		r.run(t, r.out, f, r.mark|markKick|slot).is(t, tcxDrop, nil)
		res := r.run(t, r.out, f, r.mark|markKick|slot)
		after := r.reading(t)
		if res.verdict == tcxDrop { // the next tick had come
			continue
		}
		for name, n := range stuck.and(want) {
			if after[name]-before[name] != n {
				t.Errorf("%s changes by %d, want %d", name, after[name]-before[name], n)
			}
		}
		res.mark = 0
		return res
	}
	t.Fatal("nothing is released")
	return result{}
}

// While the accept queue is full, requests of connections that the server has go on.
func TestGateCrowdedKept(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 2")
		kept, second := r.idle(t, base), r.idle(t, base)
		raw, err := r.listen.SyscallConn()
		nettest.Check(t, err)
		nettest.Check(t, raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) }))
		nettest.Check(t, err)
		filler, fresh := r.clientAt(t, base), r.clientAt(t, base)
		frame := filler.frame(filler.says(get))
		filler.send(filler.says(get), serves.and(known)).is(t, tcxNext, frame)
		nettest.Check(t, filler.SendFrame(frame)) // nobody accepts it
		_, err = filler.Await(patience, func(s *lab.Segment) bool { return s.ACK && !s.SYN && s.Ack == filler.Next+uint32(len(get)) })
		nettest.Check(t, err)
		second.asks(get, serves)
		fresh.drops(fresh.says(get), waits.and(known))
		kept.send(kept.says(get), waits).is(t, tcxNext, unpadded(kept.frame(kept.bare())))
		second.replies(ok, ends)
		kept.lands(r.kickPast(t, dropsFor("accept_queue"), releases))
		kept.Next += uint32(len(get))
		kept.replies(ok, ends)
		filler.reads(get)
		filler.Next += uint32(len(get))
		time.Sleep(20 * time.Millisecond) // the kernel's next tick
		fresh.released(fresh.frame(fresh.says(get)))
	}
}
