// SPDX-License-Identifier: Apache-2.0

package gate

/*
#include "native.h"
*/
import "C"

import (
	"fmt"
	"io"
	"strings"
)

// Episode is a world and what happens in it, as numbers that say all of it.
type Episode struct {
	World  uint64
	Events []uint64
}

// Random is the episode of a number.
func Random(seed, number uint64, events int) Episode {
	d := newDice(seed ^ number*0x9e3779b97f4a7c15)
	e := Episode{World: d.word()}
	for range events {
		e.Events = append(e.Events, d.word())
	}
	return e
}

// Run lets it happen and returns how many packets met the gate. The error says what was not as it
// must be.
func (e Episode) Run(log io.Writer) (int, error) {
	w := newWorld(e.World)
	if log != nil {
		w.log = func(format string, args ...any) { fmt.Fprintf(log, format+"\n", args...) }
		w.logf("world: %+v", w.cfg)
	}
	for i, record := range e.Events {
		w.step(record)
		w.check()
		if w.err != nil {
			return w.packets, fmt.Errorf("event %d: %w", i, w.err)
		}
	}
	w.finale()
	if w.err != nil {
		return w.packets, fmt.Errorf("at the end: %w", w.err)
	}
	return w.packets, nil
}

// Shorten leaves out events without which the episode fails just as well.
func (e Episode) Shorten() Episode {
	_, err := e.Run(nil)
	kind := kindOf(err)
	fails := func(events []uint64) bool {
		_, err := Episode{e.World, events}.Run(nil)
		return kindOf(err) == kind
	}
	for size := len(e.Events) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(e.Events); {
			less := append(append([]uint64{}, e.Events[:at]...), e.Events[at+size:]...)
			if fails(less) {
				e.Events = less
			} else {
				at += size
			}
		}
	}
	return e
}

// kindOf is what an error says apart from numbers.
func kindOf(err error) string {
	if err == nil {
		return ""
	}
	_, text, _ := strings.Cut(err.Error(), ": ")
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r == '-' {
			return -1
		}
		return r
	}, text)
}

// step is one event.
func (w *world) step(record uint64) {
	d := newDice(record)
	w.d = &d
	w.native.w.now += u64(d.word() % (2 * millisecond))
	if !lookLate {
		C.world_tick()
		w.took(nil)
		w.settle()
	}
	kind := d.n(100)
	c := w.conns[d.n(mostConns)]
	for i := 0; !c.open && i < mostConns; i++ {
		c = w.conns[(c.number+i)%mostConns]
	}
	w.logf("event %d", kind)
	switch {
	case kind < 6 || !c.open:
		w.connect(&d)
	case kind < 60:
		w.converse(c, &d)
	case kind < 84:
		w.serve(c, &d)
	case kind < 86:
		C.world_tick()
		w.took(nil)
	case kind < 89:
		w.native.w.now += u64(of(&d, 4, 20, 200, 1500) * millisecond)
	case kind < 91:
		w.repeat(c)
	case kind < 93:
		w.close(c, &d)
	case kind < 94:
		w.odds(c, &d)
	default:
		w.forge(c, &d)
	}
	w.settle()
	if d.in(8) {
		w.bury()
	}
	if c.open && w.over(c) {
		c.open = false
	}
}

// converse has the client go on.
func (w *world) converse(c *conn, d *dice) {
	switch {
	case c.reset || c.rcv == 0:
	case c.liar && d.in(6):
		w.lie(c, d)
	case d.in(10) || c.acked >= w.allowed(c):
		w.sendIn(c, &segment{seq: c.isn + 1 + uint32(c.acked), ack: c.rcv, flags: flagACK, sound: true}, meta{})
	default:
		w.speak(c, d)
	}
}

// close has one of the two end the connection.
func (w *world) close(c *conn, d *dice) {
	switch {
	case c.rcv == 0 || c.reset:
	case d.in(3):
		w.finish(c)
	case d.in(8) && (c.state == established || c.state == closeWait):
		w.say(c, segment{seq: c.nxt, ack: c.next, flags: flagRST})
		c.serverClosed, c.broken = true, true
		w.closeSocket(c, false)
		w.pending = append(w.pending, action{kind: doReleased, c: c})
	default:
		w.leave(c, d.in(2))
	}
}

// over says whether nothing is left of the connection.
func (w *world) over(c *conn) bool {
	if c.state != 0 && c.state != timeWait || !(c.reset || c.ended || c.bye || c.rcv == 0) {
		return false
	}
	_, ok := w.flow(&c.key)
	return !ok || c.state == timeWait
}

