// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/load"
)

const (
	overheadClients = 32                    // a closed loop, enough to keep the server's core at work
	overheadSettle  = 50 * time.Millisecond // after a change
	overheadSlice   = 120 * time.Millisecond
)

// wiring is a way to compare the server's core with and without Narthex on a veth pair,
// which is not the network card that one would like to compare on:
//
//   - The protocol work for what the server's end receives is steered to the server's core
//     (RPS). A program at tcx ingress runs there, behind the steering: with tcx "as is" is
//     a complete comparison.
//   - A native XDP program makes a veth receive by NAPI, which it otherwise does not, and
//     by that with GRO; and for the program's sake veth copies each packet that came as a
//     socket buffer, as all do here. None of this is Narthex's work, and all of it happens
//     before the steering, on the sender's core, the program included. So "as is" says what
//     a user of veth sees on the server's core, but neither the program nor veth's own cost
//     of XDP is in it.
//   - With GRO on and TSO off at both ends both cases receive by NAPI, and in a kernel thread that is
//     pinned to the server's core that core does all of the receiving. What remains between
//     nothing and Narthex then is veth's cost of XDP and Narthex; between a program that
//     only passes everything and Narthex, it is Narthex alone.
type wiring struct {
	what    string
	xdp     string // in the policy
	napi    bool   // in both cases: polled by a thread on the server's core
	empty   bool   // instead of nothing, an XDP program that passes everything
	nothing bool   // instead of Narthex, nothing
	sharp   bool   // needs many samples
	wanted  *bench.Bound
}

var wirings = []wiring{
	{what: "nothing / nothing, which shows the noise", nothing: true, sharp: true},
	{what: "tcx / nothing", xdp: "off", sharp: true, wanted: bench.AtMost(1.02)},
	{what: "native XDP / empty XDP, NAPI in both", xdp: "native", napi: true, empty: true, sharp: true, wanted: bench.AtMost(1.02)},
	{what: "native XDP / nothing, as is", xdp: "native"},
	{what: "native XDP / nothing, NAPI in both", xdp: "native", napi: true},
}

// overhead measures for how long the server's core is at work per request, process and
// softirq, with Narthex attached and a rule that polices every source but limits none, and
// without it.
func (b suite) overhead(ctx context.Context) (figures []bench.Figure, err error) {
	core, err := bench.NewCore(b.ServerCPUs[0])
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, core.Close()) }()
	for _, w := range wirings {
		b.Progress("  %s", w.what)
		f, err := b.overheadOf(ctx, w, core)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", w.what, err)
		}
		figures = append(figures, f)
	}
	return figures, nil
}

func (b suite) overheadOf(ctx context.Context, w wiring, core *bench.Core) (f bench.Figure, err error) {
	f = bench.Figure{What: w.what, Wanted: w.wanted}
	rig, err := b.Lab("overhead", 8)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, rig.Close()) }()
	c := comparison{suite: b, rig: rig, wiring: w, core: core}
	if err := c.begin(ctx); err != nil {
		return f, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := b.client(rig, 0, load.MaxDuration)
	client.Sources, client.Path = rig.ClientsV4, lab.NginxFile
	c.run, err = load.Closed{Client: client, Clients: overheadClients}.Start(ctx)
	if err != nil {
		return f, err
	}
	defer func() {
		cancel()
		<-c.run.Done()
	}()
	pairs := pick(75, 25)
	if !w.sharp {
		pairs = pick(31, 7)
	}
	busy, begun := core.Busy(), time.Now()
	for i := range pairs {
		if err := c.pair(ctx, i%2 == 1); err != nil {
			return f, err
		}
	}
	f.Samples = c.ratios
	f.Note = fmt.Sprintf("%s µs per request without and %s µs with; the core was busy for %.0f %% of the time; %d and %d stalls",
		bench.Number(bench.Median(c.costs[0])), bench.Number(bench.Median(c.costs[1])),
		100*(core.Busy()-busy).Seconds()/time.Since(begun).Seconds(), c.stalls[0], c.stalls[1])
	b.Progress("    × %s; %s", bench.Number(f.Median()), f.Note)
	return f, nil
}

