// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"narthex/experiments/internal/bench"
	"narthex/internal/load"
	"narthex/internal/testnet"
	"narthex/internal/testnet/busy"
	"narthex/internal/testnet/origin"
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
	lab     *testnet.Lab
	bronze  []netip.Addr
	core    *bench.Core // the server's
	clients *busy.Meter // of the clients' core
	workers bench.Workers
}

func (b suite) stage(purpose string) (st *stage, err error) {
	lab, err := b.Lab("room-"+purpose, 1)
	if err != nil {
		return nil, err
	}
	st = &stage{suite: b, lab: lab}
	if err := st.build(); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

func (st *stage) build() (err error) {
	addr := bronzeNet.Addr()
	for range bronzeSources {
		addr = addr.Next()
		if err := st.lab.Client.AddAddr(testnet.Dev, netip.PrefixFrom(addr, 16)); err != nil {
			return err
		}
		st.bronze = append(st.bronze, addr)
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

// origin starts the server that works.
func (st *stage) origin(cfg origin.Config) (*testnet.Server, error) {
	cfg.Listen = []netip.AddrPort{bench.Web(st.lab)}
	cfg.CPUs = st.ServerCPUs
	if cfg.Backlog == 0 {
		cfg.Backlog = backlog
	}
	return st.serve(origin.Start(st.lab.Server, cfg))
}

// serve has the processes of a server count as workers.
func (st *stage) serve(s *testnet.Server, err error) (*testnet.Server, error) {
	if err != nil {
		return nil, err
	}
	processes, err := s.PIDs()
	st.workers = append(st.workers, processes...)
	return s, err
}

// room is a policy with a waiting room.
type room struct {
	concurrency int
	queue       string // further keys of the queue
	bronze      string // further keys of the class of bronze clients
}

// write writes the policy into a folder that goes with the lab.
func (st *stage) write(r room) (path string, err error) {
	dir, err := st.lab.Server.TempDir("policy")
	if err != nil {
		return "", err
	}
	queue, bronze := "", ""
	if r.queue != "" {
		queue = ", queue: {" + r.queue + "}"
	}
	if r.bronze != "" {
		bronze = ", " + r.bronze
	}
	text := fmt.Sprintf(`version: 1
services:
  - {name: web, listen: ["%s"], xdp: off, concurrency: %d%s}
classes:
  - {name: gold, priority: 1}
  - {name: bronze, priority: 2%s}
connections:
  - {name: gold, from: [10.77.1.0/24], class: gold}
  - {name: bronze, from: [%s], class: bronze}
`, bench.Web(st.lab), r.concurrency, queue, bronze, bronzeNet)
	path = filepath.Join(dir, "policy.yaml")
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// narthex starts Narthex with a waiting room.
func (st *stage) narthex(ctx context.Context, r room, flags ...string) (*bench.Narthex, error) {
	policy, err := st.write(r)
	if err != nil {
		return nil, err
	}
	return st.Start(ctx, st.lab.Server, policy, flags...)
}

// gold and bronze are clients of the one kind and of the other.
func (st *stage) goldClients() load.Client {
	return st.Client(st.lab, st.lab.ClientsV4, load.MaxDuration)
}

func (st *stage) bronzeClients() load.Client {
	return st.Client(st.lab, st.bronze, load.MaxDuration)
}
