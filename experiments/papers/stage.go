// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"narthex/experiments/internal/bench"
	"narthex/internal/load"
	"narthex/internal/testnet"
	"narthex/internal/testnet/busy"
)

const backlog = 4096 // of the servers' listeners

// Who is who. Policies and peers name the networks.
var (
	preferredNet = netip.MustParsePrefix("10.77.1.0/24")
	middleNet    = netip.MustParsePrefix("10.77.66.0/24")
	lowNet       = netip.MustParsePrefix("10.77.77.0/24")
	greedyNet    = netip.MustParsePrefix("198.18.0.0/16") // of the stateless generator: 65,536 addresses
)

// addressesEach is how many addresses clients with a kernel have in each network.
const addressesEach = 8

// stage is a lab with a server's namespace on one core and its clients' on the other.
type stage struct {
	*suite
	lab                    *testnet.Lab
	preferred, middle, low []netip.Addr
	core                   *bench.Core // the server's
	clients                *busy.Meter // of the clients' core
	workers                bench.Workers
	receiver               int // thread that does what the server's device receives
}

func (s *suite) stage(purpose string) (st *stage, err error) {
	lab, err := s.Lab("papers-"+purpose, addressesEach)
	if err != nil {
		return nil, err
	}
	st = &stage{suite: s, lab: lab, preferred: lab.ClientsV4}
	if err := st.build(); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

func (st *stage) build() (err error) {
	for _, n := range []struct {
		net netip.Prefix
		to  *[]netip.Addr
	}{{middleNet, &st.middle}, {lowNet, &st.low}} {
		addr := n.net.Addr()
		for range addressesEach {
			addr = addr.Next()
			if err := st.lab.Client.AddAddr(testnet.Dev, netip.PrefixFrom(addr, 16)); err != nil {
				return err
			}
			*n.to = append(*n.to, addr)
		}
	}
	if err := st.lab.Server.Sysctl("core/somaxconn", fmt.Sprint(backlog)); err != nil {
		return err
	}
	if err := st.lab.Server.Sysctl("ipv4/tcp_max_syn_backlog", fmt.Sprint(backlog)); err != nil {
		return err
	}
	if _, err := receive(st.lab.Client, st.ClientCPUs[0]); err != nil {
		return err
	}
	if st.receiver, err = receive(st.lab.Server, st.ServerCPUs[0]); err != nil {
		return err
	}
	if st.clients, err = busy.Start(st.ClientCPUs[0]); err != nil {
		return err
	}
	st.core, err = bench.NewCore(st.ServerCPUs[0])
	return err
}

func (st *stage) close() error {
	var errs []error
	if st.core != nil {
		errs = append(errs, st.core.Close())
	}
	if st.clients != nil {
		errs = append(errs, st.clients.Close())
	}
	return errors.Join(append(errs, st.lab.Close())...)
}

// receive has a core do all that a device of the lab's receives, by a thread of its own for NAPI: what is
// attached to it by XDP or tc, and the protocols. On a veth that is otherwise done where the sender runs, or,
// with receive packet steering, partly there, at the price of an interrupt between the cores for each frame.
// The thread goes before processes, as softirqs do. Without GRO, or a program, a veth has no NAPI.
func receive(ns *testnet.Namespace, cpu int) (thread int, err error) {
	if err := ns.SetOffload(testnet.Dev, testnet.GRO, true); err != nil {
		return 0, err
	}
	if err := ns.SetRPS(testnet.Dev); err != nil {
		return 0, err
	}
	before, err := bench.KernelThreads("napi/" + testnet.Dev)
	if err != nil {
		return 0, err
	}
	if err := ns.WriteSysfs("class/net/"+testnet.Dev+"/threaded", "1"); err != nil {
		return 0, fmt.Errorf("have a thread do what %q receives: %w", testnet.Dev, err)
	}
	after, err := bench.KernelThreads("napi/" + testnet.Dev)
	if err != nil {
		return 0, err
	}
	maps.DeleteFunc(after, func(pid int, _ bool) bool { return before[pid] })
	if len(after) != 1 {
		return 0, fmt.Errorf("find the thread that does what %q receives among %v", testnet.Dev, after)
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

// web is where the server listens, or the proxy before it; behind is where the server listens then.
func (st *stage) web() netip.AddrPort    { return bench.Web(st.lab) }
func (st *stage) behind() netip.AddrPort { return netip.AddrPortFrom(st.lab.ServerV4, 8080) }

// serve has the processes of a server, or proxy, count as workers.
func (st *stage) serve(s *testnet.Server, err error) (*testnet.Server, error) {
	if err != nil {
		return nil, err
	}
	processes, err := s.PIDs()
	st.workers = append(st.workers, processes...)
	return s, err
}

// goFirst has a proxy that has started go before the server on their core. Among dozens of busy processes
// it would otherwise get a share of the core in which it cannot even accept connections: they then wait in
// the listener's queue, in which there is no order.
func goFirst(s *testnet.Server, err error) (*testnet.Server, error) {
	if err != nil {
		return nil, err
	}
	processes, err := s.PIDs()
	for _, pid := range processes {
		err = errors.Join(err, unix.Setpriority(unix.PRIO_PROCESS, pid, -20))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("have the proxy go first: %w", err), s.Close())
	}
	return s, nil
}

// narthex starts Narthex with a policy.
func (st *stage) narthex(ctx context.Context, policy string, flags ...string) (*bench.Narthex, error) {
	path, err := st.writePolicy(policy)
	if err != nil {
		return nil, err
	}
	return st.Start(ctx, st.lab.Server, path, flags...)
}

// writePolicy writes a policy into a folder that goes with the lab.
func (st *stage) writePolicy(policy string) (path string, err error) {
	dir, err := st.lab.Server.TempDir("policy")
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "policy.yaml")
	return path, os.WriteFile(path, []byte(policy), 0o600)
}

// from are clients of some addresses. They ask for as long as they are let.
func (st *stage) from(sources []netip.Addr, path string) load.Client {
	c := st.Client(st.lab, sources, load.MaxDuration)
	c.Path = path
	return c
}
