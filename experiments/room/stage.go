// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/internal/load"
)

const (
	backlog       = 4096 // of the servers' listeners
	bronzeSources = 8
)

// bronzeNet holds the addresses of bronze clients; policies name it.
var bronzeNet = netip.MustParsePrefix("10.77.66.0/24")

// stage is a lab with a server on one core and gold and bronze clients on the other.
type stage struct {
	suite
	rig    *lab.Lab
	bronze []netip.Addr
	bench.Meters
}

func (b suite) stage(purpose string) (st *stage, err error) {
	rig, err := b.Lab("room-"+purpose, 1)
	if err != nil {
		return nil, err
	}
	st = &stage{suite: b, rig: rig}
	if err := st.build(); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

func (st *stage) build() (err error) {
	if st.bronze, err = bench.Addresses(st.rig.Client, bronzeNet, bronzeSources); err != nil {
		return err
	}
	return st.Meters.Open(st.Bench, st.rig)
}

func (st *stage) close() error { return errors.Join(st.Meters.Close(), st.rig.Close()) }

// origin starts the server that works.
func (st *stage) origin(cfg origin.Config) (*lab.Server, error) {
	cfg.Listen = []netip.AddrPort{bench.Web(st.rig)}
	cfg.CPUs = st.ServerCPUs
	if cfg.Backlog == 0 {
		cfg.Backlog = backlog
	}
	return st.Serve(origin.Start(st.rig.Server, cfg))
}

// room is a policy with a waiting room.
type room struct {
	concurrency int
	queue       string // further keys of the queue
	bronze      string // further keys of the class of bronze clients
}

// policy is its text.
func (st *stage) policy(r room) string {
	queue, bronze := "", ""
	if r.queue != "" {
		queue = ", queue: {" + r.queue + "}"
	}
	if r.bronze != "" {
		bronze = ", " + r.bronze
	}
	return fmt.Sprintf(`version: 1
services:
  - {name: web, listen: ["%s"], xdp: off, concurrency: %d%s}
classes:
  - {name: gold, priority: 1}
  - {name: bronze, priority: 2%s}
connections:
  - {name: gold, from: [10.77.1.0/24], class: gold}
  - {name: bronze, from: [%s], class: bronze}
`, bench.Web(st.rig), r.concurrency, queue, bronze, bronzeNet)
}

// narthex starts Narthex with a waiting room.
func (st *stage) narthex(ctx context.Context, r room, flags ...string) (*bench.Narthex, error) {
	return st.Enforce(ctx, st.rig.Server, st.policy(r), flags...)
}

// gold and bronze are clients of the one kind and of the other.
func (st *stage) goldClients() load.Client {
	return st.Client(st.rig, st.rig.ClientsV4, load.MaxDuration)
}

func (st *stage) bronzeClients() load.Client {
	return st.Client(st.rig, st.bronze, load.MaxDuration)
}
