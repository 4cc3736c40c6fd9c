// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// gate is an interface whose requests go through waiting rooms.
type gate struct {
	name    string
	index   int
	in, out link.Link // out of a gate that a crash left half is nil, or in
}

const (
	gateIn  = "gatein"
	gateOut = "gateout"
)

func gatePin(side string, index int) string { return fmt.Sprintf("%s_%d", side, index) }

// wantsGate reports whether a target has a service with a waiting room.
func (s *State) wantsGate(t Target) bool {
	return slices.ContainsFunc(t.Services, func(i int) bool { return hasGate(&s.Tables.Services[i]) })
}

// attachGates puts the gate on the targets that want one and have none.
func (c *change) attachGates() error {
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
			failed = errors.Join(failed, err)
			continue
		}
		c.undo = append(c.undo, func() error { return g.detach(c.objects.Journal) })
		c.addedGates = append(c.addedGates, g)
	}
	return failed
}

// policing returns the link of SYN policing at an interface's tcx ingress, nil if it is not
// there.
func (c *change) policing(index int) link.Link {
	for _, a := range append(slices.Clone(c.in.policed), c.added...) {
		if a.Index == index && a.Mode == ModeTCX {
			return a.link
		}
	}
	return nil
}

// attachGate puts the programs before all others, what they send not being for others to judge;
// but behind the SYN policing that is in tcx, which is to see a flood first.
func (o *objects) attachGate(p pins, t Target, policing link.Link) (g gate, err error) {
	g = gate{name: t.Name, index: t.Index}
	if err := openLoopback(t.Name, o.Journal); err != nil {
		return g, err
	}
	first := link.Head()
	if policing != nil {
		first = link.AfterLink(policing)
	}
	g.in, err = attachTCX(p, o.NarthexGateIn, ebpf.AttachTCXIngress, gateIn, t, first)
	if err == nil {
		g.out, err = attachTCX(p, o.NarthexGateOut, ebpf.AttachTCXEgress, gateOut, t, link.Head())
	}
	if err != nil {
		return g, errors.Join(err, g.detach(o.Journal))
	}
	return g, nil
}

func attachTCX(p pins, prog *ebpf.Program, at ebpf.AttachType, side string, t Target, where link.Anchor) (link.Link, error) {
	l, err := link.AttachTCX(link.TCXOptions{Program: prog, Interface: t.Index, Attach: at, Anchor: where})
	if err != nil {
		return nil, fmt.Errorf("attaching the waiting room to interface %q: %w", t.Name, err)
	}
	if err := pinLink(l, filepath.Join(p.linkDir(), gatePin(side, t.Index))); err != nil {
		return nil, errors.Join(fmt.Errorf("pinning the waiting room's link to interface %q: %w", t.Name, err), l.Close())
	}
	return l, nil
}

// pinLink pins a link in place of what is pinned there.
func pinLink(l link.Link, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return l.Pin(path)
}

func (g gate) links() []link.Link {
	return slices.DeleteFunc([]link.Link{g.in, g.out}, func(l link.Link) bool { return l == nil })
}

// detach removes pins and links, and puts back what was changed for them.
func (g gate) detach(journal *ebpf.Map) error {
	for _, l := range g.links() {
		release(l)
	}
	if g.name == loopback {
		return closeLoopback(journal)
	}
	return nil
}

// release removes a link and its pin.
func release(l link.Link) {
	_ = l.Unpin()
	_ = l.Detach()
	_ = l.Close()
}

