// SPDX-License-Identifier: Apache-2.0

package gate

import "bytes"

// The server's stack, as far as the gate can tell it from Linux: request sockets, SYN cookies, an
// accept queue, exact checks of what a segment may do, bytes that come before their turn.

// window is how many bytes beyond the next the stack keeps.
const window = 65535

// piece are bytes that have come before their turn.
type piece struct {
	seq  uint32
	data []byte
}

// receiver is the half of a connection that the stack has of what its client says.
type receiver struct {
	state   int
	next    uint32 // of the client's bytes
	pieces  []piece
	una     uint32 // the first of the server's bytes that the client has not acknowledged
	nxt     uint32 // behind what was sent
	out     []byte // from una on
	fin     bool   // follows out
	finned  bool   // the client's was taken
	paws    uint32 // the client's last timestamp
	waiting bool   // in the accept queue
	was     int    // the state before it was closed
	came    uint32 // when the client's last bytes came
	went    uint32 // when the server's last went
}

// show tells the programs what has become of the socket.
func (w *world) show(c *conn) {
	s := &w.native.w.socket[c.number]
	s.key = c.key
	s.state = u32(c.state)
	s.rcv_nxt, s.snd_nxt, s.snd_una = u32(c.next), u32(c.nxt), u32(c.una)
	s.window = window
	s.gap = boolean(len(c.pieces) > 0)
	for i, p := range c.pieces {
		if i == 0 || before(p.seq, uint32(s.beyond)) {
			s.beyond = u32(p.seq)
		}
	}
	s.received = u32(len(c.got))
	s.heard, s.said = u32(c.came), u32(c.went)
}

// toStack gives the stack a segment that has passed the gate.
func (w *world) toStack(o *out, frame []byte) {
	var e ends
	var s segment
	m, whole := o.meta, parse(frame, &e, &s)
	trusted := m.partial != 0 || m.verified != 0 || m.gso_size != 0
	wrong := !whole || !s.sound && m.gso_size == 0 && (m.partial == 0 || !s.left)
	if !whole || !s.sound && !trusted || wrong && o.own != 0 {
		if o.own != 0 {
			w.fail("the gate puts a malformed packet before the stack: %x", frame[:min(len(frame), 80)])
		}
		return
	}
	c := w.connOf(&e, false)
	if c == nil {
		w.logf("  to nobody: %+v", e)
		return
	}
	if o.own != 0 {
		w.logf("  gate to stack %d: %s", c.number, c.describe(&s, false))
	}
	if s.clock != 0 && s.flags&flagRST == 0 && c.state != 0 {
		if before(s.clock, c.paws) {
			w.ack(c)
			return
		}
	}
	switch {
	case c.state == 0 || c.state == timeWait:
		w.toListener(c, &s)
	case c.state == synReceived:
		w.toRequest(c, &s)
	case c.state == closed: // no segment finds it any more
		w.refuse(c, &s)
	default:
		w.toSocket(c, &s)
	}
	if c.state != 0 {
		w.show(c)
	}
}

// toListener is for a segment of no connection.
func (w *world) toListener(c *conn, s *segment) {
	if s.flags&(flagSYN|flagACK) == flagSYN && !w.closedListener {
		c.receiver = receiver{next: s.seq + 1, out: c.out[:0], pieces: c.pieces[:0], paws: s.clock}
		if w.native.w.cookies != 0 {
			c.nxt = w.native.cookie(&c.key, s.seq) + 1
		} else {
			c.state = synReceived
			c.nxt = c.serverISN + 1
		}
		c.una = c.nxt
		c.cookie++
		w.native.w.socket[c.number].cookie = u64(c.cookie)<<8 | u64(c.number)
		w.say(c, segment{seq: c.nxt - 1, ack: c.next, flags: flagSYN | flagACK})
		return
	}
	if s.flags&(flagSYN|flagACK|flagRST) == flagACK && w.native.w.cookies != 0 && w.native.cookie(&c.key, s.seq-1) == s.ack-1 && c.state == 0 && !w.closedListener {
		c.receiver = receiver{next: s.seq, nxt: s.ack, una: s.ack, out: c.out[:0], pieces: c.pieces[:0]}
		c.got, c.more, c.at, c.done = nil, nil, framing{}, 0 // of what the cookie has been before
		c.begun, c.closing, c.interim, c.tunnel = false, false, false, false
		w.establish(c, s)
		return
	}
	w.refuse(c, s)
}

