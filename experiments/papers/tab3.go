// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/evidence"
	"narthex/experiments/internal/peers"
	"narthex/internal/load"
	"narthex/internal/testnet"
)

// Who asks in table 3, and how many requests the server has at once.
const (
	highClients   = 150
	mediumClients = 30
	lowClients    = 30
	inService     = 8
)

// tab3Limits are the limits of the high class as shares of the capacity: none, and (300, 300) and
// (200, 200) of 381/s.
var tab3Limits = []float64{0, 0.79, 0.52}

// What table 3 has of each limit.
const (
	highServed   = "high/s"
	mediumServed = "medium/s"
	lowServed    = "low/s"
	allServed    = "all/s"
)

var tab3Columns = []string{highServed, mediumServed, lowServed, allServed}

const (
	roomAndPolicing = "Narthex, priorities and SYN policing"
	haproxyClasses  = "HAProxy, priority classes and a rate"
)

// rankedServer is the server of table 3.
type rankedServer struct {
	*policed
	capacity float64
	limits   []float64 // connections/s of the high class; 0: none
}

// tab3 is priorities whose highest class is limited.
func (s *suite) tab3(ctx context.Context) (r *evidence.Result, err error) {
	p, err := s.policed("tab3")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	high := load.Closed{Client: p.from(p.preferred, peers.File8K), Clients: highClients}
	capacity, err := p.capacity(ctx, high)
	if err != nil {
		return nil, err
	}
	t := &rankedServer{policed: p, capacity: capacity}
	for _, share := range tab3Limits {
		t.limits = append(t.limits, rounded(share*capacity))
	}
	variants := t.variants()
	got, err := s.sweep(ctx, t.limits, variants...)
	if err != nil {
		return nil, err
	}
	return t.result(got, variants), nil
}

// variants are who orders the classes, and who limits the highest.
func (t *rankedServer) variants() []variant {
	var n *bench.Narthex
	return []variant{
		{name: unprotected, start: t.alone, measure: func(ctx context.Context, limit float64) (outcome, error) { return t.asked(ctx, limit, false) }, xs: t.limits[:1]},
		{name: roomAndPolicing, ours: true, start: t.before(func(ctx context.Context) (func() error, error) {
			var err error
			if n, err = t.narthex(ctx, tab3Policy(0)); err != nil {
				return nil, err
			}
			return n.Stop, nil
		}), measure: func(ctx context.Context, limit float64) (outcome, error) {
			if err := t.swap(ctx, n, tab3Policy(limit)); err != nil {
				return outcome{}, err
			}
			return t.asked(ctx, limit, true)
		}},
		{name: haproxyClasses, start: func(context.Context) (func() error, error) {
			return t.started(t.serveAt(t.server, t.behind()))
		}, measure: t.behindHAProxy},
		{name: nftTables, start: t.alone, measure: func(ctx context.Context, limit float64) (o outcome, err error) {
			stop, err := peers.NFTables{Port: 80, From: preferredNet, Rate: int(limit), Burst: int(limit), Device: testnet.Dev}.Apply(t.lab.Server)
			if err != nil {
				return o, err
			}
			defer func() { err = errors.Join(err, stop()) }()
			return t.asked(ctx, limit, true)
		}, xs: t.limits[1:]},
	}
}

// tab3Policy orders the classes and limits connections of the highest.
func tab3Policy(limit float64) string {
	rate := ""
	if limit > 0 {
		rate = fmt.Sprintf(", rate: %.0[1]f/s, burst: %.0[1]f", limit)
	}
	return fmt.Sprintf(`version: 1
services: [{name: web, listen: "*:80", concurrency: %d}]
classes: [{name: high, priority: 1}, {name: medium, priority: 2}, {name: low, priority: 3}]
connections:
  - {name: high, from: %s, class: high%s}
  - {name: medium, from: %s, class: medium}
  - {name: low, from: %s, class: low}
`, inService, preferredNet, rate, middleNet, lowNet)
}

// behindHAProxy measures with HAProxy before the server, which starts anew with each limit.
func (t *rankedServer) behindHAProxy(ctx context.Context, limit float64) (o outcome, err error) {
	server := t.Workers
	proxy := peers.HAProxy{
		Listen: t.webs(), Backlog: backlog, CPUs: t.ServerCPUs, Origin: t.behind(), MaxConn: inService,
		Priorities: []peers.Priority{{Class: peers.Class{From: preferredNet}, Priority: -200}, {Class: peers.Class{From: middleNet}, Priority: -100}},
	}
	if limit > 0 {
		proxy.Deny = []peers.RateLimit{{Class: peers.Class{From: preferredNet}, Rate: int(limit)}}
	}
	h, err := t.Serve(goFirst(proxy.Start(t.lab.Server)))
	if err != nil {
		return o, err
	}
	defer func() {
		err = errors.Join(err, h.Close())
		t.Workers = server
	}()
	return t.asked(ctx, limit, false)
}

