// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"narthex/internal/policy"
)

// Mode is how the program is attached to an interface.
type Mode string

// The modes of attachment.
const (
	ModeNative  Mode = "native"
	ModeGeneric Mode = "generic"
	ModeTCX     Mode = "tcx"
	ModeTC      Mode = "tc" // a filter of traffic control, where the kernel has no tcx
)

// Attachment is an interface that is being policed.
type Attachment struct {
	Name   string
	Index  int
	Mode   Mode
	Reason string // why not a better mode, empty if there is none
}

// isXDP reports whether the program is in front of the stack.
func (m Mode) isXDP() bool { return m == ModeNative || m == ModeGeneric }

// attached is an attachment and what keeps it.
type attached struct {
	Attachment
	hook hook
}

// Attachments returns what is being policed, by index of the interface.
func (in *Instance) Attachments() []Attachment {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.policed = dropGone(in.policed)
	var all []Attachment
	for _, a := range in.policed {
		all = append(all, a.Attachment)
	}
	slices.SortFunc(all, func(a, b Attachment) int { return a.Index - b.Index })
	return all
}

// modes returns the modes to try for an interface, the best first. In place of tcx it may become tc.
func modes(x policy.XDPMode) []Mode {
	switch x {
	case policy.XDPNative:
		return []Mode{ModeNative}
	case policy.XDPGeneric:
		return []Mode{ModeGeneric}
	case policy.XDPOff:
		return []Mode{ModeTCX}
	}
	// Generic XDP is not tried: it copies frames to give them the headroom of native XDP,
	// which tcx does not.
	return []Mode{ModeNative, ModeTCX}
}

func (o *objects) program(m Mode) *ebpf.Program {
	if m.isXDP() {
		return o.NarthexXdpSyn
	}
	return o.NarthexTcxSyn
}

// may reports whether an interface may be attached to as it is.
func (m Mode) may(x policy.XDPMode) bool {
	if m == ModeTC {
		m = ModeTCX
	}
	return slices.Contains(modes(x), m)
}

// attachMissing attaches to the targets that are not attached in a mode that they may
// have.
func (c *change) attachMissing() error {
	var failed error
	for _, t := range c.state.Targets {
		i := slices.IndexFunc(c.in.policed, func(a attached) bool { return a.Index == t.Index })
		if i >= 0 {
			c.in.policed[i].Name = t.Name
			if c.in.policed[i].Mode.may(t.XDP) {
				continue
			}
			failed = errors.Join(failed, c.replace(c.in.policed[i], t))
			continue
		}
		a, err := c.attach(t)
		if errors.Is(err, unix.ENODEV) {
			continue // it has just gone; whoever watches will say so
		}
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		c.undo = append(c.undo, a.hook.remove)
		c.added = append(c.added, a)
	}
	return failed
}

// replace attaches to an interface in another mode than it has.
func (c *change) replace(was attached, t Target) error {
	if was.Mode.isXDP() && !slices.Contains(modes(t.XDP), ModeTCX) {
		return c.replaceXDP(was, t)
	}
	// XDP and traffic control go together: the old goes when the new state is in force.
	now, err := c.attach(t)
	if err != nil {
		return err
	}
	c.undo = append(c.undo, now.hook.remove)
	c.done = append(c.done, func() { c.in.forget(was); c.in.warn(was.hook.remove()) })
	c.added = append(c.added, now)
	return nil
}

// replaceXDP changes between native and generic XDP. An interface has but one of them, so
// traffic control polices in between.
func (c *change) replaceXDP(was attached, t Target) error {
	between, err := c.in.objects.attachFirst(c.in.pins, t.Name, was.Index, []Mode{ModeTCX})
	if err != nil {
		return fmt.Errorf("changing the mode of interface %q: %w", t.Name, err)
	}
	defer func() { c.in.warn(between.hook.remove()) }()
	c.in.forget(was)
	if err := was.hook.remove(); err != nil {
		return err
	}
	back := func() error {
		old, err := c.in.objects.attachFirst(c.in.pins, t.Name, t.Index, []Mode{was.Mode})
		if err == nil {
			c.in.policed = append(c.in.policed, old)
		}
		return err
	}
	now, err := c.attach(t)
	if err != nil {
		return errors.Join(err, back())
	}
	c.undo = append(c.undo, func() error { return errors.Join(now.hook.remove(), back()) })
	c.added = append(c.added, now)
	return nil
}

// attach attaches to one interface and pins the link.
func (c *change) attach(t Target) (attached, error) {
	a, err := c.objects.attachFirst(c.in.pins, t.Name, t.Index, modes(t.XDP))
	if err == nil {
		c.in.log.Debug("attached", "interface", a.Name, "mode", a.Mode)
	}
	return a, err
}

