// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"math"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// Verdicts of an XDP program.
const (
	xdpDrop = 1
	xdpPass = 2
)

// LosePackets has a share of the packets that the device receives, from 0 to 1, be lost at random, before
// programs of traffic control see them. No other XDP program can be attached to it then. It ends with the
// namespace.
func (n *Namespace) LosePackets(dev string, share float64) error {
	l, err := n.Link(dev)
	if err != nil {
		return err
	}
	spec := &ebpf.ProgramSpec{
		Name:    "narthex_loss",
		Type:    ebpf.XDP,
		License: "Apache-2.0",
		Instructions: asm.Instructions{
			asm.FnGetPrandomU32.Call(),
			asm.LoadImm(asm.R1, int64(share*math.MaxUint32), asm.DWord),
			asm.Mov.Reg(asm.R2, asm.R0),
			asm.Mov.Imm(asm.R0, xdpDrop),
			asm.JLT.Reg(asm.R2, asm.R1, "lost"),
			asm.Mov.Imm(asm.R0, xdpPass),
			asm.Return().WithSymbol("lost"),
		},
	}
	prog, err := ebpf.NewProgram(spec)
	if err != nil {
		return fmt.Errorf("lose packets: %w", err)
	}
	defer prog.Close() // the link keeps it
	return n.Do(func() error {
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: l.Attrs().Index, Flags: link.XDPGenericMode})
		if err != nil {
			return fmt.Errorf("lose packets on %q: %w", dev, err)
		}
		n.OnClose(l.Close)
		return nil
	})
}
