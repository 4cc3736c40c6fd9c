// SPDX-License-Identifier: Apache-2.0

package model

// pc says which step a CPU does next. A step is what happens under one lock, or one look at
// what others may change. What a run computes of its own copies belongs to the step before.
type pc uint8

const (
	idle pc = iota
	// Ingress.
	inLookup
	inCopy
	inSocket
	inInsert
	inFind
	inEnter
	inTake
	inWait
	inGather
	inFree
	inHeld
	inClaim
	inExtend
	inUnclaim
	inWhole
	inStamp
	// Ends of flows.
	delLock
	delFree
	delUnlink
	inAnswer
	// Egress.
	outLookup
	outCopy
	outNews
	outEarly
	outClosed
	outFree
	// Whoever has a packet sees to what is due.
	atWatch
	atPop
	atLook
	atAct
	atFree
	atGlance
	atDue
	atKick
	pick
	pickLook
	putBack
	withdrawRelease
	commit
	sendIn
	nodeFreed
	rejectLook
	againLook
	againCheck
	verdict
	// Sockets.
	sockLookup
	sockID
	sockHaunt
	sockMap
	sockLay
	oldLookup
	oldCheck
	pcCount
)

// steps names each step and the function of bpf/ that it stands for.
var steps = [pcCount]struct{ what, function string }{
	inLookup:        {"looks the flow up", "first_step"},
	inCopy:          {"copies the flow", "first_step"},
	inSocket:        {"finds the socket of an unknown connection", "on_untracked"},
	inInsert:        {"puts a flow into the table", "on_first_request"},
	inFind:          {"looks the new flow up", "on_first_request"},
	inEnter:         {"enters, or has to wait", "try_enter"},
	inTake:          {"takes a node and fills its slot", "take_node"},
	inWait:          {"waits, or enters after all", "take_turn"},
	inGather:        {"gathers", "try_gather"},
	inFree:          {"frees its node", "free_node"},
	inHeld:          {"looks at the slot", "on_waiting"},
	inClaim:         {"claims the slot", "claim"},
	inExtend:        {"extends the slot", "extend"},
	inUnclaim:       {"unclaims the slot", "unclaim"},
	inWhole:         {"leaves the slot of a whole head", "leave_slot"},
	inStamp:         {"notes that a piece passes", "note_read"},
	delLock:         {"ends the flow", "delete_flow"},
	delFree:         {"frees the flow's node", "free_node"},
	delUnlink:       {"takes the flow out of the table", "delete_flow"},
	inAnswer:        {"answers in the server's place", "answer"},
	outLookup:       {"looks the flow up", "watch_segment"},
	outCopy:         {"copies the flow", "on_answer"},
	outNews:         {"ends the service", "take_news"},
	outEarly:        {"sends the request back", "on_answer_while_held"},
	outClosed:       {"dooms the request", "on_closed_while_held"},
	outFree:         {"frees the node", "free_node"},
	atWatch:         {"glances at the ring", "seems_watchful"},
	atPop:           {"takes a watch out of the ring", "pop_watch"},
	atLook:          {"looks at the flow's socket", "find_socket"},
	atAct:           {"does what silence asks for", "look_again"},
	atFree:          {"frees what the stack has", "free_node"},
	atGlance:        {"glances at the room", "seems_due"},
	atDue:           {"asks what is due", "what_is_due"},
	atKick:          {"kicks", "kick"},
	pick:            {"picks", "pick_next"},
	pickLook:        {"looks at the flow and the socket", "release_node"},
	putBack:         {"puts back", "put_back"},
	withdrawRelease: {"withdraws the release", "withdraw_release"},
	commit:          {"commits the release", "commit_release"},
	sendIn:          {"puts the request before the stack", "send_in"},
	nodeFreed:       {"frees the node", "free_node"},
	rejectLook:      {"looks the due flow up", "reject_node"},
	againLook:       {"looks the keeper of the slot up", "send_again"},
	againCheck:      {"asks whether the flow still keeps the slot", "send_again"},
	verdict:         {"lets go of the packet", "gate_ingress"},
	sockLookup:      {"looks the socket's flow up", "sock_state"},
	sockID:          {"reads the flow's id", "follow_change"},
	sockHaunt:       {"makes it a ghost", "leave_ghost"},
	sockMap:         {"notes where the ghost is", "leave_ghost"},
	sockLay:         {"lays the ghost", "sock_release"},
	oldLookup:       {"looks for an old flow", "forget_old"},
	oldCheck:        {"looks at the old flow and its socket", "forget_old"},
}

// What packets are. A segment has one piece of data, or none.
const (
	segNone = iota
	segData
	segRST
	segFIN
	segAnswer
	segServerFIN
)

// What a run does after its flow's end.
const (
	thenAttend = iota
	thenAnswer
	thenFree // of the node at hand
	thenGlance
	thenDone
)

// Verdicts.
const (
	passes = iota
	drops
)

// copied is what w->flow keeps of a flow that has been copied.
type copied struct {
	ID, State, Node, Next uint8
	New, Acked            bool
}

// cpu is a run of the programs.
type cpu struct {
	PC  pc
	Key uint8 // of the run's packet or socket
	Seg uint8
	Seq uint8
	Ack uint8
	// Of the decision at hand.
	Ptr   uint8 // 1 + place of the flow in memory
	F     copied
	ID    uint8 // of the flow that is to be ended, or that a node or watch is of
	Want  bool  // only if it is as it was copied
	Node  uint8
	Begin uint8
	End   uint8
	Then  uint8
	Of    uint8 // key: of what the packet is about, or the kick
	Fail  bool  // it was refused, not lost
	Reset bool  // the socket ends with an error
	Kick  bool  // within a kick
	Whole bool  // the packet has become the whole of what was in a slot, from a piece on
	From  uint8
	Late  bool // the packet has been let go of
	Kicks uint8
	Sock  uint8 // when looked at
	Got   uint8 // the socket's
	Sent  uint8
	Old   watch
	Out   uint8 // verdict on the run's packet
	// RST to the stack that has closed a socket, whose programs run within this run.
	Nested bool
}

// drop forgets what the run knew, but for its packet and verdict.
func (c *cpu) attend(verdict uint8) {
	*c = cpu{PC: atGlance, Key: c.Key, Seg: c.Seg, Seq: c.Seq, Out: verdict, Whole: c.Whole, From: c.From}
}

// next goes on to the next thing that may be due.
func (c *cpu) next() {
	*c = cpu{PC: atDue, Key: c.Key, Seg: c.Seg, Seq: c.Seq, Out: c.Out, Whole: c.Whole, From: c.From, Kicks: c.Kicks}
}

// maxKicks stands for MAX_KICKS: more than there are nodes.
const maxKicks = 3

// run does the CPU's next step.
func (m *Model) run(s *State, i int) {
	c := &s.CPU[i]
	switch {
	case c.PC <= inStamp:
		m.ingress(s, c)
	case c.PC <= inAnswer:
		m.end(s, c)
	case c.PC <= outFree:
		m.egress(s, c)
	case c.PC <= verdict:
		m.attend(s, c)
	default:
		m.socket(s, c)
	}
}