// odds are what happens now and then.
func (w *world) odds(c *conn, d *dice) {
	which := d.n(6)
	c.forged = c.forged || which >= 4
	w.logf(" odds %d", which)
	switch which {
	case 0:
		w.logf("sweep")
		C.world_sweep()
		w.took(nil)
	case 1:
		old := w.cfg.policy
		lenient := w.lenient()
		newPolicy(d, &w.cfg)
		if !becomeStrict && lenient != w.lenient() {
			w.cfg.policy = old
		}
		C.world_policy(&w.cfg.policy)
		w.changed = true
		w.logf("policy: %+v", w.cfg.policy.room)
	case 2:
		w.maxBacklog = of(d, 0, 1, 16)
		w.showListener()
	case 3:
		w.native.w.cookies = boolean(d.in(3))
	case 4:
		w.sendIn(c, &segment{seq: uint32(d.word()), flags: flagSYN, sound: true}, meta{})
	case 5:
		garbage := make([]byte, 1+d.n(200))
		s := segment{seq: c.isn + 1, ack: c.rcv, flags: uint8(d.n(256)), data: garbage, sound: true}
		frame := s.put(w.frame, &c.ends, false)
		for range 1 + d.n(4) {
			frame[d.n(min(len(frame), 100))] = byte(d.n(256))
		}
		frame = frame[:1+d.n(len(frame))]
		if w.parsed(frame) {
			return // a forged segment: see there
		}
		w.logf("garbage %x", frame)
		w.in(frame, &meta{})
	}
}

// parsed says whether the stack would take it for a segment.
func (w *world) parsed(frame []byte) bool {
	var e ends
	var s segment
	return parse(frame, &e, &s)
}

// lie has the client say another thing than it does.
func (w *world) lie(c *conn, d *dice) {
	at := c.acked + of(d, 0, 0, 1, c.sent-c.acked, -1, d.n(3000))
	r := requests[d.n(len(requests))].text
	from := d.n(len(r))
	data := r[from : from+d.n(min(len(r)-from, 16000)+1)]
	flags := uint8(flagACK)
	switch d.n(8) {
	case 0:
		flags |= flagFIN
	case 1:
		flags |= flagRST
	case 2:
		flags = uint8(d.n(256))
	}
	ack := c.rcv + uint32(of(d, 0, 0, 0, -1, 1, 1000))
	w.sendIn(c, &segment{seq: c.isn + 1 + uint32(at), ack: ack, flags: flags, data: data, sound: !d.in(8)}, meta{})
}

// forge has somebody else speak in the client's name, who does not know its numbers.
func (w *world) forge(c *conn, d *dice) {
	if c.rcv == 0 {
		return
	}
	s := segment{seq: c.isn + 1 + uint32(c.acked), ack: c.rcv, flags: of(d, uint8(flagACK), flagACK|flagPSH, flagRST, flagRST|flagACK, flagFIN|flagACK), sound: true}
	c.forged = true
	far := uint32(200_000 + d.n(1_000_000_000))
	if d.in(2) {
		s.seq += far
		s.ack += uint32(of(d, 0, 1, int(far)))
	} else {
		s.seq += uint32(1 + d.n(60000))
		s.ack += far
		s.flags &^= flagRST | flagFIN
	}
	r := requests[d.n(len(requests))].text
	s.data = r[:d.n(min(len(r), 2000))]
	w.sendIn(c, &s, meta{})
}

// check looks whether all is as it must be whatever has happened.
func (w *world) check() {
	if w.err != nil {
		return
	}
	if f := w.fault(); f != "" {
		w.fail("%s", f)
		return
	}
	census := w.census()
	if text := C.GoString(&census.wrong[0]); text != "" {
		w.fail("%s", text)
	}
	r := &w.cfg.policy.room
	w.checkServer()
	if !w.changed && w.lenient() && census.waiting > 0 {
		w.fail("%d wait where nothing is held", census.waiting)
	}
	if !w.changed && !w.lenient() && r.limit > 0 && int(census.in_service) > int(r.limit)+w.beyond() {
		w.fail("%d are in service, the limit is %d", census.in_service, r.limit)
	}
	if !w.changed && census.waiting+census.gathering > r.queue_size+16 {
		w.fail("%d wait, the queue has room for %d", census.waiting, r.queue_size)
	}
}

// beyond is how many requests may be in service beyond the limit.
func (w *world) beyond() (n int) {
	for _, c := range w.conns {
		if k, ok := w.flow(&c.key); ok && c.beyond && int(k.state) == served {
			n++
		}
	}
	for _, l := range w.left {
		if l.beyond {
			n++
		}
	}
	return n
}

