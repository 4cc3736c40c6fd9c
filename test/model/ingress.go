// SPDX-License-Identifier: Apache-2.0

package model

// ingress is a segment's way through bpf/gate/ingress.h and bpf/gate/decide/admission.h.
func (m *Model) ingress(s *State, c *cpu) {
	switch c.PC {
	case inLookup:
		m.inLookup(s, c)
	case inCopy:
		m.inCopy(s, c)
	case inSocket:
		m.inSocket(s, c)
	case inInsert:
		m.inInsert(s, c)
	case inFind:
		if c.Ptr = s.find(c.Key); c.Ptr == 0 {
			c.attend(drops)
			return
		}
		c.PC = inEnter
	case inEnter:
		m.tryEnter(s, c)
	case inTake:
		m.inTake(s, c)
	case inWait:
		m.tryWait(s, c)
	case inGather:
		m.tryGather(s, c)
	case inFree:
		s.freeNode(c.Node)
		m.settle(c)
	case inHeld:
		m.onHeld(s, c)
	case inClaim:
		m.claim(s, c)
	case inExtend:
		m.extend(s, c)
	case inUnclaim:
		m.unclaim(s, c)
	case inWhole:
		m.leaveSlot(s, c)
		c.Whole, c.From = true, c.Begin
		c.attend(passes)
	case inStamp:
		m.stamp(s, c)
	}
}

func (m *Model) inLookup(s *State, c *cpu) {
	c.Ptr = s.find(c.Key)
	if c.Ptr == 0 {
		c.PC = inSocket
		return
	}
	st := s.Flow[c.Ptr-1].State
	if st != flowHeld && st != flowGathering && c.Seg != segData {
		c.attend(passes)
		return
	}
	c.PC = inCopy
}

func (c *cpu) copy(f *flow) {
	c.F = copied{f.ID, f.State, f.Node, f.Next, f.New, f.Acked}
}

// unchanged says whether the flow is still the one that was copied, and in that state.
func (c *cpu) unchanged(f *flow) bool {
	return f.ID == c.F.ID && f.State == c.F.State && f.Next == c.F.Next
}

// inCopy is flow_step(), too: what a copy says is to be done.
func (m *Model) inCopy(s *State, c *cpu) {
	f := &s.Flow[c.Ptr-1]
	c.copy(f)
	if f.Key != c.Key && !m.is(recycled) {
		// The memory is another connection's by now: seen by a second look at the table.
		c.attend(drops)
		return
	}
	if f.ID == 0 {
		if m.is(passEnding) {
			c.attend(passes)
			return
		}
		c.attend(drops)
		return
	}
	if f.State == flowHeld || f.State == flowGathering {
		c.PC = inHeld
		return
	}
	if c.Seg != segData {
		c.attend(passes)
		return
	}
	m.onData(s, c, f)
}

// onData is data for a flow that is idle, served or paused.
func (m *Model) onData(s *State, c *cpu, f *flow) {
	got := s.Conn[c.Key-1].Got
	forgotten := f.State == flowServed && f.Age >= epochs
	switch {
	case m.TCP && f.State == flowServed && !forgotten:
		c.PC = inStamp
	case m.TCP && c.Seq == got:
		c.Begin = c.Seq
		c.PC = inEnter
	case m.TCP:
		c.attend(passes)
	case f.State == flowPaused && c.Seq == got:
		c.Begin = c.Seq
		c.PC = inEnter
	case c.Seq < f.Next && f.State == flowServed:
		c.PC = inStamp
	case c.Seq < f.Next && f.State == flowIdle:
		c.attend(passes)
	case c.Seq == f.Next && (f.State == flowIdle || forgotten && m.is(pipelineForgotten)):
		m.onIdle(s, c)
	default:
		c.attend(drops)
	}
}

// onIdle is the first piece of the next request.
func (m *Model) onIdle(s *State, c *cpu) {
	k := &s.Conn[c.Key-1]
	if c.Ack < k.Sent { // is_behind()
		c.attend(drops)
		return
	}
	if m.is(forgetNew) {
		c.F.New = false
	}
	c.Begin = c.Seq
	c.PC = inEnter
}

// inSocket is on_untracked(), on_half_open() and on_established().
func (m *Model) inSocket(s *State, c *cpu) {
	k := &s.Conn[c.Key-1]
	switch {
	case k.Sock == sockRequest && c.Seg == segRST:
		c.attend(passes)
	case k.Sock == sockRequest && c.Seg == segFIN:
		c.attend(drops)
	case k.Sock == sockRequest && c.Seq != 0:
		c.attend(drops) // forged
	case k.Sock == sockOpen && c.Seg == segData && c.Seq == k.Got && (m.TCP || c.Seq%m.Pieces == 0):
		c.PC = inInsert
	case k.Sock == sockRequest && c.Seg == segData:
		c.F.New = true
		c.PC = inInsert
	default:
		c.attend(passes)
	}
}

