// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"narthex/internal/load"
	"narthex/internal/testnet"
	"narthex/internal/testnet/busy"
)

const (
	overheadClients = 32                     // a closed loop, enough to keep the server's core at work
	overheadSettle  = 150 * time.Millisecond // after a change
	overheadSlice   = 350 * time.Millisecond
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
//   - With GRO on at both ends both cases receive by NAPI, and in a kernel thread that is
//     pinned to the server's core that core does all of the receiving. What remains between
//     nothing and Narthex then is veth's cost of XDP and Narthex; between a program that
//     only passes everything and Narthex, it is Narthex alone.
type wiring struct {
	what   string
	xdp    string // in the policy
	napi   bool   // in both cases: GRO on, polled by a thread on the server's core
	empty  bool   // instead of nothing, an XDP program that passes everything
	wanted *bound
}

var wirings = []wiring{
	{what: "tcx / nothing", xdp: "off", wanted: atMost(1.02)},
	{what: "native XDP / empty XDP, NAPI in both", xdp: "native", napi: true, empty: true, wanted: atMost(1.02)},
	{what: "native XDP / nothing, as is", xdp: "native"},
	{what: "native XDP / nothing, NAPI in both", xdp: "native", napi: true},
}

// overhead measures how long the server's core is busy per request, with Narthex attached
// and a rule that polices every source but limits none, and without it.
func (b *bench) overhead(ctx context.Context) (figures []figure, err error) {
	var m meters
	defer func() { err = errors.Join(err, m.close()) }()
	if m.server, err = busy.Start(b.serverCPUs[0]); err != nil {
		return nil, err
	}
	if m.clients, err = busy.Start(b.clientCPUs[0]); err != nil {
		return nil, err
	}
	for _, w := range wirings {
		b.progress("  %s", w.what)
		f, err := b.overheadOf(ctx, w, m)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", w.what, err)
		}
		figures = append(figures, f)
	}
	return figures, nil
}

func (b *bench) overheadOf(ctx context.Context, w wiring, m meters) (f figure, err error) {
	f = figure{What: w.what, Wanted: w.wanted}
	lab, err := b.lab("overhead", 8)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	if w.napi {
		if err := b.pollOnServer(lab); err != nil {
			return f, err
		}
	}
	if err := b.nginx(lab, web(lab)); err != nil {
		return f, err
	}
	c := comparison{bench: b, lab: lab, wiring: w, meters: m}
	if err := c.begin(ctx); err != nil {
		return f, err
	}
	foreign, err := m.share(ctx)
	if err != nil {
		return f, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := b.client(lab, 0, web(lab), load.MaxDuration)
	client.Sources, client.Path = lab.ClientsV4, testnet.NginxFile
	run, err := load.Closed{Client: client, Clients: overheadClients}.Start(ctx)
	if err != nil {
		return f, err
	}
	defer func() {
		cancel()
		<-run.Done()
	}()
	c.run = run
	for i := range pick(b, 25, 7) {
		if err := c.pair(ctx, i%2 == 1); err != nil {
			return f, err
		}
	}
	f.Samples = c.ratios
	f.Note = fmt.Sprintf("%s µs per request without and %s µs with; both cores together × %s; others took %.1f %% of the server's core before",
		number(median(c.server[0])), number(median(c.server[1])), number(median(c.bothRatios)), 100*foreign)
	b.progress("    × %s; %s", number(f.median()), f.Note)
	return f, nil
}

// meters are on the server's and the clients' core.
type meters struct{ server, clients *busy.Meter }

func (m meters) close() (err error) {
	for _, one := range []*busy.Meter{m.server, m.clients} {
		if one != nil {
			err = errors.Join(err, one.Close())
		}
	}
	return err
}

// share is how much of the server's core is in use now.
func (m meters) share(ctx context.Context) (float64, error) {
	const d = 200 * time.Millisecond
	before := m.server.Busy()
	err := sleep(ctx, d)
	return (m.server.Busy() - before).Seconds() / d.Seconds(), err
}

// comparison is under way. Index 1 is with Narthex, 0 without.
type comparison struct {
	*bench
	lab      *testnet.Lab
	wiring   wiring
	narthex  *narthex
	policies [2]string // without and with the lab's link
	run      *load.Run
	meters   meters

	server             [2][]float64 // busy time of the server's core per request, in microseconds
	ratios, bothRatios []float64
}

// pair measures both cases.
func (c *comparison) pair(ctx context.Context, attachedFirst bool) error {
	order := []int{0, 1}
	if attachedFirst {
		order = []int{1, 0}
	}
	var server, both [2]float64
	for _, attached := range order {
		detach, err := c.attach(ctx, attached == 1)
		if err != nil {
			return err
		}
		s, cl, err := c.cost(ctx)
		if err := errors.Join(err, detach()); err != nil {
			return err
		}
		server[attached], both[attached] = s, s+cl
		c.server[attached] = append(c.server[attached], s)
	}
	c.ratios = append(c.ratios, server[1]/server[0])
	c.bothRatios = append(c.bothRatios, both[1]/both[0])
	return nil
}

// begin starts Narthex. It runs all the time, and is attached by a reload: to start anew
// for each sample would leave the kernel with maps to free while the next one is taken.
// When it is not to be attached to the link, it is to the loopback device.
func (c *comparison) begin(ctx context.Context) (err error) {
	for i, service := range []string{", xdp: off, interfaces: lo", ", interfaces: " + testnet.Dev + ", xdp: " + c.wiring.xdp} {
		if c.policies[i], err = writePolicy(c.lab, service, "  - {name: everyone, "+unlimited+", per: source}\n"); err != nil {
			return err
		}
	}
	c.narthex, err = c.start(ctx, c.lab.Server, c.policies[0])
	return err
}

// attach attaches Narthex, or what stands for its absence.
func (c *comparison) attach(ctx context.Context, narthex bool) (detach func() error, err error) {
	if !narthex {
		if c.wiring.empty {
			return attachEmpty(c.lab.Server, testnet.Dev)
		}
		return func() error { return nil }, nil
	}
	if _, err := c.narthex.reload(ctx, c.policies[1]); err != nil {
		return nil, err
	}
	return func() error {
		_, err := c.narthex.reload(ctx, c.policies[0])
		return err
	}, nil
}

// cost is the busy time per request of the server's and of the clients' core, in
// microseconds.
func (c *comparison) cost(ctx context.Context) (server, clients float64, err error) {
	if err := sleep(ctx, overheadSettle); err != nil {
		return 0, 0, err
	}
	c.run.Interval()
	serverBefore, clientsBefore := c.meters.server.Busy(), c.meters.clients.Busy()
	if err := sleep(ctx, overheadSlice); err != nil {
		return 0, 0, err
	}
	serverBusy, clientsBusy := c.meters.server.Busy()-serverBefore, c.meters.clients.Busy()-clientsBefore
	r := c.run.Interval()
	ok := float64(r.Outcomes[load.OK])
	if ok == 0 {
		return 0, 0, fmt.Errorf("no request was answered: %s", outcomes(r))
	}
	return serverBusy.Seconds() * 1e6 / ok, clientsBusy.Seconds() * 1e6 / ok, nil
}
