// SPDX-License-Identifier: Apache-2.0

// Package model holds the state machine of the waiting room: flows, nodes and rooms as bpf/
// has them, and the steps between its locks, two CPUs at a time. Its tests visit every state
// that can be reached in small scenarios. docs/model.md says what is in it and what is left out.
package model

// Bounds of all scenarios. Fields are bytes, so that states are small and can be compared.
const (
	maxConns = 3
	maxNodes = 3
	maxCPUs  = 2
	maxClass = 2
	// epochs stands for EPOCHS: ages of what is in service.
	epochs   = 2
	maxRing  = 2
	noNumber = 255
)

// Sockets of the server, and what there is before and after them.
const (
	sockNone    = iota
	sockRequest // SYN received: a request socket
	sockOpen    // established
	sockClosing // closed by the server, not yet gone
)

// conn is a connection as it really is, at its two ends and on the wire. Sequence numbers
// count pieces: a request is Config.Pieces of them, an answer is one.
type conn struct {
	Sock     uint8
	Got      uint8 // the client's pieces that the stack has: rcv_nxt
	Sent     uint8 // answers that the stack has sent: snd_nxt
	Heard    uint8 // of these, what the client has
	Acked    uint8 // pieces that the client need not send again
	Lives    uint8 // connections that may still begin with this key
	Client   bool  // the client is there
	Excused  bool  // the request with the server was given up, as its time was over
	Zombie   bool  // the client has reset, and the server works on
	Entered  uint8 // bits: requests that have been in service
	Released uint8 // bits: requests that were released
}

// Of a flow: enum flow_state.
const (
	flowIdle = iota
	flowHeld
	flowServed
	flowGathering
	flowPaused
)

// flow is an entry of the table, which has a place in memory that another may get.
type flow struct {
	Key    uint8 // 1 + its connection; 0: the memory is free
	ID     uint8 // 0: it is being deleted
	State  uint8
	Next   uint8
	Start  uint8 // of the request
	Answer uint8 // from which on answers are its own
	Node   uint8
	Age    uint8 // epochs since it entered service
	Class  uint8
	New    bool
	Acked  bool // FLOW_ACKED
	Young  bool // it entered service just now: what passed may be on its way to the stack
	Moved  bool // a piece has passed since it was last looked at
	Watch  bool // it is in the ring
	Over   bool // its answer has begun although it waits again
	Blind  bool // there was no place for it in the ring
}

// Of a node: enum node_state.
const (
	nodeFree = iota
	nodeWaiting
	nodeDue
	nodeTaken
	nodeGathering
	nodeKept
)

type node struct {
	State uint8
	Key   uint8 // of its slot
	Flow  uint8 // id
	Begin uint8
	End   uint8
	Class uint8
	Busy  bool
	Again bool
	Old   bool // max_wait has passed, or the patience with a stack that does not take it
}

type list [maxNodes]uint8

type ghost struct {
	Cookie uint8 // 0: laid
	Class  uint8
	Age    uint8
	Known  bool // it is in the map, in which sock_release looks for it
}

type room struct {
	Limit   uint8
	In      [maxClass]uint8
	Entered [epochs][maxClass]uint8
	Wait    [maxClass]list
	Due     list
	Gather  list
	Ghost   [maxRing]ghost // live ones first
	Pass    uint8          // epochs that have passed and are not yet noticed
	Stuck   bool
	Looked  bool
	Gone    bool // class 1 is in the policy no more
	// Balance is held − released − gave_up − rejected from the queue.
	Balance int8
	// Owed: something became due out of sight of packets; the next packet or tick sees to it.
	Owed bool
	Most uint8 // the highest limit so far
}

type watch struct {
	Key  uint8
	ID   uint8
	Got  uint8
	Sent uint8
	Due  bool
}

// world is what there is beside: conditions that come and go.
type world struct {
	Crowded bool // the accept queue is full
	NoClone bool // clones are lost
	NoLink  bool // the interface is gone: what is redirected is lost
	NoTake  bool // the stack drops what it is given
	Changes uint8
}

// State is all there is.
type State struct {
	Conn  [maxConns]conn
	Flow  [maxConns]flow
	Node  [maxNodes + 1]node
	Room  room
	Ring  [maxRing]watch
	CPU   [maxCPUs]cpu
	World world
	Bad   uint8 // a step has found what must not be: see faults
}

func (l *list) push(n uint8) {
	for i := range l {
		if l[i] == 0 {
			l[i] = n
			return
		}
	}
	panic("a list has more nodes than there are")
}

func (l *list) pushFront(n uint8) {
	copy(l[1:], l[:maxNodes-1])
	l[0] = n
}

// remove reports whether the node was in the list.
func (l *list) remove(n uint8) bool {
	for i := range l {
		if l[i] == n {
			copy(l[i:], l[i+1:])
			l[maxNodes-1] = 0
			return true
		}
	}
	return false
}

func (l *list) len() uint8 {
	n := uint8(0)
	for _, x := range l {
		if x != 0 {
			n++
		}
	}
	return n
}

func (s *State) inService() uint8 { return s.Room.In[0] + s.Room.In[1] }

func (s *State) waiting() uint8 { return s.Room.Wait[0].len() + s.Room.Wait[1].len() }

// find looks a key up in the table of flows: 1 + its place in memory, 0: none.
func (s *State) find(key uint8) uint8 {
	for i := range s.Flow {
		if s.Flow[i].Key == key {
			return uint8(i) + 1
		}
	}
	return 0
}

// freshID gives an id that nobody knows: for what is compared, one that was never used.
func (s *State) freshID() uint8 {
	for id := uint8(1); ; id++ {
		if !s.knows(id) {
			return id
		}
	}
}

func (s *State) knows(id uint8) bool {
	for i := range s.Flow {
		if s.Flow[i].ID == id {
			return true
		}
	}
	for i := range s.Node {
		if s.Node[i].Flow == id {
			return true
		}
	}
	for i := range s.Ring {
		if s.Ring[i].ID == id {
			return true
		}
	}
	for i := range s.CPU {
		if s.CPU[i].F.ID == id || s.CPU[i].ID == id {
			return true
		}
	}
	return false
}