func (m *Model) inInsert(s *State, c *cpu) {
	if s.find(c.Key) != 0 {
		c.attend(drops)
		return
	}
	for i := range s.Flow {
		if s.Flow[i].Key != 0 {
			continue
		}
		id := s.freshID()
		s.Flow[i] = flow{Key: c.Key, ID: id, Next: c.Seq, Start: c.Seq, New: c.F.New, Class: m.class(s, c.Key)}
		c.F.ID, c.F.State, c.F.Next = id, flowIdle, c.Seq
		c.Begin = c.Seq
		c.PC = inFind
		return
	}
	c.attend(drops)
}

// class is what the policy says of a connection.
func (m *Model) class(s *State, key uint8) uint8 {
	if s.Room.Gone {
		return 0
	}
	return m.Class[key-1]
}

// end of the request that begins, or goes on, with the segment.
func (m *Model) next(c *cpu) uint8 {
	if m.TCP {
		return c.Seq + 1
	}
	return (c.Seq/m.Pieces + 1) * m.Pieces
}

// isWhole says whether the head is whole with the segment.
func (m *Model) isWhole(c *cpu) bool { return m.TCP || c.Seq%m.Pieces+1 >= m.Head }

// freeFor says whether the copied flow may take its turn.
func (m *Model) freeFor(s *State, f *flow, c *cpu) bool {
	if m.is(ignoreID) {
		return true
	}
	ok := f.ID == c.F.ID && s.isFree(f)
	ok = ok && (f.State == c.F.State || m.is(anyFree))
	return ok && (m.is(enterStale) || f.Next == c.F.Next)
}

func (m *Model) tryEnter(s *State, c *cpu) {
	f := &s.Flow[c.Ptr-1]
	if !m.freeFor(s, f, c) {
		c.Fail = false
		m.settle(c)
		return
	}
	s.advance()
	if m.isWhole(c) && m.mayEnter(s, m.class(s, c.Key)) {
		m.enterFlow(s, c, f)
		c.attend(passes)
		return
	}
	c.PC = inTake
}

func (m *Model) enterFlow(s *State, c *cpu, f *flow) {
	resumed := f.State == flowPaused
	f.Class = m.class(s, c.Key)
	if !resumed {
		f.Start, f.Next, f.Answer = c.Begin, m.next(c), c.Ack
	}
	f.Acked = f.Node != 0 // its head came in pieces
	if m.nextClass(s, f.Class+1) != noNumber {
		s.Bad = badOrder
	}
	m.enter(s, f.Class)
	m.beginService(s, f, resumed)
	m.watchFlow(s, f, m.has(f, c.Seq+1))
}

func (m *Model) inTake(s *State, c *cpu) {
	c.Node = m.takeNode(s)
	if c.Node == 0 {
		c.Fail = true
		m.settle(c)
		return
	}
	x := &s.Node[c.Node]
	x.Key, x.Flow, x.Begin, x.End, x.Class = c.Key, c.F.ID, c.Seq, c.Seq+1, m.class(s, c.Key)
	c.PC = inWait
	if !m.isWhole(c) {
		c.PC = inGather
	}
}

func (m *Model) tryWait(s *State, c *cpu) {
	f := &s.Flow[c.Ptr-1]
	c.Fail = false
	switch {
	case !m.freeFor(s, f, c):
		c.PC = inFree
	case m.mayEnter(s, m.class(s, c.Key)):
		m.enterFlow(s, c, f)
		c.Out, c.Then = passes, thenDone
		c.PC = inFree
	case !m.makePlace(s, m.class(s, c.Key)):
		c.Fail = true
		c.PC = inFree
	default:
		m.hold(s, c, f)
		c.attend(drops)
	}
	if c.PC == inFree && m.is(forgetFree) {
		m.settle(c)
	}
}

func (m *Model) hold(s *State, c *cpu, f *flow) {
	s.enqueue(c.Node)
	s.Room.Balance++
	if f.State != flowPaused {
		f.Start, f.Next, f.Answer = c.Begin, m.next(c), c.Ack
	}
	f.State = flowHeld
	f.Acked = false
	f.Node = c.Node
	f.Class = s.Node[c.Node].Class
	f.New = c.F.New
}

func (m *Model) tryGather(s *State, c *cpu) {
	f := &s.Flow[c.Ptr-1]
	c.Fail = false
	switch {
	case !m.freeFor(s, f, c):
		c.PC = inFree
	case !m.makePlace(s, m.class(s, c.Key)):
		c.Fail = true
		c.PC = inFree
	default:
		s.enlist(c.Node)
		f.State = flowGathering
		f.Node = c.Node
		f.Start, f.Next, f.Answer = c.Begin, c.Seq+1, c.Ack
		f.New = c.F.New
		m.acknowledge(s, c.Key, f, c.Seq+1)
		c.attend(drops)
	}
}

