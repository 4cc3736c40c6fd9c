// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/internal/load"
)

const (
	places = 16 // requests in service at once
	quick  = "/wait?ms=10"
	warmUp = time.Second
)

// stage is a lab with a server on one core and clients on the other.
type stage struct {
	suite
	rig *lab.Lab
	bench.Meters
}

func (b suite) stage(purpose string) (st *stage, err error) {
	rig, err := b.Lab("fair-"+purpose, 1)
	if err != nil {
		return nil, err
	}
	st = &stage{suite: b, rig: rig}
	if err := st.build(); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

func (st *stage) build() error {
	if err := st.Meters.Open(st.Bench, st.rig); err != nil {
		return err
	}
	_, err := st.Serve(origin.Start(st.rig.Server, origin.Config{Listen: []netip.AddrPort{bench.Web(st.rig)}, CPUs: st.ServerCPUs, Backlog: 4096}))
	return err
}

func (st *stage) close() error { return errors.Join(st.Meters.Close(), st.rig.Close()) }

// clients of a source, which is the number of a prefix, with so many connections that stay.
func (st *stage) clients(path string, connections int, sources ...int) (load.Closed, error) {
	var all []netip.Addr
	for _, n := range sources {
		a, err := bench.Addresses(st.rig.Client, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(n), 0}), 24), 1)
		if err != nil {
			return load.Closed{}, err
		}
		all = append(all, a...)
	}
	c := load.Closed{Client: st.Client(st.rig, all, load.MaxDuration), Clients: connections, KeepAlive: true}
	c.Path = path
	return c, nil
}

// with measures clients while one class of them waits, in an order.
func (st *stage) with(ctx context.Context, fair string, clients ...bench.Starter) (s *bench.Sample, err error) {
	return st.under(ctx, warmUp, fmt.Sprintf("concurrency: %d, queue: {max_wait: 20s}", places), fair, clients...)
}

// under is with for a service of its own kind, after so long.
func (st *stage) under(ctx context.Context, settle time.Duration, service, fair string, clients ...bench.Starter) (s *bench.Sample, err error) {
	n, err := st.Enforce(ctx, st.rig.Server, fmt.Sprintf(`version: 1
services:
  - {name: web, listen: ["%s"], xdp: off, %s}
classes:
  - {name: all, priority: 1, fair: %s}
`, bench.Web(st.rig), service, fair))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	return st.Once(ctx, settle, length(), clients...)
}
