// SPDX-License-Identifier: Apache-2.0

package model

// What bpf/room/ and bpf/room/flow.h do under the room's lock. Methods have the names of
// the functions that they stand for.

func (s *State) advance() {
	r := &s.Room
	for ; r.Pass > 0; r.Pass-- {
		if s.inService() == 0 {
			r.Pass = 0
			return
		}
		s.forgetEpoch()
	}
}

func (s *State) forgetEpoch() {
	r := &s.Room
	for c := range r.In {
		r.In[c] -= r.Entered[epochs-1][c]
	}
	copy(r.Entered[1:], r.Entered[:epochs-1])
	r.Entered[0] = [maxClass]uint8{}
	for i := range s.Flow {
		f := &s.Flow[i]
		if f.State == flowServed && f.Age < epochs {
			f.Age++
			if f.Age == epochs && f.Key != 0 {
				s.Conn[f.Key-1].Excused = true
			}
		}
	}
	for i := range r.Ghost {
		g := &r.Ghost[i]
		if g.Cookie != 0 && g.Age < epochs {
			g.Age++
			if g.Age == epochs {
				s.Conn[g.Cookie-1].Zombie = false
			}
		}
	}
}

func (m *Model) enter(s *State, class uint8) {
	r := &s.Room
	if !m.hasRoom(s) {
		s.Bad = badAdmitted
	}
	r.In[class]++
	r.Entered[0][class]++
}

func (m *Model) leave(s *State, class, age uint8) bool {
	if age >= epochs {
		if m.is(leaveForgotten) {
			s.Room.In[class]--
		}
		return false
	}
	r := &s.Room
	if r.In[class] == 0 || r.Entered[age][class] == 0 {
		s.Bad = badCount
		return false
	}
	r.In[class]--
	r.Entered[age][class]--
	return true
}

func (m *Model) hasRoom(s *State) bool { return s.inService() < s.Room.Limit }

// atMax says whether class 0 or 1 has its max in service.
func (m *Model) atMax(s *State, class uint8) bool {
	return m.Max[class] != 0 && s.Room.In[class] >= m.Max[class]
}

// nextClass gives the first class of so many ranks with somebody who could enter.
func (m *Model) nextClass(s *State, ranks uint8) uint8 {
	for c := range ranks {
		if s.Room.Wait[c][0] != 0 && !m.atMax(s, c) && (c == 0 || !s.Room.Gone) {
			return c
		}
	}
	return noNumber
}

func (m *Model) nextNode(s *State) uint8 {
	if !m.hasRoom(s) && !m.is(noLimit) {
		return 0
	}
	c := m.nextClass(s, maxClass)
	if c == noNumber && s.Room.Gone {
		c = 1 // classes that are in the policy no more come last
	}
	if c == noNumber {
		return 0
	}
	return s.Room.Wait[c][0]
}

func (m *Model) mayEnter(s *State, class uint8) bool {
	if m.is(jumpQueue) {
		return m.hasRoom(s) && !m.atMax(s, class)
	}
	return m.hasRoom(s) && !m.atMax(s, class) && m.nextClass(s, class+1) == noNumber
}

func (s *State) isFree(f *flow) bool {
	return f.State == flowIdle || f.State == flowPaused || (f.State == flowServed && f.Age >= epochs)
}

// overdueNode gives a node that has waited for max_wait.
func (s *State) overdueNode() uint8 {
	r := &s.Room
	for _, n := range []uint8{r.Gather[0], r.Wait[0][0], r.Wait[1][0]} {
		if n != 0 && s.Node[n].Old {
			return n
		}
	}
	return 0
}

func (s *State) withdraw(n uint8) {
	x := &s.Node[n]
	r := &s.Room
	ok := true
	switch x.State {
	case nodeWaiting:
		ok = r.Wait[x.Class].remove(n)
	case nodeDue:
		ok = r.Due.remove(n)
	case nodeGathering:
		ok = r.Gather.remove(n)
	}
	if !ok {
		s.Bad = badList
	}
	x.State = nodeTaken
}

func (s *State) makeDue(n uint8) {
	s.withdraw(n)
	s.Room.Due.push(n)
	s.Node[n].State = nodeDue
}

func (s *State) enqueue(n uint8) {
	s.Room.Wait[s.Node[n].Class].push(n)
	s.Node[n].State = nodeWaiting
}

func (s *State) enlist(n uint8) {
	s.Room.Gather.push(n)
	s.Node[n].State = nodeGathering
}