// asked measures the three classes. A bucket is full at first, with as much as passes in a second:
// that has to be gone before.
func (t *rankedServer) asked(ctx context.Context, limit float64, bucket bool) (outcome, error) {
	settle, length := time.Second, 4*time.Second
	if t.quick {
		length = 2 * time.Second
	}
	if limit > 0 && bucket {
		// What the server does with something before it is somewhat less than its capacity.
		settle += time.Duration(limit / (0.92*t.capacity - limit) * float64(time.Second))
	}
	c, err := bench.Gather(ctx,
		load.Closed{Client: t.from(t.preferred, peers.File8K), Clients: highClients},
		load.Closed{Client: t.from(t.middle, peers.File8K), Clients: mediumClients},
		load.Closed{Client: t.from(t.low, peers.File8K), Clients: lowClients})
	if err != nil {
		return outcome{}, err
	}
	defer c.End()
	s, err := t.Measure(ctx, c, settle, length)
	if err != nil {
		return outcome{}, err
	}
	values := map[string]float64{}
	for i, r := range s.Reports {
		values[tab3Columns[i]] = r.Rate()
		values[allServed] += r.Rate()
	}
	return outcome{values: values, invalid: check{overflows: true, generator: true, machine: true}.invalid(s)}, nil
}

func (t *rankedServer) result(got *swept, variants []variant) *evidence.Result {
	a, b := t.limits[1], t.limits[2]
	r := &evidence.Result{
		ID: "tab3", Title: "Priorities, with the highest class limited", Source: "Voigt et al., USENIX ATC 2001, table 3",
		Then: "With no limit, (300, 300) and (200, 200): high 381, 306 and 196/s; medium 0, 78.6 and 180; low 0, 4.1 and 13.",
		Setup: fmt.Sprintf("Apache prefork with %d processes serves 8 KB, with %v of its core besides. %d high, %d medium and %d low clients in closed loops, each class from its own network. "+
			"The server's capacity is %.0f/s. Narthex has %d requests in service and the others wait, by class; connections of the high class are limited to nothing, (%.0f, %.0f) and (%.0f, %.0f): rate per second and burst. "+
			"HAProxy has the same order, the same number at the server and a rate that denies with 503; nftables limits SYNs of the high class and orders nothing.",
			serverProcesses, serverWork, highClients, mediumClients, lowClients, t.capacity, inService, a, a, b, b),
		Repeated: got.repeated, Invalid: got.invalid,
		Notes: []string{"Limits are 79 % and 52 % of the capacity, as 300 and 200 were of 381. Clients whose SYN is dropped come again after 1 s, 3 s and 7 s."},
	}
	table := evidence.Table{Title: "Requests/s that were answered", Columns: []string{"", "limit of high", "high", "medium", "low", "all"}}
	for _, v := range variants {
		for _, limit := range t.limits {
			if len(got.at(v.name, limit, highServed)) == 0 {
				continue
			}
			row := evidence.Row{Name: v.name, Ours: v.ours, Cells: []evidence.Cell{{Text: "none"}}}
			if limit > 0 {
				row.Cells[0].Text = fmt.Sprintf("(%.0[1]f, %.0[1]f)", limit)
			}
			for _, what := range tab3Columns {
				row.Cells = append(row.Cells, cell(got.at(v.name, limit, what)))
			}
			table.Rows = append(table.Rows, row)
		}
	}
	r.Tables = []evidence.Table{table}
	of := func(limit float64, what string) []float64 { return got.at(roomAndPolicing, limit, what) }
	least := leastOf(divided(of(0, allServed), t.capacity), divided(of(a, allServed), t.capacity), divided(of(b, allServed), t.capacity))
	r.Claims = []evidence.Claim{
		evidence.AtLeast(evidence.Shape, "no limit: high, of all (then 1.00)", "", 0.95, over(of(0, highServed), of(0, allServed))...),
		evidence.Between(evidence.Shape, "first limit: high, of its limit (then 1.02)", "", 0.85, 1.1, divided(of(a, highServed), a)...),
		evidence.Between(evidence.Shape, "second limit: high, of its limit (then 0.98)", "", 0.85, 1.1, divided(of(b, highServed), b)...),
		evidence.AtLeast(evidence.Shape, "second limit: medium, of what high leaves (then 0.93)", "", 0.85, over(of(b, mediumServed), sum(of(b, mediumServed), of(b, lowServed)))...),
		evidence.AtLeast(evidence.Shape, "medium: second limit / first (then 2.3)", "", 1.3, over(of(b, mediumServed), of(a, mediumServed))...),
		evidence.AtLeast(evidence.Shape, "all classes together at the worst limit, of the capacity", "", 0.9, least...),
	}
	for _, limit := range []float64{0, a, b} {
		for _, what := range []string{highServed, allServed} {
			r.Ratios = append(r.Ratios, evidence.Ratio{What: fmt.Sprintf("%s with high limited to %.0f/s (0: not)", what, limit), Peer: haproxyClasses,
				Samples: over(of(limit, what), got.at(haproxyClasses, limit, what))})
		}
	}
	return r
}

// sum adds samples of the same rounds.
func sum(a, b []float64) (all []float64) {
	for i := range min(len(a), len(b)) {
		all = append(all, a[i]+b[i])
	}
	return all
}

// leastOf is the least sample of each round.
func leastOf(lists ...[]float64) (least []float64) {
	for _, l := range lists {
		for i, v := range l {
			if i == len(least) {
				least = append(least, v)
			}
			least[i] = min(least[i], v)
		}
	}
	return least
}
