// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/peers"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
)

const (
	backlog = 4096 // of the server's listener
	limit   = 4    // of requests in service, where there is one
	warmUp  = time.Second
)

// bronzeNet holds the addresses of those who upload.
var bronzeNet = netip.MustParsePrefix("10.77.66.0/24")

// stage is a lab with a server on one core and clients on the other.
type stage struct {
	suite
	rig    *lab.Lab
	proxy  netip.AddrPort // of HAProxy in front of the server
	bronze []netip.Addr
}

func (b suite) stage(purpose string) (st *stage, err error) {
	if err := b.Stay(); err != nil {
		return nil, err
	}
	rig, err := b.Lab("uploads-"+purpose, 1)
	if err != nil {
		return nil, err
	}
	st = &stage{suite: b, rig: rig}
	if err := st.build(); err != nil {
		return nil, errors.Join(err, rig.Close())
	}
	return st, nil
}

// receive has each side do what it receives on its own core. On a veth the clients' TCP otherwise works on the
// server's core where an acknowledgement lets it go on, which is charged to who makes it wait for one.
func (st *stage) receive() error {
	_, err := bench.Receive(st.Bench, st.rig)
	return err
}

func (st *stage) build() (err error) {
	if st.bronze, err = bench.Addresses(st.rig.Client, bronzeNet, 8); err != nil {
		return err
	}
	if err := st.rig.Server.Sysctl("core/somaxconn", fmt.Sprint(backlog)); err != nil {
		return err
	}
	web := bench.Web(st.rig)
	if _, err := origin.Start(st.rig.Server, origin.Config{Listen: []netip.AddrPort{web}, CPUs: st.ServerCPUs, Backlog: backlog}); err != nil {
		return err
	}
	st.proxy = netip.AddrPortFrom(web.Addr(), 8080)
	_, err = peers.HAProxy{Listen: []netip.AddrPort{st.proxy}, Backlog: backlog, CPUs: st.ServerCPUs, Origin: web, MaxConn: limit}.Start(st.rig.Server)
	return err
}

// enforce starts Narthex with a waiting room.
func (st *stage) enforce(ctx context.Context, concurrency string) (*bench.Narthex, error) {
	return st.Enforce(ctx, st.rig.Server, fmt.Sprintf(`version: 1
services:
  - {name: web, listen: ["%s"], xdp: off, concurrency: %s}
classes:
  - {name: gold, priority: 1}
  - {name: bronze, priority: 2}
connections:
  - {name: gold, from: [10.77.1.0/24], class: gold}
  - {name: bronze, from: [%s], class: bronze}
`, bench.Web(st.rig), concurrency, bronzeNet))
}

// uploaders are clients that have not started.
func (st *stage) uploaders(u upload, clients int) *crowd {
	return &crowd{ns: st.rig.Client, to: bench.Web(st.rig), sources: st.bronze, upload: u, clients: clients}
}

// outcome is what clients did while they were measured.
type outcome struct {
	done, refused, broken uint64
	rate                  float64 // uploads done per second
}

func (c *crowd) count() outcome {
	return outcome{done: c.done.Load(), refused: c.refused.Load(), broken: c.broken.Load()}
}

// measure has the clients at work, and counts what they do after they have warmed up.
func (c *crowd) measure(ctx context.Context) (outcome, error) {
	before := c.count()
	began := time.Now()
	if err := bench.Sleep(ctx, length()); err != nil {
		return outcome{}, err
	}
	after := c.count()
	o := outcome{done: after.done - before.done, refused: after.refused - before.refused, broken: after.broken - before.broken}
	o.rate = float64(o.done) / time.Since(began).Seconds()
	return o, nil
}

// once starts the clients, measures and ends them.
func (c *crowd) once(ctx context.Context) (o outcome, err error) {
	c.start(ctx)
	defer func() { err = errors.Join(err, c.end()) }()
	if err := bench.Sleep(ctx, warmUp); err != nil {
		return o, err
	}
	return c.measure(ctx)
}

// with measures while Narthex is in front of the server, and looks what is left of the requests in its room.
func (st *stage) with(ctx context.Context, concurrency string, measure func() error) (left float64, err error) {
	n, err := st.enforce(ctx, concurrency)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	if err := measure(); err != nil {
		return 0, err
	}
	for range 1000 {
		status, err := n.Status(ctx)
		if err != nil {
			return 0, err
		}
		if len(status.Services) == 0 || status.Services[0].RoomStatus == nil {
			return 0, errors.New("status: no waiting room")
		}
		room, pool := status.Services[0].RoomStatus, status.WaitingRoom
		left = float64(room.InService + room.Waiting + room.Gathering + pool.Slots - pool.FreeSlots)
		if left == 0 {
			break
		}
		if err := bench.Sleep(ctx, 10*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return left, nil
}