// switchGates makes the attached programs those of the objects.
func (in *Instance) switchGates() error {
	var all error
	for _, g := range in.gates {
		if g.in != nil {
			all = errors.Join(all, updateLink(g.in, in.objects.NarthexGateIn, g.name))
		}
		if g.out != nil {
			all = errors.Join(all, updateLink(g.out, in.objects.NarthexGateOut, g.name))
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

func updateLink(l link.Link, prog *ebpf.Program, name string) error {
	if err := l.Update(prog); err != nil && !errors.Is(err, unix.ENOLINK) { // the interface may just have gone
		return fmt.Errorf("replacing the waiting room's program on interface %q: %w", name, err)
	}
	return nil
}

// isGatePin reports whether a pin is one side of a gate, and on which interface.
func isGatePin(name string) (side string, index int, ok bool) {
	side, number, _ := strings.Cut(name, "_")
	index, _ = strconv.Atoi(number)
	return side, index, index > 0 && (side == gateIn || side == gateOut)
}

// gatePins calls a function with each pinned link of gates and of what watches sockets.
func (p pins) gatePins(do func(name string, l link.Link)) error {
	entries, err := os.ReadDir(p.linkDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading pinned links: %w", err)
	}
	for _, e := range entries {
		if _, _, ok := isGatePin(e.Name()); !ok && !slices.Contains(socketPins, e.Name()) {
			continue
		}
		l, err := link.LoadPinnedLink(filepath.Join(p.linkDir(), e.Name()), nil)
		if err != nil {
			return fmt.Errorf("opening pinned link %q: %w", e.Name(), err)
		}
		do(e.Name(), l)
	}
	return nil
}

// removeGates detaches all gates, also what a crash left of them, and puts back what was
// changed for them.
func (p pins) removeGates() error {
	err := p.gatePins(func(_ string, l link.Link) { release(l) })
	journal, opening := p.loadPinnedMap(narthexMapJournal)
	if journal == nil {
		return errors.Join(err, opening)
	}
	defer closeMap(journal)
	return errors.Join(err, restoreLoopback(journal))
}

// loadGates opens what is pinned of gates and of what watches sockets.
func (in *Instance) loadGates() error {
	gates := map[int]*gate{}
	err := in.pins.gatePins(func(name string, l link.Link) {
		side, index, ok := isGatePin(name)
		if !ok {
			in.sockets = append(in.sockets, socketLink{name, l})
			return
		}
		if gates[index] == nil {
			gates[index] = &gate{name: interfaceName(index), index: index}
		}
		if side == gateIn {
			gates[index].in = l
		} else {
			gates[index].out = l
		}
	})
	for _, g := range gates {
		in.gates = append(in.gates, *g)
	}
	in.gates = dropGatesElsewhere(in.gates)
	return err
}

// dropGatesElsewhere removes gates that are not, or not wholly, on the interface with their
// index in the calling thread's namespace.
func dropGatesElsewhere(list []gate) []gate {
	return slices.DeleteFunc(list, func(g gate) bool {
		whole := g.in != nil && g.out != nil && onTCX(g.in, g.index, ebpf.AttachTCXIngress) && onTCX(g.out, g.index, ebpf.AttachTCXEgress)
		if !whole {
			for _, l := range g.links() {
				release(l)
			}
		}
		return !whole
	})
}

// onTCX reports whether a link is at the interface in the calling thread's namespace. Where
// that cannot be told it is taken to be.
func onTCX(l link.Link, index int, at ebpf.AttachType) bool {
	info, err := l.Info()
	if err != nil {
		return true
	}
	q, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: at})
	if err != nil {
		return !errors.Is(err, unix.ENODEV)
	}
	return slices.ContainsFunc(q.Programs, func(p link.AttachedProgram) bool {
		id, ok := p.LinkID()
		return ok && id == info.ID
	})
}

// wanted reports whether a service with a waiting room is on the gate's interface.
func (g gate) wanted(s *State) bool {
	return slices.ContainsFunc(s.Targets, func(t Target) bool { return t.Index == g.index && s.wantsGate(t) })
}

// detachUnwantedGates lets go interfaces that no service with a waiting room is on.
func (in *Instance) detachUnwantedGates(s *State) {
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
		for _, l := range g.links() {
			_ = l.Close()
		}
	}
	for _, s := range in.sockets {
		_ = s.link.Close()
	}
	in.gates, in.sockets = nil, nil
}
