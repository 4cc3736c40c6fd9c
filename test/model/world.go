// SPDX-License-Identifier: Apache-2.0

package model

// Config bounds a scenario: how many of what there are, and what may happen.
type Config struct {
	Conns    int
	CPUs     int
	Slots    uint8
	Queue    uint8
	Limit    uint8
	Requests uint8 // of a connection
	Pieces   uint8 // of a request
	Head     uint8 // of these, its head
	Ring     uint8 // places for watches
	Class    [maxConns]uint8
	Max      [maxClass]uint8
	TCP      bool // the service is tls or tcp

	// What may happen beside segments, answers and ticks.
	Resets   bool  // clients reset
	FINs     bool  // clients close
	Closes   bool  // the server closes
	Crowds   bool  // accept queues fill up
	Loses    bool  // clones are lost, interfaces vanish
	Drops    bool  // the stack drops what it is given: wrong checksums, old timestamps
	Ages     bool  // max_wait passes
	Epochs   bool  // max_service passes
	Reloads  bool  // limits change, a class vanishes
	Lies     bool  // clients acknowledge what they have not got
	Backlog  bool  // request sockets end
	Watches  bool  // 200 ms pass
	Changes  uint8 // of the world: how often it turns
	Lives    uint8
	Hostile  uint8 // so many connections reset and close, 0: all
	NoTick   bool
	NoRepeat bool // clients do not send again what the stack has
}

// Model is a configuration, and deliberate mistakes in the rules.
type Model struct {
	Config
	Mistake mistake
}

func (m *Model) is(x mistake) bool { return m.Mistake&x != 0 }

// start is the first state: all connections are at the end of their handshake.
func (m *Model) start() State {
	var s State
	for i := range m.Conns {
		s.Conn[i] = conn{Sock: sockRequest, Client: true, Lives: m.Lives}
	}
	s.Room.Limit, s.Room.Most = m.Limit, m.Limit
	s.World.Changes = m.Changes
	return s
}

// works says whether the server works on a request of the connection.
func (m *Model) works(s *State, i int) bool {
	k := &s.Conn[i]
	return k.Sock == sockOpen && m.hasRequest(k)
}

// hasRequest says whether the stack has the head of a request that is not answered.
func (m *Model) hasRequest(k *conn) bool {
	if m.TCP {
		return k.Got > k.Sent
	}
	return k.Got >= k.Sent*m.Pieces+m.Head && k.Sent < m.Requests
}

// bodyMissing says whether it waits for more of it.
func (m *Model) bodyMissing(s *State, i int) bool {
	k := &s.Conn[i]
	return !m.TCP && k.Got < (k.Sent+1)*m.Pieces
}

// Step is what leads from a state to the next.
type Step struct {
	CPU  int // −1: it is no CPU's
	Do   pc  // of a CPU that goes on
	What string
	Key  uint8
	Seq  uint8
}

type emit func(Step, *State)

// each calls for all states that may follow.
func (m *Model) each(s *State, to emit) {
	for i := range m.CPUs {
		if s.CPU[i].PC == idle {
			continue
		}
		n := *s
		m.run(&n, i)
		m.tidy(&n)
		to(Step{CPU: i, Do: s.CPU[i].PC, Key: max(s.CPU[i].Key, s.CPU[i].Of), Seq: s.CPU[i].Seq}, &n)
	}
	m.arrivals(s, to)
	m.worldly(s, to)
	m.times(s, to)
}

// tidy makes states equal that differ in nothing that matters: which CPU does what.
func (m *Model) tidy(s *State) {
	if less(&s.CPU[1], &s.CPU[0]) {
		s.CPU[0], s.CPU[1] = s.CPU[1], s.CPU[0]
	}
	for i := range s.Conn {
		k := &s.Conn[i]
		if k.Sock == sockNone && s.find(uint8(i)+1) == 0 {
			k.Excused = false
		}
	}
}

func less(a, b *cpu) bool {
	x := [...]uint8{uint8(a.PC), a.Key, a.Seg, a.Seq, a.Ptr, a.F.ID, a.F.State, a.F.Node, a.F.Next, a.ID, a.Node, a.Of}
	y := [...]uint8{uint8(b.PC), b.Key, b.Seg, b.Seq, b.Ptr, b.F.ID, b.F.State, b.F.Node, b.F.Next, b.ID, b.Node, b.Of}
	for i := range x {
		if x[i] != y[i] {
			return x[i] > y[i] // a CPU that is idle comes last
		}
	}
	return false
}

