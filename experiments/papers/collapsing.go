// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/peers"
	"narthex/internal/load"
	"narthex/internal/testnet"
	"narthex/internal/testnet/generator"
)

// The experiment collapse: gold clients beside ten times what the server can do.
const (
	collapseWork    = time.Millisecond        // of the server's core, for each request
	collapseWorkers = 50                      // processes of the server
	collapseGold    = 0.5                     // of what the server can do, asked for by gold clients
	collapseSettle  = 1500 * time.Millisecond // until queues are full and what waits too long is rejected
	collapseWarm    = 700 * time.Millisecond
	goldPatience    = 2 * time.Second // to connect, and then for the answer
)

// What is measured of it.
const (
	goldTail    = "gold p99"    // ms; who got no answer counts with their patience
	goldRate    = "gold"        // requests/s that were served
	totalRate   = "total"       // requests/s that were served, everybody's
	workRate    = "work"        // of the server's core, s/s, but for what it did for others on the machine
	unserved    = "unserved"    // requests/s that were offered and not served
	limitInUse  = "limit"       // concurrency of a limit that sets itself
	closedRate  = "capacity"    // requests/s of a closed loop
	closedWork  = "closed work" // of the server's core meanwhile, s/s
	aloneTail   = "gold p99 alone"
	offeredGold = "gold offered" // requests/s
)

// collapsing is a stage with a server that gold clients and everybody else want.
type collapsing struct {
	*stage
	capacity float64           // requests/s
	start    func() error      // starts the server, and what is to be before it
	servers  []*testnet.Server // what runs
	daemon   *bench.Narthex    // nil without
}

func (s *suite) collapsing(ctx context.Context) (c *collapsing, err error) {
	st, err := s.stage("collapse")
	if err != nil {
		return nil, err
	}
	c = &collapsing{stage: st}
	if err := c.calibrate(ctx); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// calibrate measures what the server can do.
func (c *collapsing) calibrate(ctx context.Context) (err error) {
	c.start = c.direct(nil)
	if err := c.restart(ctx); err != nil {
		return err
	}
	s, err := c.once(ctx, c.closed())
	if err == nil {
		c.capacity = s.Reports[0].Rate()
		c.Progress("  the server can do %.0f requests/s", c.capacity)
	}
	return errors.Join(err, c.stop())
}

// apache starts the server.
func (c *collapsing) apache(port uint16, qos *peers.QoS) (*testnet.Server, error) {
	return peers.Apache{
		Listen: at(c.lab.ServerV4, port), Workers: collapseWorkers, Backlog: backlog, CPUs: c.ServerCPUs,
		Work: collapseWork, QoS: qos,
	}.Start(c.lab.Server)
}

// restart starts the server anew, with nobody in its queue, and warms it up.
func (c *collapsing) restart(ctx context.Context) error {
	if err := errors.Join(c.stop(), c.start()); err != nil {
		return err
	}
	return c.warm(ctx)
}

// warm has each process of the server serve some requests: the first ones take long.
func (c *collapsing) warm(ctx context.Context) error {
	clients := c.closed()
	clients.Clients = 2 * collapseWorkers
	all, err := bench.Gather(ctx, clients)
	if err != nil {
		return err
	}
	defer all.End()
	return bench.Sleep(ctx, collapseWarm)
}

// run notes a server that was started, and has its processes count as workers.
func (c *collapsing) run(s *testnet.Server, err error) error {
	if s, err = c.Serve(s, err); err != nil {
		return err
	}
	c.servers = append(c.servers, s)
	return nil
}

// stop ends all servers.
func (c *collapsing) stop() (err error) {
	for _, s := range c.servers {
		err = errors.Join(err, s.Close())
	}
	c.servers, c.Workers = nil, nil
	return err
}

// closed are enough clients for the server never to be idle.
func (c *collapsing) closed() load.Closed {
	return load.Closed{Client: c.from(c.preferred, peers.File8K), Clients: 16}
}

// gold are the preferred clients: an open loop at half of what the server can do.
func (c *collapsing) gold() load.Open {
	client := c.from(c.preferred, peers.File8K)
	client.ConnectTimeout, client.Timeout = goldPatience, goldPatience
	return load.Open{Client: client, Rate: collapseGold * c.capacity, MaxOpen: 16384}
}

// everybody begins to ask for more than the server can do, so many times.
func (c *collapsing) everybody(ctx context.Context, times float64) (*generator.Generator, error) {
	return generator.Start(ctx, generator.Config{
		Client: c.lab.Client, Server: c.lab.Server, From: greedyNet, To: c.web(),
		Request: fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", peers.File8K, c.web()),
		Rate:    int(times * c.capacity), CPU: c.ClientCPUs[0], Seed: 1,
	})
}

// atRest measures what the server can do, and gold clients alone: the load of 0.
func (c *collapsing) atRest(ctx context.Context) (o outcome, err error) {
	if err := c.restart(ctx); err != nil {
		return o, err
	}
	most, err := c.once(ctx, c.closed())
	if err != nil {
		return o, err
	}
	gold, err := c.once(ctx, c.gold())
	if err != nil {
		return o, err
	}
	why := []string{check{overflows: true, machine: true}.invalid(most), check{overflows: true, generator: true, machine: true}.invalid(gold)}
	o.invalid = strings.Trim(strings.Join(why, ", "), ", ")
	o.values = map[string]float64{
		closedRate: most.Reports[0].Rate(), closedWork: most.Work.Seconds() / most.Took.Seconds(),
		aloneTail: tail(gold.Reports[0], 0.99),
	}
	return o, nil
}

// amid measures gold clients beside everybody.
func (c *collapsing) amid(ctx context.Context, times float64) (o outcome, err error) {
	if times == 0 {
		return c.atRest(ctx)
	}
	if err := c.restart(ctx); err != nil {
		return o, err
	}
	g, err := c.everybody(ctx, times)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, g.Stop()) }()
	clients, err := bench.Gather(ctx, c.gold())
	if err != nil {
		return o, err
	}
	defer clients.End()
	if err := bench.Sleep(ctx, collapseSettle); err != nil {
		return o, err
	}
	before, err := g.Counts()
	if err != nil {
		return o, err
	}
	s, err := c.Measure(ctx, clients, 0, c.length)
	if err != nil {
		return o, err
	}
	after, err := g.Counts()
	if err != nil {
		return o, err
	}
	o = c.outcome(s, after.Minus(before))
	if c.daemon != nil {
		err = c.noteLimit(ctx, o.values)
	}
	return o, err
}

