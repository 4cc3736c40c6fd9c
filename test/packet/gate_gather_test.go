// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"narthex/internal/datapath"
	"narthex/internal/lab"
)

const (
	badRequest = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	tooLarge   = "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

// Changes of requests that come in pieces.
var (
	gathered   = dropsFor("gathered")
	gathers    = gathered.and(change{"gathering": 1, "slots": 1})
	turns      = change{"gathering": -1}.and(serves) // and its slot is kept
	turnsHeld  = gathered.and(change{"gathering": -1}, waits, change{"slots": -1})
	scatters   = change{"gathering": -1, "slots": -1, "flows": -1}
	endsKept   = ends.and(change{"slots": -1})
	releaseAll = releases.and(change{"slots": 1}) // its slot is kept
)

// acknowledged sends a segment to the gate, which has to keep it and say that it has all up to
// a number.
func (c *client) acknowledged(s lab.Segment, end uint32, want change) {
	c.t.Helper()
	res := c.send(s, want)
	_, tcp := sound(c.t, res.frame)
	scale := 0
	if option, ok := c.SYNACK.Option(layers.TCPOptionKindWindowScale); ok {
		scale = int(option[0])
	}
	if room := int(tcp.Window) << scale; room > datapath.DefaultSlotSize {
		c.t.Errorf("the client may send %d bytes more, and a slot takes %d", room, datapath.DefaultSlotSize)
	}
	res.is(c.t, tcxRedirect, c.toldWindow(layers.TCP{Seq: s.Ack, Ack: end, Window: tcp.Window}, "", echoed(s)...))
}

// echoed are the options of our answer to a segment.
func echoed(s lab.Segment) []layers.TCPOption {
	for _, o := range s.Options {
		if o.OptionType == layers.TCPOptionKindTimestamps {
			nop := layers.TCPOption{OptionType: layers.TCPOptionKindNop}
			swapped := layers.TCPOption{OptionType: o.OptionType, OptionLength: 10, OptionData: append(append([]byte{}, o.OptionData[4:]...), o.OptionData[:4]...)}
			return []layers.TCPOption{nop, nop, swapped}
		}
	}
	return nil
}

// pieces are heads in pieces, and what the server gets of them at once.
var pieces = []struct {
	name  string
	parts []string
	whole string
}{
	{"two", []string{"G", "ET / HTTP/1.1\r\nHost: x\r\n\r\n"}, get},
	{"many", []string{"G", "ET / HTTP/1.1\r", "\nHost: x\r\n", "\r\n"}, get},
	{"odd lengths", []string{"GET /1", "23 HTTP/1.1\r\nHost:", " x\r\n\r\n"}, "GET /123 HTTP/1.1\r\nHost: x\r\n\r\n"},
	{"the last byte", []string{get[:len(get)-1], "\n"}, get},
	{"body behind", []string{"POST / HTTP/1.1\r\nHost: x\r\nContent-Le", "ngth: 10\r\n\r\n0123"}, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123"},
	{"pipelined behind", []string{"GET / HTTP/1.1\r\nHost: x", "\r\n\r\n" + get}, get},
	{"chunks behind", []string{"POST / HTTP/1.1\r\nTransfer-Encoding: chu", "nked\r\n\r\n3\r\na"}, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na"},
	{"empty lines before", []string{"\r\n", "\r\nGET / HTTP/1.1\r\n", "\r\n"}, "\r\n\r\nGET / HTTP/1.1\r\n\r\n"},
}

// What comes of a head is kept and acknowledged, and put before the stack when it is whole.
func TestGateGathers(t *testing.T) {
	g := newGate(t)
	for _, c := range pieces {
		for _, base := range []string{lowBase, v6Base} {
			for _, stamped := range []bool{false, true} {
				for _, kept := range []bool{false, true} {
					if kept && strings.HasPrefix(c.whole, "\r\n") {
						continue // empty lines behind a request are nothing
					}
					t.Run(fmt.Sprintf("%s/%s/timestamps=%v/kept=%v", c.name, base, stamped, kept), func(t *testing.T) {
						for _, held := range []bool{false, true} {
							r := g.room(t, "concurrency: 1")
							p, first := r.clientAt(t, base), r.client(t)
							fresh := known
							if kept {
								p.asks(get, serves.and(known))
								p.replies(ok, ends)
								fresh = nothing
							}
							if held {
								first.asks(get, serves.and(known))
							}
							p.gather(c.parts, c.whole, stamped, held, fresh)
							if held {
								first.replies(ok, ends)
								whole := p.whole(c.parts, c.whole, stamped)
								p.releasedKept(p.frame(whole))
							}
							p.Next += uint32(len(c.whole))
							p.replies(ok, endsKept)
						}
					})
				}
			}
		}
	}
}

// stamp gives a segment timestamps if it is to have some.
func stamp(s lab.Segment, stamped bool, at uint32) lab.Segment {
	if stamped {
		nop := layers.TCPOption{OptionType: layers.TCPOptionKindNop}
		s.Options = []layers.TCPOption{nop, nop, lab.Timestamps(at, 5)}
	}
	return s
}

// whole is the segment that the gate makes of pieces.
func (c *client) whole(parts []string, whole string, stamped bool) lab.Segment {
	return stamp(c.says(whole), stamped, 1000+uint32(len(parts)))
}

// gather sends a head in pieces, each more than once.
func (c *client) gather(parts []string, whole string, stamped, held bool, fresh change) {
	c.t.Helper()
	begin := c.says("")
	s := begin
	for i, part := range parts {
		s = stamp(after(s, part), stamped, 1001+uint32(i))
		end := s.Seq + uint32(len(part))
		last := i == len(parts)-1
		switch {
		case last && held:
			c.acknowledged(s, begin.Seq+uint32(len(whole)), turnsHeld)
		case last:
			res := c.send(s, turns)
			res.is(c.t, tcxNext, c.frame(c.whole(parts, whole, stamped)))
			c.lands(res)
		default:
			want := gathered
			if i == 0 {
				want = gathers.and(fresh)
			}
			c.acknowledged(s, end, want)
			c.acknowledged(s, end, dropsFor("held"))                        // our acknowledgement was lost
			c.acknowledged(after(after(s, "x"), "x"), end, dropsFor("gap")) // a segment was
			bare := s
			bare.Seq, bare.Payload, bare.PSH = end, nil, false
			if fresh["flows"] > 0 {
				c.drops(bare, dropsFor("held"))
			} else {
				c.passes(bare, nothing)
			}
		}
	}
	switch goesOn := strings.HasPrefix(whole, "POST"); {
	case held && goesOn && fresh["flows"] == 0:
		c.drops(s, dropsFor("held")) // again: the rest is acknowledged by the stack alone, when it has this
	case held:
		c.acknowledged(s, begin.Seq+uint32(len(whole)), dropsFor("held")) // again
	}
}

// releasedKept is released for a request of which the gate has the only copy.
func (c *client) releasedKept(frame []byte) {
	c.t.Helper()
	res := c.r.kick(c.t, releaseAll)
	res.mark = 0
	res.is(c.t, tcxRedirect, unpadded(frame))
	c.lands(res)
}

// Beside a head that gathers others are served, whoever they are.
func TestGateGatherersStandAside(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1")
	slow, other := r.clientAt(t, highBase), r.client(t)
	s := slow.says(get[:10])
	slow.acknowledged(s, s.Seq+10, gathers.and(known))
	other.asks(get, serves.and(known))
	third := r.client(t)
	third.drops(third.says(get), waits.and(known))
	slow.acknowledged(after(s, get[10:]), s.Seq+uint32(len(get)), turnsHeld)
	other.replies(ok, ends)
	slow.releasedKept(slow.frame(slow.says(get)))
	slow.Next += uint32(len(get))
	slow.replies(ok, endsKept)
	third.released(third.frame(third.says(get)))
}

// The end of a head may bring what is none for the server.
func TestGateRefusesPieces(t *testing.T) {
	g := newGate(t)
	for _, c := range []struct {
		name, why, text string
		parts           []string
	}{
		{"malformed", "malformed", badRequest, []string{"POST / HTTP/1.1\r\nContent-Length: 3\r\n", "Content-Length: 4\r\n\r\nabc"}},
		{"malformed in its last piece but one", "malformed", badRequest, []string{"GET / HT", "TP/1.1\r\nHo st: x\r\n"}},
		{"h2c", "h2c", badRequest, []string{"GET / HTTP/1.1\r\nUpgrade: x\r\nConnection: upgrade, http2-settings\r\nUpgrade: ", "h2c\r\n\r\n"}},
		{"preface", "h2c", badRequest, []string{"PRI * HT", "TP/2.0\r\n\r\nSM\r\n\r\n"}},
	} {
		for _, base := range []string{lowBase, v6Base} {
			t.Run(c.name+" "+base, func(t *testing.T) {
				r := g.room(t, "concurrency: 1")
				p := r.clientAt(t, base)
				s := p.says(c.parts[0])
				p.acknowledged(s, s.Seq+uint32(len(c.parts[0])), gathers.and(known))
				s = after(s, c.parts[1])
				end := s.Seq + uint32(len(c.parts[1]))
				res := p.send(s, scatters.and(rejects(c.why)))
				res.is(t, tcxRedirect, p.told(layers.TCP{Seq: p.Ack, Ack: end, PSH: true, FIN: true}, c.text))
				p.isGone()
			})
		}
	}
}

// refused are requests that are answered in the server's place, whether there is room or not.
var refused = []struct{ name, why, request string }{
	{"two lengths", "malformed", "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc"},
	{"length and chunks", "malformed", "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"},
	{"no HTTP", "malformed", "\x16\x03\x01 no HTTP at all"},
	{"HTTP/2", "malformed", "GET / HTTP/2.0\r\n\r\n"},
	{"folded", "malformed", "GET / HTTP/1.1\r\nX: y\r\n z\r\n\r\n"},
	{"preface", "h2c", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
	{"two upgrades", "h2c", "GET / HTTP/1.1\r\nConnection: upgrade, http2-settings\r\nUpgrade: h2c\r\nUpgrade: x\r\n\r\n"},
}

// What is none for the server is answered at once, on new connections and on others.
func TestGateRefuses(t *testing.T) {
	g := newGate(t)
	for _, c := range refused {
		for _, base := range []string{lowBase, v6Base} {
			for _, held := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/held=%v", c.name, base, held), func(t *testing.T) {
					r := g.room(t, "concurrency: 1")
					idle, first, p := r.idle(t, base), r.client(t), r.clientAt(t, base)
					if held {
						first.asks(get, serves.and(known))
					}
					for _, p := range []*client{p, idle} {
						want := rejects(c.why)
						if p == idle {
							want = want.and(change{"flows": -1})
						}
						end := p.Next + uint32(len(c.request))
						res := p.send(p.says(c.request), want)
						res.is(t, tcxRedirect, p.told(layers.TCP{Seq: p.Ack, Ack: end, PSH: true, FIN: true}, badRequest))
						if p.conn == nil {
							p.isGone()
						}
					}
				})
			}
		}
	}
}

// Where nothing can wait nothing is refused.
func TestGateLenientRefusesNothing(t *testing.T) {
	g := newGate(t)
	for _, c := range refused {
		r := g.room(t, unlimited)
		p := r.idle(t, lowBase)
		f := p.frame(p.says(c.request))
		before := r.reading(t)
		r.run(t, g.in, f, 0).is(t, tcxNext, f)
		if n := r.reading(t)["rejected "+c.why]; n != before["rejected "+c.why] {
			t.Errorf("%s: rejected", c.name)
		}
	}
}

// A head that is longer than a slot.
func TestGateTooLarge(t *testing.T) {
	g := smallGate(t, 4, 8)
	long := "GET / HTTP/1.1\r\nX: " + strings.Repeat("y", datapath.MinSlotSize)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1")
		p := r.clientAt(t, base)
		s := p.says(long)
		res := p.send(s, rejects("too_large"))
		res.is(t, tcxRedirect, p.told(layers.TCP{Seq: p.Ack, Ack: s.Seq + uint32(len(long)), PSH: true, FIN: true}, tooLarge))
		p.isGone()
		p = r.clientAt(t, base)
		s = p.says(long[:1500])
		p.acknowledged(s, s.Seq+1500, gathers.and(known))
		s = after(s, long[1500:])
		res = p.send(s, scatters.and(rejects("too_large")))
		res.is(t, tcxRedirect, p.told(layers.TCP{Seq: p.Ack, Ack: s.Seq + uint32(len(s.Payload)), PSH: true, FIN: true}, tooLarge))
		p.isGone()
		// Of a whole head with a long body the slot has what there is room for.
		p = r.clientAt(t, base)
		p.asks("POST / HTTP/1.1\r\nContent-Length: 10000\r\n\r\n"+strings.Repeat("y", 3000), serves.and(known))
	}
}