// free gives a CPU that has nothing to do, −1: there is none.
func (m *Model) free(s *State) int {
	for i := range m.CPUs {
		if s.CPU[i].PC == idle {
			return i
		}
	}
	return -1
}

// begin has an idle CPU run the programs.
func (m *Model) begin(s *State, to emit, what string, run cpu, change func(*State)) {
	i := m.free(s)
	if i < 0 {
		return
	}
	n := *s
	if change != nil {
		change(&n)
	}
	n.CPU[i] = run
	m.tidy(&n)
	to(Step{CPU: i, What: what, Key: max(run.Key, run.Of), Seq: run.Seq}, &n)
}

// arrivals are packets, and what sockets do.
func (m *Model) arrivals(s *State, to emit) {
	for i := range m.Conns {
		key := uint8(i) + 1
		if s.Conn[i].Client {
			m.fromClient(s, to, key)
		}
		m.fromServer(s, to, key)
	}
	if !m.NoTick {
		m.begin(s, to, "tick", cpu{PC: atDue}, nil)
	}
}

func (m *Model) fromClient(s *State, to emit, key uint8) {
	k := &s.Conn[key-1]
	if k.Sock == sockNone && k.Lives == 0 {
		return
	}
	low := k.Acked
	if low > 0 && !m.NoRepeat {
		low--
	}
	for seq := low; seq <= k.Acked+1 && seq < m.Requests*m.Pieces; seq++ {
		m.begin(s, to, "data", cpu{PC: inLookup, Key: key, Seg: segData, Seq: seq, Ack: k.Heard}, nil)
		if m.Lies && k.Heard < k.Sent {
			m.begin(s, to, "data that lies", cpu{PC: inLookup, Key: key, Seg: segData, Seq: seq, Ack: k.Sent}, nil)
		}
	}
	if m.Hostile > 0 && key > m.Hostile {
		return
	}
	for seq := k.Acked; seq <= k.Acked+1; seq++ {
		if m.Resets {
			m.begin(s, to, "RST", cpu{PC: inLookup, Key: key, Seg: segRST, Seq: seq}, nil)
		}
		if m.FINs && seq > k.Got {
			m.begin(s, to, "FIN", cpu{PC: inLookup, Key: key, Seg: segFIN, Seq: seq}, nil)
		}
	}
}

func (m *Model) fromServer(s *State, to emit, key uint8) {
	i := int(key) - 1
	k := s.Conn[i]
	if m.works(s, i) {
		m.begin(s, to, "answer", cpu{PC: outLookup, Key: key, Seg: segAnswer, Seq: k.Sent}, func(n *State) {
			n.Conn[i].Sent++
			n.Conn[i].Excused = false
		})
	}
	if k.Sock == sockOpen && k.Heard < k.Sent && k.Client {
		m.begin(s, to, "answer again", cpu{PC: outLookup, Key: key, Seg: segAnswer, Seq: k.Heard}, nil)
	}
	honest := m.Hostile > 0 && key > m.Hostile
	if m.Closes && !honest && k.Sock == sockOpen {
		m.begin(s, to, "server's FIN", cpu{PC: outLookup, Key: key, Seg: segServerFIN, Seq: k.Sent}, func(n *State) {
			n.Conn[i].Sock = sockClosing
		})
	}
	if k.Sock == sockClosing {
		m.begin(s, to, "socket ends", cpu{PC: sockLookup, Of: key}, func(n *State) { n.Conn[i].Sock = sockNone })
	}
	if m.Resets && (k.Zombie || m.hasGhost(s, key)) {
		m.begin(s, to, "server closes a reset socket", cpu{PC: sockLay, Of: key}, func(n *State) { n.Conn[i].Zombie = false })
	}
	if k.Sock == sockNone && s.find(key) != 0 {
		m.begin(s, to, "sweep", cpu{PC: oldLookup, Of: key}, nil)
	}
}

