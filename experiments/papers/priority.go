// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/evidence"
	"narthex/experiments/internal/peers"
	"narthex/internal/lab"
	"narthex/internal/load"
)

// priorityExperiments are those in which the more important go first.
var priorityExperiments = []experiment{
	{"fig7", (*suite).fig7},
	{"fig8", (*suite).fig8},
	{"fig10", (*suite).fig10},
	{"tab4", (*suite).tab4},
	{"high-fixed", (*suite).highFixed},
	{"banga11", (*suite).banga11},
	{"banga11-static", (*suite).banga11Static},
}

// contender is clients of one kind, who compete with others.
type contender struct {
	name    string
	clients func(x float64) int // at a load
	load    load.Closed
}

// contest is contenders for a server that cannot serve all of them at once.
type contest struct {
	*stage
	contenders     []contender
	check          check
	settle, length time.Duration // of one run
}

// Names of figures.
const total = "all requests/s"

func rateOf(who string) string    { return who + " requests/s" }
func meanOf(who string) string    { return who + " mean ms" }
func p99Of(who string) string     { return who + " p99 ms" }
func refusedOf(who string) string { return who + " refused/s" }

// What setups and notes have in common.
const (
	sameCore     = "All that handles the server's packets is on its core; Narthex is on tcx there."
	noClasses    = "nginx and mod_qos have no classes that wait in order, and are not among the peers."
	proxiesFirst = "A proxy shares the core with the server and goes first there (nice -10 relative to it): with the same rank it is one of dozens of busy processes, " +
		"cannot accept connections in time, and they wait in the listener's queue, in which there is no order. Narthex needs no such thing."
)

// beside is where a proxy listens that stands before the server.
func (c *contest) beside() netip.AddrPort { return netip.AddrPortFrom(c.rig.ServerV4, 8081) }

// run measures all contenders at a load. They ask at the given address.
func (c *contest) run(ctx context.Context, target netip.AddrPort, x float64) (o outcome, err error) {
	var clients []bench.Starter
	var names []string
	for _, who := range c.contenders {
		who.load.Clients, who.load.Target = who.clients(x), target
		if who.load.Clients > 0 {
			clients, names = append(clients, who.load), append(names, who.name)
		}
	}
	crowd, err := bench.Gather(ctx, clients...)
	if err != nil {
		return o, err
	}
	defer crowd.End()
	s, err := c.Measure(ctx, crowd, c.settle, c.length)
	if err != nil {
		return o, err
	}
	return outcome{values: contested(names, s.Reports), invalid: c.check.invalid(s)}, nil
}

// contested are the figures of each contender. Who is not served has no response time.
func contested(names []string, reports []*load.Report) map[string]float64 {
	values := map[string]float64{}
	for i, name := range names {
		r := reports[i]
		values[total] += r.Rate()
		values[rateOf(name)] = r.Rate()
		values[refusedOf(name)] = float64(r.Outcomes[load.OtherStatus]+r.Outcomes[load.Reset]) / r.Elapsed.Seconds()
		if r.Outcomes[load.OK] > 0 {
			values[meanOf(name)] = r.Times.Mean() / 1e3
			values[p99Of(name)] = bench.Milliseconds(r.Quantile(0.99))
		}
	}
	return values
}

// bare is the server by itself.
func (c *contest) bare() variant {
	return variant{
		name:  "nothing",
		start: func(context.Context) (func() error, error) { return func() error { return nil }, nil },
		measure: func(ctx context.Context, x float64) (outcome, error) {
			return c.run(ctx, c.web(), x)
		},
	}
}

// policed is the server with Narthex before it.
func (c *contest) policed(name, policy string) variant {
	return variant{
		name: name, ours: true,
		start: func(ctx context.Context) (func() error, error) {
			n, err := c.narthex(ctx, policy)
			if err != nil {
				return nil, err
			}
			return n.Stop, nil
		},
		measure: func(ctx context.Context, x float64) (outcome, error) {
			return c.run(ctx, c.web(), x)
		},
	}
}