// attachFirst attaches in the first of the modes that is possible.
func (o *objects) attachFirst(p pins, name string, index int, modes []Mode) (attached, error) {
	var reasons []string
	var last error
	for _, m := range modes {
		h, err := o.attachAs(p, m, index)
		if err != nil {
			reasons = append(reasons, whyNot(m, err))
			last = err
			continue
		}
		if _, ok := h.(*filterHook); ok {
			m = ModeTC
		}
		return attached{Attachment{name, index, m, strings.Join(reasons, "; ")}, h}, nil
	}
	return attached{}, &attachError{name, reasons, last}
}

// attachError says for each mode why it is not possible.
type attachError struct {
	name    string
	reasons []string
	last    error
}

func (e *attachError) Error() string {
	return fmt.Sprintf("attaching to interface %q: %s", e.name, strings.Join(e.reasons, "; "))
}

func (e *attachError) Unwrap() error { return e.last }

func (o *objects) attachAs(p pins, m Mode, index int) (hook, error) {
	prog := o.program(m)
	if prog == nil {
		return nil, o.lackOf(m)
	}
	switch m {
	case ModeNative:
		return attachXDP(prog, index, link.XDPDriverMode, p.hookPath(string(m), index))
	case ModeGeneric:
		return attachXDP(prog, index, link.XDPGenericMode, p.hookPath(string(m), index))
	}
	return o.attachTraffic(p, prog, index, sideSYN, nil)
}

// whyNot says in words why a mode is not possible.
func whyNot(m Mode, err error) string {
	switch {
	case m == ModeTCX:
		return fmt.Sprintf("tcx: %v", err)
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return fmt.Sprintf("%s XDP: another XDP program is attached", m)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, link.ErrNotSupported):
		return fmt.Sprintf("%s XDP: the driver does not support it", m)
	}
	return fmt.Sprintf("%s XDP: %v", m, err)
}

// detachUnwanted lets go interfaces that are no target.
func (in *Instance) detachUnwanted(targets []Target) {
	in.policed = slices.DeleteFunc(in.policed, func(a attached) bool {
		wanted := slices.ContainsFunc(targets, func(t Target) bool { return t.Index == a.Index })
		if !wanted {
			in.log.Debug("detached", "interface", a.Name, "mode", a.Mode)
			in.warn(a.hook.remove())
		}
		return !wanted
	})
}

// forget takes an attachment off the list.
func (in *Instance) forget(a attached) {
	in.policed = slices.DeleteFunc(in.policed, func(b attached) bool { return b.hook == a.hook })
}

// dropGone removes what is left of attachments whose interface no longer exists; the kernel has
// detached them.
func dropGone(list []attached) []attached {
	return slices.DeleteFunc(list, func(a attached) bool {
		gone := a.hook.isGone(a.Index)
		if gone {
			_ = a.hook.remove()
		}
		return gone
	})
}

// dropElsewhere removes attachments that are not on the interface with their index in the
// calling thread's namespace: an interface keeps link and index when it moves to another
// namespace, and a new one may get its index here.
func dropElsewhere(list []attached) []attached {
	return slices.DeleteFunc(dropGone(list), func(a attached) bool {
		if a.hook.isAt(a.Index) {
			return false
		}
		_ = a.hook.remove()
		return true
	})
}

// Pinned reports whether an instance of that name is in the kernel, and to how many
// interfaces it is attached.
func Pinned(root, instance string) (exists bool, interfaces int, err error) {
	p := newPins(root, instance)
	if exists, err = p.exist(); !exists || err != nil {
		return false, 0, err
	}
	all, err := p.loadHooks()
	for _, a := range all {
		a.hook.close()
	}
	return true, len(all), err
}

// Remove takes the instance out of the kernel: links, filters, programs, maps and pins. Close
// first. It works also on what a crash left behind, and is no error if there is nothing.
// The result says whether there was anything.
func Remove(root, instance string) (found bool, err error) {
	p := newPins(root, instance)
	found, err = p.exist()
	if err != nil {
		return false, err
	}
	left, _ := p.draft().exist() // a crash came between
	found = found || left
	var restoring error
	if all, err := p.loadHooks(); err == nil {
		for _, a := range all {
			restoring = errors.Join(restoring, a.hook.remove())
		}
	}
	restoring = errors.Join(restoring, p.removeGates())
	if err := p.retire(); err != nil {
		return found, errors.Join(restoring, err)
	}
	err = errors.Join(restoring, p.draft().remove())
	_ = os.Remove(p.root) // only if no other instance is in it
	return found, err
}
