// SPDX-License-Identifier: Apache-2.0

package gate

/*
#include "native.h"
*/
import "C"

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

type (
	u32 = C.__u32
	u64 = C.__u64
)

func (n native) cookie(k *key, isn uint32) uint32 {
	return uint32(C.world_cookie(k, C.__u32(isn)))
}

// port is the service's.
const port = 8000

// mostConns is how many connections there are at most. Number 0 is the listener's.
const mostConns = 24

const millisecond = 1_000_000

// span is where a request is in what a client says.
type span struct {
	begin, end int
	*request
}

// conn is a connection: what its client, the stack and the server have of it.
type conn struct {
	number int
	ends   ends // from the client to the server
	key    key
	cookie int // of its socket

	// The client.
	isn    uint32
	stream []byte // all that it has to say
	spans  []span
	sent   int // bytes of it that were sent once
	acked  int
	stall  int  // it never sends more than that
	bye    bool // it has sent its FIN, or may repeat it
	liar   bool // it says other things, too
	forged bool // somebody else has said things in its name
	clock  bool // it has timestamps
	rcv    uint32
	heard  []byte // by a client that is honest, since the last answer
	owes   bool   // it has got bytes that it has not acknowledged
	ended  bool   // it has got a FIN
	reset  bool   // it has got an RST, or has sent one
	open   bool   // there is such a connection at all
	since  uint64 // the client has nothing to wait for any more
	page   uint32 // sequence number of the page that it is told
	paged  bool   // it is told one

	// The stack.
	receiver
	serverISN    uint32
	finSent      bool
	serverClosed bool

	// The server.
	got      []byte // all that it has read
	at       framing
	done     int    // bytes of it that belong to requests that it has answered
	answered int    // requests
	begun    bool   // it has read a byte of the one at hand
	more     []byte // of the answer at hand
	closing  bool   // the connection ends with that
	broken   bool   // it has reset the connection
	interim  bool   // it has sent an interim answer to the request at hand
	beyond   bool   // it answers one that has paused
	tunnel   bool
}

// action is what is to be done next.
type action struct {
	kind int
	c    *conn
	s    segment
	m    meta
}

const (
	doOut = iota
	doIn
	doClosed
	doReleased
	doEstablished
)

// config is the kind of a world.
type config struct {
	sizes
	policy     C.struct_policy
	odd        bool // requests that are not followed
	liars      int  // one of so many clients lies; 0: none
	loss       int  // one of so many packets to the clients is lost; 0: none
	backlog    int
	cookies    bool
	failures   int // see struct world
	pipelining bool
	family     int // 0: both
}

// world is what happens in one episode.
type world struct {
	native
	cfg            config
	conns          [mostConns]*conn
	pending        []action
	frame          []byte
	backlogged     int
	maxBacklog     int
	closedListener bool
	overflows      int
	opened         int
	packets        int
	begun          int  // requests that the server has read a byte of
	quiet          bool // nothing is lost any more
	changed        bool // the policy was
	err            error
	d              *dice // of the event at hand
	log            func(format string, args ...any)
	passedFrom     uint32 // the first of the data of the packet at hand that passed
	passed         uint32 // behind the last of them
	passes         bool   // it has data that did
	left           []corpse
	moment         uint32
}

// corpse is a socket that has been reset, and which the server has not closed yet.
type corpse struct {
	number C.__u32
	cookie C.__u64
	beyond bool
}

// tick is another moment each time: who spoke last is known.
func (w *world) tick() uint32 {
	w.moment++
	return w.moment
}

// bury has the server close all of them.
func (w *world) bury() {
	for _, s := range w.left {
		C.world_destroyed(s.number, s.cookie)
		w.took(nil)
	}
	w.left = w.left[:0]
}

func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func (w *world) logf(format string, args ...any) {
	if w.log != nil {
		w.log(format, args...)
	}
}

