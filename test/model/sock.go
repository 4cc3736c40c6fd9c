// SPDX-License-Identifier: Apache-2.0

package model

// socket is what the programs do that follow sockets: bpf/gate/sockets.h, and forget_old().
func (m *Model) socket(s *State, c *cpu) {
	switch c.PC {
	case sockLookup:
		c.Then = thenDone
		if c.Ptr = s.find(c.Of); c.Ptr == 0 {
			m.endedSocket(s, c)
			return
		}
		c.PC = sockID
	case sockID:
		f := &s.Flow[c.Ptr-1]
		c.ID = f.ID
		c.Want = false
		c.PC = delLock
		if f.Key != c.Of && !m.is(recycled) {
			m.endedSocket(s, c)
			return
		}
		if c.Reset && !m.is(resetFrees) {
			c.PC = sockHaunt
		}
	case sockHaunt:
		f := &s.Flow[c.Ptr-1]
		c.PC = delLock
		if f.ID == c.ID && f.ID != 0 && f.State == flowServed {
			m.haunt(s, f, c.Of)
			f.State = flowIdle
			c.PC = sockMap
		}
	case sockMap:
		for i := range s.Room.Ghost {
			if s.Room.Ghost[i].Cookie == c.Of {
				s.Room.Ghost[i].Known = true
			}
		}
		c.PC = delLock
	case sockLay:
		for i := range s.Room.Ghost {
			if s.Room.Ghost[i].Cookie == c.Of {
				m.lay(s, i)
				s.Room.Owed = true
				break
			}
		}
		*c = cpu{}
	case oldLookup:
		if c.Ptr = s.find(c.Of); c.Ptr == 0 {
			*c = cpu{}
			return
		}
		c.F.ID = s.Flow[c.Ptr-1].ID
		c.PC = oldCheck
	case oldCheck:
		m.forgetOld(s, c)
	}
}

// forgetOld ends a flow that still is in the table, although its connection is no more.
func (m *Model) forgetOld(s *State, c *cpu) {
	f := &s.Flow[c.Ptr-1]
	c.ID = c.F.ID
	if m.is(recycled) {
		c.ID = f.ID // read late, when the memory may be another connection's
	}
	if f.State == flowHeld || f.State == flowGathering || m.hasSocket(s, c.Of) || (c.ID == 0 && !m.is(endTwice)) {
		*c = cpu{}
		return
	}
	c.Want = false
	c.Then = thenDone
	c.PC = delLock
}

// hasSocket says whether a look-up finds a socket: not its last moments, when its programs run,
// unless they are the mistake.
func (m *Model) hasSocket(s *State, key uint8) bool {
	for i := range s.CPU {
		if c := &s.CPU[i]; c.Of == key && c.PC >= sockLookup && c.PC <= sockMap && !m.is(sweepEarly) {
			return true
		}
	}
	return s.Conn[key-1].Sock != sockNone
}
