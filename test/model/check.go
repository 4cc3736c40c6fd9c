// SPDX-License-Identifier: Apache-2.0

package model

import "fmt"

// What a step finds that must not be.
const (
	badNone = iota
	badAdmitted
	badCount
	badList
	badFree
	badTwice
	badReleased
	badWritten
	badRead
	badUnlink
	badCrowded
	badOrder
)

var faults = [...]string{
	badAdmitted: "a request enters where there is no room",
	badCount:    "more requests leave service than have entered",
	badList:     "a node is taken out of a list in which it is not",
	badFree:     "a node is freed that was not in the hands of who frees it",
	badTwice:    "a request enters service for the second time",
	badReleased: "a request is released for the second time",
	badWritten:  "a slot is written that is another's",
	badRead:     "a head is read on from where reading had not stopped",
	badUnlink:   "a flow is taken out of the table that has not ended",
	badCrowded:  "a new connection is released into a full accept queue",
	badOrder:    "a request enters before one that waits and comes first",
}

// check says what is wrong with a state; empty: nothing.
func (m *Model) check(s *State) string {
	if s.Bad != badNone {
		return faults[s.Bad]
	}
	if fault := m.checkNodes(s); fault != "" {
		return fault
	}
	if fault := m.checkCounts(s); fault != "" {
		return fault
	}
	if fault := m.checkServer(s); fault != "" {
		return fault
	}
	if s.CPU[0].PC != idle {
		return ""
	}
	return m.checkQuiet(s)
}

// checkNodes: each slot is free, in a list, in the hands of one step, or kept by one flow.
func (m *Model) checkNodes(s *State) string {
	r := &s.Room
	for n := uint8(1); n <= m.Slots; n++ {
		x := &s.Node[n]
		lists := r.Due.count(n)*16 + r.Gather.count(n)*64
		for c := range r.Wait {
			lists += r.Wait[c].count(n) << (c * 2)
		}
		want := 0
		switch x.State {
		case nodeWaiting:
			want = 1 << (x.Class * 2)
		case nodeDue:
			want = 16
		case nodeGathering:
			want = 64
		}
		if lists != want {
			return fmt.Sprintf("node %d is in other lists than it says", n)
		}
		if hands := m.hands(s, n); (x.State == nodeTaken) != (hands == 1) || hands > 1 {
			return fmt.Sprintf("node %d is in the hands of %d steps, its state is %d", n, hands, x.State)
		}
		if keepers := s.keepers(n); x.State == nodeKept && keepers != 1 {
			return fmt.Sprintf("node %d is kept by %d flows", n, keepers)
		}
	}
	return ""
}

func (l *list) count(n uint8) int {
	found := 0
	for _, x := range l {
		if x == n {
			found++
		}
	}
	return found
}

func (m *Model) hands(s *State, n uint8) int {
	hands := 0
	for i := range s.CPU {
		c := &s.CPU[i]
		if c.Node == n || (c.PC == delFree && c.End == n) {
			hands++
		}
	}
	return hands
}

func (s *State) keepers(n uint8) int {
	keepers := 0
	for i := range s.Flow {
		if f := &s.Flow[i]; f.ID != 0 && f.Node == n {
			keepers++
		}
	}
	return keepers
}

// checkCounts: in service are flows, ghosts and releases that are not committed.
func (m *Model) checkCounts(s *State) string {
	var want [epochs][maxClass]uint8
	for i := range s.Flow {
		if f := &s.Flow[i]; f.State == flowServed && f.Age < epochs {
			want[f.Age][f.Class]++
		}
	}
	for _, g := range s.Room.Ghost {
		if g.Cookie != 0 && g.Age < epochs {
			want[g.Age][g.Class]++
		}
	}
	for i := range s.CPU {
		switch c := &s.CPU[i]; c.PC {
		case pickLook, putBack, withdrawRelease, commit:
			want[0][s.Node[c.Node].Class]++
		}
	}
	for c := range s.Room.In {
		sum := uint8(0)
		for e := range want {
			sum += want[e][c]
		}
		if s.Room.In[c] != sum || want != s.Room.Entered {
			return fmt.Sprintf("%d in service of class %d are counted, there are %d", s.Room.In[c], c, sum)
		}
	}
	return ""
}

// checkServer: what the server works on is counted, and not more than the limit.
func (m *Model) checkServer(s *State) string {
	n := uint8(0)
	for i := range m.Conns {
		k := &s.Conn[i]
		if k.Zombie {
			n++
			if !m.isHaunted(s, uint8(i)+1) {
				return fmt.Sprintf("the server works for connection %d, which was reset, and nobody counts it", i+1)
			}
		}
		if !m.works(s, i) || m.bodyMissing(s, i) || k.Excused {
			continue
		}
		n++
		if !m.isCounted(s, uint8(i)+1) {
			return fmt.Sprintf("the server works for connection %d, and nobody counts it", i+1)
		}
	}
	if n > s.Room.Most {
		return fmt.Sprintf("the server works on %d requests", n)
	}
	return ""
}

func (m *Model) isCounted(s *State, key uint8) bool {
	i := s.find(key)
	if i == 0 {
		return false
	}
	f := &s.Flow[i-1]
	return f.ID != 0 && f.State == flowServed && (m.TCP || f.Start/m.Pieces == s.Conn[key-1].Sent)
}

func (m *Model) isHaunted(s *State, key uint8) bool {
	for _, g := range s.Room.Ghost {
		if g.Cookie == key {
			return true
		}
	}
	for i := range s.CPU {
		if c := &s.CPU[i]; c.Of == key && (c.PC == sockLookup || c.PC == sockID || c.PC == sockHaunt) {
			return true
		}
	}
	return false
}

// checkQuiet is what holds while no step is under way.
func (m *Model) checkQuiet(s *State) string {
	r := &s.Room
	held := int8(0)
	for i := range s.Flow {
		f := &s.Flow[i]
		if f.Key == 0 {
			continue
		}
		if f.ID == 0 {
			return fmt.Sprintf("the flow of connection %d is in the table for ever", f.Key)
		}
		if f.State == flowHeld {
			held++
		}
		open := s.Conn[f.Key-1].Sock == sockOpen
		if open && f.State == flowServed && f.Age < epochs && !m.TCP && f.Start/m.Pieces < s.Conn[f.Key-1].Sent {
			return fmt.Sprintf("the request of connection %d in service was answered before", f.Key)
		}
	}
	if r.Balance != held {
		return fmt.Sprintf("%d requests wait, the counters say %d", held, r.Balance)
	}
	if (r.Due[0] != 0 || m.nextNode(s) != 0) && !r.Owed && r.Pass == 0 {
		return "a request could be released, or is to be rejected, and nobody was told"
	}
	return m.checkCopies(s)
}

// checkCopies: what the gate has acknowledged is with the stack, or in a slot.
func (m *Model) checkCopies(s *State) string {
	for i := range m.Conns {
		k := &s.Conn[i]
		if k.Acked <= k.Got || !k.Client || (k.Sock != sockOpen && k.Sock != sockRequest) {
			continue
		}
		f := s.find(uint8(i) + 1)
		if f == 0 || s.Flow[f-1].Node == 0 {
			return fmt.Sprintf("bytes of connection %d were acknowledged and are nowhere", i+1)
		}
	}
	return ""
}
