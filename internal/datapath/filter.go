// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// filterHook is a filter of traffic control, before tcx (6.6) the way to attach a program to an
// interface. It stays when no process has it open, as a pinned link does. A folder among the pins
// stands for it, and the folder's path is the filter's name, by which it is found again.
type filterHook struct {
	pin       string
	index     int
	side      side
	namespace uint64 // inode of that of the interface, where alone the filter can be seen
}

// attachFilter attaches in the calling thread's namespace. The folder comes first: what a crash
// leaves in between is a folder without a filter.
func attachFilter(p pins, prog *ebpf.Program, index int, s side) (hook, error) {
	inode, err := namespaceInode("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	kind := s.pin
	if kind == string(ModeTCX) {
		kind = string(ModeTC)
	}
	h := &filterHook{
		pin: p.hookPath(kind, index) + "_" + strconv.FormatUint(inode, 10), index: index, side: s, namespace: inode,
	}
	if err := makeFolder(h.pin); err != nil {
		return nil, err
	}
	if err = h.makeQdisc(); err == nil {
		err = h.update(prog)
	}
	if err != nil {
		return nil, errors.Join(err, h.remove())
	}
	return h, nil
}

func makeFolder(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("recording %q: %w", filepath.Base(path), err)
	}
	return nil
}

func removeFolder(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// madeQdisc is a folder that says that the interface's qdisc for filters is ours.
func (h *filterHook) madeQdisc() string {
	return filepath.Join(filepath.Dir(h.pin), hookName("clsact", h.index)+"_"+strconv.FormatUint(h.namespace, 10))
}

// qdisc returns the interface's qdisc for filters, nil if it has none.
func (h *filterHook) qdisc() (netlink.Qdisc, error) {
	l, err := netlink.LinkByIndex(h.index)
	if err != nil {
		return nil, noDevice(err)
	}
	all, err := netlink.QdiscList(l)
	if err != nil {
		return nil, err
	}
	for _, q := range all {
		if q.Type() == "clsact" || q.Type() == "ingress" {
			return q, nil
		}
	}
	return nil, nil
}

// makeQdisc sees to it that there is one. It is recorded before it is made.
func (h *filterHook) makeQdisc() error {
	q, err := h.qdisc()
	if err != nil {
		return err
	}
	if q == nil {
		if err := makeFolder(h.madeQdisc()); err != nil {
			return err
		}
		q = &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: h.index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}}
		if err := netlink.QdiscAdd(q); err != nil {
			return fmt.Errorf("adding the clsact qdisc: %w", err)
		}
	}
	if q.Type() == "ingress" && h.side.parent == netlink.HANDLE_MIN_EGRESS {
		return errors.New("its \"ingress\" qdisc sees no packets that go out, and leaves no place for one that does: " +
			"remove it with \"tc qdisc del dev DEV ingress\", then its filters can be added to a \"clsact\" qdisc")
	}
	return nil
}

// filters returns all filters on the hook's side, and of these its own, nil if there is none.
func (h *filterHook) filters() (all []netlink.Filter, own *netlink.BpfFilter, err error) {
	l, err := netlink.LinkByIndex(h.index)
	if err != nil {
		return nil, nil, noDevice(err)
	}
	if all, err = netlink.FilterList(l, h.side.parent); err != nil {
		return nil, nil, fmt.Errorf("listing filters: %w", err)
	}
	for _, f := range all {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Name == h.pin {
			own = b
		}
	}
	return all, own, nil
}

// update replaces the program at one stroke, or adds the filter if it is not there.
func (h *filterHook) update(prog *ebpf.Program) error {
	all, own, err := h.filters()
	if err != nil {
		return err
	}
	f := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: h.index, Parent: h.side.parent, Protocol: unix.ETH_P_ALL, Priority: h.freePriority(all),
		},
		Fd: prog.FD(), Name: h.pin, DirectAction: true,
	}
	if own != nil {
		f.Priority, f.Handle = own.Priority, own.Handle
		err = netlink.FilterReplace(f)
	} else {
		err = netlink.FilterAdd(f)
	}
	if err != nil {
		return fmt.Errorf("adding a filter: %w", err)
	}
	return nil
}

// freePriority returns the first from the side's on that has no filters, or eBPF's: then the new
// one comes before them.
func (h *filterHook) freePriority(all []netlink.Filter) uint16 {
	for p := h.side.priority; ; p++ {
		free := true
		for _, f := range all {
			same := f.Attrs().Priority == p
			free = free && (!same || f.Type() == "bpf" && f.Attrs().Protocol == unix.ETH_P_ALL)
		}
		if free {
			return p
		}
	}
}

func (h *filterHook) isAt(index int) bool {
	if !h.isHere() || index != h.index {
		return false
	}
	_, own, err := h.filters()
	if err != nil {
		return !errors.Is(err, unix.ENODEV)
	}
	return own != nil
}

// isHere reports whether the calling thread is in the interface's namespace.
func (h *filterHook) isHere() bool {
	inode, err := namespaceInode("/proc/thread-self/ns/net")
	return err != nil || inode == h.namespace
}

// isGone cannot be told from another namespace.
func (h *filterHook) isGone(index int) bool { return h.isHere() && !h.isAt(index) }

// remove also removes the qdisc, if it is ours and nobody else has filters there. With an
// interface that goes, or moves to another namespace, the kernel removes both.
func (h *filterHook) remove() error {
	err := atNamespace(h.namespace, h.removeHere)
	if err != nil {
		return fmt.Errorf("removing the filter %q: %w", filepath.Base(h.pin), err)
	}
	return removeFolder(h.pin)
}

func (h *filterHook) removeHere() error {
	_, own, err := h.filters()
	if err == nil && own != nil {
		err = netlink.FilterDel(own)
	}
	if err == nil {
		err = h.removeQdisc()
	}
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) {
		return removeFolder(h.madeQdisc())
	}
	return err
}

// removeQdisc removes it if it is ours and empty.
func (h *filterHook) removeQdisc() error {
	if _, err := os.Stat(h.madeQdisc()); err != nil {
		return nil
	}
	l, err := netlink.LinkByIndex(h.index)
	if err != nil {
		return noDevice(err)
	}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		if left, err := netlink.FilterList(l, parent); err != nil || len(left) > 0 {
			return err
		}
	}
	q, err := h.qdisc()
	if err == nil && q != nil && q.Type() == "clsact" {
		err = netlink.QdiscDel(q)
	}
	return errors.Join(err, removeFolder(h.madeQdisc()))
}

func (h *filterHook) close() {}

// noDevice makes the kernel's error of the library's.
func noDevice(err error) error {
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return unix.ENODEV
	}
	return err
}
