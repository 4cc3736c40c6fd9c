// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/peers"
	"narthex/experiments/internal/trace"
	"narthex/internal/lab"
	"narthex/internal/load"
)

// traceExperiments are those with a preferred client that replays a trace.
var traceExperiments = []experiment{
	{"fig5", (*suite).fig5},
	{"fig9", (*suite).fig9},
}

const (
	shopProcesses = 50
	shopWork      = 500 * time.Microsecond // of the server's core for a file
	shopDemand    = 0.25                   // of what the server can do, the mean of the trace: then up to 100 of some 370 requests/s
	shopSeed      = 1998

	// Clients that are rejected at once come back at once, and would soon do nothing else: a
	// moment to think keeps them from taking all of their core.
	othersThink = 50 * time.Millisecond

	// A SYN that nobody answers is given up, and another sent. With one time for all of them they would
	// all come at once and then not for a while, so that limits let fewer in than they may: some
	// have more patience than others.
	othersConnect = 140 * time.Millisecond
	othersMore    = 30 * time.Millisecond // of each group
	othersGroups  = 5
)

// What the experiments with a trace are about, at each rate that others are limited to.
const (
	goodput      = "KB/s"     // of the preferred client
	othersServed = "others/s" // requests of the others that were answered
	ofLimit      = "of limit" // those, of the rate that they are limited to
)

// Variants without a limit.
const (
	shopAlone = "the preferred client alone"
	shopBare  = "nothing"
)

// shop is a server, its preferred client, which replays a day's trace in the time of a run, and
// others, who ask for more than the server can do.
//
// The client has one connection at a time, as the one then had by its throughput: 6 KB/s are 8 KB in
// 1.3 s, 250 clients ahead of it. A request whose time has come waits for those before it.
type shop struct {
	*stage
	servers []*lab.Server
	others  load.Closed
	able    float64 // requests/s of the server for the others, without the preferred client, at first
	now     float64 // the same right before a variant
	day     []load.Arrival
	offered float64 // KB/s that the day asks for
	check   check
	xs      []float64 // requests/s that the others are limited to, falling, if the server can do what it could at first
}

// newShop starts the server and measures what it can do: for the others, and of files.
func (s *suite) newShop(ctx context.Context, id string, clients int, path string, c check) (sh *shop, err error) {
	st, err := s.stage(id)
	if err != nil {
		return nil, err
	}
	sh = &shop{stage: st, check: c}
	sh.others = load.Closed{Client: st.from(st.middle, path), Clients: clients, Think: othersThink}
	if err := sh.open(ctx); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return sh, nil
}

func (sh *shop) open(ctx context.Context) (err error) {
	server, err := sh.apache(sh.web()).Start(sh.rig.Server)
	if err != nil {
		return err
	}
	sh.servers = []*lab.Server{server}
	files := sh.others
	files.Path = peers.File8K
	able, err := sh.capacity(ctx, files)
	if err != nil {
		return err
	}
	sh.able = able
	if sh.others.Path != files.Path {
		if sh.able, err = sh.capacity(ctx, sh.others); err != nil {
			return err
		}
	}
	requests := int(shopDemand * able * sh.length.Seconds())
	sh.day = trace.Arrivals(trace.Generate(shopSeed, requests), func(trace.Request) string { return peers.File8K })
	sh.offered = float64(requests) * lab.FileBytes / 1024 / sh.length.Seconds()
	sh.Progress("  the server does %.0f files/s, %.0f requests/s of the others", able, sh.able)
	return nil
}

// capacity measures how many requests of clients the server answers: the most of two runs, since
// others on the machine can only make it less.
func (sh *shop) capacity(ctx context.Context, clients load.Closed) (most float64, err error) {
	for range 2 {
		s, err := sh.once(ctx, groups(clients)...)
		if err != nil {
			return 0, err
		}
		most = max(most, s.Rate())
	}
	return most, nil
}

