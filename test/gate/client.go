// SPDX-License-Identifier: Apache-2.0

package gate

/*
#include "native.h"
*/
import "C"

import (
	"bytes"
	"encoding/binary"
	"strconv"
)

// connect opens a connection: SYN, SYN-ACK, the end of the handshake.
func (w *world) connect(d *dice) *conn {
	var c *conn
	for i := range w.conns {
		if k := w.conns[(i+w.opened)%mostConns]; !k.open && (k.state == 0 || k.state == timeWait) {
			c = k
			break
		}
	}
	if c == nil {
		return nil
	}
	w.opened++
	generation := w.opened / mostConns % 3
	*c = conn{number: c.number, cookie: c.cookie, open: true, stream: c.stream[:0], spans: c.spans[:0], got: c.got[:0], more: c.more[:0], receiver: receiver{state: 0, out: c.out[:0]}}
	w.native.w.socket[c.number].state = 0
	i := c.number - 1
	class := byte(d.n(3))
	if d.in(12) {
		class = 255
	}
	c.ends = ends{v6: w.cfg.family == 6 || w.cfg.family == 0 && d.in(2), sport: uint16(64*100 + 64*generation + i), dport: port, fromMAC: 1, toMAC: 2}
	c.ends.from, c.ends.to = [16]byte{10, class, 0, byte(i), 1}, [16]byte{10, 0, 99, 1, 2}
	if !c.ends.v6 {
		clear(c.ends.from[4:])
		clear(c.ends.to[4:])
	}
	c.key = keyOf(&c.ends)
	c.isn, c.serverISN = uint32(d.word()), uint32(d.word())
	if w.native.w.cookies != 0 {
		c.serverISN = w.cookie(&c.key, c.isn)
	}
	c.liar = w.cfg.liars > 0 && d.in(w.cfg.liars)
	c.clock = d.in(3)
	w.script(c, d)
	w.logf(" connection %d: class %d, v6 %v, liar %v, %d requests, %d bytes, sends %d", c.number, class, c.ends.v6, c.liar, len(c.spans), len(c.stream), c.stall)
	w.sendIn(c, &segment{seq: c.isn, flags: flagSYN, sound: true}, meta{})
	w.settle()
	if c.rcv == 0 {
		c.open = false // nobody listens
		return c
	}
	w.sendIn(c, &segment{seq: c.isn + 1, ack: c.rcv, flags: flagACK, sound: true}, meta{})
	return c
}

func keyOf(e *ends) (k key) {
	word := func(b []byte) (w u64) {
		for _, x := range b[:8] {
			w = w<<8 | u64(x)
		}
		return w
	}
	k.peer[0], k.local[0] = word(e.from[:]), word(e.to[:])
	if e.v6 {
		k.peer[1], k.local[1] = word(e.from[8:]), word(e.to[8:])
		k.v6 = 1
	}
	k.peer_port, k.local_port = C.__u16(e.sport), C.__u16(e.dport)
	return k
}

// script chooses what the client has to say.
func (w *world) script(c *conn, d *dice) {
	for range 1 + d.n(4) {
		r := &requests[d.n(len(requests))]
		if w.cfg.odd && d.in(4) {
			r = &odd[d.n(len(odd))]
		}
		begin := len(c.stream)
		c.stream = append(c.stream, r.text...)
		c.spans = append(c.spans, span{begin, len(c.stream), r})
		if r.closes || r.tunnel || r.lost {
			break
		}
	}
	c.stall = len(c.stream)
	if d.in(6) {
		c.stall = d.n(len(c.stream))
	}
}

// allowed is how far the client goes for now: to the end of the request at hand, if it waits for
// answers.
func (w *world) allowed(c *conn) int {
	if w.cfg.pipelining {
		return min(c.stall, c.acked+window)
	}
	for i, s := range c.spans {
		if i == c.answered-1 && len(c.more) > 0 {
			return min(s.end, c.stall) // it has not got all of the answer
		}
		if i == c.answered || s.end > c.acked {
			if s.expect && !c.interim && i == c.answered {
				return min(s.begin+s.head, c.stall)
			}
			return min(s.end, c.stall)
		}
	}
	return c.stall
}