// refuse answers a segment of no connection.
func (w *world) refuse(c *conn, s *segment) {
	if s.flags&(flagSYN|flagACK|flagRST) == flagACK {
		w.say(c, segment{seq: s.ack, flags: flagRST})
	}
}

// toRequest is for a segment of a connection that is not established.
func (w *world) toRequest(c *conn, s *segment) {
	switch {
	case s.flags&flagSYN != 0:
		if s.seq+1 == c.next && s.flags&flagACK == 0 {
			w.say(c, segment{seq: c.nxt - 1, ack: c.next, flags: flagSYN | flagACK})
		}
	case s.seq-c.next > window:
		w.ack(c)
	case s.flags&flagRST != 0:
		c.state = 0
		w.native.w.socket[c.number].state = 0
	case s.flags&flagACK == 0:
	case s.ack != c.nxt && !strayResets:
	case s.ack != c.nxt:
		w.say(c, segment{seq: s.ack, flags: flagRST})
	case w.closedListener:
		c.state = 0
		w.native.w.socket[c.number].state = 0
		w.say(c, segment{seq: s.ack, flags: flagRST})
	default:
		w.establish(c, s)
	}
}

// establish makes a connection of it, if the accept queue has room.
func (w *world) establish(c *conn, s *segment) {
	if w.backlogged > w.maxBacklog {
		w.overflows++
		return
	}
	c.state = established
	w.native.w.socket[c.number].err, w.native.w.socket[c.number].shut = 0, 0
	c.waiting = true
	w.backlogged++
	w.showListener()
	w.show(c)
	w.pending = append(w.pending, action{kind: doEstablished, c: c})
	w.toSocket(c, s)
}

func (w *world) showListener() {
	l := &w.native.w.socket[0]
	l.state = listening
	if w.closedListener {
		l.state = closed
	}
	l.key.local_port = port
	l.backlog, l.max_backlog = u32(w.backlogged), u32(w.maxBacklog)
}

// toSocket is for a segment of an established connection (RFC 9293, 3.10.7.4).
func (w *world) toSocket(c *conn, s *segment) {
	end := s.end()
	if before(end, c.next) || s.seq-c.next > window && before(c.next, s.seq) {
		if s.flags&flagRST == 0 {
			w.ack(c)
		}
		return
	}
	if s.flags&flagRST != 0 {
		if s.seq == c.next {
			w.closeSocket(c, true)
		} else {
			w.ack(c) // a challenge (RFC 5961)
		}
		return
	}
	if s.flags&flagSYN != 0 {
		w.ack(c)
		return
	}
	if s.flags&flagACK == 0 || before(c.nxt, s.ack) {
		return
	}
	if before(c.una, s.ack) {
		n := int(s.ack - c.una)
		c.una = s.ack
		c.out = c.out[min(n, len(c.out)):]
		if n > 0 && c.fin && c.una == c.nxt && c.finSent {
			w.finAcked(c)
		}
	}
	if s.clock != 0 && !before(c.next, s.seq) {
		c.paws = s.clock
	}
	if c.state == closed || c.state == 0 || c.state == timeWait {
		return
	}
	w.take(c, s)
	for again := true; again && c.state != closed; {
		again = false
		for i := 0; i < len(c.pieces); i++ {
			p := c.pieces[i]
			if before(c.next, p.seq) {
				continue
			}
			if !before(p.seq+uint32(len(p.data)), c.next) {
				w.deliver(c, p.data[c.next-p.seq:])
			}
			c.pieces = append(c.pieces[:i], c.pieces[i+1:]...)
			again = true
			break
		}
	}
	if s.flags&flagFIN != 0 && end-1 == c.next && !c.finned && c.state != closed {
		c.finned = true
		c.next++
		switch c.state {
		case established:
			c.state = closeWait
		case finWait:
			if c.una == c.nxt {
				w.closeSocket(c, false)
				c.state = timeWait
			} else {
				c.state = lastAck // or CLOSING: both end with the acknowledgement
			}
		}
	}
	if (len(s.data) > 0 || s.flags&flagFIN != 0) && c.state != 0 && c.state != closed {
		w.ack(c)
	}
}

