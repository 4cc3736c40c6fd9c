// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/api"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
)

// backlog is that of the servers' listeners.
const backlog = 4096

// Where attackers come from that have a kernel, and from where those that have none.
var (
	bronzeNet = netip.MustParsePrefix("10.77.66.0/24")
	nobodyNet = netip.MustParsePrefix("198.18.0.0/15")
)

const bronzeSources = 8

// stage is a lab with a server on one core, and gold clients and attackers on the other.
type stage struct {
	suite
	rig    *lab.Lab
	bronze []netip.Addr
	bench.Meters
	control netip.AddrPort
	secure  bool   // the service speaks TLS
	header  string // of gold clients' requests
	daemon  *bench.Narthex
}

func (b suite) stage(purpose string) (st *stage, err error) {
	if err := b.Stay(); err != nil {
		return nil, err
	}
	rig, err := b.Lab("hostile-"+purpose, 1)
	if err != nil {
		return nil, err
	}
	st = &stage{suite: b, rig: rig, control: netip.AddrPortFrom(rig.ServerV4, 81)}
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

// origin starts the server.
func (st *stage) origin(cfg origin.Config) error {
	if err := st.rig.Server.Sysctl("core/somaxconn", fmt.Sprint(backlog)); err != nil {
		return err
	}
	cfg.Listen, cfg.Control = []netip.AddrPort{bench.Web(st.rig)}, []netip.AddrPort{st.control}
	cfg.CPUs, cfg.Backlog = st.ServerCPUs, backlog
	_, err := st.Serve(origin.Start(st.rig.Server, cfg))
	return err
}

// enforce starts Narthex with a waiting room. Service is further keys of the service.
func (st *stage) enforce(ctx context.Context, service string, flags ...string) error {
	return st.enforceWith(ctx, service, "", flags...)
}

// enforceWith does so with more of the policy behind that.
func (st *stage) enforceWith(ctx context.Context, service, more string, flags ...string) (err error) {
	text := fmt.Sprintf(`version: 1
services:
  - {name: web, listen: ["%s"], xdp: off, %s}
classes:
  - {name: gold, priority: 1}
  - {name: bronze, priority: 2}
connections:
  - {name: gold, from: [10.77.1.0/24], class: gold}
  - {name: bronze, from: [%s, %s], class: bronze}
`+more, bench.Web(st.rig), service, bronzeNet, nobodyNet)
	st.daemon, err = st.Enforce(ctx, st.rig.Server, text, flags...)
	return err
}

// enforceCookies does so where gold is told by a cookie, which the request rule does with more keys.
func (st *stage) enforceCookies(ctx context.Context, service, more string) (err error) {
	st.header = "Cookie: who=gold\r\n"
	text := fmt.Sprintf(`version: 1
services:
  - {name: web, listen: ["%s"], xdp: off, %s}
classes:
  - {name: gold, priority: 1}
  - {name: bronze, priority: 2}
requests:
  - {name: gold, cookie: {who: gold}, class: gold%s}
`, bench.Web(st.rig), service, more)
	st.daemon, err = st.Enforce(ctx, st.rig.Server, text)
	return err
}

// state is that of the waiting room.
type state struct {
	inService, waiting, gathering, slots, flows int // slots and flows are those that are taken
	classes                                     map[string]api.RoomClassStatus
}

// left is how much of a waiting room is not as it is when nobody is there.
func (s state) left() float64 { return float64(s.inService + s.waiting + s.gathering + s.slots) }

func (s state) zero() bool { return s.left() == 0 }

func (s state) String() string {
	return fmt.Sprintf("%d in service, %d waiting, %d gathering, %d slots taken", s.inService, s.waiting, s.gathering, s.slots)
}

func (st *stage) state(ctx context.Context) (state, error) {
	got, err := st.daemon.Status(ctx)
	if err != nil {
		return state{}, err
	}
	if len(got.Services) == 0 || got.Services[0].RoomStatus == nil {
		return state{}, errors.New("status: no waiting room")
	}
	room, pool := got.Services[0].RoomStatus, got.WaitingRoom
	s := state{
		room.InService, room.Waiting, room.Gathering, pool.Slots - pool.FreeSlots, pool.UsedFlows,
		map[string]api.RoomClassStatus{},
	}
	for _, c := range room.Classes {
		s.classes[c.Name] = c
	}
	return s, nil
}

// until waits until the state is as it is to be, and returns it and how long that took.
func (st *stage) until(ctx context.Context, limit time.Duration, is func(state) bool) (s state, took time.Duration, err error) {
	for begun := time.Now(); ; {
		if s, err = st.state(ctx); err != nil || is(s) || took > limit {
			return s, took, err
		}
		if err := bench.Sleep(ctx, 5*time.Millisecond); err != nil {
			return s, took, err
		}
		took = time.Since(begun)
	}
}
