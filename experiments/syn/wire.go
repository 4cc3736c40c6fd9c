// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"narthex/internal/lab"
)

// attachEmpty attaches an XDP program that passes everything.
func attachEmpty(ns *lab.Namespace, dev string) (detach func() error, err error) {
	const xdpPass = 2
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.XDP,
		License:      "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("load an empty program: %w", err)
	}
	defer p.Close()
	nic, err := ns.Link(dev)
	if err != nil {
		return nil, err
	}
	var l link.Link
	err = ns.Do(func() (err error) {
		l, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: nic.Attrs().Index, Flags: link.XDPDriverMode})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attach an empty program: %w", err)
	}
	return l.Close, nil
}