// Ends of connections whose head gathers.
func TestGateGathererGoes(t *testing.T) {
	g := newGate(t)
	const part = "GET / HT"
	size := uint32(len(part))
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1")
		begin := func() *client {
			c := r.clientAt(t, base)
			c.acknowledged(c.says(part), c.Next+size, gathers.and(known))
			return c
		}
		c := begin()
		for _, by := range []uint32{^uint32(0), 1, size + 1, 1 << 20} {
			c.drops(lab.Segment{Seq: c.Next + by, RST: true}, dropsFor("forged"))
			res := c.send(lab.Segment{Seq: c.Next + by, Ack: c.Ack, ACK: true, FIN: true}, dropsFor("held"))
			res.is(t, tcxDrop, nil)
		}
		c.send(lab.Segment{Seq: c.Next + size, Ack: c.Ack, ACK: true, RST: true}, scatters).is(t, tcxNext, c.resets(c.Next))
		c = begin()
		c.send(lab.Segment{Seq: c.Next, Ack: c.Ack, ACK: true, RST: true}, scatters).is(t, tcxNext, c.resets(c.Next))
		c = begin()
		res := c.send(lab.Segment{Seq: c.Next + size, Ack: c.Ack, ACK: true, FIN: true}, scatters)
		res.is(t, tcxRedirect, c.told(layers.TCP{FIN: true, Seq: c.Ack, Ack: c.Next + size + 1}, ""))
		c.isGone()
	}
}

