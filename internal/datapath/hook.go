// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// hook keeps a program on an interface, also without a process: by a link, or by a filter where
// the kernel has no link for that.
type hook interface {
	// update puts a program in the place of the attached one, at one stroke.
	update(*ebpf.Program) error
	// isAt reports whether it is on the interface with that index in the calling thread's
	// namespace. Where that cannot be told it is taken to be.
	isAt(index int) bool
	// isGone reports whether the interface that it was on no longer exists.
	isGone(index int) bool
	// remove takes the program off the interface, and what is recorded of that.
	remove() error
	// close lets it go and leaves it in force.
	close()
}

// linkHook is a link, pinned: of XDP, or of one side of tcx.
type linkHook struct {
	link link.Link
	at   ebpf.AttachType // AttachNone of XDP
}

// attachTCX attaches first in the chain, or behind the given hook if that is a link.
func attachTCX(prog *ebpf.Program, index int, s side, behind hook, pin string) (hook, error) {
	anchor := link.Head()
	if before, ok := behind.(linkHook); ok {
		anchor = link.AfterLink(before.link)
	}
	l, err := link.AttachTCX(link.TCXOptions{Program: prog, Interface: index, Attach: s.at, Anchor: anchor})
	if err != nil {
		return nil, err
	}
	return pinLink(l, s.at, pin)
}

func attachXDP(prog *ebpf.Program, index int, flags link.XDPAttachFlags, pin string) (hook, error) {
	l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: index, Flags: flags})
	if err != nil {
		return nil, err
	}
	return pinLink(l, ebpf.AttachNone, pin)
}

// pinLink pins a link in place of what is pinned there: of an interface that had the index before.
func pinLink(l link.Link, at ebpf.AttachType, path string) (hook, error) {
	err := os.Remove(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = l.Pin(path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pinning the link %q: %w", filepath.Base(path), err), l.Close())
	}
	return linkHook{l, at}, nil
}

// openLink opens a pinned link.
func openLink(path string, at ebpf.AttachType) (hook, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return nil, fmt.Errorf("opening pinned link %q: %w", path, err)
	}
	return linkHook{l, at}, nil
}

func (h linkHook) update(prog *ebpf.Program) error {
	if err := h.link.Update(prog); !errors.Is(err, unix.ENOLINK) {
		return err
	}
	return nil // the interface has just gone
}

func (h linkHook) isAt(index int) bool {
	info, err := h.link.Info()
	if err != nil {
		return true
	}
	if h.at == ebpf.AttachNone {
		return hasXDP(index, info.Program)
	}
	q, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: h.at})
	if err != nil {
		return !errors.Is(err, unix.ENODEV)
	}
	return slices.ContainsFunc(q.Programs, func(p link.AttachedProgram) bool {
		id, ok := p.LinkID()
		return ok && id == info.ID
	})
}

// hasXDP reports whether a program is on an interface of the calling thread's namespace.
func hasXDP(index int, program ebpf.ProgramID) bool {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return !errors.As(err, new(netlink.LinkNotFoundError))
	}
	x := l.Attrs().Xdp
	if x == nil || !x.Attached {
		return false
	}
	several := x.AttachMode > nl.XDP_ATTACHED_HW // in more than one mode, and the identifiers elsewhere
	return several || ebpf.ProgramID(x.ProgId) == program
}

func (h linkHook) isGone(index int) bool {
	info, err := h.link.Info()
	if err != nil {
		return false
	}
	if x := info.XDP(); x != nil {
		return int(x.Ifindex) != index
	}
	if t := info.TCX(); t != nil {
		return int(t.Ifindex) != index
	}
	return true
}

func (h linkHook) remove() error {
	release(h.link)
	return nil
}

func (h linkHook) close() { _ = h.link.Close() }

// release removes a link and its pin. What fails is done by the kernel when the last who has it
// open ends.
func release(l link.Link) {
	_ = l.Unpin()
	_ = l.Detach()
	_ = l.Close()
}
