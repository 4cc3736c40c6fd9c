// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/load"
)

const (
	backlog      = 4096             // of the servers' listeners
	patience     = 10 * time.Second // of all clients, to connect and for the answer
	othersSource = 8
	service      = "web"
)

// othersNet holds the addresses of everybody who is not gold; policies name it.
var othersNet = netip.MustParsePrefix("10.77.66.0/24")

// stage is a lab with a server on one core, and its clients and the daemon on the other.
type stage struct {
	suite
	rig    *lab.Lab
	others []netip.Addr // everybody else's
	path   string       // what all clients ask for
	ends   string       // service_ends
	daemon *bench.Narthex
	server *lab.Server
}

func (b suite) stage(purpose string) (st *stage, err error) {
	if err := b.Stay(); err != nil {
		return nil, err
	}
	rig, err := b.Lab("adapt-"+purpose, 1)
	if err != nil {
		return nil, err
	}
	st = &stage{suite: b, rig: rig, path: "/", ends: "auto"}
	if err := st.build(); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

func (st *stage) build() (err error) {
	if st.others, err = bench.Addresses(st.rig.Client, othersNet, othersSource); err != nil {
		return err
	}
	return st.rig.Server.Sysctl("core/somaxconn", fmt.Sprint(backlog))
}

func (st *stage) close() error { return st.rig.Close() }

// prepare makes a lab with a server behind Narthex.
func (b suite) prepare(ctx context.Context, s server) (st *stage, err error) {
	if st, err = b.stage(s.name); err != nil {
		return nil, err
	}
	if err := st.serve(s); err != nil {
		return nil, errors.Join(err, st.close())
	}
	if err := st.enforce(ctx); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

// serve starts the server.
func (st *stage) serve(s server) (err error) {
	st.path, st.ends = cmp.Or(s.path, st.path), cmp.Or(s.ends, st.ends)
	st.server, err = s.start(st)
	return err
}

// enforce starts Narthex with the limit that sets itself.
func (st *stage) enforce(ctx context.Context) (err error) {
	text := fmt.Sprintf(`version: 1
services:
  - {name: %s, listen: ["%s"], xdp: off, concurrency: auto, service_ends: %s}
classes:
  - {name: gold, priority: 1}
  - {name: others, priority: 2}
connections:
  - {name: gold, from: [10.77.1.0/24], class: gold}
  - {name: others, from: [%s], class: others}
`, service, bench.Web(st.rig), st.ends, othersNet)
	st.daemon, err = st.Enforce(ctx, st.rig.Server, text)
	return err
}

// limit is what is told to the daemon: a number of requests, unlimited or auto.
type limit string

const (
	auto      limit = "auto"
	unlimited limit = "unlimited"
)

func fixed(n int) limit { return limit(fmt.Sprint(n)) }

// set puts a limit in force.
func (st *stage) set(ctx context.Context, l limit) error {
	return st.daemon.Set(ctx, "services."+service+".concurrency", string(l))
}

// gold is the preferred client, at a rate whatever the answers.
func (st *stage) gold(rate float64) load.Open {
	return load.Open{Client: st.client(st.rig.ClientsV4), Rate: rate}
}

// closed is so many other clients that ask again as soon as they have an answer, or later.
func (st *stage) closed(clients int, think time.Duration) load.Closed {
	return load.Closed{Client: st.client(st.others), Clients: clients, Think: think}
}

// open is other clients at a rate whatever the answers.
func (st *stage) open(rate float64, burst int) load.Open {
	return load.Open{Client: st.client(st.others), Rate: rate, Burst: burst}
}

func (st *stage) client(sources []netip.Addr) load.Client {
	c := st.Client(st.rig, sources, load.MaxDuration)
	c.Path, c.ConnectTimeout, c.Timeout = st.path, patience, patience
	return c
}

// rest waits until the server has done with what is left of clients that have gone, and Narthex
// knows. A request whose end it has not seen counts as in service for a minute, max_service.
func (st *stage) rest(ctx context.Context) error {
	const slice, longest = 100 * time.Millisecond, 75 * time.Second
	left, begun := "", time.Now()
	for time.Since(begun) < longest {
		before, err := treeTime(st.server.PID())
		if err != nil {
			return err
		}
		if err := bench.Sleep(ctx, slice); err != nil {
			return err
		}
		after, err := treeTime(st.server.PID())
		if err != nil {
			return err
		}
		s, err := st.status(ctx)
		if err != nil {
			return err
		}
		if after-before < slice/5 && s.InService == 0 && s.Waiting == 0 {
			if took := time.Since(begun); took > longest/2 {
				st.Progress("  it took %v until nothing was left; before: %s", took.Round(time.Second), left)
			}
			return nil
		}
		left = fmt.Sprintf("%v of CPU time in %v, %d in service, %d waiting", after-before, slice, s.InService, s.Waiting)
	}
	return fmt.Errorf("the server does not come to rest within %v: %s", longest, left)
}
