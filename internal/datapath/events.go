// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"narthex/internal/policy"
)

// EventReader tells of decisions while it is open.
type EventReader interface {
	// Next waits for an event. The error is os.ErrClosed when the reader has been closed.
	Next() (Event, error)
	// Refusals has the programs tell of refusals and demotions alone, or of everything.
	Refusals(alone bool) error
	Close() error
}

// eventMaps are the maps that a listener has. They are pinned nowhere, but go on when larger
// objects take over.
func (o *objects) eventMaps() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		narthexMapEvents: o.Events, narthexMapAudience: o.Audience, narthexMapEventBudgets: o.EventBudgets,
		narthexMapMirrorRing: o.MirrorRing, narthexMapMirror: o.Mirror, narthexMapMirrorBudgets: o.MirrorBudgets,
	}
}

// eventReader is the EventReader of an instance.
type eventReader struct {
	subscription
	classes    []string // of the connection rules, by slot
	rows       []int    // of what request rules say to who is rejected, by slot
	generation uint32   // of the policy that these are of

	refusals atomic.Bool // the programs tell of these alone
}

// onlyRefusals is the bit of the time until which somebody listens that bpf/observe/events.h has
// for that.
const onlyRefusals = 1

// Refusals has the programs tell of refusals and demotions alone, or of everything.
func (e *eventReader) Refusals(alone bool) error {
	if e.refusals.Swap(alone) == alone {
		return nil
	}
	return e.renew()
}

// Events has the programs tell of their decisions. There may be one reader at a time. It goes
// on whatever Apply does.
func (in *Instance) Events() (EventReader, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	o := in.objects
	if o == nil {
		return nil, errors.New("instance is closed")
	}
	e := &eventReader{subscription: subscription{in: in, stop: make(chan struct{})}}
	e.say = func(until uint64) error {
		if until &^= onlyRefusals; until != 0 && e.refusals.Load() {
			until |= onlyRefusals
		}
		return e.control.Put(zero, until)
	}
	if err := e.open(o.Events, o.Audience, o.EventBudgets); err != nil {
		return nil, errors.Join(fmt.Errorf("listening to events: %w", err), e.release())
	}
	return e, nil
}

// Next waits for an event.
func (e *eventReader) Next() (Event, error) {
	e.next.Lock()
	defer e.next.Unlock()
	for {
		record, missed, err := e.read()
		if err != nil || missed > 0 {
			return Event{Time: e.looked.Round(0), Kind: EventMissed, Missed: missed}, err
		}
		var raw narthexEvent
		if _, err := binary.Decode(record, binary.NativeEndian, &raw); err != nil {
			return Event{}, fmt.Errorf("reading an event: %w", err)
		}
		if raw.Time >= e.opened {
			return e.event(&raw), nil
		}
	}
}

// event says in names what the programs say in numbers of slots.
func (e *eventReader) event(raw *narthexEvent) Event {
	in := e.in
	in.mu.Lock()
	defer in.mu.Unlock()
	ev := Event{
		Time:    e.at(raw.Time),
		Kind:    eventKinds[min(int(raw.Kind), len(eventKinds)-1)],
		Shadow:  raw.Shadow != 0,
		Client:  netip.AddrPortFrom(address(raw.Key.Peer, raw.Key.V6), raw.Key.PeerPort),
		Server:  netip.AddrPortFrom(address(raw.Key.Local, raw.LocalV6), raw.Key.LocalPort),
		Service: nameAt(in.slots.services, raw.Service),
		Class:   nameAt(in.slots.classes, uint32(raw.Class)),
		Waited:  time.Duration(raw.Waited),
	}
	if raw.Print[0] != 0 {
		ev.JA4 = string(raw.Print[:])
	}
	shed := ev.Kind == EventDrop && narthexReason(raw.Reason) == narthexReasonREASON_SHED // not by the rule that let it in
	if int(raw.Rule) < len(in.slots.rules) && !shed {
		ev.nameRule(&in.slots.rules[raw.Rule], raw.Debt)
	}
	switch ev.Kind {
	case EventDrop:
		ev.Class = e.classOfSYN(raw)
		ev.Reason = ByRule
		if raw.Reason != 0 {
			ev.Reason = nameAt(reasonNames[:], raw.Reason)
		}
	case EventReject:
		ev.Reason = nameAt(rejectNames[:], raw.Reason)
		ev.Answer = e.answer(raw, &ev)
	case EventDemote:
		ev.Reason = ByRule
	}
	return ev
}

// classOfSYN returns in which class the connection would have been: that of its rule. Without
// one it is known only of those that are let in by their class.
func (e *eventReader) classOfSYN(raw *narthexEvent) string {
	t := e.in.applied.Tables
	if t == nil {
		return ""
	}
	e.index(t)
	class := nameAt(e.classes, raw.Rule)
	if class == "" && narthexReason(raw.Reason) == narthexReasonREASON_SHED {
		class = t.Classes[t.Default].Name
	}
	return class
}

// index finds what rules say by their slots, once for each policy.
func (e *eventReader) index(t *policy.Tables) {
	if e.classes != nil && e.generation == e.in.imageGen {
		return
	}
	e.classes, e.rows, e.generation = make([]string, len(e.in.slots.rules)), make([]int, len(e.in.slots.rules)), e.in.imageGen
	for i := range t.Rules {
		if r := &t.Rules[i]; r.Class >= 0 {
			e.classes[e.in.slots.byRule[connectionKey(r)]] = t.Classes[r.Class].Name
		}
	}
	for i, r := range t.RequestRules() {
		e.rows[e.in.slots.byRule[ruleKey{requestRule, r.Name}]] = t.Answers.Row[i]
	}
}

// answer is what the client of a rejected request was told.
func (e *eventReader) answer(raw *narthexEvent, ev *Event) string {
	t := e.in.applied.Tables
	if t == nil || ev.Service == "" {
		return ""
	}
	e.index(t)
	row := policy.RowOverload
	if ev.Request && int(raw.Rule) < len(e.rows) {
		row = e.rows[raw.Rule]
	}
	service := slices.IndexFunc(t.Services, func(s policy.ServiceTable) bool { return s.Name == ev.Service })
	return t.Refused(service, row, ev.Reason)
}
