// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// VLANTag is one tag of a frame.
type VLANTag struct {
	ID    uint16 // 1 to 4094
	Proto uint16 // Ethernet type; 0 means 802.1Q, unix.ETH_P_8021AD is 802.1ad
}

func (t VLANTag) proto() uint16 {
	if t.Proto == 0 {
		return unix.ETH_P_8021Q
	}
	return t.Proto
}

// TagFrames has every frame that leaves the device carry the given tags, outermost
// first, and takes them off frames that come with just these; other frames stay as they
// are. It stands in for VLAN devices on both sides of a link, on kernels without them:
// the wire carries tags, both stacks see plain IP. With the offload TxVLAN off the
// outermost tag, too, is in the frame's bytes.
//
// At ingress the untagging program goes to the tail of the device's tcx chain, where a
// kernel's VLAN device would take over: XDP and tcx programs that are attached before see
// the tag, and so do those that attach later at the head. Call it after attaching what
// appends itself at the tail. At egress, too, the tagging program goes to the tail, so
// that the device's other programs see what the stack sent.
func (n *Namespace) TagFrames(dev string, tags ...VLANTag) error {
	dst, err := n.Link(dev)
	if err != nil {
		return err
	}
	index := dst.Attrs().Index
	if err := n.attach(index, ebpf.AttachTCXEgress, push(tags, 0)); err != nil {
		return fmt.Errorf("tag frames on %q: %w", dev, err)
	}
	if err := n.attach(index, ebpf.AttachTCXIngress, pop(tags, 0)); err != nil {
		return fmt.Errorf("untag frames on %q: %w", dev, err)
	}
	return nil
}

// AddVLANDevice makes a device that stands in for a VLAN device above lower, such as
// eth0.10 above eth0: what lower receives with just this tag moves to it, and what it
// sends leaves by lower with the tag. Like the real one it names lower as its parent,
// and it has no native XDP. Unlike the real one it has a hardware address of its own.
//
// It is a macvlan device in source mode without sources, which receives nothing by
// itself. See TagFrames for the place in lower's tcx chain.
func (n *Namespace) AddVLANDevice(name, lower string, tag VLANTag) error {
	if err := n.addMacvlan(name, lower, netlink.MACVLAN_MODE_SOURCE); err != nil {
		return err
	}
	upper, err := n.Link(name)
	if err != nil {
		return err
	}
	above, below := upper.Attrs().Index, upper.Attrs().ParentIndex
	tags := []VLANTag{tag}
	if err := n.attach(above, ebpf.AttachTCXEgress, push(tags, below)); err != nil {
		return fmt.Errorf("tag frames of %q: %w", name, err)
	}
	if err := n.attach(below, ebpf.AttachTCXIngress, pop(tags, above)); err != nil {
		return fmt.Errorf("move frames from %q to %q: %w", lower, name, err)
	}
	return nil
}

// attach loads a program and attaches it at the tail of a device's chain, until the
// namespace is closed.
func (n *Namespace) attach(index int, where ebpf.AttachType, spec *ebpf.ProgramSpec) error {
	prog, err := ebpf.NewProgram(spec)
	if err != nil {
		return err
	}
	defer prog.Close() // the link keeps it
	return n.Do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: prog, Attach: where, Anchor: link.Tail()})
		if err != nil {
			return err
		}
		n.OnClose(func() error { return errors.Join(l.Detach(), l.Close()) })
		return nil
	})
}