// speak sends bytes of the client's stream, in a segment with what the dice say of it.
func (w *world) speak(c *conn, d *dice) {
	most := w.allowed(c)
	begin := c.sent
	switch d.n(10) {
	case 0:
		begin = c.acked
	case 1:
		begin = d.n(c.sent + 1) // again
	case 2:
		begin = c.sent + d.n(2000) // beyond
	}
	if begin >= most {
		begin = c.acked
	}
	if begin >= most {
		return
	}
	size := 1448
	switch d.n(8) {
	case 0:
		size = 1
	case 1:
		size = 1 + d.n(16)
	case 2:
		size = 1 + d.n(600)
	case 3:
		size = 1 + d.n(16000)
	case 4:
		size = 16000
	}
	w.send(c, d, begin, min(begin+size, most))
}

// send sends stretches of the client's stream.
func (w *world) send(c *conn, d *dice, begin, end int) int {
	if !cutHeads {
		begin, end = c.wholeHead(begin, end)
	}
	if !mergeHeads {
		for _, s := range c.spans {
			if begin < s.begin+s.head && end > s.begin && s.head > 1448 {
				end = min(end, begin+1448)
			}
		}
	}
	end = min(end, begin+16000)
	s := segment{seq: c.isn + 1 + uint32(begin), ack: c.rcv, flags: flagACK | flagPSH, data: c.stream[begin:end], sound: true}
	if end == len(c.stream) && c.bye {
		s.flags |= flagFIN
	}
	m := meta{}
	if !w.quiet {
		switch d.n(25) {
		case 24:
			m.verified = 1
		case 0:
			s.sound = !corruptHeads && c.inHead(begin)
		case 1:
			m.partial = boolean(mixPartial || w.cfg.family != 0)
		case 2:
			m.linear = u32(c.ends.l4() + d.n(40))
		case 3:
			m.linear = u32(etherSize + d.n(80))
		case 4:
			m.vlan_present, m.vlan_proto, m.vlan_tci = 1, 0x0081, 5
		case 5:
			if len(s.data) > 1448 {
				m.gso_size = 1448
			}
		}
	}
	c.sent = max(c.sent, end)
	return w.sendIn(c, &s, m)
}

// wholeHead widens a stretch so that it has no part of a head alone.
func (c *conn) wholeHead(begin, end int) (int, int) {
	for _, s := range c.spans {
		if begin > s.begin && begin < s.begin+s.head {
			begin = s.begin
		}
		if end > s.begin && end < s.begin+s.head {
			end = s.begin + s.head
		}
	}
	return begin, end
}

// inHead says whether the byte is of a head.
func (c *conn) inHead(at int) bool {
	for _, s := range c.spans {
		if at >= s.begin && at < s.end {
			return at < s.begin+s.head
		}
	}
	return false
}

// toClient gives the client a packet of the server's, or of the gate in its place.
func (w *world) toClient(o *out, frame []byte) {
	var e ends
	var s segment
	ok := parse(frame, &e, &s)
	if !ok || !s.sound {
		w.fail("a malformed packet goes to a client: %x", frame[:min(len(frame), 80)])
		return
	}
	c := w.connOf(&e, true)
	if c == nil || !c.open {
		return
	}
	if o.own != 0 {
		w.logf("  gate to %d: %s", c.number, c.describe(&s, true))
		w.checkWindow(c, &s, frame)
		w.checkPage(c, &s)
		w.checkSACK(c, &s)
	}
	// A reset is not sent again to who has nothing to send: nobody would ever hear of it.
	last := s.flags&flagRST != 0 && c.acked == c.sent
	if w.cfg.loss > 0 && !w.quiet && s.flags&flagSYN == 0 && !last && (loseRejections || o.own == 0) && int(w.d.word()%uint64(w.cfg.loss)) == 0 {
		return
	}
	if c.reset { // there is no socket any more
		if s.flags&(flagRST|flagACK) == flagACK {
			w.pending = append(w.pending, action{kind: doIn, c: c, s: segment{seq: s.ack, flags: flagRST, sound: true}})
		}
		return
	}
	if s.flags&flagSYN != 0 {
		if s.ack == c.isn+1 && c.rcv == 0 {
			c.rcv, c.serverISN, c.paged = s.seq+1, s.seq, false
		}
		return
	}
	if s.flags&flagRST != 0 {
		if s.seq == c.rcv {
			c.reset = true
		}
		return
	}
	acked := int(int32(s.ack - c.isn - 1))
	most := c.sent
	if c.bye {
		most++
	}
	if acked > most && !c.liar && !c.forged {
		w.fail("client %d has sent %d bytes, and %d are acknowledged", c.number, most, acked)
	}
	if acked > most { // RFC 9293, 3.10.7.4
		return
	}
	c.acked = max(c.acked, min(acked, len(c.stream)))
	c.sent = max(c.sent, c.acked)
	acks := s.end() != s.seq && (w.quiet || w.d.word()%4 != 0)
	c.owes = !acks && (c.owes || s.end() != s.seq)
	if acks {
		defer func() {
			w.pending = append(w.pending, action{kind: doIn, c: c, s: segment{seq: c.isn + 1 + uint32(c.sent), ack: c.rcv, flags: flagACK, sound: true}})
		}()
	}
	if before(c.rcv, s.seq) || before(s.end(), c.rcv) {
		return
	}
	if skip := int(c.rcv - s.seq); skip < len(s.data) {
		c.rcv += uint32(len(s.data) - skip)
	}
	if s.flags&flagFIN != 0 && s.end()-1 == c.rcv && !c.ended {
		c.rcv++
		c.ended = true
	}
}

