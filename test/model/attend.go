// SPDX-License-Identifier: Apache-2.0

package model

// attend is what whoever has a packet does for a room: bpf/gate/attend.h, bpf/gate/watches.h, and
// serve() of bpf/gate/egress.h, which is run by the kick within the run that sent it.
func (m *Model) attend(s *State, c *cpu) {
	switch c.PC {
	case atWatch:
		c.Kicks = 0
		c.PC = verdict
		if s.Ring[0].Key != 0 && s.Ring[0].Due {
			c.PC = atPop
		}
	case atPop, atLook, atAct, atFree:
		m.watch(s, c)
	case atGlance:
		m.glance(s, c)
	case atDue:
		m.due(s, c)
	case atKick:
		m.kick(s, c)
	case pick:
		m.pickNext(s, c)
	case pickLook:
		m.releaseNode(s, c)
	case putBack, withdrawRelease, commit:
		m.conclude(s, c)
	case sendIn:
		m.sendIn(s, c)
	case nodeFreed:
		s.freeNode(c.Node)
		c.next()
	case rejectLook:
		m.rejectNode(s, c)
	case againLook, againCheck:
		m.again(s, c)
	case verdict:
		m.verdict(s, c)
	}
}

// glance is seems_due().
func (m *Model) glance(s *State, c *cpu) {
	r := &s.Room
	c.PC = atWatch
	switch {
	case r.Due[0] != 0:
		c.PC = atDue
	case s.waiting() == 0 && r.Gather[0] == 0:
	case s.waiting() != 0 && m.hasRoom(s) && !r.Stuck:
		c.PC = atDue
	case !r.Looked:
		r.Looked = true
		c.PC = atDue
	}
}

// due is what_is_due().
func (m *Model) due(s *State, c *cpu) {
	r := &s.Room
	if c.Kicks >= maxKicks {
		r.Owed = true
		c.PC = atWatch
		return
	}
	s.advance()
	if s.overdueNode() != 0 || r.Due[0] != 0 || (!r.Stuck && m.nextNode(s) != 0) {
		c.PC = atKick
		return
	}
	if !r.Stuck {
		r.Owed = false
	}
	c.PC = atWatch
}

func (m *Model) kick(s *State, c *cpu) {
	c.Kicks++
	if s.World.NoClone {
		s.Room.Owed = true
		c.PC = atWatch // as often as it tries
		return
	}
	c.Kick = true
	c.PC = pick
}

func (m *Model) pickNext(s *State, c *cpu) {
	r := &s.Room
	if r.Due[0] == 0 {
		if n := s.overdueNode(); n != 0 && !s.Node[n].Busy {
			s.makeDue(n)
		}
	}
	n := r.Due[0]
	if n == 0 || s.Node[n].Busy {
		n = m.nextNode(s)
	}
	x := &s.Node[n]
	if n == 0 || (x.Busy && !m.is(ignoreBusy)) {
		c.next()
		return
	}
	c.Node = n
	c.ID = x.Flow
	due := x.State == nodeDue
	s.withdraw(n)
	switch {
	case due && x.Again:
		c.PC = againLook
	case due:
		c.PC = rejectLook
	default:
		m.enter(s, x.Class)
		c.PC = pickLook
	}
}

// releaseNode looks, without the lock, at what the release needs.
func (m *Model) releaseNode(s *State, c *cpu) {
	x := &s.Node[c.Node]
	k := &s.Conn[x.Key-1]
	c.Of = x.Key
	c.Ptr = s.find(x.Key)
	live := c.Ptr != 0 && s.Flow[c.Ptr-1].ID == c.ID
	fresh := live && s.Flow[c.Ptr-1].New
	ready := c.Ptr != 0 && (k.Sock == sockRequest || k.Sock == sockOpen)
	c.PC = withdrawRelease
	switch {
	case fresh && s.World.Crowded && k.Sock == sockRequest:
		c.PC = putBack
	case ready:
		c.PC = commit
		if live && s.World.Crowded && k.Sock == sockRequest {
			s.Bad = badCrowded
		}
	}
}

// conclude is put_back(), withdraw_release() and commit_release().
func (m *Model) conclude(s *State, c *cpu) {
	x := &s.Node[c.Node]
	switch {
	case c.PC == putBack:
		if !m.is(keepCount) {
			m.leave(s, x.Class, 0)
		}
		s.Room.Wait[x.Class].pushFront(c.Node)
		x.State = nodeWaiting
		s.Room.Stuck = true
		s.Room.Owed = true
		c.next()
	case c.PC == withdrawRelease:
		if !m.is(leaveFailed) {
			m.leave(s, x.Class, 0)
		}
		c.PC = rejectLook
	case m.commits(s, c):
		m.committed(s, c)
	default:
		if !m.is(leaveFailed) {
			m.leave(s, x.Class, 0)
		}
		c.PC = nodeFreed
		if m.is(forgetFreeFailed) {
			c.next()
		}
	}
}