// newWorld makes a world. It takes the place of the last one, of which nothing is left.
func newWorld(record uint64) *world {
	d := newDice(record)
	w := &world{cfg: newConfig(&d), frame: make([]byte, C.MOST_PACKET)}
	w.native.w = &C.the_world
	w.open(w.cfg.sizes, &w.cfg.policy)
	w.maxBacklog = w.cfg.backlog
	w.native.w.cookies = boolean(w.cfg.cookies)
	w.native.w.fail_every = u32(w.cfg.failures)
	w.showListener()
	for i := range w.conns {
		w.conns[i] = &conn{number: i + 1}
	}
	return w
}

func boolean(b bool) u32 {
	if b {
		return 1
	}
	return 0
}

func newConfig(d *dice) (c config) {
	c.slots = of(d, 2, 4, 8, 16, 32)
	c.slotSize = of(d, 2048, 4096, 9000, 16064)
	c.flows = of(d, 4, 16, 64, 64)
	c.farewells = of(d, 2, 8, 64)
	c.backlog = of(d, 0, 1, 4, 64)
	c.cookies = d.in(6)
	c.odd = d.in(3)
	c.liars = of(d, 0, 0, 2, 4)
	c.loss = of(d, 0, 50, 8)
	c.failures = of(d, 0, 0, 0, 0, 30)
	if !loseRejections {
		c.failures = 0
	}
	c.pipelining = d.in(3)
	c.family = of(d, 0, 4, 6)
	newPolicy(d, &c)
	return c
}

func newPolicy(d *dice, cfg *config) {
	p, slots := &cfg.policy, cfg.slots
	r := &p.room
	*r = C.struct_room_config{}
	p.port = port
	p.rejection = [512]C.char{}
	p.generation++
	r.max_wait = u64(of(d, 200, 1000, 5000) * millisecond)
	r.target = u64(of(d, 50*millisecond, int(r.max_wait), int(r.max_wait)))
	r.epoch = longEpoch
	if forget && d.in(4) {
		r.epoch = u64(of(d, 100, 1000, 10000) * millisecond)
	}
	r.limit = u32(of(d, 1, 1, 2, 3, 6))
	r.queue_size = u32(of(d, 0, 1, 3, 8, 64))
	r.share = u32(of(d, 0, slots/4, slots))
	r.common = u32(of(d, slots-slots/32, slots/2))
	r.flow_share = u32(of(d, 0, cfg.flows/4, cfg.flows))
	r.flow_common = u32(of(d, cfg.flows-cfg.flows/32, cfg.flows/2))
	r.strict = 1
	r.ends = C.__u8(of(d, 0, 0, 0, 1, 2, 3, 3))
	if d.in(8) {
		r.limit, r.strict = 0, 0
	} else if d.in(8) {
		r.shadow = 1
	}
	if !d.in(4) {
		for i, b := range rejected {
			p.rejection[i] = C.char(b)
		}
	}
	p.page = u32(of(d, 0, 0, 0, 1220, 1221, 5000, C.LONGEST_PAGE))
	r.ranks = C.__u8(1 + d.n(3))
	r.default_rank = r.ranks - 1
	for i := range int(r.ranks) {
		k := &r.rank[i]
		k.class = C.__u8(i*5 + 1)
		if d.in(3) {
			k.max = u32(1 + d.n(3))
			r.strict = 1
		}
		k.reserve = C.__u8(of(d, 0, 0, 30, 60))
		if k.reserve != 0 {
			r.reserves = 1
		}
		r.stall[i] = u32(of(d, 0, 0, 1000))
		k.fair = C.__u8(of(d, C.FAIR_NONE, C.FAIR_SOURCE, C.FAIR_SOURCE))
		k.known = u32(of(d, 0, 0, 600))
		k.bits_v4 = C.__u8(of(d, 16, 24, 32))
		k.bits_v6 = C.__u8(of(d, 48, 64, 128))
		r.classes |= 1 << k.class
	}
	if d.in(3) {
		brief(d, r)
		cfg.failures = 0 // entries of tables are there from the beginning
	}
}

