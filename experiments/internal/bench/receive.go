// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"maps"
	"strconv"

	"golang.org/x/sys/unix"

	"narthex/internal/lab"
)

// moderation is the time between two polls of a device, in nanoseconds: 10,000 a second, as many
// interrupts as drivers of network cards settle at under load.
const moderation = 100_000

// Receive has both ends of a lab's link do all that they receive each on a core of its own, the server's and
// its clients', by threads of their own for NAPI: what is attached to them by XDP or tc, and the protocols.
// It returns the server's, which goes before processes, as softirqs do; so does the clients'.
//
// On a veth all that is otherwise done on the sender's core, or, with receive packet steering, partly there, at the
// price of an interrupt between the cores for each frame. A veth has NAPI while it has GRO or an XDP program,
// and uses it without a program only for what a device without TSO sends.
func Receive(b *Bench, rig *lab.Lab) (thread int, err error) {
	for _, ns := range []*lab.Namespace{rig.Server, rig.Client} {
		for o, on := range map[lab.Offload]bool{lab.GRO: true, lab.TSO: false} {
			if err := ns.SetOffload(lab.Dev, o, on); err != nil {
				return 0, err
			}
		}
		if err := ns.SetRPS(lab.Dev); err != nil {
			return 0, err
		}
	}
	if _, err := receiveOn(rig.Client, b.ClientCPUs[0]); err != nil {
		return 0, err
	}
	return receiveOn(rig.Server, b.ServerCPUs[0])
}

// receiveOn has a thread on a core poll a device, again and again while there is something: not woken for each
// frame by an interrupt from the other core, which costs more than the frame does, but as a network
// card with interrupt moderation does it.
func receiveOn(ns *lab.Namespace, cpu int) (thread int, err error) {
	const name = "napi/" + lab.Dev
	for file, value := range map[string]string{"gro_flush_timeout": strconv.Itoa(moderation), "napi_defer_hard_irqs": "2"} {
		if err := ns.WriteSysfs("class/net/"+lab.Dev+"/"+file, value); err != nil {
			return 0, fmt.Errorf("moderate interrupts of %q: %w", lab.Dev, err)
		}
	}
	before, err := KernelThreads(name)
	if err != nil {
		return 0, err
	}
	if err := ns.WriteSysfs("class/net/"+lab.Dev+"/threaded", "1"); err != nil {
		return 0, fmt.Errorf("have a thread do what %q receives: %w", lab.Dev, err)
	}
	after, err := KernelThreads(name)
	if err != nil {
		return 0, err
	}
	maps.DeleteFunc(after, func(pid int, _ bool) bool { return before[pid] })
	if len(after) != 1 {
		return 0, fmt.Errorf("find the thread that does what %q receives among %v", lab.Dev, after)
	}
	for thread = range after {
	}
	var cpus unix.CPUSet
	cpus.Set(cpu)
	if err := unix.SchedSetaffinity(thread, &cpus); err != nil {
		return 0, fmt.Errorf("keep the thread that receives to core %d: %w", cpu, err)
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if err := unix.SchedSetAttr(thread, &attr, 0); err != nil {
		return 0, fmt.Errorf("have the thread that receives go first: %w", err)
	}
	return thread, nil
}
