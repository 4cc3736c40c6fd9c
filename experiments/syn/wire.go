// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"narthex/experiments/internal/bench"
	"narthex/internal/testnet"
)

// napiThread is how the names of threads begin that poll the lab's devices.
const napiThread = "napi/" + testnet.Dev

// attachEmpty attaches an XDP program that passes everything.
func attachEmpty(ns *testnet.Namespace, dev string) (detach func() error, err error) {
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

// pollOnServer has both ends of the link receive by NAPI, as a veth does while GRO is on
// or XDP attached, and the server's in a kernel thread on the server's core, which it
// returns.
func (b suite) pollOnServer(lab *testnet.Lab) (threads bench.Workers, err error) {
	for _, ns := range []*testnet.Namespace{lab.Server, lab.Client} {
		if err := ns.SetOffload(testnet.Dev, testnet.GRO, true); err != nil {
			return nil, err
		}
	}
	before, err := bench.KernelThreads(napiThread)
	if err != nil {
		return nil, err
	}
	if err := lab.Server.WriteSysfs("class/net/"+testnet.Dev+"/threaded", "1"); err != nil {
		return nil, fmt.Errorf("have a kernel thread poll %q: %w", testnet.Dev, err)
	}
	after, err := bench.KernelThreads(napiThread)
	if err != nil {
		return nil, err
	}
	var core unix.CPUSet
	core.Set(b.ServerCPUs[0])
	for pid := range after {
		if before[pid] {
			continue
		}
		threads = append(threads, pid)
		if err := unix.SchedSetaffinity(pid, &core); err != nil {
			return nil, fmt.Errorf("pin the thread that polls %q: %w", testnet.Dev, err)
		}
	}
	if len(threads) == 0 {
		return nil, fmt.Errorf("have a kernel thread poll %q: there is none", testnet.Dev)
	}
	return threads, nil
}
