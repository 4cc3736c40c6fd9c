// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/peers"
	"narthex/internal/lab"
	"narthex/internal/load"
	"narthex/test/generator"
)

// The experiment collapse: gold clients beside ten times what the server can do.
const (
	collapseWork    = time.Millisecond        // of the server's core, for each request
	collapseWorkers = 50                      // processes of the server
	collapseGold    = 0.5                     // of what the server can do, asked for by gold clients
	collapseSettle  = 1500 * time.Millisecond // until queues are full and what waits too long is rejected
	collapseWarm    = 700 * time.Millisecond
	collapseLength  = 3 * time.Second // at least: p99 is of the dozen slowest of gold's requests then
	goldPatience    = 2 * time.Second // to connect, and then for the answer
)

// What is measured of it. What the server does by itself is measured just before, see [rest].
const (
	goldTail    = "gold p99"      // ms; who got no answer counts with their patience
	goldRate    = "gold"          // requests/s that were served
	goldShare   = "gold served"   // %, of those offered
	totalRate   = "total"         // requests/s that were served, everybody's
	totalShare  = "of capacity"   // %, those of what the server does by itself
	beyondAlone = "p99 beyond"    // what gold's p99 is longer than alone, in concurrency × time in service
	rejection   = "per rejection" // µs of the server's core beyond what is served, per request that is not
	limitInUse  = "limit"         // concurrency
)

// rest is what the server does by itself, as it was measured last.
type rest struct {
	rate    float64 // requests/s of a closed loop
	work    float64 // of the server's core for each of them, s
	tail    float64 // gold clients' p99 alone, ms
	invalid string  // why that says nothing; empty if it does
}

// collapsing is a stage with a server that gold clients and everybody else want.
type collapsing struct {
	*stage
	rest
	start   func() error   // starts the server, and what is to be before it
	servers []*lab.Server  // what runs
	daemon  *bench.Narthex // nil without
}

