// SPDX-License-Identifier: Apache-2.0

package model

// end is delete_flow() and what its callers do then: bpf/room/flow.h, bpf/emit/reply.h.
func (m *Model) end(s *State, c *cpu) {
	switch c.PC {
	case delLock:
		m.deleteFlow(s, c)
	case delFree:
		s.freeNode(c.End)
		c.End = 0
		c.PC = delUnlink
	case delUnlink:
		// It stays until the stack has been told: a flow that is not found is a stranger's,
		// of which bytes pass.
		if c.Then != thenAnswer || m.is(unlinkFirst) {
			s.unlink(s.find(c.Of))
		}
		m.ended(s, c)
	case inAnswer:
		m.answer(s, c)
	}
}

// unlink makes the flow's memory free for another, whatever its state was.
func (s *State) unlink(i uint8) {
	if i == 0 {
		return
	}
	f := &s.Flow[i-1]
	if f.ID != 0 {
		s.Bad = badUnlink
	}
	*f = flow{}
}

func (m *Model) deleteFlow(s *State, c *cpu) {
	f := &s.Flow[c.Ptr-1]
	mine := f.ID == c.ID && (c.ID != 0 || m.is(endTwice))
	if c.Want {
		mine = mine && c.unchanged(f)
	}
	if m.is(ignoreID) {
		mine = true
	}
	if !mine {
		m.notMine(s, c)
		return
	}
	if f.State == flowServed && c.Then == thenDone {
		s.Room.Owed = true // nobody who has a packet
	}
	c.End = m.endFlow(s, f)
	c.PC = delUnlink
	if c.End != 0 && m.is(forgetFreeEnd) {
		c.End = 0
	}
	if c.End != 0 {
		c.PC = delFree
	}
}

// notMine goes on when another has changed the flow, or ended it.
func (m *Model) notMine(s *State, c *cpu) {
	if c.Then == thenAnswer {
		c.Then = thenAttend
		if c.Kick {
			c.Then = thenFree
		}
	}
	m.ended(s, c)
}

// ended goes on behind the end of the flow.
func (m *Model) ended(s *State, c *cpu) {
	switch {
	case c.Then == thenAnswer:
		c.PC = inAnswer
	case c.Then == thenFree && c.Node != 0:
		c.PC = nodeFreed
	case c.Then == thenGlance:
		c.attend(c.Out)
	case c.Nested || c.Then == thenDone:
		m.endedSocket(s, c)
	case c.Kick:
		c.next()
	default:
		c.attend(drops)
	}
}

// endedSocket goes on behind the programs of a socket.
func (m *Model) endedSocket(s *State, c *cpu) {
	if !c.Nested {
		*c = cpu{}
		return
	}
	c.Nested = false
	if c.Kick {
		c.next()
		return
	}
	if c.Late {
		*c = cpu{}
		return
	}
	c.attend(drops)
}

// answer is what the client is told, and the RST that ends what the stack has. It is made to
// fit the socket exactly: one that has got more meanwhile does not take it.
func (m *Model) answer(s *State, c *cpu) {
	k := &s.Conn[c.Of-1]
	k.Client = false
	if !m.is(unlinkFirst) {
		s.unlink(s.find(c.Of))
	}
	if c.Kick && c.Node != 0 {
		s.freeNode(c.Node)
		c.Node = 0
	}
	begin := c.Begin
	if k.Sock == sockOpen && k.Got == begin {
		m.reset(s, c, c.Of)
		return
	}
	if k.Sock == sockRequest && begin == 0 {
		k.Sock = sockNone
	}
	if c.Kick {
		c.next()
		return
	}
	c.attend(drops)
}

// reset has the stack close an established socket, whose programs run at once.
func (m *Model) reset(s *State, c *cpu, key uint8) {
	k := &s.Conn[key-1]
	k.Zombie = m.works(s, int(key)-1) && !m.bodyMissing(s, int(key)-1) && !k.Excused
	k.Sock = sockNone
	k.Excused = false
	c.Nested = true
	c.Reset = true
	c.Of = key
	c.PC = sockLookup
}