// makePlace makes a place in the queue. False: it is full.
func (m *Model) makePlace(s *State, class uint8) bool {
	r := &s.Room
	if s.waiting()+r.Gather.len() < m.Queue {
		return true
	}
	victim := r.Gather[0]
	if victim == 0 && r.Gone {
		victim = r.Wait[1][0]
	}
	if victim == 0 && class == 0 {
		victim = r.Wait[1][0]
	}
	if victim == 0 {
		return false
	}
	s.makeDue(victim)
	return true
}

// beginService makes the flow one whose request has entered service.
func (m *Model) beginService(s *State, f *flow, resumed bool) {
	f.State = flowServed
	f.Age = 0
	f.New = false
	f.Moved = false
	f.Young = true
	if f.Key == 0 {
		return
	}
	c := &s.Conn[f.Key-1]
	bit := uint8(1) << (f.Start / m.Pieces)
	gone := c.Sock == sockNone || c.Sock == sockClosing || c.Excused
	if c.Entered&bit != 0 && !resumed && !gone && !m.TCP {
		s.Bad = badTwice
	}
	c.Entered |= bit
	if !m.hasRequest(c) {
		c.Excused = false
	}
}

// endService ends what beginService began.
func (m *Model) endService(s *State, f *flow) {
	if !m.is(forgetLeave) {
		m.leave(s, f.Class, f.Age)
	}
	f.State = flowIdle
}

// partNode parts the flow from its node, and gives it if it is to be freed.
func (m *Model) partNode(s *State, f *flow) uint8 {
	n := f.Node
	f.Node = 0
	x := &s.Node[n]
	if n == 0 || x.State == nodeTaken || (x.Busy && !m.is(ignoreBusyEnd)) {
		return 0
	}
	s.withdraw(n)
	return n
}

// endFlow ends the flow whatever its state.
func (m *Model) endFlow(s *State, f *flow) uint8 {
	f.ID = 0
	if f.State == flowServed {
		m.endService(s, f)
	}
	if f.State == flowHeld && (s.Node[f.Node].State == nodeWaiting || !m.is(countWaiting)) {
		s.Room.Balance-- // gave_up, or rejected
	}
	f.State = flowIdle
	return m.partNode(s, f)
}

// takeNode takes the pool's lock.
func (m *Model) takeNode(s *State) uint8 {
	for n := uint8(1); n <= m.Slots; n++ {
		if s.Node[n].State == nodeFree {
			s.Node[n] = node{State: nodeTaken}
			return n
		}
	}
	return 0
}

// freeNode takes the pool's lock.
func (s *State) freeNode(n uint8) {
	if s.Node[n].State != nodeTaken && s.Node[n].State != nodeKept {
		s.Bad = badFree
	}
	s.Node[n] = node{}
}

// haunt keeps a request in service whose client is gone.
func (m *Model) haunt(s *State, f *flow, cookie uint8) {
	r := &s.Room
	for i := range r.Ghost {
		if r.Ghost[i].Cookie == 0 {
			r.Ghost[i] = ghost{Cookie: cookie, Class: f.Class, Age: f.Age}
			return
		}
	}
}

// lay ends a ghost's service.
func (m *Model) lay(s *State, i int) {
	r := &s.Room
	g := r.Ghost[i]
	if g.Cookie != 0 {
		m.leave(s, g.Class, g.Age)
		s.Conn[g.Cookie-1].Zombie = false // given up, if the server still works on it
	}
	copy(r.Ghost[i:], r.Ghost[i+1:])
	r.Ghost[maxRing-1] = ghost{}
}

// pushWatch puts the flow into the ring of those to be looked at again.
func (m *Model) pushWatch(s *State, f *flow) {
	if m.is(forgetWatch) {
		return
	}
	for i := range m.Ring {
		if s.Ring[i].Key == 0 {
			c := &s.Conn[f.Key-1]
			s.Ring[i] = watch{Key: f.Key, ID: f.ID, Got: c.Got, Sent: c.Sent}
			f.Watch = true
			f.Moved = false
			return
		}
	}
	f.Watch = false
	f.Blind = true
}

// has is what the stack is known to have of a request that enters and ends with a piece: where segments are
// dropped, nothing.
func (m *Model) has(f *flow, end uint8) uint8 {
	if m.Drops {
		return f.Start
	}
	return end
}

// watchFlow has the flow watched, if there is anything to see.
func (m *Model) watchFlow(s *State, f *flow, has uint8) {
	if f.Watch {
		return
	}
	f.Blind = !m.TCP && f.Node == 0 && has >= f.Next
	if !f.Blind {
		m.pushWatch(s, f)
	}
}
