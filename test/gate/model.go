// SPDX-License-Identifier: Apache-2.0

package gate

/*
#include "native.h"
*/
import "C"

import "slices"

// The model of a flow. It knows where each request of an honest client begins and ends, and says of
// a segment what may become of it: the verdict, the flow's state behind it, and how far its bytes
// may get. Whether there is room is the room's to say, which run.go looks at; so where a request
// takes a turn there are three ways: it enters, waits or is rejected.

// States of a flow.
const (
	idle      = int(C.FLOW_IDLE)
	held      = int(C.FLOW_HELD)
	served    = int(C.FLOW_SERVED)
	gathering = int(C.FLOW_GATHERING)
	paused    = int(C.FLOW_PAUSED)
	none      = 99 // there is no flow
)

// notFollowed are flows of which the model says nothing more than that they exist.
const notFollowed = C.FLOW_LOST | C.FLOW_TUNNEL | C.FLOW_CHUNKS

// observation is what the gate and the stack know of a connection. Numbers are offsets in what the
// client says.
type observation struct {
	state    int
	flags    int
	next     int
	slotAt   int
	slotEnd  int
	withheld bool // only what is in the slot waits
	received int  // by the stack
	socket   int
	gap      bool // the stack has bytes beyond others that it has not
	early    bool // bytes behind next may be kept
}

func (w *world) observe(c *conn) observation {
	o := observation{state: none, received: int(int32(c.next - c.isn - 1)), socket: c.state, gap: len(c.pieces) > 0}
	if k, ok := w.flow(&c.key); ok {
		o.state, o.flags = int(k.state), int(k.flags)
		o.next = int(int32(uint32(k.next) - c.isn - 1))
		o.slotAt, o.slotEnd = int(int32(uint32(k.slot_start)-c.isn-1)), int(int32(uint32(k.slot_end)-c.isn-1))
		o.withheld, o.early = k.withheld != 0, k.early != 0
	}
	return o
}

// outcome is what may become of a segment.
type outcome struct {
	verdict int
	states  []int
	most    int // bytes behind that offset do not pass
}

// judge fails if what has become of a client's segment is none of what may.
func (w *world) judge(c *conn, s *segment, was *observation, verdict int) {
	passes, from, passed := w.passes, int(int32(w.passedFrom-c.isn-1)), int(int32(w.passed-c.isn-1))
	w.passes = false
	if w.err != nil || w.lenient() || w.changed || c.liar || c.forged || !s.sound || s.flags&(flagSYN|flagRST) != 0 {
		return
	}
	if c.exempt() {
		if verdict != next {
			w.fail("connection %d goes by the waiting room, and its segment does not pass: %d", c.number, verdict)
		}
		return
	}
	begin := int(int32(s.seq - c.isn - 1))
	end := begin + len(s.data)
	if begin < 0 || was.flags&notFollowed != 0 || s.flags&flagFIN != 0 || !c.plain(begin, end) {
		return
	}
	if slices.Contains([]int{closed, finWait, lastAck, timeWait}, was.socket) {
		return // the server answers nothing any more
	}
	may := c.outcomes(begin, end, was)
	if may == nil {
		return
	}
	if was.early && was.state == idle && (begin > was.next || end <= was.next) {
		if !c.plain(was.next, c.sent) {
			return
		}
		may = append(may, c.recalled(was.next)...)
	}
	is := w.observe(c)
	if passes && is.withheld && from >= is.slotAt && from < is.slotAt+C.LEAST_WITHHELD {
		w.fail("connection %d: bytes %d–%d pass, of a request that waits and begins at %d", c.number, from, passed, is.slotAt)
	}
	for _, m := range may {
		if m.verdict == verdict && slices.Contains(m.states, is.state) && (!passes || passed <= m.most) {
			w.checkNumbers(c, &is)
			return
		}
	}
	w.fail("connection %d: a segment %d–%d in state %d, next %d, slot to %d, stack has %d: verdict %d, state %d, passed %v from %d to %d; it may be %v",
		c.number, begin, end, was.state, was.next, was.slotEnd, was.received, verdict, is.state, passes, from, passed, may)
}

