// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"testing"

	"narthex/internal/lab"
)

// recalls counts that bytes that had come too early come in their turn.
var recalls = passesFor("recalled")

// acks is a segment that only says that all has come; its sequence number is behind what its client has sent.
func (c *client) acks(sent int) lab.Segment {
	return lab.Segment{Seq: c.Next + uint32(sent), Ack: c.Ack, ACK: true, Window: 500}
}

// takes sends a segment by which the client acknowledges an answer, and with which a request comes that was kept.
func (c *client) takes(s lab.Segment, request string, want change) {
	c.t.Helper()
	out := s
	out.Seq, out.Payload = c.Next, []byte(request)
	c.passesAs(c.frame(s), c.frame(out), want)
	c.Next += uint32(len(request))
}

// What a client has sent behind a request comes when it has acknowledged the answer, one request at a time.
func TestGateRecalls(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		for _, kept := range []bool{false, true} {
			r := g.room(t, "concurrency: 1")
			c, fresh := r.clientAt(t, base), known
			if kept {
				c.asks(get, serves.and(known))
				c.replies(ok, ends)
				fresh = nothing
			}
			second, third := post("0123456789"), "GET /odd HTTP/1.1\r\nHost: x\r\n\r\n"
			s, want := c.says(get+second+third), c.says(get)
			want.PSH = false
			c.passesAs(c.frame(s), c.frame(want), serves.and(fresh, passesFor("cut")))
			c.Next += uint32(len(get))
			rest := len(second + third)
			c.passes(c.acks(rest), nothing) // the answer has not come
			c.replies(ok, ends)
			c.takes(c.acks(rest), second, serves.and(recalls, passesFor("cut")))
			c.replies(ok, ends)
			more := c.says(third + get[:4])
			more.Seq, more.Payload = more.Seq+uint32(len(third)), more.Payload[len(third):] // goes on behind what is kept
			more.PSH = false
			c.takes(more, third, serves.and(recalls, passesFor("cut")))
			c.replies(ok, ends)
			c.acknowledged(c.acks(4), c.Next+4, gathers.and(recalls))
		}
	}
}

// So it does behind a request that had to wait.
func TestGateRecallsBehindHeld(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1")
		first, c := r.client(t), r.clientAt(t, base)
		first.asks(get, serves.and(known))
		second := post("0123456789")
		s := c.says(get + second)
		c.acknowledged(s, c.Next+uint32(len(get)), waits.and(known))
		first.replies(ok, ends)
		whole := c.says(get)
		whole.PSH = false
		c.releasedKept(c.frame(whole))
		c.Next += uint32(len(get))
		c.replies(ok, endsKept)
		c.takes(c.acks(len(second)), second, serves.and(recalls))
	}
}

// Nothing is kept that its client has not sent, or that may not be what it sent; and nothing comes before the whole
// answer was acknowledged.
func TestGateRecallsNothingElse(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1")
	c := r.idle(t, lowBase)
	c.asks(get, serves)
	c.sendFrame(c.bad(c.says(get)), dropsFor("checksum")).is(t, tcxDrop, nil)
	s := c.says(get)
	s.Ack++ // of what the server has not said
	c.drops(s, dropsFor("pipelined"))
	c.replies(ok, ends)
	c.passes(c.acks(len(get)), nothing)
	c.asks(get, serves)
	c.drops(c.says(get), dropsFor("pipelined"))
	c.replies(ok, ends)
	s = c.acks(len(get))
	s.Ack--
	c.passes(s, nothing)
	if res := c.sendFrame(c.bad(c.acks(len(get))), nothing); res.verdict != tcxNext {
		t.Errorf("verdict %d, want %d", int32(res.verdict), tcxNext)
	}
	c.takes(c.acks(len(get)), get, serves.and(recalls))
}

// Where nothing can wait all passes as it comes, and there is nothing to keep.
func TestGateKeepsNothingThatPasses(t *testing.T) {
	g := newGate(t)
	flows := g.entries(t, "flows", "flow")
	for _, room := range []string{"concurrency: 1", unlimited} {
		r := g.room(t, room)
		c := r.client(t)
		s, want := c.says(get+get), serves.and(known)
		next := c.Next + uint32(len(get))
		strict := room != unlimited
		if strict {
			cut := c.says(get)
			cut.PSH = false
			c.passesAs(c.frame(s), c.frame(cut), want.and(passesFor("cut")))
		} else {
			c.passes(s, want)
		}
		_, value := flows.find("next", next)
		if kept := value[flows.at["early"]] == 1; kept != strict {
			t.Errorf("%s: bytes are kept: %v, want %v", room, kept, strict)
		}
	}
}
