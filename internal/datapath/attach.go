// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
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
)

// Attachment is an interface that is being policed.
type Attachment struct {
	Name   string
	Index  int
	Mode   Mode
	Reason string // why not a better mode, empty if there is none
}

// attached is an attachment and its link.
type attached struct {
	Attachment
	link link.Link
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

// modes returns the modes to try for an interface, the best first.
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
	if m == ModeTCX {
		return o.NarthexTcxSyn
	}
	return o.NarthexXdpSyn
}

// attachMissing attaches to the targets that are not attached in a mode that they may
// have.
func (c *change) attachMissing() error {
	var failed error
	for _, t := range c.state.Targets {
		i := slices.IndexFunc(c.in.policed, func(a attached) bool { return a.Index == t.Index })
		if i >= 0 {
			c.in.policed[i].Name = t.Name
			if slices.Contains(modes(t.XDP), c.in.policed[i].Mode) {
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
		c.undo = append(c.undo, func() error { a.detach(); return nil })
		c.added = append(c.added, a)
	}
	return failed
}

// replace attaches to an interface in another mode than it has.
func (c *change) replace(was attached, t Target) error {
	if was.Mode != ModeTCX && !slices.Contains(modes(t.XDP), ModeTCX) {
		return c.replaceXDP(was, t)
	}
	// XDP and tcx go together: the old goes when the new state is in force.
	now, err := c.attach(t)
	if err != nil {
		return err
	}
	c.undo = append(c.undo, func() error { now.detach(); return nil })
	c.done = append(c.done, func() { c.in.forget(was); was.detach() })
	c.added = append(c.added, now)
	return nil
}

// replaceXDP changes between native and generic XDP. An interface has but one of them, so
// tcx polices in between.
func (c *change) replaceXDP(was attached, t Target) error {
	between, err := c.in.objects.attachAs(ModeTCX, was.Index)
	if err != nil {
		return fmt.Errorf("changing the mode of interface %q: %w", t.Name, err)
	}
	defer between.Close()
	c.in.forget(was)
	was.detach()
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
	c.undo = append(c.undo, func() error { now.detach(); return back() })
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
		l, err := o.attachAs(m, index)
		if err != nil {
			reasons = append(reasons, whyNot(m, err))
			last = err
			continue
		}
		a := attached{Attachment{name, index, m, strings.Join(reasons, "; ")}, l}
		path := filepath.Join(p.linkDir(), a.linkName())
		_ = os.Remove(path) // of an interface that had the index before
		if err := l.Pin(path); err != nil {
			_ = l.Close()
			return a, fmt.Errorf("pinning the link to interface %q: %w", name, err)
		}
		return a, nil
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

func (o *objects) attachAs(m Mode, index int) (link.Link, error) {
	switch m {
	case ModeNative:
		return link.AttachXDP(link.XDPOptions{Program: o.program(m), Interface: index, Flags: link.XDPDriverMode})
	case ModeGeneric:
		return link.AttachXDP(link.XDPOptions{Program: o.program(m), Interface: index, Flags: link.XDPGenericMode})
	}
	return link.AttachTCX(link.TCXOptions{Program: o.program(m), Interface: index, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
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

// linkName is the name of the link's pin: the index, since names may have dots, which
// bpffs refuses, and change.
func (a attached) linkName() string { return fmt.Sprintf("%s_%d", a.Mode, a.Index) }

func parseLinkName(name string) (a attached, ok bool) {
	mode, index, _ := strings.Cut(name, "_")
	a.Mode = Mode(mode)
	a.Index, _ = strconv.Atoi(index)
	return a, a.Index > 0 && slices.Contains([]Mode{ModeNative, ModeGeneric, ModeTCX}, a.Mode)
}

// detachUnwanted lets go interfaces that are no target.
func (in *Instance) detachUnwanted(targets []Target) {
	in.policed = slices.DeleteFunc(in.policed, func(a attached) bool {
		wanted := slices.ContainsFunc(targets, func(t Target) bool { return t.Index == a.Index })
		if !wanted {
			in.log.Debug("detached", "interface", a.Name, "mode", a.Mode)
			a.detach()
		}
		return !wanted
	})
}

// forget takes an attachment off the list.
func (in *Instance) forget(a attached) {
	in.policed = slices.DeleteFunc(in.policed, func(b attached) bool { return b.link == a.link })
}

// detach removes pin and link.
func (a attached) detach() {
	_ = a.link.Unpin()
	_ = a.link.Detach()
	_ = a.link.Close()
}

// dropGone removes the pins of links whose interface no longer exists; the kernel has
// detached them.
func dropGone(list []attached) []attached {
	return slices.DeleteFunc(list, func(a attached) bool {
		if index, err := linkedIndex(a.link); err != nil || index == a.Index {
			return false
		}
		a.detach()
		return true
	})
}

// dropElsewhere removes links that are not on the interface with their index in the
// calling thread's namespace: an interface keeps link and index when it moves to another
// namespace, and a new one may get its index here.
func dropElsewhere(list []attached) []attached {
	return slices.DeleteFunc(dropGone(list), func(a attached) bool {
		if a.here() {
			return false
		}
		a.detach()
		return true
	})
}

// here reports whether the interface has the link's program. Where that cannot be told it
// is taken to have it.
func (a attached) here() bool {
	if a.Mode == ModeTCX {
		return onTCX(a.link, a.Index, ebpf.AttachTCXIngress)
	}
	info, err := a.link.Info()
	if err != nil {
		return true
	}
	l, err := netlink.LinkByIndex(a.Index)
	if err != nil {
		return !errors.As(err, new(netlink.LinkNotFoundError))
	}
	x := l.Attrs().Xdp
	if x == nil || !x.Attached {
		return false
	}
	several := x.AttachMode > nl.XDP_ATTACHED_HW // in more than one mode, and the identifiers elsewhere
	return several || ebpf.ProgramID(x.ProgId) == info.Program
}

// linkedIndex returns the interface that a link is attached to, 0 for none.
func linkedIndex(l link.Link) (int, error) {
	info, err := l.Info()
	if err != nil {
		return 0, err
	}
	if x := info.XDP(); x != nil {
		return int(x.Ifindex), nil
	}
	if t := info.TCX(); t != nil {
		return int(t.Ifindex), nil
	}
	return 0, nil
}

// Pinned reports whether an instance of that name is in the kernel, and to how many
// interfaces it is attached.
func Pinned(root, instance string) (exists bool, interfaces int, err error) {
	p := newPins(root, instance)
	if exists, err = p.exist(); !exists || err != nil {
		return false, 0, err
	}
	links, err := p.loadLinks()
	for _, a := range links {
		_ = a.link.Close()
	}
	return true, len(links), err
}

// Remove takes the instance out of the kernel: links, programs, maps and pins. Close
// first. It works also on what a crash left behind, and is no error if there is nothing.
// The result says whether there was anything.
func Remove(root, instance string) (found bool, err error) {
	p := newPins(root, instance)
	found, err = p.exist()
	if err != nil {
		return false, err
	}
	if links, err := p.loadLinks(); err == nil {
		for _, a := range links {
			a.detach()
		}
	}
	restoring := p.removeGates()
	if err := p.retire(); err != nil {
		return found, errors.Join(restoring, err)
	}
	err = errors.Join(restoring, p.draft().remove())
	_ = os.Remove(p.root) // only if no other instance is in it
	return found, err
}