// brief has flows be kept in short form.
func brief(d *dice, r *C.struct_room_config) {
	r.brief, r.shadow = 1, 0
	r.ends = C.__u8(of(d, C.END_AUTO, C.END_FIRST_BYTE))
	if r.limit > 0 {
		r.limit = u32(of(d, 3, 6, 12))
	}
	r.strict = boolean8(r.limit > 0)
	for i := range int(r.ranks) {
		r.rank[i].max, r.stall[i] = 0, 0
	}
}

func boolean8(b bool) C.__u8 { return C.__u8(boolean(b)) }

// longEpoch is that of worlds in which nothing is given up, ns.
const longEpoch = u64(100_000 * millisecond)

// lenient says whether nothing is held.
func (w *world) lenient() bool { r := &w.cfg.policy.room; return r.shadow != 0 || r.strict == 0 }

// connOf returns the connection whose packet it is.
func (w *world) connOf(e *ends, fromServer bool) *conn {
	peer := e.sport
	if fromServer {
		peer = e.dport
	}
	i := int(peer) % 64
	if i >= mostConns {
		return nil
	}
	c := w.conns[i]
	if want := c.ends; fromServer {
		want = c.ends.swapped()
		if want.from != e.from || want.to != e.to || want.sport != e.sport || want.dport != e.dport {
			return nil
		}
	} else if want.from != e.from || want.to != e.to || want.sport != e.sport || want.dport != e.dport {
		return nil
	}
	return c
}

// in gives the gate a frame of a client.
func (w *world) in(frame []byte, m *meta) int {
	w.packets++
	m.ifindex = C.IFINDEX
	v := w.native.in(frame, m)
	w.took(nil)
	return v
}

// took takes what has come of a packet.
func (w *world) took(sent []byte) {
	if f := w.fault(); f != "" {
		w.fail("%s", f)
		return
	}
	for i := range w.outs() {
		o := &w.outs()[i]
		b := w.bytes(o)
		if o.place == C.TO_STACK {
			if o.own == 0 {
				w.notePassed(b)
			}
			w.toStack(o, b)
			continue
		}
		if o.own != 0 && bytes.Equal(b, sent) { // the server's, twice
			o.own = 0
		}
		if o.own == 0 && sent != nil && !w.isAsSent(b, sent) {
			w.fail("the gate changes what the server says")
		}
		w.toClient(o, b)
	}
}

// isAsSent says whether a frame is what the server has sent, but for the window of a SYN-ACK, which has to be
// what a slot takes where requests may have to wait.
func (w *world) isAsSent(b, sent []byte) bool {
	var e ends
	var s segment
	if !parse(b, &e, &s) || !s.sound {
		return false
	}
	if s.flags&flagSYN == 0 {
		return bytes.Equal(b, sent)
	}
	at := e.l4() + 14
	said := binary.BigEndian.Uint16(b[at:])
	narrow := int(said) == w.cfg.sizes.slotSize-C.SLOT_OVERHEAD_MOST
	if !narrow && !w.lenient() {
		return false
	}
	binary.BigEndian.PutUint16(sent[at:], said)
	copy(sent[at+2:at+4], b[at+2:at+4])
	return bytes.Equal(b, sent) && (narrow || said == 0xffff)
}

// settle does what is to be done, and what comes of that.
func (w *world) settle() {
	for i := 0; i < len(w.pending) && w.err == nil; i++ {
		if i > 10000 {
			w.fail("it goes on for ever")
		}
		w.do(&w.pending[i])
	}
	w.pending = w.pending[:0]
}