// checkPage looks whether what the gate says of a page is from where it belongs: there is but one that begins
// where the server's bytes end, and its lines say where they are.
func (w *world) checkPage(c *conn, s *segment) {
	line := bytes.IndexByte(s.data, '\n') + 1
	if line == 0 || len(s.data) < line+C.PAGE_LINE || s.data[0] < '0' || s.data[0] > '9' {
		return
	}
	begin := s.seq
	for i := line; i+C.PAGE_LINE <= len(s.data); i += C.PAGE_LINE {
		at, err := strconv.Atoi(string(s.data[i : i+C.PAGE_LINE-1]))
		base := s.seq + uint32(i) - uint32(at)
		if i == line {
			begin = base
		}
		if err != nil || base != begin {
			w.fail("client %d is told %q from byte %d on", c.number, s.data[i:i+C.PAGE_LINE], i)
			return
		}
	}
	if c.paged && c.page != begin {
		w.fail("client %d is told a page from %d on, and before from %d on", c.number, begin, c.page)
	}
	c.page, c.paged = begin, true
}

// checkSACK looks whether what the gate says to have come is what the client has sent beyond what is acknowledged.
func (w *world) checkSACK(c *conn, s *segment) {
	options := s.options
	if s.clock != 0 {
		options = options[12:]
	}
	if len(options) < 12 || binary.BigEndian.Uint32(options) != 0x0101050a || c.liar || c.forged {
		return
	}
	left, right := binary.BigEndian.Uint32(options[4:]), binary.BigEndian.Uint32(options[8:])
	if !before(s.ack, left) || !before(left, right) || int(int32(right-c.isn-1)) > c.sent {
		w.fail("client %d has sent %d bytes, and is told that %d to %d have come", c.number, c.sent, int32(left-c.isn-1), int32(right-c.isn-1))
	}
}

// checkWindow looks what the gate lets a client send whose request waits: no more than its slot takes.
func (w *world) checkWindow(c *conn, s *segment, frame []byte) {
	k, ok := w.flow(&c.key)
	if !ok || s.flags != flagACK || k.state != C.FLOW_HELD && k.state != C.FLOW_GATHERING {
		return
	}
	scaled := int(binary.BigEndian.Uint16(frame[c.ends.l4()+14:])) << C.WINDOW_SCALE
	room := w.cfg.slotSize - int(uint32(k.slot_end-k.slot_start))
	if k.state == C.FLOW_GATHERING {
		room = max(room, 1<<C.WINDOW_SCALE)
	}
	if scaled > room {
		w.fail("client %d is let send %d bytes where %d have room", c.number, scaled, room)
	}
}

// leave has the client close the connection.
func (w *world) leave(c *conn, reset bool) {
	s := segment{seq: c.isn + 1 + uint32(c.sent), ack: c.rcv, flags: flagACK | flagFIN, sound: true}
	if reset {
		s.flags = flagRST | flagACK
		c.reset = true
	} else {
		// It says no more than it has said.
		c.stream = c.stream[:c.sent]
		c.stall = min(c.stall, c.sent)
		c.bye = true
	}
	w.sendIn(c, &s, meta{})
}
