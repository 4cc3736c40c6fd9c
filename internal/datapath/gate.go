// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// gate is an interface whose requests go through waiting rooms.
type gate struct {
	name    string
	index   int
	in, out hook // out of a gate that a crash left half is nil, or in
}

// wantsGate reports whether a target has a service that needs the gate.
func (s *State) wantsGate(t Target) bool {
	return slices.ContainsFunc(t.Services, func(i int) bool { return NeedsGate(&s.Tables.Services[i]) })
}

// attachGates puts the gate on the targets that want one and have none.
func (c *change) attachGates() error {
	if !c.objects.hasGate() {
		return nil // what is not enforced is said
	}
	var failed error
	for _, t := range c.state.Targets {
		if !c.state.wantsGate(t) || slices.ContainsFunc(c.in.gates, func(g gate) bool { return g.index == t.Index }) {
			continue
		}
		g, err := c.objects.attachGate(c.in.pins, t, c.policing(t.Index))
		if errors.Is(err, unix.ENODEV) {
			continue // it has just gone
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("attaching the waiting room to interface %q: %w", t.Name, err))
			continue
		}
		c.undo = append(c.undo, func() error { return g.detach(c.objects.Journal) })
		c.addedGates = append(c.addedGates, g)
	}
	return failed
}

// noteGates says to the programs which interfaces have gates: packets of ours that others get out nobody else sees.
func (o *objects) noteGates(list []gate) error {
	if !o.hasGate() {
		return nil
	}
	wanted := map[uint32]bool{}
	for _, g := range list {
		wanted[uint32(g.index)] = true
		if err := o.Gates.Put(uint32(g.index), uint8(1)); err != nil {
			return fmt.Errorf("noting the gate on interface %q: %w", g.name, err)
		}
	}
	var index uint32
	var value uint8
	var gone []uint32
	for noted := o.Gates.Iterate(); noted.Next(&index, &value); {
		if !wanted[index] {
			gone = append(gone, index)
		}
	}
	for _, index := range gone {
		_ = o.Gates.Delete(index)
	}
	return nil
}

// policing returns what polices SYNs in an interface's traffic control, nil if nothing does.
func (c *change) policing(index int) hook {
	for _, a := range append(slices.Clone(c.in.policed), c.added...) {
		if a.Index == index && !a.Mode.isXDP() {
			return a.hook
		}
	}
	return nil
}

// attachGate puts the programs before all others, what they send not being for others to judge;
// but behind the SYN policing that is in traffic control, which is to see a flood first.
func (o *objects) attachGate(p pins, t Target, policing hook) (g gate, err error) {
	g = gate{name: t.Name, index: t.Index}
	if err := openLoopback(t.Name, o.Journal); err != nil {
		return g, err
	}
	g.in, err = o.attachTraffic(p, o.NarthexGateIn, t.Index, sideIn, policing)
	if err == nil {
		g.out, err = o.attachTraffic(p, o.NarthexGateOut, t.Index, sideOut, nil)
	}
	if err != nil {
		return g, errors.Join(err, g.detach(o.Journal))
	}
	return g, nil
}

func (g gate) hooks() []hook {
	return slices.DeleteFunc([]hook{g.in, g.out}, func(h hook) bool { return h == nil })
}

// detach removes pins and hooks, and puts back what was changed for them.
func (g gate) detach(journal *ebpf.Map) error {
	var all error
	for _, h := range g.hooks() {
		all = errors.Join(all, h.remove())
	}
	if g.name == loopback {
		all = errors.Join(all, closeLoopback(journal))
	}
	return all
}

// switchGates makes the attached programs those of the objects.
func (in *Instance) switchGates() error {
	var all error
	for _, g := range in.gates {
		if g.in != nil {
			all = errors.Join(all, g.update(g.in, in.objects.NarthexGateIn))
		}
		if g.out != nil {
			all = errors.Join(all, g.update(g.out, in.objects.NarthexGateOut))
		}
	}
	if len(in.sockets) == 0 {
		return all
	}
	// Links to tracepoints cannot be updated. While both are attached, the second finds done
	// what the first has done.
	old := in.sockets
	in.sockets = nil
	var pins []string
	for _, s := range old {
		pins = append(pins, s.pin)
	}
	err := in.attachSockets(pins)
	for _, s := range old {
		_ = s.link.Detach()
		_ = s.link.Close()
	}
	return errors.Join(all, err)
}