// gauge measures what the server can do for the others now.
func (sh *shop) gauge(ctx context.Context) (err error) {
	if err := sh.account(); err != nil {
		return err
	}
	if sh.now, err = sh.capacity(ctx, sh.others); err == nil && sh.now == 0 {
		err = errors.New("the server answers nobody")
	}
	return err
}

// rate is the limit at x, in requests/s, of a server that can do what it can now.
func (sh *shop) rate(x float64) float64 { return max(1, math.Round(x*sh.now/sh.able)) }

// groups are the clients in groups with different patience.
func groups(clients load.Closed) (all []bench.Starter) {
	for i := range othersGroups {
		group := clients
		group.Clients = clients.Clients / othersGroups
		group.ConnectTimeout = othersConnect + time.Duration(i)*othersMore
		all = append(all, group)
	}
	return all
}

// apache is the server, or another like it.
func (sh *shop) apache(listen netip.AddrPort) peers.Apache {
	return peers.Apache{
		Listen: []netip.AddrPort{listen}, Workers: shopProcesses, Backlog: backlog, CPUs: sh.ServerCPUs,
		Work: shopWork, CGI: peers.DynamicScript,
	}
}

// limitTo are rates as shares of what the server can do for the others.
func (sh *shop) limitTo(shares ...float64) {
	for _, share := range shares {
		sh.xs = append(sh.xs, max(1, float64(int(share*sh.able))))
	}
	sh.xs = sh.thin(sh.xs...)
}

// tightest is the lowest of the rates, midway is the one in the middle.
func (sh *shop) tightest() float64 { return sh.xs[len(sh.xs)-1] }
func (sh *shop) midway() float64   { return sh.xs[len(sh.xs)/2] }

// burst is what may come at once at a rate: that of a tenth of a second, as in policies that do not
// say, but at least 2. With 1, clients that come in waves leave a part of the rate to nobody.
func (sh *shop) burst(rate float64) int { return max(2, int(rate/10)) }

// run replays the day at an address while others ask.
func (sh *shop) run(ctx context.Context, target netip.AddrPort, others ...bench.Starter) (o outcome, err error) {
	c, err := bench.Gather(ctx, others...)
	if err != nil {
		return o, err
	}
	defer c.End()
	select {
	case <-ctx.Done():
		return o, ctx.Err()
	case <-time.After(sh.settle):
	}
	if err := sh.account(); err != nil {
		return o, err
	}
	preferred := load.Trace{Client: sh.from(sh.preferred, ""), Arrivals: sh.day, Length: trace.Day, Connections: 1}
	preferred.Target, preferred.Duration = target, sh.length
	replay, err := preferred.Start(ctx)
	if err != nil {
		return o, err
	}
	c.Join(replay)
	s, err := sh.Measure(ctx, c, 0, sh.length)
	if err != nil {
		return o, err
	}
	// The day is all of the replay: a little more than what was measured.
	report, err := replay.Wait()
	if err != nil {
		return o, err
	}
	o.values = map[string]float64{goodput: report.Goodput() / 1024}
	if len(others) > 0 {
		o.values[othersServed] = s.Reports[:len(others)].Rate()
	}
	o.invalid = sh.check.invalid(s)
	return o, nil
}

// account has the processes of the servers that run now count as workers.
func (sh *shop) account() error {
	sh.Workers = nil
	for _, s := range sh.servers {
		processes, err := s.PIDs()
		if err != nil {
			return err
		}
		sh.Workers = append(sh.Workers, processes...)
	}
	return nil
}

// crowded is a run with the others there.
func (sh *shop) crowded(ctx context.Context, target netip.AddrPort) (outcome, error) {
	others := sh.others
	others.Target = target
	return sh.run(ctx, target, groups(others)...)
}

// limited is a run with the others there, who are limited.
func (sh *shop) limited(ctx context.Context, target netip.AddrPort, rate float64) (outcome, error) {
	o, err := sh.crowded(ctx, target)
	if err == nil {
		o.values[ofLimit] = o.values[othersServed] / rate
	}
	return o, err
}