// take keeps a segment's bytes.
func (w *world) take(c *conn, s *segment) {
	if len(s.data) == 0 || c.finned {
		return
	}
	if before(c.next, s.seq) {
		if len(c.pieces) < 16 {
			c.pieces = append(c.pieces, piece{s.seq, bytes.Clone(s.data)})
		}
		return
	}
	if skip := c.next - s.seq; int(skip) < len(s.data) {
		w.deliver(c, s.data[skip:])
	}
}

// deliver gives the server bytes.
func (w *world) deliver(c *conn, b []byte) {
	if len(b) == 0 {
		return
	}
	c.next += uint32(len(b))
	c.came = w.tick()
	if c.serverClosed {
		w.say(c, segment{seq: c.nxt, flags: flagRST})
		w.closeSocket(c, false)
		return
	}
	w.read(c, b)
}

// closeSocket ends the socket.
func (w *world) closeSocket(c *conn, wasReset bool) {
	s := &w.native.w.socket[c.number]
	w.show(c)
	s.err, s.shut = 0, 1
	if wasReset {
		s.err, s.shut = 104, 0
	}
	c.was, c.state = c.state, closed
	if c.waiting {
		c.waiting = false
		w.backlogged--
		w.showListener()
	}
	w.pending = append(w.pending, action{kind: doClosed, c: c})
}

// finAcked is for the acknowledgement of the server's FIN.
func (w *world) finAcked(c *conn) {
	if c.state == lastAck || c.finned {
		w.closeSocket(c, false)
	}
}

// ack has the stack acknowledge what it has.
func (w *world) ack(c *conn) {
	if c.state == 0 || c.state == closed {
		return
	}
	w.say(c, segment{seq: c.nxt, ack: c.next, flags: flagACK})
}

// say has the stack send a segment.
func (w *world) say(c *conn, s segment) {
	if s.flags&flagRST == 0 {
		s.flags |= flagACK
	}
	w.pending = append(w.pending, action{kind: doOut, c: c, s: s})
}

// write has the server say something, in pieces of so many bytes.
func (w *world) write(c *conn, b []byte, size int) {
	if c.state != established && c.state != closeWait || c.fin {
		return
	}
	c.out = append(c.out, b...)
	for len(b) > 0 {
		n := min(size, len(b))
		c.went = w.tick()
		w.say(c, segment{seq: c.nxt, ack: c.next, flags: flagPSH, data: b[:n]})
		c.nxt += uint32(n)
		b = b[n:]
	}
	w.show(c)
}

// finish has the server close the connection.
func (w *world) finish(c *conn) {
	if c.state != established && c.state != closeWait || c.fin {
		return
	}
	c.fin, c.finSent, c.serverClosed = true, true, true
	w.say(c, segment{seq: c.nxt, ack: c.next, flags: flagFIN})
	c.nxt++
	if c.state == established {
		c.state = finWait
	} else {
		c.state = lastAck
	}
	w.show(c)
	w.pending = append(w.pending, action{kind: doReleased, c: c})
}

// repeat has the stack send again what was not acknowledged.
func (w *world) repeat(c *conn) {
	switch c.state {
	case synReceived:
		w.say(c, segment{seq: c.nxt - 1, ack: c.next, flags: flagSYN})
		return
	case established, closeWait, finWait, lastAck:
	default:
		return
	}
	if n := min(len(c.out), 1448); n > 0 {
		c.went = w.tick()
		w.say(c, segment{seq: c.una, ack: c.next, flags: flagPSH, data: c.out[:n]})
	} else if c.fin && before(c.una, c.nxt) {
		w.say(c, segment{seq: c.nxt - 1, ack: c.next, flags: flagFIN})
	}
}
