// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// EventKind says what an event tells of.
type EventKind string

// The kinds of events.
const (
	EventDrop    EventKind = "drop"    // a SYN was dropped
	EventReject  EventKind = "reject"  // a request, or connection, was turned away
	EventDemote  EventKind = "demote"  // a request goes on in the lowest class, for its rule's bucket is empty
	EventHold    EventKind = "hold"    // a request has to wait
	EventAdmit   EventKind = "admit"   // a request enters service at once
	EventRelease EventKind = "release" // a request enters service that has waited
	EventMissed  EventKind = "missed"  // events that nobody could be told of; of these only Time and Missed are set
)

// EventSample says that of those who wait and enter service, one in so many is told of.
const EventSample = 16

// eventKinds are the kinds by enum event_kind in bpf/abi/observe.h.
var eventKinds = [narthexEventKindEVENT_KIND_LEN]EventKind{
	narthexEventKindEVENT_SYN:     EventDrop,
	narthexEventKindEVENT_REJECT:  EventReject,
	narthexEventKindEVENT_DEMOTE:  EventDemote,
	narthexEventKindEVENT_HOLD:    EventHold,
	narthexEventKindEVENT_ADMIT:   EventAdmit,
	narthexEventKindEVENT_RELEASE: EventRelease,
}

// EventKinds returns the kinds that programs tell of.
func EventKinds() []EventKind { return eventKinds[:] }

// ByRule is the reason of an event that the policy's rule alone is the reason of.
var ByRule = Reject(narthexRejectREJECT_RULE).String()

// RejectNames returns the names of all reasons for a rejection, by number.
func RejectNames() []string { return rejectNames[:] }

// Event is a decision of the programs.
type Event struct {
	Time    time.Time
	Kind    EventKind
	Shadow  bool           // it was not carried out
	Client  netip.AddrPort // the address that a trusted proxy names, if it does, with port 0
	Server  netip.AddrPort // that it has connected to
	Service string         // this and the next two are empty where there is none, or it is in the policy no more
	Class   string
	Rule    string
	Request bool   // the rule is a request rule
	Reason  string // of a drop or rejection: ByRule, a name as in ReasonNames, or as in RejectNames
	Answer  string // to who is rejected: its status and its name, or reset; what is cut off in the midst of another answer is reset
	Rated   bool   // the rule has a bucket, of which the next two are
	Tokens  float64
	Burst   uint32
	Waited  time.Duration
	JA4     string // fingerprint of the ClientHello; empty: no rule asks for it, or it has none
	Missed  uint64 // events since the one before that could not be told of
}

// nameRule says by which rule it was, and what is in its bucket, which will be full after debt ns.
func (ev *Event) nameRule(slot *narthexRuleSlot, debt int64) {
	key := slotKey(slot)
	ev.Rule, ev.Request = key.name, key.name != "" && key.kind == requestRule
	if ev.Rated = key.name != "" && slot.Interval > 0; ev.Rated {
		ev.Burst = slot.Burst
		ev.Tokens = level(uint64(max(debt, 0)), 0, slot.Interval, slot.Burst).Tokens
	}
}

// nameAt returns no name for what is in no list.
func nameAt(names []string, slot uint32) string {
	if int64(slot) >= int64(len(names)) {
		return ""
	}
	return names[slot]
}

// address is the inverse of policy.NewKey.
func address(words [2]uint64, v6 uint8) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], words[0])
	binary.BigEndian.PutUint64(b[8:], words[1])
	if v6 != 0 {
		return netip.AddrFrom16(b)
	}
	return netip.AddrFrom4([4]byte(b[:4]))
}