// A piece with a wrong checksum is none.
func TestGatePieceWrongChecksum(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1")
	c := r.client(t)
	s := c.says(get[:10])
	c.acknowledged(s, s.Seq+10, gathers.and(known))
	bad := c.frame(after(s, get[10:]))
	bad[len(bad)-1] ^= 1
	c.sendFrame(bad, dropsFor("checksum")).is(t, tcxDrop, nil)
	res := c.send(after(s, get[10:]), turns)
	res.is(t, tcxNext, c.frame(c.says(get)))
	c.lands(res)
	c.Next += uint32(len(get))
	c.replies(ok, endsKept)
}

// Rejections of those that gather.
func TestGateGathererRejected(t *testing.T) {
	g := newGate(t)
	gone := change{"slots": -1, "flows": -1}
	answered := func(c *client, n uint32, res result) {
		t.Helper()
		res.is(t, tcxRedirect, c.told(layers.TCP{Seq: c.Ack, Ack: c.Next + n, PSH: true, FIN: true}, rejected))
		c.isGone()
	}
	t.Run("max_wait", func(t *testing.T) {
		r := g.room(t, "concurrency: 1", "queue: {max_wait: 1ms}")
		c := r.client(t)
		c.acknowledged(c.says(get[:10]), c.Next+10, gathers.and(known))
		answered(c, 10, r.outwaits(t, gone.and(rejects("max_wait"), change{"gathering": -1})))
	})
	t.Run("displaced", func(t *testing.T) {
		r, first := g.busy(t, "queue: {size: 2}")
		high, low := r.clientAt(t, highBase), r.client(t)
		high.acknowledged(high.says(get[:10]), high.Next+10, gathers.and(known))
		low.acknowledged(low.says(get[:10]), low.Next+10, gathers.and(known))
		third := r.client(t)
		third.drops(third.says(get), waits.and(known, change{"gathering": -1}))
		answered(high, 10, r.kick(t, gone.and(rejects("displaced"))))
		fourth := r.client(t)
		fourth.acknowledged(fourth.says(get[:5]), fourth.Next+5, gathers.and(known, change{"gathering": -1}))
		answered(low, 10, r.kick(t, gone.and(rejects("displaced"))))
		r.kick(t, nothing).is(t, tcxDrop, nil)
		first.replies(ok, ends)
		third.released(third.frame(third.says(get)))
		fourth.send(lab.Segment{Seq: fourth.Next, RST: true}, scatters).is(t, tcxNext, nil)
	})
	t.Run("full of others", func(t *testing.T) {
		r, _ := g.busy(t, "queue: {size: 1}")
		c := r.client(t)
		c.drops(c.says(get), waits.and(known))
		low := r.client(t)
		low.send(low.says(get[:10]), rejects("queue_full")).is(t, tcxRedirect, nil)
		low.isGone()
	})
	t.Run("closed", func(t *testing.T) {
		r := g.room(t, "concurrency: 1")
		c := r.idle(t, lowBase)
		c.acknowledged(c.says(get[:10]), c.Next+10, gathers)
		c.answers(layers.TCP{FIN: true, ACK: true, Seq: c.Ack, Ack: c.Next}, "", change{"gathering": -1}).is(t, tcxDrop, nil)
		res := r.kick(t, gone.and(rejects("closed")))
		res.is(t, tcxRedirect, c.told(layers.TCP{Seq: c.Ack, Ack: c.Next + 10, PSH: true, FIN: true}, rejected))
	})
	t.Run("no_slot", func(t *testing.T) {
		g := smallGate(t, 1, 4)
		r := g.room(t, "concurrency: 1")
		c, other := r.client(t), r.client(t)
		c.acknowledged(c.says(get[:10]), c.Next+10, gathers.and(known))
		other.send(other.says(get[:10]), rejects("no_slot")).is(t, tcxRedirect, nil)
		other.isGone()
	})
}

// What the gate has acknowledged it puts before the stack again, until that has it.
func TestGateKeepsUntilTaken(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1")
		c := r.clientAt(t, base)
		c.acknowledged(c.says(get[:10]), c.Next+10, gathers.and(known))
		whole := c.frame(c.says(get))
		c.send(after(c.says(get[:10]), get[10:]), turns).is(t, tcxNext, whole) // and the stack loses it
		time.Sleep(250 * time.Millisecond)
		// Somebody else's packet finds out.
		other := r.client(t)
		other.drops(other.says(get), waits.and(known))
		res := r.kick(t, nothing)
		res.mark = 0
		res.is(t, tcxRedirect, whole)
		c.lands(res)
		time.Sleep(250 * time.Millisecond)
		other.drops(other.says(get), dropsFor("held").and(change{"slots": -1})) // it has
		r.kick(t, nothing).is(t, tcxDrop, nil)
		c.Next += uint32(len(get))
		c.replies(ok, ends)
		other.released(other.frame(other.says(get)))
	}
}