// peer is a proxy that can be started.
type peer interface {
	Start(*lab.Namespace) (*lab.Server, error)
}

// proxied is the server with a proxy before it, on the server's core.
func (c *contest) proxied(name string, p peer) variant {
	return variant{
		name:  name,
		start: func(context.Context) (func() error, error) { return c.before(p) },
		measure: func(ctx context.Context, x float64) (outcome, error) {
			return c.run(ctx, c.beside(), x)
		},
	}
}

// before starts a proxy. Until stop it is among the workers.
func (c *contest) before(p peer) (stop func() error, err error) {
	others := c.Workers
	s, err := goFirst(p.Start(c.rig.Server))
	if err != nil {
		return nil, err
	}
	stop = func() error {
		c.Workers = others
		return s.Close()
	}
	if _, err := c.Serve(s, nil); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// haproxy is HAProxy with priorities. It lets so many requests in at once as Narthex does.
func (c *contest) haproxy(maxConn int, priorities ...peers.Priority) peers.HAProxy {
	return peers.HAProxy{
		Listen: []netip.AddrPort{c.beside()}, Backlog: backlog, CPUs: c.ServerCPUs, Origin: c.web(),
		MaxConn: maxConn, Priorities: priorities,
	}
}

// apache starts Apache prefork.
func (c *contest) apache(a peers.Apache) error {
	a.Listen, a.Backlog, a.CPUs = []netip.AddrPort{c.web()}, backlog, c.ServerCPUs
	_, err := c.Serve(a.Start(c.rig.Server))
	return err
}

// contest makes a stage for a contest.
func (s *suite) contest(purpose string) (*contest, error) {
	st, err := s.stage(purpose)
	if err != nil {
		return nil, err
	}
	return &contest{stage: st, check: check{overflows: true, generator: true, machine: true}, settle: s.settle, length: s.length}, nil
}

// closing closes the stage and adds what goes wrong.
func (c *contest) closing(err *error) { *err = errors.Join(*err, c.close()) }

// asMany is as many clients as the load says.
func asMany(x float64) int { return int(x) }

// above are the loads beyond one.
func above(xs []float64, bound float64) (some []float64) {
	for _, x := range xs {
		if x > bound {
			some = append(some, x)
		}
	}
	return some
}

// lines are the lines of some figures of each variant.
func (a *swept) lines(variants []variant, names []string, figure func(string) string) (all []evidence.Series) {
	for _, v := range variants {
		for _, name := range names {
			line := a.series(v, figure(name))
			line.Name = v.name + ", " + name
			all = append(all, line)
		}
	}
	return all
}

// loadTable has a row for each variant and a column for each load.
func loadTable(got *swept, variants []variant, xs []float64, load, title, what string) evidence.Table {
	t := evidence.Table{Title: title, Columns: []string{load}}
	for _, x := range xs {
		t.Columns = append(t.Columns, fmt.Sprint(x))
	}
	for _, v := range variants {
		row := evidence.Row{Name: v.name, Ours: v.ours}
		for _, x := range xs {
			row.Cells = append(row.Cells, evidence.Cell{Samples: got.at(v.name, x, what)})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// minus is the differences of the samples of each round.
func minus(a, b []float64) (differences []float64) {
	for i := range min(len(a), len(b)) {
		differences = append(differences, a[i]-b[i])
	}
	return differences
}

// plus adds samples of the same rounds.
func plus(a, b []float64) []float64 {
	var sums []float64
	for i := range min(len(a), len(b)) {
		sums = append(sums, a[i]+b[i])
	}
	return sums
}

// sum adds the samples of the same rounds at several loads.
func (a *swept) sum(variant, what string, xs []float64) (sums []float64) {
	for i, x := range xs {
		if samples := a.at(variant, x, what); i == 0 {
			sums = append(sums, samples...)
		} else {
			sums = plus(sums, samples)
		}
	}
	return sums
}