func (m *Model) commits(s *State, c *cpu) bool {
	f := &s.Flow[c.Ptr-1]
	if m.is(commitBlind) {
		return true
	}
	if f.ID != c.ID || f.State != flowHeld || f.Node != c.Node {
		return false
	}
	if f.Over { // while it was in our hands
		f.State, f.Node, f.Over = flowIdle, 0, false
		s.Room.Balance--
		return false
	}
	return true
}

func (m *Model) committed(s *State, c *cpu) {
	f := &s.Flow[c.Ptr-1]
	x := &s.Node[c.Node]
	k := &s.Conn[x.Key-1]
	s.Room.Balance--
	bit := uint8(1) << (x.Begin / m.Pieces)
	resumed := x.Begin != f.Start
	if resumed || m.TCP {
		bit = 0
	}
	if k.Released&bit != 0 && !k.Excused {
		s.Bad = badReleased
	}
	k.Released |= bit
	f.Node = 0
	f.Class = x.Class
	m.beginService(s, f, resumed)
	if f.Acked && !m.is(forgetKeep) {
		f.Node = c.Node
	}
	x.Old = false
	m.watchFlow(s, f, m.has(f, x.End))
	c.PC = sendIn
}

// sendIn makes the clone the request and puts it before the stack. The node is free then, or
// the flow keeps it.
func (m *Model) sendIn(s *State, c *cpu) {
	x := &s.Node[c.Node]
	key, begin, end := x.Key, x.Begin, x.End
	m.leaveSlot(s, c)
	if !s.World.NoLink {
		m.deliver(s, key, begin, end)
	}
	c.next()
}

// leaveSlot frees a node whose request has become a packet, unless its flow keeps it.
func (m *Model) leaveSlot(s *State, c *cpu) {
	f := &s.Flow[c.Ptr-1]
	switch {
	case f.ID == c.ID && f.Node == c.Node || m.is(keepUnchecked) && s.Node[c.Node].Again:
		s.Node[c.Node].State = nodeKept
		s.Node[c.Node].Again = false
	case !m.is(forgetFreeSent):
		s.freeNode(c.Node)
	}
	c.Node = 0
}

// deliver is the stack with a segment of data.
func (m *Model) deliver(s *State, key, begin, end uint8) {
	k := &s.Conn[key-1]
	if s.World.NoTake {
		return
	}
	if k.Sock == sockRequest && begin == 0 && !s.World.Crowded {
		k.Sock = sockOpen
	}
	if k.Sock == sockOpen && begin <= k.Got && end > k.Got {
		k.Got = end
		k.Acked = max(k.Acked, end)
	}
}

// rejectNode finds the flow of a request that is to be rejected.
func (m *Model) rejectNode(s *State, c *cpu) {
	x := &s.Node[c.Node]
	c.Of = x.Key
	c.Begin = x.Begin
	c.Ptr = s.find(x.Key)
	if c.Ptr == 0 || s.Flow[c.Ptr-1].ID != c.ID {
		c.PC = nodeFreed // its client has gone
		return
	}
	if m.is(countWaiting) {
		s.Room.Balance--
	}
	c.Want = false
	c.Then = thenAnswer
	c.PC = delLock
}

// again has a kept request put before the stack once more, if its flow still keeps it.
func (m *Model) again(s *State, c *cpu) {
	x := &s.Node[c.Node]
	if c.PC == againLook {
		c.Of = x.Key
		c.Ptr = s.find(x.Key)
		c.PC = againCheck
		if c.Ptr == 0 {
			c.PC = nodeFreed
		}
		return
	}
	f := &s.Flow[c.Ptr-1]
	if f.ID != c.ID || f.Node != c.Node {
		c.PC = nodeFreed
		return
	}
	m.watchFlow(s, f, x.End)
	c.PC = sendIn
}

// verdict lets go of the run's own packet.
func (m *Model) verdict(s *State, c *cpu) {
	key, seg, seq, out, whole, from := c.Key, c.Seg, c.Seq, c.Out, c.Whole, c.From
	*c = cpu{}
	if out == drops || key == 0 {
		return
	}
	k := &s.Conn[key-1]
	switch seg {
	case segData:
		if !whole {
			from = seq
		}
		m.deliver(s, key, from, seq+1)
	case segAnswer:
		k.Heard = max(k.Heard, seq+1)
	case segServerFIN:
		k.Client = false
	case segRST:
		if k.Sock == sockRequest && seq == k.Got {
			k.Sock = sockNone
		}
		if k.Sock == sockOpen && seq == k.Got {
			c.Key, c.Late = key, true
			m.reset(s, c, key)
		}
	}
}