func (m *Model) hasGhost(s *State, key uint8) bool {
	for _, g := range s.Room.Ghost {
		if g.Cookie == key && g.Known {
			return true
		}
	}
	return false
}

// change is something that happens to no packet.
func (m *Model) change(s *State, to emit, what string, do func(*State)) {
	n := *s
	do(&n)
	m.tidy(&n)
	if n != *s {
		to(Step{CPU: -1, What: what}, &n)
	}
}

func (m *Model) worldly(s *State, to emit) {
	if m.Crowds && s.World.Changes > 0 {
		m.change(s, to, "accept queue full, or not", func(n *State) {
			n.World.Changes--
			n.World.Crowded = !n.World.Crowded
		})
	}
	if m.Loses && s.World.Changes > 0 {
		m.change(s, to, "clones lost, or not", func(n *State) {
			n.World.Changes--
			n.World.NoClone = !n.World.NoClone
		})
		m.change(s, to, "interface gone, or back", func(n *State) {
			n.World.Changes--
			n.World.NoLink = !n.World.NoLink
		})
	}
	if m.Drops && s.World.Changes > 0 {
		m.change(s, to, "the stack drops segments, or not", func(n *State) {
			n.World.Changes--
			n.World.NoTake = !n.World.NoTake
		})
	}
	for i := range m.Conns {
		if m.Backlog && (m.Hostile == 0 || i < int(m.Hostile)) && s.Conn[i].Sock == sockRequest {
			m.change(s, to, "request socket ends", func(n *State) { n.Conn[i].Sock = sockNone })
		}
		if s.Conn[i].Lives > 0 && s.Conn[i].Sock == sockNone && m.gone(s, uint8(i)+1) {
			m.change(s, to, "handshake", func(n *State) {
				n.Conn[i] = conn{Sock: sockRequest, Client: true, Lives: s.Conn[i].Lives - 1}
			})
		}
	}
	if m.Reloads && s.World.Changes > 0 {
		m.change(s, to, "limit lowered to 1", func(n *State) { n.World.Changes--; n.Room.Limit = 1 })
		m.change(s, to, "limit raised to 2", func(n *State) {
			n.World.Changes--
			n.Room.Limit, n.Room.Most, n.Room.Owed = 2, 2, true
		})
		m.change(s, to, "class 1 vanishes", func(n *State) {
			n.World.Changes--
			n.Room.Gone, n.Room.Owed = true, true
		})
	}
}

// gone says whether nothing is known any more of a connection that has ended.
func (m *Model) gone(s *State, key uint8) bool {
	if s.find(key) != 0 || s.Conn[key-1].Zombie {
		return false
	}
	for i := range s.Node {
		if s.Node[i].Key == key {
			return false
		}
	}
	for i := range s.CPU {
		ends := s.CPU[i].Key == 0 && s.CPU[i].PC >= delLock && s.CPU[i].PC <= delUnlink
		if !ends && (s.CPU[i].Key == key || s.CPU[i].Of == key) {
			return false
		}
	}
	for i := range s.Room.Ghost {
		if s.Room.Ghost[i].Cookie == key {
			return false
		}
	}
	return true
}

// times is time that passes. Runs are short: epochs and silences last longer than any.
func (m *Model) times(s *State, to emit) {
	if s.Room.Stuck || s.Room.Looked {
		m.change(s, to, "the clock ticks", jiffy)
	}
	if m.Ages {
		m.change(s, to, "max_wait passes", age)
	}
	if m.free(s) != 0 {
		return // some CPU runs: all that is idle stands last
	}
	if m.Watches {
		m.change(s, to, "200 ms pass", silence)
	}
	if m.Epochs {
		m.change(s, to, "an epoch passes", func(n *State) { n.Room.Pass, n.Room.Owed = 1, true })
	}
}

func jiffy(n *State) { n.Room.Stuck, n.Room.Looked = false, false }

func age(n *State) {
	for i := range n.Node {
		if x := &n.Node[i]; x.State == nodeWaiting || x.State == nodeGathering || x.State == nodeKept {
			x.Old = true
		}
	}
}

func silence(n *State) {
	for i := range n.Ring {
		if n.Ring[i].Key != 0 {
			n.Ring[i].Due = true
		}
	}
	for i := range n.Flow {
		n.Flow[i].Young = false
	}
}
