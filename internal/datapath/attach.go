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

func (in *Instance) program(m Mode) *ebpf.Program {
	if m == ModeTCX {
		return in.objects.NarthexTcxSyn
	}
	return in.objects.NarthexXdpSyn
}

// attachMissing attaches to the targets that are not attached in a mode that they may
// have. It returns what it attached, also on error.
func (in *Instance) attachMissing(targets []Target) ([]attached, error) {
	var added []attached
	var failed error
	for _, t := range targets {
		i := slices.IndexFunc(in.policed, func(a attached) bool { return a.Index == t.Index })
		if i >= 0 {
			in.policed[i].Name = t.Name
			if slices.Contains(modes(t.XDP), in.policed[i].Mode) {
				continue
			}
			// One interface has one mode of XDP: the old must go before the new can come.
			detachAll(in.policed[i : i+1])
			in.policed = slices.Delete(in.policed, i, i+1)
		}
		a, err := in.attach(t)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		in.log.Debug("attached", "interface", a.Name, "mode", a.Mode, "reason", a.Reason)
		added = append(added, a)
	}
	return added, failed
}

// attach attaches to one interface and pins the link.
func (in *Instance) attach(t Target) (attached, error) {
	var reasons []string
	for _, m := range modes(t.XDP) {
		l, err := in.attachAs(m, t.Index)
		if err != nil {
			reasons = append(reasons, whyNot(m, err))
			continue
		}
		a := attached{Attachment{t.Name, t.Index, m, strings.Join(reasons, "; ")}, l}
		if err := l.Pin(filepath.Join(in.pins.linkDir(), a.linkName())); err != nil {
			_ = l.Close()
			return a, fmt.Errorf("pinning the link to interface %q: %w", t.Name, err)
		}
		return a, nil
	}
	return attached{}, fmt.Errorf("attaching to interface %q: %s", t.Name, strings.Join(reasons, "; "))
}

func (in *Instance) attachAs(m Mode, index int) (link.Link, error) {
	switch m {
	case ModeNative:
		return link.AttachXDP(link.XDPOptions{Program: in.program(m), Interface: index, Flags: link.XDPDriverMode})
	case ModeGeneric:
		return link.AttachXDP(link.XDPOptions{Program: in.program(m), Interface: index, Flags: link.XDPGenericMode})
	}
	return link.AttachTCX(link.TCXOptions{Program: in.program(m), Interface: index, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
}

// whyNot says in words why a mode is not possible.
func whyNot(m Mode, err error) string {
	switch {
	case m == ModeTCX:
		return fmt.Sprintf("tcx: %v", err)
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return fmt.Sprintf("%s XDP: another XDP program is attached", m)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, link.ErrNotSupported):
		return fmt.Sprintf("%s XDP: the driver does not support it (xdp: auto takes what it does)", m)
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
			detachAll([]attached{a})
		}
		return !wanted
	})
}

// detachAll removes pins and links.
func detachAll(list []attached) {
	for _, a := range list {
		_ = a.link.Unpin()
		_ = a.link.Detach()
		_ = a.link.Close()
	}
}

// dropGone removes the pins of links whose interface no longer exists; the kernel has
// detached them.
func dropGone(list []attached) []attached {
	return slices.DeleteFunc(list, func(a attached) bool {
		if index, err := linkedIndex(a.link); err != nil || index == a.Index {
			return false
		}
		detachAll([]attached{a})
		return true
	})
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
		detachAll(links)
	}
	err = errors.Join(p.remove(), p.draft().remove())
	_ = os.Remove(p.root) // only if no other instance is in it
	return found, err
}
