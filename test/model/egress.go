// SPDX-License-Identifier: Apache-2.0

package model

// egress is the way of a segment from the server: bpf/gate/egress.h. The segment's number
// is that of the answer that it is, or after which it ends the connection.
func (m *Model) egress(s *State, c *cpu) {
	switch c.PC {
	case outLookup:
		if c.Ptr = s.find(c.Key); c.Ptr == 0 {
			c.attend(passes)
			return
		}
		c.PC = outCopy
	case outCopy:
		m.outCopy(s, c)
	case outNews:
		m.takeNews(s, c)
	case outEarly:
		m.outEarly(s, c)
	case outClosed:
		m.outClosed(s, c)
	case outFree:
		s.freeNode(c.Node)
		c.attend(passes)
	}
}

// outCopy is on_answer(): what the copy says is to be done.
func (m *Model) outCopy(s *State, c *cpu) {
	f := &s.Flow[c.Ptr-1]
	c.copy(f)
	// Bytes that answer a request before are old.
	old := c.Seg == segAnswer && !m.TCP && c.Seq < f.Answer
	switch {
	case f.Key != c.Key && !m.is(recycled):
		c.attend(passes)
	case f.ID == 0 || f.State == flowIdle || old:
		c.attend(passes)
	case (f.State == flowHeld || f.State == flowGathering) && c.Seg == segAnswer:
		c.PC = outEarly
	case f.State == flowHeld || f.State == flowGathering:
		c.PC = outClosed
	case m.TCP && c.Seg == segAnswer:
		c.attend(passes)
	default:
		c.PC = outNews
	}
}

func (m *Model) takeNews(s *State, c *cpu) {
	f := &s.Flow[c.Ptr-1]
	ok := f.ID == c.F.ID && (f.State == flowServed || f.State == flowPaused)
	ok = ok && (f.Next == c.F.Next || m.TCP || m.is(newsStale))
	if m.is(ignoreID) {
		ok = f.State == flowServed || f.State == flowPaused
	}
	if !ok && f.ID == c.F.ID && !m.is(newsMissed) {
		c.PC = outCopy // it has gone on meanwhile: what the answer means to it now
		return
	}
	if !ok {
		c.attend(passes)
		return
	}
	if f.State == flowServed {
		m.endService(s, f)
	}
	f.State = flowIdle
	c.attend(passes)
	if m.is(forgetAttend) {
		c.PC = atWatch
	}
	if c.Node = m.partNode(s, f); c.Node != 0 {
		c.PC = outFree
	}
}

// outEarly is on_answer_while_held(): the request came before the answer to the last.
func (m *Model) outEarly(s *State, c *cpu) {
	f := &s.Flow[c.Ptr-1]
	node := c.F.Node
	was := f.State
	ok := f.ID == c.F.ID && was == c.F.State && f.Node == node
	x := &s.Node[node]
	acked := c.F.Acked
	if !ok && f.ID == c.F.ID && !m.is(newsMissed) {
		c.PC = outCopy
		return
	}
	c.attend(passes)
	if acked || m.TCP {
		return // it cannot be left to come again
	}
	if ok && f.Start != x.Begin && !m.is(overReleased) {
		f.Over = true
	}
	if !ok || (x.State != nodeWaiting && x.State != nodeGathering) || x.Busy {
		return
	}
	s.withdraw(node)
	if was == flowHeld {
		s.Room.Balance--
	}
	if f.Start == x.Begin || m.is(resumeForgets) {
		f.Next = x.Begin // else: of a request that has been in service, which ends where it did
	}
	f.State = flowIdle
	f.Over = false
	f.Node = 0
	c.Node = node
	c.PC = outFree
}

// outClosed is on_closed_while_held(): the server closes a connection whose request waits.
func (m *Model) outClosed(s *State, c *cpu) {
	f := &s.Flow[c.Ptr-1]
	if f.ID == c.F.ID && (f.State == flowHeld || f.State == flowGathering) {
		x := &s.Node[f.Node]
		if (x.State == nodeWaiting || x.State == nodeGathering) && !x.Busy {
			s.makeDue(f.Node)
		}
	}
	c.attend(drops)
}