// plain says whether the bytes are of requests that every version of the gate follows.
func (c *conn) plain(begin, end int) bool {
	for _, s := range c.spans {
		if s.end > begin && s.begin < max(end, begin+1) && (s.lost || s.tunnel || s.chunked) {
			return false
		}
	}
	return true
}

// spanAt is the request that begins there.
func (c *conn) spanAt(at int) *span {
	for i := range c.spans {
		if c.spans[i].begin == at {
			return &c.spans[i]
		}
	}
	return nil
}

// isEnd says whether a request ends there.
func (c *conn) isEnd(at int) bool {
	return slices.ContainsFunc(c.spans, func(s span) bool { return s.end == at })
}

// checkNumbers compares what the gate knows of the flow with what its client means.
func (w *world) checkNumbers(c *conn, is *observation) {
	if is.state == none || is.flags&notFollowed != 0 || is.state == gathering || is.flags&C.FLOW_HEAD != 0 {
		return
	}
	if !c.isEnd(is.next) && !c.plainEmpty(is.next) {
		w.fail("connection %d: the next request is said to begin at %d, where none ends", c.number, is.next)
	}
}

// plainEmpty says whether the next request begins there because none has yet.
func (c *conn) plainEmpty(at int) bool { return at == 0 }

// leastSlot is how many bytes of a request each slot takes.
const leastSlot = 2048 - C.SLOT_OVERHEAD_MOST

// turn is what may become of a request that begins with a segment up to an offset.
func (c *conn) turn(s *span, end int) []outcome {
	if s == nil {
		return nil
	}
	if end < s.begin+s.head {
		return []outcome{
			{redirect, []int{gathering, none}, s.begin},
			{drop, []int{none, idle}, s.begin}, // no memory, or a server that is behind
		}
	}
	answered := []int{none}
	// It is acknowledged where more is sent behind it, or where it goes on, be it that its slot does not take all.
	if end != s.end || end-s.begin > leastSlot {
		answered = append(answered, held, served)
	}
	most := s.begin
	if end != s.end || end-s.begin > leastSlot { // all but its beginning may go to the stack
		most = s.end
	}
	return []outcome{
		{next, []int{served, idle}, s.end},
		{drop, []int{held, served, none, idle}, s.begin},
		{redirect, answered, s.begin},
		{next, []int{held, served, none}, most}, // what it acknowledges passes
	}
}

// recalled is what may become of a segment with which bytes come that were kept, however far they go.
func (c *conn) recalled(from int) (may []outcome) {
	if s := c.spanAt(from); s != nil {
		for _, end := range []int{s.begin + 1, s.end, s.end + 1} {
			may = append(may, c.turn(s, end)...)
		}
	}
	return may
}

