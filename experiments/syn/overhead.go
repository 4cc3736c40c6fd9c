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

// overheadRate is the rate of requests, about a third of what the server's core can do:
// it is never saturated, so that a request's cost is not hidden in larger batches.
const overheadRate = 5000

// wiring is a way to compare the server's work with and without Narthex.
type wiring struct {
	what     string
	xdp      string // in the policy
	gro      bool   // GRO, hence NAPI, on at both ends in both cases
	threaded bool   // NAPI on the server's core, in a kernel thread
	empty    bool   // instead of nothing, an XDP program that passes everything
	wanted   *bound
}

var wirings = []wiring{
	{what: "tcx, as is", xdp: "off"},
	{what: "native XDP, as is", xdp: "auto"},
	{what: "native XDP, GRO on in both", xdp: "auto", gro: true},
	{what: "native XDP, GRO on, threaded, in both", xdp: "auto", gro: true, threaded: true},
	{what: "native XDP, over an empty program", xdp: "auto", gro: true, empty: true},
	{what: "native XDP, over an empty program, threaded", xdp: "auto", gro: true, empty: true, threaded: true},
	{what: "tcx, GRO on in both, threaded", xdp: "off", gro: true, threaded: true},
}

// overhead measures how long the server's core is busy per request, attached and not.
func (b *bench) overhead(ctx context.Context) (figures []figure, err error) {
	server, err := busy.Start(b.serverCPUs[0])
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	clients, err := busy.Start(b.clientCPUs[0])
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, clients.Close()) }()
	for _, w := range wirings {
		b.progress("  %s", w.what)
		f, err := b.overheadOf(ctx, w, server, clients)
		if err != nil {
			return figures, err
		}
		figures = append(figures, f...)
	}
	return figures, nil
}

func (b *bench) overheadOf(ctx context.Context, w wiring, server, clients *busy.Meter) (figures []figure, err error) {
	lab, err := b.lab("overhead", 8)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	if err := b.wire(lab, w); err != nil {
		return nil, err
	}
	if err := b.nginx(lab, web(lab)); err != nil {
		return nil, err
	}
	policy, err := writePolicy(lab, ", xdp: "+w.xdp, "  - {name: everyone, "+unlimited+", per: source}\n")
	if err != nil {
		return nil, err
	}
	ratio := figure{What: w.what + ": attached / not", Wanted: w.wanted}
	total := figure{What: w.what + ": both cores, attached / not"}
	var plain []float64
	for i := range pick(b, 9, 5) {
		var cost [2][2]float64
		for _, attached := range []bool{i%2 == 1, i%2 == 0} {
			detach, err := b.attach(ctx, lab, w, policy, attached)
			if err != nil {
				return nil, err
			}
			c, err := b.costPerRequest(ctx, lab, server, clients)
			if err := errors.Join(err, detach()); err != nil {
				return nil, err
			}
			if attached {
				cost[1] = c
			} else {
				cost[0] = c
			}
		}
		b.progress("    %.2f µs without, %.2f µs attached; %.2f, %.2f", cost[0][0], cost[1][0], cost[0][1], cost[1][1])
		ratio.Samples = append(ratio.Samples, cost[1][0]/cost[0][0])
		total.Samples = append(total.Samples, (cost[1][0]+cost[1][1])/(cost[0][0]+cost[0][1]))
		plain = append(plain, cost[0][0])
	}
	ratio.Note = fmt.Sprintf("%s µs per request without", number((&figure{Samples: plain}).median()))
	return []figure{ratio, total}, nil
}

func (b *bench) attach(ctx context.Context, lab *testnet.Lab, w wiring, policy string, attached bool) (func() error, error) {
	if !attached {
		if w.empty {
			return attachEmpty(lab.Server, testnet.Dev)
		}
		return func() error { return nil }, nil
	}
	n, err := b.start(ctx, lab.Server, policy)
	if err != nil {
		return nil, err
	}
	s, err := n.status(ctx)
	if err != nil {
		return nil, err
	}
	want := map[string]string{"off": "tcx", "auto": "native"}[w.xdp]
	if len(s.Services[0].Interfaces) != 1 || string(s.Services[0].Interfaces[0].Mode) != want {
		return nil, fmt.Errorf("attached to %v, not once as %s", s.Services[0].Interfaces, want)
	}
	return n.stop, nil
}

func (b *bench) costPerRequest(ctx context.Context, lab *testnet.Lab, server, clients *busy.Meter) (cost [2]float64, err error) {
	const warmUp = 300 * time.Millisecond
	measured := pick(b, time.Second, 600*time.Millisecond)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := b.client(lab, 0, web(lab), warmUp+measured+time.Second)
	client.Sources, client.Path = lab.ClientsV4, testnet.NginxFile
	run, err := load.Open{Client: client, Rate: overheadRate}.Start(ctx)
	if err != nil {
		return cost, err
	}
	defer func() {
		cancel()
		<-run.Done()
	}()
	if err := sleep(ctx, warmUp); err != nil {
		return cost, err
	}
	run.Interval()
	before := [2]time.Duration{server.Busy(), clients.Busy()}
	if err := sleep(ctx, measured); err != nil {
		return cost, err
	}
	after := [2]time.Duration{server.Busy(), clients.Busy()}
	r := run.Interval()
	ok := float64(r.Outcomes[load.OK])
	for i := range cost {
		cost[i] = float64((after[i] - before[i]).Nanoseconds()) / 1000 / ok
	}
	return cost, nil
}