// comparison is under way. Index 1 is with Narthex, 0 without.
type comparison struct {
	suite
	rig      *lab.Lab
	wiring   wiring
	narthex  *bench.Narthex
	policies [2]string // without and with the lab's link
	run      *load.Run
	core     *bench.Core
	workers  bench.Workers

	costs  [2][]float64 // work of the server's core per request, in microseconds
	ratios []float64
	stalls [2]int // slices without an answer, which have no cost per request
}

// errStalled says that no request was answered during a slice.
var errStalled = errors.New("no request was answered")

// pair measures both cases.
func (c *comparison) pair(ctx context.Context, attachedFirst bool) error {
	order := []int{0, 1}
	if attachedFirst {
		order = []int{1, 0}
	}
	var cost [2]float64
	for _, attached := range order {
		detach, err := c.attach(ctx, attached == 1)
		if err != nil {
			return err
		}
		cost[attached], err = c.cost(ctx)
		if errors.Is(err, errStalled) {
			c.Progress("    stalled, attached: %t; so far %s", attached == 1, bench.Outcomes(c.run.Total()))
			c.stalls[attached]++
			return detach()
		}
		if err := errors.Join(err, detach()); err != nil {
			return err
		}
		c.costs[attached] = append(c.costs[attached], cost[attached])
	}
	c.ratios = append(c.ratios, cost[1]/cost[0])
	return nil
}

// begin starts the server and Narthex. That runs all the time, and is attached by a reload: to start anew
// for each sample would leave the kernel with maps to free while the next one is taken.
// When it is not to be attached to the link, it is to the loopback device.
func (c *comparison) begin(ctx context.Context) (err error) {
	if c.wiring.napi {
		receiver, err := bench.Receive(c.Bench, c.rig)
		if err != nil {
			return err
		}
		c.workers = bench.Workers{receiver}
	}
	server, err := c.Nginx(c.rig)
	if err != nil {
		return err
	}
	processes, err := server.PIDs()
	if err != nil {
		return err
	}
	c.workers = append(c.workers, processes...)
	for i, service := range []string{", xdp: off, interfaces: lo", ", interfaces: " + lab.Dev + ", xdp: " + cmp.Or(c.wiring.xdp, "off")} {
		if c.policies[i], err = writePolicy(c.rig, service, "  - {name: everyone, "+unlimited+", per: source}\n"); err != nil {
			return err
		}
	}
	c.narthex, err = c.Start(ctx, c.rig.Server, c.policies[0])
	return err
}

// attach attaches Narthex, or what stands for its absence.
func (c *comparison) attach(ctx context.Context, narthex bool) (detach func() error, err error) {
	if !narthex && c.wiring.empty {
		return attachEmpty(c.rig.Server, lab.Dev)
	}
	policy := c.policies[0]
	if narthex && !c.wiring.nothing {
		policy = c.policies[1]
	}
	if _, err := c.narthex.Swap(ctx, policy); err != nil {
		return nil, err
	}
	return func() error {
		_, err := c.narthex.Swap(ctx, c.policies[0])
		return err
	}, nil
}

// cost is the work of the server's core per request, in microseconds.
func (c *comparison) cost(ctx context.Context) (float64, error) {
	if err := bench.Sleep(ctx, overheadSettle); err != nil {
		return 0, err
	}
	c.run.Interval()
	before, err := c.core.Spent(c.workers)
	if err != nil {
		return 0, err
	}
	if err := bench.Sleep(ctx, overheadSlice); err != nil {
		return 0, err
	}
	after, err := c.core.Spent(c.workers)
	if err != nil {
		return 0, err
	}
	r := c.run.Interval()
	if r.Outcomes[load.OK] == 0 {
		return 0, errStalled
	}
	return (after - before).Seconds() * 1e6 / float64(r.Outcomes[load.OK]), nil
}