// outcomes are all that may become of a segment.
func (c *conn) outcomes(begin, end int, was *observation) []outcome {
	anything := []int{none, idle, held, served, gathering, paused}
	if begin == end && was.state == idle && was.flags&C.FLOW_NEW != 0 {
		return []outcome{{drop, anything, 0}} // it would establish the connection before its request
	}
	if begin == end && was.state == served && was.socket != established && was.socket != closeWait {
		return []outcome{{next, anything, end}, {drop, anything, 0}} // it would establish the connection without its request
	}
	if begin == end && (was.state == served || was.state == idle || was.state == paused) {
		return []outcome{{next, anything, end}}
	}
	switch was.state {
	case none:
		return c.toNobody(begin, end, was)
	case held:
		if begin == end {
			return []outcome{{next, anything, begin}, {drop, anything, begin}, {redirect, anything, begin}}
		}
		if was.withheld && begin >= was.slotAt+C.LEAST_WITHHELD && begin < was.next {
			return []outcome{{next, anything, was.next}, {drop, anything, 0}}
		}
		return []outcome{{drop, []int{held, served, idle, none}, 0}, {redirect, []int{held, served, idle, none}, 0}}
	case gathering:
		return c.toGatherer(begin, end, was)
	case served:
		may := []outcome{{next, []int{served, idle, paused}, min(end, was.next)}}
		dropped := []int{served, idle, paused}
		if was.socket != established { // it may have been dropped before there was a socket
			dropped = append(dropped, none)
		}
		// What the kernel cannot cut is not cut: it comes again in smaller segments.
		if c.headAgain(begin, was) || end > was.next && was.next-begin > C.MOST_CUT {
			may = append(may, outcome{drop, dropped, 0})
		}
		if was.socket == synReceived && begin > was.received { // it would establish the connection without the head
			may = append(may, outcome{drop, dropped, 0})
		}
		if c.headAgain(begin, was) && was.gap { // other pieces might not fit what the stack has
			may = append(may, outcome{redirect, []int{none}, 0})
		}
		if begin < was.next {
			return may
		}
		if begin > was.next { // one that was given up after max_service is as good as over, and its client is told
			return []outcome{{drop, dropped, 0}, {redirect, dropped, 0}}
		}
		return []outcome{{drop, dropped, 0}}
	case idle:
		stays := []int{idle}
		if was.flags&C.FLOW_COOKIE != 0 && was.socket != established { // the listener would not have it
			stays = append(stays, none)
		}
		switch {
		case begin < was.next && c.headAgain(begin, was):
			return []outcome{{next, stays, min(end, was.next)}, {drop, stays, 0}}
		case begin < was.next && end > was.next && was.next-begin > C.MOST_CUT: // as above
			return []outcome{{next, stays, was.next}, {drop, stays, 0}}
		case begin < was.next:
			return []outcome{{next, stays, min(end, was.next)}}
		case begin > was.next: // its client is told
			return []outcome{{drop, stays, 0}, {redirect, stays, 0}}
		}
		return c.turn(c.spanAt(begin), end)
	case paused:
		switch {
		case end <= was.received:
			return []outcome{{next, []int{paused, idle}, end}}
		case begin > was.received:
			return []outcome{{drop, []int{paused}, 0}}
		case begin < was.received:
			return []outcome{{next, []int{paused}, was.received}}
		}
		return []outcome{{next, []int{served, idle, held, none}, was.next}, {drop, []int{held, served, none}, 0}, {redirect, []int{none}, 0}}
	}
	return nil
}

// headAgain says whether the segment has bytes of a head again that the stack has not got: unless it
// is all of the head, nobody can tell whether it says the same.
func (c *conn) headAgain(begin int, was *observation) bool {
	for _, s := range c.spans {
		if s.end == was.next {
			return was.received < s.begin+s.head && begin < s.begin+s.head
		}
	}
	return false
}

// toNobody is for connections of which there is no flow.
func (c *conn) toNobody(begin, end int, was *observation) []outcome {
	if was.socket != synReceived {
		return nil // older than the gate, or seen off
	}
	if end == begin || begin != 0 {
		return []outcome{{drop, []int{none}, 0}, {redirect, []int{none}, 0}}
	}
	return c.turn(c.spanAt(0), end)
}

// toGatherer is for segments of a request whose head is not whole.
func (c *conn) toGatherer(begin, end int, was *observation) []outcome {
	if begin == end {
		return []outcome{{next, []int{gathering, none}, begin}, {drop, []int{gathering, none}, begin}}
	}
	if begin != was.slotEnd {
		return []outcome{{redirect, []int{gathering, none}, 0}, {drop, []int{gathering, none}, 0}}
	}
	for i := range c.spans {
		if s := &c.spans[i]; was.slotEnd > s.begin && was.slotEnd < s.begin+s.head {
			if end < s.begin+s.head {
				return []outcome{{redirect, []int{gathering, none}, 0}}
			}
			return []outcome{{next, []int{served, idle}, s.end}, {redirect, []int{held, served, none}, 0}}
		}
	}
	return nil
}

// notePassed notes how far the data of a packet go that passes.
func (w *world) notePassed(frame []byte) {
	var e ends
	var s segment
	if parse(frame, &e, &s) && len(s.data) > 0 {
		w.passedFrom, w.passed, w.passes = s.seq, s.seq+uint32(len(s.data)), true
	}
}