// acknowledge tells the client in the server's place that its pieces have arrived.
func (m *Model) acknowledge(s *State, key uint8, f *flow, end uint8) {
	f.Acked = true
	k := &s.Conn[key-1]
	k.Acked = max(k.Acked, end)
}

// settle is what remains to be done of a request that has not been held, and did not enter.
func (m *Model) settle(c *cpu) {
	if c.Then == thenDone {
		c.attend(passes)
		return
	}
	if !c.Fail && !c.F.New {
		c.attend(drops)
		return
	}
	c.ID = c.F.ID
	c.Want = !m.is(settleStale)
	c.Of = c.Key
	c.Then = thenAttend
	if c.Fail {
		c.Then = thenAnswer
	}
	c.Node = 0
	c.PC = delLock
}

// onHeld is a further segment while the flow's request waits, or its head is gathered.
func (m *Model) onHeld(s *State, c *cpu) {
	x := &s.Node[c.F.Node]
	c.Begin, c.End = x.Begin, x.End
	switch {
	case c.Seg != segData && c.Seq != x.End && (c.Seg == segFIN || c.Seq != x.Begin):
		c.attend(drops) // forged
	case c.Seg != segData: // on_give_up()
		c.ID = c.F.ID
		c.Want = !m.is(gaveUpStale)
		c.Of = c.Key
		c.Then = thenAnswer
		c.PC = delLock
	default:
		c.PC = inClaim
	}
}

func (m *Model) claim(s *State, c *cpu) {
	f := &s.Flow[c.Ptr-1]
	ok := f.ID == c.F.ID && f.State == c.F.State && f.Node == c.F.Node
	ok = ok && (f.Next == c.F.Next || m.is(claimStale))
	x := &s.Node[f.Node]
	ok = ok && (x.State == nodeWaiting || x.State == nodeGathering) && (!x.Busy || m.is(claimBusy))
	if !ok {
		c.attend(drops)
		return
	}
	x.Busy = true
	c.PC = inUnclaim
	limit := m.next(c)
	if c.Seq == c.End && (c.F.State == flowGathering || c.Seq < c.F.Next) && c.Seq < limit {
		c.PC = inExtend
	}
	if m.TCP && c.Seq == c.End && c.Seq < m.Requests {
		c.PC = inExtend
	}
}

// extend adds the segment's piece to the slot; the bytes are there before the lock is taken.
func (m *Model) extend(s *State, c *cpu) {
	f := &s.Flow[c.Ptr-1]
	x := &s.Node[c.F.Node]
	c.PC = inUnclaim
	if x.State == nodeFree || x.Flow != c.F.ID {
		s.Bad = badWritten // somebody else's slot
		return
	}
	if f.ID != c.F.ID || f.State != c.F.State {
		return
	}
	x.End = c.Seq + 1
	if m.TCP {
		f.Next = c.Seq + 1
		return
	}
	if f.State != flowGathering {
		return
	}
	if c.F.Next != c.Seq {
		s.Bad = badRead // read on from where it had not stopped
	}
	f.Next = c.Seq + 1
	m.acknowledge(s, c.Key, f, c.Seq+1)
	if m.isWhole(c) && x.State == nodeGathering {
		m.tryTurn(s, c, f)
	}
}

// tryTurn is what becomes of a head that is whole, in its slot.
func (m *Model) tryTurn(s *State, c *cpu, f *flow) {
	x := &s.Node[c.F.Node]
	s.withdraw(c.F.Node)
	x.Busy, x.Old = false, false
	s.advance()
	f.Next = m.next(c)
	if m.mayEnter(s, x.Class) {
		c.Node, c.ID = c.F.Node, c.F.ID
		c.Begin = x.Begin
		m.enterFlow(s, c, f)
		c.PC = inWhole
		return
	}
	s.enqueue(c.F.Node)
	s.Room.Balance++
	f.State = flowHeld
	c.attend(drops)
}

func (m *Model) unclaim(s *State, c *cpu) {
	x := &s.Node[c.F.Node]
	if x.State == nodeFree || x.State == nodeTaken || x.Flow != c.F.ID {
		s.Bad = badWritten
	}
	if !m.is(forgetUnclaim) {
		x.Busy = false
	}
	c.attend(drops)
}

// stamp notes, under the lock, that a piece of a request in service passes: silence is over.
func (m *Model) stamp(s *State, c *cpu) {
	f := &s.Flow[c.Ptr-1]
	if m.is(forgetStamp) {
		c.attend(passes)
		return
	}
	if f.ID != c.F.ID || f.State != flowServed {
		c.attend(drops)
		return
	}
	f.Moved = true
	if m.TCP {
		f.Next = max(f.Next, c.Seq+1)
	}
	m.watchFlow(s, f, s.Conn[c.Key-1].Got)
	c.attend(passes)
}
