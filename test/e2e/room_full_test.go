// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// Beginnings of heads, more than there are slots, keep out nobody, not even those whose own heads come in pieces.
func TestRoomFullOfBeginnings(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false, "--slots", "64", "--flows", "512")
	s.origin(origin.Config{})
	r := s.enforce(roomPolicy{})
	r.loose = true
	for range 100 {
		r.visit(bronze).send("GET /")
	}
	eventually(t, "slots are full", func() bool { return r.read().Gathering >= 62 })
	for range 20 {
		v := r.visit(gold)
		v.pieces(cookies("/pieces", 1000), 10, 500)
		v.wants(http.StatusOK)
		r.once(gold)
	}
}

// More connections than can be followed, idle between two requests, keep out nobody, and can all go on.
func TestRoomFullOfIdle(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false, "--slots", "64", "--flows", "64")
	s.origin(origin.Config{})
	r := s.enforce(roomPolicy{})
	var idle []*visitor
	for range 200 {
		v := r.visit(bronze)
		v.get("/kept")
		v.wants(http.StatusOK)
		idle = append(idle, v)
	}
	for range 20 {
		r.once(gold)
	}
	for i, v := range idle {
		if i%2 == 0 {
			v.get("/again")
		} else {
			v.pieces(getRequest(v.host, "/again"), 3, 20)
		}
		v.wants(http.StatusOK)
	}
	idle[0].send("\x16\x03\x01 is no request\r\n\r\n")
	idle[0].wants(http.StatusBadRequest)
	r.refused[bronze]++
	r.calm()
}

// A head in pieces that the kernel would drop for its timestamps has no place and no slot.
func TestRoomOutdatedPieces(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.origin(origin.Config{})
	r := s.enforce(roomPolicy{})
	p := s.peer(bronze, 4000)
	nettest.Check(t, p.Connect(patience))
	head := ask("/old")
	nop := layers.TCPOption{OptionType: layers.TCPOptionKindNop}
	old := []layers.TCPOption{nop, nop, lab.Timestamps(1<<32-100_000, 0)}
	nettest.Check(t, p.SendSegment(lab.Segment{Seq: p.Next, Ack: p.Ack, ACK: true, PSH: true, Options: old, Payload: head[:10]}))
	nettest.Check(t, p.SendSegment(lab.Segment{Seq: p.Next + 10, Ack: p.Ack, ACK: true, PSH: true, Options: old, Payload: head[10:]}))
	nettest.Check(t, p.Silent(quiet, func(s *lab.Segment) bool { return s.Ack != p.Next }))
	if got := r.read(); got.InService+got.Waiting+got.Gathering > 0 {
		t.Errorf("%d in service, %d waiting, %d gathering, want none", got.InService, got.Waiting, got.Gathering)
	}
	nettest.Check(t, p.Send(head))
	concludes(t, p, http.StatusOK)
	r.calm()
}