func (g gate) update(h hook, prog *ebpf.Program) error {
	if err := h.update(prog); err != nil {
		return fmt.Errorf("replacing the waiting room's program on interface %q: %w", g.name, err)
	}
	return nil
}

// gateHooks returns what is pinned of gates, by the index of their interface.
func (p pins) gateHooks() (map[int]*gate, error) {
	names, err := p.pinnedHooks()
	gates := map[int]*gate{}
	for _, name := range names {
		kind, index, _, ok := parseHookName(name)
		if !ok || kind != sideIn.pin && kind != sideOut.pin {
			continue
		}
		g := gates[index]
		if g == nil {
			g = &gate{name: interfaceName(index), index: index}
			gates[index] = g
		}
		s, place := sideIn, &g.in
		if kind == sideOut.pin {
			s, place = sideOut, &g.out
		}
		if *place, err = p.openHook(name, s); err != nil {
			return nil, err
		}
	}
	return gates, err
}

// socketLinks opens what is pinned of what watches sockets.
func (p pins) socketLinks() ([]socketLink, error) {
	names, err := p.pinnedHooks()
	var all []socketLink
	for _, name := range names {
		if !slices.Contains(socketPins, name) {
			continue
		}
		l, err := link.LoadPinnedLink(filepath.Join(p.linkDir(), name), nil)
		if err != nil {
			return nil, fmt.Errorf("opening pinned link %q: %w", name, err)
		}
		all = append(all, socketLink{name, l})
	}
	return all, err
}

// removeGates detaches all gates, also what a crash left of them, and puts back what was
// changed for them.
func (p pins) removeGates() error {
	gates, err := p.gateHooks()
	for _, g := range gates {
		for _, h := range g.hooks() {
			err = errors.Join(err, h.remove())
		}
	}
	links, opening := p.socketLinks()
	for _, l := range links {
		release(l.link)
	}
	err = errors.Join(err, opening)
	journal, opening := p.loadPinnedMap(narthexMapJournal)
	if journal == nil {
		return errors.Join(err, opening)
	}
	defer closeMap(journal)
	return errors.Join(err, restoreLoopback(journal))
}

// loadGates opens what is pinned of gates and of what watches sockets.
func (in *Instance) loadGates() error {
	gates, err := in.pins.gateHooks()
	if err != nil {
		return err
	}
	if len(gates) > 0 && !in.objects.hasGate() {
		return fmt.Errorf("the waiting rooms in force cannot be taken over: %w; \"narthex detach\" removes them", in.objects.lacks(FeatureGate))
	}
	if in.sockets, err = in.pins.socketLinks(); err != nil {
		return err
	}
	for _, g := range gates {
		in.gates = append(in.gates, *g)
	}
	in.gates = dropGatesElsewhere(in.gates)
	return in.objects.noteGates(in.gates)
}

// dropGatesElsewhere removes gates that are not, or not wholly, on the interface with their
// index in the calling thread's namespace.
func dropGatesElsewhere(list []gate) []gate {
	return slices.DeleteFunc(list, func(g gate) bool {
		whole := g.in != nil && g.out != nil && g.in.isAt(g.index) && g.out.isAt(g.index)
		if !whole {
			for _, h := range g.hooks() {
				_ = h.remove()
			}
		}
		return !whole
	})
}

// wanted reports whether a service with a waiting room is on the gate's interface.
func (g gate) wanted(s *State) bool {
	return slices.ContainsFunc(s.Targets, func(t Target) bool { return t.Index == g.index && s.wantsGate(t) })
}

// detachUnwantedGates lets go interfaces that no service with a waiting room is on.
func (in *Instance) detachUnwantedGates(s *State) {
	stay := slices.DeleteFunc(slices.Clone(in.gates), func(g gate) bool { return !g.wanted(s) })
	in.warn(in.objects.noteGates(stay))
	in.gates = slices.DeleteFunc(in.gates, func(g gate) bool {
		if g.wanted(s) {
			return false
		}
		in.warn(g.detach(in.objects.Journal))
		return true
	})
}

func (in *Instance) closeGates() {
	for _, g := range in.gates {
		for _, h := range g.hooks() {
			h.close()
		}
	}
	for _, s := range in.sockets {
		_ = s.link.Close()
	}
	in.gates, in.sockets = nil, nil
}