func (w *world) do(a *action) {
	c := a.c
	switch a.kind {
	case doOut:
		s := a.s
		s.sound = true
		e := c.ends.swapped()
		frame := s.put(w.frame, &e, false)
		m := meta{ifindex: C.IFINDEX, sender: C.__u32(c.number) + 1}
		w.logf("  server %d: %s", c.number, c.describe(&s, true))
		w.packets++
		w.native.out(frame, &m)
		w.took(frame)
	case doIn:
		w.sendIn(c, &a.s, a.m)
	case doClosed:
		if C.world_ends(u32(c.number), u32(c.was)) {
			w.took(nil)
			w.late(c)
		}
		C.world_closed(u32(c.number))
		w.took(nil)
		w.left = append(w.left, corpse{u32(c.number), w.native.w.socket[c.number].cookie, c.beyond})
		if c.serverClosed {
			w.bury()
		}
		if c.state == closed {
			c.state = 0
		}
		w.native.w.socket[c.number].state = u32(c.state)
	case doReleased:
		C.world_released(u32(c.number))
		w.took(nil)
	case doEstablished:
		if c.number%4 > 0 { // else it is older than sockops
			C.world_established(u32(c.number), &c.key)
			w.took(nil)
		}
	}
}

// late has a client ask while its socket, of whose end the programs have been told, is found still. The stack
// drops that. It must not make a flow, of which nothing tells the end.
func (w *world) late(c *conn) {
	if _, ok := w.flow(&c.key); ok || w.moment%2 > 0 || c.was != established && c.was != closeWait {
		return
	}
	s := segment{seq: c.next, ack: c.nxt, flags: flagPSH | flagACK, data: []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), sound: true}
	frame := s.put(w.frame, &c.ends, false)
	v := w.native.in(frame, &meta{ifindex: C.IFINDEX})
	w.logf("  client %d: %s → %d, while its socket ends", c.number, c.describe(&s, false), v)
	passes, from, to := w.passes, w.passedFrom, w.passed
	w.took(nil)
	w.passes, w.passedFrom, w.passed = passes, from, to // of the packet at hand
	if _, ok := w.flow(&c.key); ok {
		w.fail("connection %d has ended, and has a flow", c.number)
	}
}

// sendIn has a client's segment sent.
func (w *world) sendIn(c *conn, s *segment, m meta) int {
	partial := m.partial != 0
	if c.clock && s.clock == 0 {
		s.clock = uint32(w.native.w.now / millisecond)
	}
	frame := s.put(w.frame, &c.ends, partial)
	if partial {
		m.partial = u32(c.ends.l4())
	}
	if m.verified != 0 {
		frame[c.ends.l4()+16] ^= 0x55 // what the bytes hold is of no matter
	}
	was := w.observe(c)
	v := w.in(frame, &m)
	w.judge(c, s, &was, v)
	w.logf("  client %d: %s → %d; %s", c.number, c.describe(s, false), v, w.state(c))
	return v
}

// state is what the gate knows of a connection and the room, for people.
func (w *world) state(c *conn) string {
	k, ok := w.flow(&c.key)
	r := w.room()
	room := fmt.Sprintf("room %d in service, %d waiting, %d gathering", r.in_service, r.waiting, r.gathering)
	if !ok {
		return "no flow; " + room
	}
	return fmt.Sprintf("state %d watched %d flags %#x next %d body %d slot %d–%d; %s", k.state, k.watched, k.flags, int32(uint32(k.next)-c.isn-1),
		int32(uint32(k.body)-c.isn-1), int32(uint32(k.slot_start)-c.isn-1), int32(uint32(k.slot_end)-c.isn-1), room)
}

func (c *conn) describe(s *segment, fromServer bool) string {
	flags := ""
	for i, f := range []string{"F", "S", "R", "P", "A"} {
		if s.flags&(1<<i) != 0 {
			flags += f
		}
	}
	base, other := c.isn, c.serverISN
	if fromServer {
		base, other = other, base
	}
	text := fmt.Sprintf("%s %d+%d ack %d", flags, int32(s.seq-base-1), len(s.data), int32(s.ack-other-1))
	if !s.sound && !fromServer {
		text += " wrong checksum"
	}
	return text
}