// watch is what is done for flows that have been silent for 200 ms.
func (m *Model) watch(s *State, c *cpu) {
	switch c.PC {
	case atPop:
		m.popWatch(s, c)
	case atLook:
		c.Ptr = s.find(c.Old.Key)
		k := &s.Conn[c.Old.Key-1]
		c.Sock, c.Got, c.Sent = k.Sock, k.Got, k.Sent
		c.PC = atAct
		if c.Ptr == 0 {
			c.Old, c.ID, c.Sock, c.Got, c.Sent = watch{}, 0, 0, 0, 0
			c.PC = atWatch
			return
		}
		c.copy(&s.Flow[c.Ptr-1])
	case atAct:
		m.lookAgain(s, c)
	case atFree:
		s.freeNode(c.Node)
		c.Node = 0
		c.PC = atGlance
	}
}

func (m *Model) popWatch(s *State, c *cpu) {
	c.PC = atWatch
	if s.Ring[0].Key == 0 || !s.Ring[0].Due {
		return
	}
	c.Old = s.Ring[0]
	copy(s.Ring[:], s.Ring[1:])
	s.Ring[maxRing-1] = watch{}
	c.ID = c.Old.ID
	c.PC = atLook
}

// lookAgain acts, under the lock, on what the socket said before.
func (m *Model) lookAgain(s *State, c *cpu) {
	f := &s.Flow[c.Ptr-1]
	sock, got, sent, old := c.Sock, c.Got, c.Sent, c.Old
	id, ptr, was := c.ID, c.Ptr, c.F
	c.Old, c.Sock, c.Got, c.Sent, c.Ptr, c.ID, c.F = watch{}, 0, 0, 0, 0, 0, copied{}
	c.PC = atGlance
	if f.ID != id || f.ID == 0 {
		return
	}
	f.Watch = false
	if f.State != flowServed {
		return
	}
	if (was.State != flowServed || was.Next != f.Next && !m.TCP) && !m.is(lookStale) {
		m.pushWatch(s, f) // it has entered service since
		return
	}
	missed := m.isMissed(f, sock, got)
	silent := got == old.Got && !f.Moved
	switch x := &s.Node[f.Node]; {
	case f.Node != 0 && x.State == nodeKept && got >= x.End:
		c.Node = m.partNode(s, f)
		c.PC = atFree
	case f.Node != 0 && x.State == nodeKept && missed && x.Old && !s.World.Crowded:
		m.giveUp(s, f)
		return
	case f.Node != 0 && x.State == nodeKept:
		x.Again = true
		s.makeDue(f.Node)
	case f.Node != 0: // being put before the stack
	case missed && m.mayRetract(f):
		m.retract(s, f, sock)
		if sock == sockRequest {
			c.forget(f, ptr)
		}
		return
	case m.TCP && silent && sent == old.Sent && got <= sent:
		m.endService(s, f)
		return
	case !m.TCP && silent && got < f.Next && got != f.Start:
		m.pause(s, f)
		return
	case missed:
		m.pushWatch(s, f)
		return
	}
	m.watchFlow(s, f, got)
}

// isMissed says whether the stack has nothing of the request in service.
func (m *Model) isMissed(f *flow, sock, got uint8) bool {
	if m.TCP || f.Age >= epochs {
		return false
	}
	return sock == sockRequest || sock == sockOpen && got == f.Start && f.Start < f.Next
}

// mayRetract says whether nothing of the request in service can be on its way to the stack.
func (m *Model) mayRetract(f *flow) bool {
	if f.Acked || m.is(forgetUntaken) {
		return false
	}
	return (!f.Moved || m.is(retractMoved)) && (!f.Young || m.is(retractYoung))
}

// retract has the flow's request take its turn as if it had not come, when it comes again.
func (m *Model) retract(s *State, f *flow, sock uint8) {
	m.leave(s, f.Class, f.Age)
	f.State = flowIdle
	f.Next = f.Start
	f.New = sock == sockRequest
	k := &s.Conn[f.Key-1]
	bit := uint8(1) << (f.Start / m.Pieces)
	k.Entered &^= bit
	k.Released &^= bit
}

// giveUp has a request rejected that the stack does not take, and of which the gate has the only copy.
func (m *Model) giveUp(s *State, f *flow) {
	if !m.is(giveUpCounted) {
		m.pause(s, f)
	}
	f.State = flowHeld
	s.Room.Balance++
	s.makeDue(f.Node)
}

// forget is forget_retracted(): there is nothing else of the flow's connection.
func (c *cpu) forget(f *flow, place uint8) {
	c.copy(f)
	c.Ptr, c.ID, c.Of = place, f.ID, f.Key
	c.Want, c.Then = true, thenGlance
	c.PC = delLock
}

// pause takes a request whose body is missing out of service.
func (m *Model) pause(s *State, f *flow) {
	m.leave(s, f.Class, f.Age)
	f.State = flowPaused
}
