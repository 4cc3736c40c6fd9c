// SPDX-License-Identifier: Apache-2.0

package model

// What must be possible from each state, shown by doing it: each of these is a path of the
// model's own steps.

// most steps that any of them takes.
const most = 2000

// play has a CPU run to the end, and notes the first fault on the way.
func (m *Model) play(s *State, run cpu, fault *string) {
	s.CPU[0] = run
	for range most {
		if *fault == "" {
			*fault = m.check(s)
		}
		if s.CPU[0].PC == idle || *fault != "" {
			return
		}
		m.run(s, 0)
	}
	*fault = "a run does not end"
}

// look has packets of the service, or ticks, come until all is done that can be done at once.
func (m *Model) look(s *State, tick bool, fault *string) {
	for range maxNodes + 2 {
		jiffy(s)
		run := cpu{PC: atGlance}
		if tick {
			run.PC = atDue
		}
		m.play(s, run, fault)
	}
}

// checkWakes: from each state, runs that are under way and packets of the service, or ticks,
// release or reject all that can be. Nobody has to come who is not there.
func (m *Model) checkWakes(s State, tick bool) string {
	fault := ""
	s.World = world{}
	m.look(&s, tick, &fault)
	switch {
	case fault != "":
		return fault
	case s.Room.Due[0] != 0:
		return "a request is to be rejected, and is not"
	case m.nextNode(&s) != 0:
		return "a request waits although there is room, and is not released"
	}
	age(&s)
	m.look(&s, tick, &fault)
	if s.waiting() != 0 || s.Room.Gather.len() != 0 {
		return "a request waits for longer than max_wait"
	}
	return fault
}

// checkSilence: a request whose body is missing leaves service; what the stack has not got
// comes before it again.
func (m *Model) checkSilence(s State) string {
	fault := ""
	s.World = world{}
	for range 2*m.Conns + 2 {
		silence(&s)
		m.look(&s, true, &fault)
	}
	if fault != "" {
		return fault
	}
	for i := range s.Flow {
		f := &s.Flow[i]
		if f.State != flowServed || f.Blind || f.Age >= epochs || f.Key == 0 {
			continue
		}
		k := &s.Conn[f.Key-1]
		if m.isMissed(f, k.Sock, k.Got) {
			return "a request that the stack has dropped occupies service"
		}
		if k.Sock != sockOpen || f.Next <= k.Got && !m.TCP {
			continue
		}
		if !m.TCP || k.Got <= k.Sent {
			return "a silent client occupies service"
		}
	}
	return m.checkCopies(&s)
}

// checkDrain: when traffic stops, all comes to zero, without max_service.
func (m *Model) checkDrain(s State) string {
	fault := ""
	s.World = world{}
	for range 2 {
		m.stop(&s, &fault)
	}
	switch {
	case fault != "":
		return fault
	case s.inService() != 0:
		return "traffic has stopped, and there are requests in service"
	case s.waiting() != 0 || s.Room.Gather.len() != 0 || s.Room.Due.len() != 0:
		return "traffic has stopped, and requests wait"
	}
	for n := range s.Node {
		if s.Node[n].State != nodeFree {
			return "traffic has stopped, and slots are taken"
		}
	}
	for i := range s.Flow {
		if s.Flow[i].Key != 0 {
			return "traffic has stopped, and flows are left"
		}
	}
	return ""
}

// stop has servers close all, and time pass.
func (m *Model) stop(s *State, fault *string) {
	for i := range m.Conns {
		k := &s.Conn[i]
		if k.Sock == sockRequest {
			k.Sock = sockNone
		}
		if k.Sock == sockOpen {
			k.Sock = sockClosing
			m.play(s, cpu{PC: outLookup, Key: uint8(i) + 1, Seg: segServerFIN, Seq: k.Sent}, fault)
		}
		if k.Sock == sockClosing {
			k.Sock = sockNone
			m.play(s, cpu{PC: sockLookup, Of: uint8(i) + 1}, fault)
		}
		k.Zombie = false
		m.play(s, cpu{PC: sockLay, Of: uint8(i) + 1}, fault)
	}
	age(s)
	m.look(s, true, fault)
	for i := range m.Conns {
		m.play(s, cpu{PC: oldLookup, Of: uint8(i) + 1}, fault)
	}
}
