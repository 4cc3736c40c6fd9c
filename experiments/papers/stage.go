// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/load"
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
	rig                    *lab.Lab
	preferred, middle, low []netip.Addr
	bench.Meters
}

func (s *suite) stage(purpose string) (st *stage, err error) {
	rig, err := s.Lab("papers-"+purpose, addressesEach)
	if err != nil {
		return nil, err
	}
	st = &stage{suite: s, rig: rig, preferred: rig.ClientsV4}
	if err := st.build(); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

func (st *stage) build() (err error) {
	if st.middle, err = bench.Addresses(st.rig.Client, middleNet, addressesEach); err != nil {
		return err
	}
	if st.low, err = bench.Addresses(st.rig.Client, lowNet, addressesEach); err != nil {
		return err
	}
	if err := st.rig.Server.Sysctl("core/somaxconn", fmt.Sprint(backlog)); err != nil {
		return err
	}
	if err := st.rig.Server.Sysctl("ipv4/tcp_max_syn_backlog", fmt.Sprint(backlog)); err != nil {
		return err
	}
	if st.Receiver, err = bench.Receive(st.Bench, st.rig); err != nil {
		return err
	}
	return st.Meters.Open(st.Bench, st.rig)
}

func (st *stage) close() error { return errors.Join(st.Meters.Close(), st.rig.Close()) }

// web is where the server listens, or the proxy before it; behind is where the server listens then.
func (st *stage) web() netip.AddrPort    { return bench.Web(st.rig) }
func (st *stage) behind() netip.AddrPort { return netip.AddrPortFrom(st.rig.ServerV4, 8080) }

// goFirst has a proxy that has started go before the server on their core. Among dozens of busy processes
// it would otherwise get a share of the core in which it cannot even accept connections: they then wait in
// the listener's queue, in which there is no order.
func goFirst(s *lab.Server, err error) (*lab.Server, error) {
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
	return st.Enforce(ctx, st.rig.Server, policy, flags...)
}

// from are clients of some addresses. They ask for as long as they are let.
func (st *stage) from(sources []netip.Addr, path string) load.Client {
	c := st.Client(st.rig, sources, load.MaxDuration)
	c.Path = path
	return c
}