func (s *suite) collapsing(ctx context.Context) (c *collapsing, err error) {
	st, err := s.stage("collapse")
	if err != nil {
		return nil, err
	}
	c = &collapsing{stage: st}
	c.start = c.direct(nil)
	err = c.restart(ctx)
	if err == nil {
		// Peers that are told what the server can do are told this when they start for the first time.
		err = errors.Join(c.atRest(ctx, c.web()), c.stop())
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// atRest measures what the server at an address can do, and gold clients alone, until that is valid: each of
// the two may be what is not.
func (c *collapsing) atRest(ctx context.Context, server netip.AddrPort) error {
	for range 2 * tries {
		if err := c.measureRest(ctx, server); err != nil || c.rest.invalid == "" {
			return err
		}
	}
	return nil
}

func (c *collapsing) measureRest(ctx context.Context, server netip.AddrPort) error {
	most, err := c.once(ctx, c.closed(server))
	if err != nil {
		return err
	}
	r := rest{rate: most.Reports[0].Rate(), work: most.PerAnswer() / 1e6}
	if r.rate == 0 {
		return errors.New("the server answers nobody")
	}
	c.rest = r
	gold, err := c.Once(ctx, c.settle, c.window(), c.gold(server))
	if err != nil {
		return err
	}
	c.tail = tail(gold.Reports[0], 0.99)
	c.rest.invalid = joined(check{overflows: true, machine: true}.invalid(most), check{overflows: true, generator: true, machine: true}.invalid(gold))
	c.Progress("  the server can do %.0f requests/s, %.0f µs each; gold's p99 alone is %.1f ms  %s", c.rate, 1e6*c.work, c.tail, c.rest.invalid)
	return nil
}

// apache starts the server.
func (c *collapsing) apache(port uint16, qos *peers.QoS) (*lab.Server, error) {
	return peers.Apache{
		Listen: at(c.rig.ServerV4, port), Workers: collapseWorkers, Backlog: backlog, CPUs: c.ServerCPUs,
		Work: collapseWork, QoS: qos,
	}.Start(c.rig.Server)
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
	clients := c.closed(c.web())
	clients.Clients = 2 * collapseWorkers
	all, err := bench.Gather(ctx, clients)
	if err != nil {
		return err
	}
	defer all.End()
	return bench.Sleep(ctx, collapseWarm)
}

// run notes a server that was started, and has its processes count as workers.
func (c *collapsing) run(s *lab.Server, err error) error {
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

// closed are enough clients for the server at an address never to be idle.
func (c *collapsing) closed(server netip.AddrPort) load.Closed {
	client := c.from(c.preferred, peers.File8K)
	client.Target = server
	return load.Closed{Client: client, Clients: 16}
}

// gold are the preferred clients: an open loop at half of what the server can do.
func (c *collapsing) gold(server netip.AddrPort) load.Open {
	client := c.from(c.preferred, peers.File8K)
	client.Target, client.ConnectTimeout, client.Timeout = server, goldPatience, goldPatience
	return load.Open{Client: client, Rate: collapseGold * c.rate, MaxOpen: 16384}
}

// everybody begins to ask for more than the server can do, so many times.
func (c *collapsing) everybody(ctx context.Context, times float64) (*generator.Generator, error) {
	return generator.Start(ctx, generator.Config{
		Client: c.rig.Client, Server: c.rig.Server, From: greedyNet, To: c.web(),
		Request: fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", peers.File8K, c.web()),
		Rate:    int(times * c.rate), CPU: c.ClientCPUs[0], Seed: 1,
	})
}

// amid measures gold clients beside everybody, who have been there for a while.
func (c *collapsing) amid(ctx context.Context, times float64, settle time.Duration) (o outcome, err error) {
	if c.rest.invalid != "" {
		return outcome{invalid: c.rest.invalid}, nil
	}
	if err := c.restart(ctx); err != nil {
		return o, err
	}
	g, err := c.everybody(ctx, times)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, g.Stop()) }()
	clients, err := bench.Gather(ctx, c.gold(c.web()))
	if err != nil {
		return o, err
	}
	defer clients.End()
	if err := bench.Sleep(ctx, settle); err != nil {
		return o, err
	}
	before, err := g.Counts()
	if err != nil {
		return o, err
	}
	s, err := c.Measure(ctx, clients, 0, c.window())
	if err != nil {
		return o, err
	}
	after, err := g.Counts()
	if err != nil {
		return o, err
	}
	limit := 0.0
	if c.daemon != nil {
		if limit, err = c.limit(ctx); err != nil {
			return o, err
		}
	}
	return c.outcome(s, after.Minus(before), limit), nil
}

// window is how long is measured.
func (c *collapsing) window() time.Duration {
	if c.quick {
		return c.length
	}
	return max(c.length, collapseLength)
}

// outcome is what follows from a run with a limit of so many requests in service; 0: there is none.
func (c *collapsing) outcome(s *bench.Sample, others generator.Counts, limit float64) (o outcome) {
	gold, took := s.Reports[0], s.Took.Seconds()
	served := gold.Rate() + float64(others.Answers[http.StatusOK])/took
	unserved := float64(gold.Begun+others.SYNs)/took - served
	o.values = map[string]float64{
		goldTail: tail(gold, 0.99), goldRate: gold.Rate(), goldShare: 100 * gold.Rate() * took / float64(gold.Begun),
		totalRate: served, totalShare: 100 * served / c.rate,
	}
	if c.Core != nil {
		o.values[rejection] = 1e6 * (s.Work.Seconds()/took - served*c.work) / unserved
	}
	if limit > 0 {
		o.values[limitInUse] = limit
		o.values[beyondAlone] = (o.values[goldTail] - c.tail) / (limit * 1000 / c.rate)
	}
	saturation := ""
	if lost := others.Unsent + others.Lost; float64(lost) > 0.01*float64(others.SYNs) {
		saturation = fmt.Sprintf("the generator was saturated: %d of %d SYNs not sent, %d lost", others.Unsent, others.SYNs+others.Unsent, others.Lost)
	}
	o.invalid = joined(check{generator: true, machine: c.Core != nil}.invalid(s), saturation)
	c.Progress("    gold: median %.1f ms, p90 %.1f ms, %s; others: %v answers, %d FINs, %d RSTs; cores %.0f %% and %.0f %%", tail(gold, 0.5), tail(gold, 0.9), bench.Outcomes(gold),
		maps.Collect(maps.All(others.Answers)), others.Ends, others.Resets, 100*s.ServerBusy, 100*s.ClientBusy)
	return o
}

// limit is how many requests may be in service, 0 without a limit.
func (c *collapsing) limit(ctx context.Context) (float64, error) {
	s, err := c.daemon.Status(ctx)
	if err != nil {
		return 0, err
	}
	number, _, _ := strings.Cut(s.Services[0].Limit, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return 0, nil // such as "unlimited"
	}
	return float64(n), nil
}

// tail is a quantile of response times in ms, where who was not served counts with the whole patience.
func tail(r *load.Report, share float64) float64 {
	return bench.Quantile(r, share, 2*goldPatience)
}
