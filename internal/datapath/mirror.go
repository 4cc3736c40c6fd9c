// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"
)

// MirrorReader reads copies of what the programs decide about, while it is open.
type MirrorReader interface {
	// Next waits for a copy. The error is os.ErrClosed when the reader has been closed.
	Next() (Mirrored, error)
	Close() error
}

// EventPass says of a copied SYN that it went on.
const EventPass EventKind = "pass"

// Mirrored is a copy of what was decided about, a SYN or the beginning of a request, with
// the decision.
type Mirrored struct {
	Time    time.Time
	Clock   time.Duration  // of the programs, which nobody sets
	Missed  uint64         // so many copies could not be made; all else but Time is zero then
	Weight  int            // 1: all sources are copied; n: one source of n, always the same ones
	Client  netip.AddrPort // of the connection
	Server  netip.AddrPort
	Real    netip.Addr // whose request it is, if a trusted proxy says so
	Service string
	SYN     bool
	Head    []byte    // of a request: at most 2,048 bytes of its head, or of the ClientHello
	Kind    EventKind // EventPass or EventDrop of a SYN; of a request EventAdmit (it goes on, maybe to wait), EventDemote, EventReject or EventDrop
	Rule    string    // that decided; empty: none
	Class   string    // of a request
	Reason  string    // of a SYN without a rule: as in ReasonNames; of a request that was turned away: as in RejectNames
}

// mirrorFates are the kinds by enum mirror_fate in bpf/abi/observe.h.
var mirrorFates = [narthexMirrorFateMIRROR_FATE_LEN]EventKind{
	narthexMirrorFateMIRROR_PASS:   EventAdmit,
	narthexMirrorFateMIRROR_DROP:   EventDrop,
	narthexMirrorFateMIRROR_REJECT: EventReject,
	narthexMirrorFateMIRROR_DEMOTE: EventDemote,
}

const (
	// mostSampled bounds the bits of the mask: one source of 2^16.
	mostSampled = 16
	// fewCopies a second leave room for twice as many sources: a CPU makes some 5,000.
	fewCopies = 1500
)

// mirrorReader is the MirrorReader of an instance. When copies are missed it asks for half as
// many sources, and for twice as many when there is room for them.
type mirrorReader struct {
	subscription
	bits  atomic.Int32 // of the mask
	seed  uint32       // of the hash of sources
	count int          // copies since it last looked
}

// Mirror has the programs copy what they decide about. There may be one reader at a time. It
// goes on whatever Apply does, and ends by itself within two seconds if the process does.
func (in *Instance) Mirror() (MirrorReader, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	o := in.objects
	if o == nil {
		return nil, errors.New("instance is closed")
	}
	m := &mirrorReader{subscription: subscription{in: in, stop: make(chan struct{})}, seed: rand.Uint32()}
	m.say = func(until uint64) error {
		return m.control.Put(zero, narthexMirrorControl{Until: until, Mask: 1<<m.bits.Load() - 1, Seed: m.seed})
	}
	m.looking = m.adjust
	if err := m.open(o.MirrorRing, o.Mirror, o.MirrorBudgets); err != nil {
		return nil, errors.Join(fmt.Errorf("copying what is decided about: %w", err), m.release())
	}
	return m, nil
}

// adjust follows how much there is to copy. It is in force when the subscription is next renewed.
func (m *mirrorReader) adjust(missed uint64, since time.Duration) {
	switch bits := m.bits.Load(); {
	case missed > 0 && bits < mostSampled:
		m.bits.Store(bits + 1)
	case missed == 0 && bits > 0 && float64(m.count) < fewCopies*since.Seconds():
		m.bits.Store(bits - 1)
	}
	m.count = 0
}

// Next waits for a copy.
func (m *mirrorReader) Next() (Mirrored, error) {
	m.next.Lock()
	defer m.next.Unlock()
	for {
		record, missed, err := m.read()
		if err != nil {
			return Mirrored{}, err
		}
		if missed > 0 {
			return Mirrored{Time: m.looked.Round(0), Missed: missed}, nil
		}
		m.count++
		// The head is cut to its length, so that decoding by fields would need a copy of it all.
		var raw narthexMirrored
		if n := copy((*[unsafe.Sizeof(raw)]byte)(unsafe.Pointer(&raw))[:], record); n < int(unsafe.Offsetof(raw.Head)) {
			return Mirrored{}, fmt.Errorf("reading a copy: it has %d bytes, want %d or more", n, unsafe.Offsetof(raw.Head))
		}
		if raw.Time >= m.opened {
			return m.named(&raw), nil
		}
	}
}

// named says in names what the programs say in numbers of slots.
func (m *mirrorReader) named(raw *narthexMirrored) Mirrored {
	in := m.in
	in.mu.Lock()
	defer in.mu.Unlock()
	c := Mirrored{
		Time:    m.at(raw.Time),
		Clock:   time.Duration(raw.Time),
		Weight:  1 << bits.OnesCount32(raw.Mask),
		Client:  netip.AddrPortFrom(address(raw.Key.Peer, raw.Key.V6), raw.Key.PeerPort),
		Server:  netip.AddrPortFrom(address(raw.Key.Local, raw.Key.V6), raw.Key.LocalPort),
		Service: nameAt(in.slots.services, raw.Service),
		SYN:     raw.Syn != 0,
		Kind:    mirrorFates[min(int(raw.Fate), len(mirrorFates)-1)],
		Class:   nameAt(in.slots.classes, uint32(raw.Class)),
	}
	if raw.Proxied != 0 {
		c.Real = address(raw.Real, raw.RealV6)
	}
	if int(raw.Rule) < len(in.slots.rules) {
		c.Rule = slotKey(&in.slots.rules[raw.Rule]).name
	}
	if c.SYN {
		if c.Kind == EventAdmit {
			c.Kind = EventPass
		}
		if c.Rule == "" || raw.Reason != 0 {
			c.Reason = nameAt(reasonNames[:], raw.Reason)
		}
		return c
	}
	head := raw.Head[:min(int(raw.Length), len(raw.Head))]
	c.Head = slices.Clone(head[min(int(raw.Skip), len(head)):])
	if c.Kind == EventReject || c.Kind == EventDrop {
		c.Reason = nameAt(rejectNames[:], raw.Reason)
	}
	return c
}