// outcome is what follows from a run.
func (c *collapsing) outcome(s *bench.Sample, others generator.Counts) (o outcome) {
	gold, took := s.Reports[0], s.Took.Seconds()
	served := float64(others.Answers[http.StatusOK]) / took
	offered := float64(gold.Begun+others.SYNs) / took
	o.values = map[string]float64{
		goldTail: tail(gold, 0.99), goldRate: gold.Rate(), totalRate: gold.Rate() + served,
		unserved: offered - gold.Rate() - served, offeredGold: float64(gold.Begun) / took,
	}
	if c.Core != nil {
		o.values[workRate] = s.Work.Seconds() / took
	}
	o.invalid = check{generator: true, machine: c.Core != nil}.invalid(s)
	if lost := others.Unsent + others.Lost; o.invalid == "" && float64(lost) > 0.01*float64(others.SYNs) {
		o.invalid = fmt.Sprintf("the generator was saturated: %d of %d SYNs not sent, %d lost", others.Unsent, others.SYNs+others.Unsent, others.Lost)
	}
	c.Progress("    gold: median %.1f ms, p90 %.1f ms, %s; others: %v answers, %d FINs, %d RSTs; cores %.0f %% and %.0f %%", tail(gold, 0.5), tail(gold, 0.9), bench.Outcomes(gold),
		maps.Collect(maps.All(others.Answers)), others.Ends, others.Resets, 100*s.ServerBusy, 100*s.ClientBusy)
	return o
}

// noteLimit adds the limit that is in force, if there is one.
func (c *collapsing) noteLimit(ctx context.Context, values map[string]float64) error {
	s, err := c.daemon.Status(ctx)
	if err != nil {
		return err
	}
	number, _, _ := strings.Cut(s.Services[0].Limit, " ")
	if n, err := strconv.Atoi(number); err == nil {
		values[limitInUse] = float64(n)
	}
	return nil
}

// tail is a quantile of response times in ms, where who was not served counts with the whole patience.
func tail(r *load.Report, share float64) float64 {
	return bench.Quantile(r, share, 2*goldPatience)
}