// checkServer looks whether the server has more to do than it may, or has something to do that
// was not let in.
func (w *world) checkServer() {
	r := &w.cfg.policy.room
	if w.lenient() || w.changed || r.epoch < longEpoch { // it may work on what was given up
		return
	}
	var busy []int
	for _, c := range w.conns {
		if (c.busy() || r.ends == C.END_LAST_BYTE && c.answering() && !c.beyond) && !c.exempt() {
			busy = append(busy, c.number)
		}
	}
	if r.limit > 0 && len(busy) > int(r.limit) {
		w.fail("the server works on %d requests, the limit is %d: connections %d", len(busy), r.limit, busy)
	}
	entered := 0
	room := w.room()
	for i := range room.class {
		entered += int(room.class[i].admitted + room.class[i].released + room.class[i].brief.begun)
	}
	if w.begun > entered && r.ends != C.END_CLOSE {
		w.fail("the server reads %d requests, %d were let in", w.begun, entered)
	}
}

// finale has all that is under way come to its end.
func (w *world) finale() {
	d := newDice(1)
	w.quiet = true
	w.native.w.fail_every = 0
	w.maxBacklog = 64
	w.showListener()
	for round := range 400 {
		w.native.w.now += u64(50 * millisecond)
		w.logf("round %d", round)
		for _, c := range w.conns {
			w.conclude(c, &d, round)
			w.settle()
			w.check()
			if w.err != nil {
				return
			}
		}
		C.world_tick()
		w.took(nil)
		if round%60 == 59 { // as the daemon does now and then
			C.world_sweep()
			w.took(nil)
		}
		w.settle()
		if w.isOver() {
			break
		}
	}
	if w.err == nil && !w.isOver() {
		w.unfinished()
		return
	}
	w.bury()
	w.isEmpty()
}

// isOver says whether no connection is left.
func (w *world) isOver() bool {
	for _, c := range w.conns {
		if c.open {
			return false
		}
	}
	return true
}

// unfinished says which connections did not come to their end.
func (w *world) unfinished() {
	for _, c := range w.conns {
		if c.open {
			w.fail("connection %d does not come to its end: socket %d, sent %d, acknowledged %d of %d, %d of %d requests answered; %s", c.number, c.state, c.sent, c.acked, len(c.stream), c.answered, len(c.spans), w.state(c))
		}
	}
}

// conclude has a connection go on to its end, as fast as it can.
func (w *world) conclude(c *conn, d *dice, round int) {
	if !c.open {
		return
	}
	if w.over(c) {
		c.open = false
		return
	}
	if c.state == timeWait {
		return
	}
	if c.owes && !c.reset { // its delayed acknowledgement
		c.owes = false
		w.sendIn(c, &segment{seq: c.isn + 1 + uint32(c.sent), ack: c.rcv, flags: flagACK, sound: true}, meta{})
		w.settle()
	}
	switch {
	case c.broken && c.state == 0:
		c.reset = true // whether it has got the reset or not
	case c.reset:
		if round > 50 {
			w.finish(c)
		}
	case c.liar && round > 60:
		w.leave(c, true)
	case c.ended || c.bye:
		c.bye = true
		c.stream = c.stream[:c.sent]
		for at := c.acked; ; at += 1448 {
			w.send(c, d, at, min(at+1448, c.sent))
			if at+1448 >= c.sent {
				break
			}
		}
	case c.liar || c.stall < len(c.stream) && round > 100:
		w.leave(c, true)
	case c.acked < w.allowed(c):
		for at := c.acked; at < w.allowed(c) && at < c.acked+20000; at += 1448 {
			w.send(c, d, at, min(at+1448, w.allowed(c)))
			w.settle()
		}
	case c.acked == len(c.stream) && c.answered == len(c.spans):
		w.leave(c, false)
	}
	w.settle()
	w.serve(c, d)
	if round%4 == 0 {
		w.repeat(c)
	}
	if round > 200 && c.state == synReceived { // it was asked often enough
		c.state = 0
		w.native.w.socket[c.number].state = 0
	}
	if round > 300 && (c.state == finWait || c.state == lastAck) {
		w.closeSocket(c, false)
	}
}

// isEmpty looks whether the gate has come to rest.
func (w *world) isEmpty() {
	for _, ms := range []int{300_000, 1000, 1000} {
		w.native.w.now += u64(ms * millisecond)
		C.world_tick()
		w.took(nil)
		C.world_sweep()
		w.took(nil)
	}
	for _, c := range w.conns {
		if _, ok := w.flow(&c.key); ok {
			w.logf("left: connection %d, socket %d %d: %s", c.number, c.state, w.native.w.socket[c.number].state, w.state(c))
		}
	}
	census := w.census()
	if census.waiting+census.gathering+census.in_service+census.used+census.flows+census.watched != 0 {
		w.fail("when all is over %d wait, %d gather, %d are in service, %d slots are used, %d flows are known, %d watched", census.waiting, census.gathering, census.in_service, census.used, census.flows, census.watched)
	}
}
