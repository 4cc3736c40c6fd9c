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

// What table 3 has of each limit. What the server can do is measured just before.
const (
	highServed   = "high/s"
	mediumServed = "medium/s"
	lowServed    = "low/s"
	allServed    = "all/s"
	byItself     = "capacity/s"
	ofCapacity   = "all, of the capacity"
	highOfLimit  = "high, of its limit"
)

var tab3Columns = []string{highServed, mediumServed, lowServed, allServed, byItself, ofCapacity}

const (
	roomAndPolicing = "Narthex, priorities and SYN policing"
	haproxyClasses  = "HAProxy, priority classes and a rate"
)

// rankedServer is the server of table 3.
type rankedServer struct{ *policed }

// tab3 is priorities whose highest class is limited.
func (s *suite) tab3(ctx context.Context) (r *evidence.Result, err error) {
	p, err := s.policed("tab3")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	t := &rankedServer{p}
	variants := t.variants()
	got, err := s.sweep(ctx, nil, apart(tab3Limits, variants...)...)
	if err != nil {
		return nil, err
	}
	return t.result(got, variants), nil
}

// variants are who orders the classes, and who limits the highest.
func (t *rankedServer) variants() []variant {
	nothing := func(ctx context.Context, _ float64) (stop func() error, err error) { return nobody(ctx) }
	unlimited := t.ranked(unprotected, t.web(), false, nothing)
	unlimited.xs = tab3Limits[:1]
	ours := t.ranked(roomAndPolicing, t.web(), true, func(ctx context.Context, limit float64) (func() error, error) {
		n, err := t.narthex(ctx, tab3Policy(limit))
		if err != nil {
			return nil, err
		}
		return n.Stop, nil
	})
	ours.ours = true
	walled := t.ranked(nftTables, t.web(), true, func(_ context.Context, limit float64) (func() error, error) {
		return peers.NFTables{Port: 80, From: preferredNet, Rate: int(limit), Burst: int(limit), Device: lab.Dev}.Apply(t.rig.Server)
	})
	walled.xs = tab3Limits[1:]
	return []variant{unlimited, ours, t.ranked(haproxyClasses, t.behind(), false, t.haproxy), walled}
}

// ranked is a variant with the server at an address, before which something is put for a limit of the high
// class, with a bucket or not. What the server can do is measured before, and the limit is a share of that.
func (t *rankedServer) ranked(name string, server netip.AddrPort, bucket bool, put func(ctx context.Context, limit float64) (stop func() error, err error)) variant {
	start := func(context.Context) (func() error, error) { return t.started(t.serveAt(t.server, server)) }
	return variant{name: name, start: start, measure: func(ctx context.Context, share float64) (o outcome, err error) {
		capacity, err := t.once(ctx, t.high(server))
		if err != nil {
			return o, err
		}
		rate := capacity.Reports[0].Rate()
		limit := rounded(share * rate)
		stop, err := put(ctx, limit)
		if err != nil {
			return o, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		if o, err = t.asked(ctx, limit, rate, bucket); err != nil {
			return o, err
		}
		o.invalid = joined(check{overflows: true, generator: true, machine: true}.invalid(capacity), o.invalid)
		return o, nil
	}}
}

// high are the clients of the high class, who ask at an address.
func (t *rankedServer) high(server netip.AddrPort) load.Closed {
	client := t.from(t.preferred, peers.File8K)
	client.Target = server
	return load.Closed{Client: client, Clients: highClients}
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

// haproxy is HAProxy before the server.
func (t *rankedServer) haproxy(_ context.Context, limit float64) (stop func() error, err error) {
	server := t.Workers
	proxy := peers.HAProxy{
		Listen: t.webs(), Backlog: backlog, CPUs: t.ServerCPUs, Origin: t.behind(), MaxConn: inService,
		Priorities: []peers.Priority{{Class: peers.Class{From: preferredNet}, Priority: -200}, {Class: peers.Class{From: middleNet}, Priority: -100}},
	}
	if limit > 0 {
		proxy.Deny = []peers.RateLimit{{Class: peers.Class{From: preferredNet}, Rate: int(limit)}}
	}
	h, err := t.Serve(goFirst(proxy.Start(t.rig.Server)))
	if err != nil {
		return nil, err
	}
	return func() error {
		t.Workers = server
		return h.Close()
	}, nil
}

// asked measures the three classes of a server that can do so many requests/s. A bucket is full at
// first, with as much as passes in a second: that has to be gone before.
func (t *rankedServer) asked(ctx context.Context, limit, capacity float64, bucket bool) (outcome, error) {
	settle, length := time.Second, 4*time.Second
	if t.quick {
		length = 2 * time.Second
	}
	if limit > 0 && bucket {
		// What the server does with something before it is somewhat less than its capacity.
		settle += time.Duration(limit / (0.92*capacity - limit) * float64(time.Second))
	}
	c, err := bench.Gather(ctx, t.high(t.web()),
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
	values := map[string]float64{byItself: capacity, ofCapacity: s.Rate() / capacity, allServed: s.Rate()}
	for i, r := range s.Reports {
		values[tab3Columns[i]] = r.Rate()
	}
	if limit > 0 {
		values[highOfLimit] = values[highServed] / limit
	}
	return outcome{values: values, invalid: check{overflows: true, generator: true, machine: true}.invalid(s)}, nil
}

func (t *rankedServer) result(got *swept, variants []variant) *evidence.Result {
	a, b := tab3Limits[1], tab3Limits[2]
	r := &evidence.Result{
		ID: "tab3", Title: "Priorities, with the highest class limited", Source: "Voigt et al., USENIX ATC 2001, table 3",
		Then: "With no limit, (300, 300) and (200, 200): high 381, 306 and 196/s; medium 0, 78.6 and 180; low 0, 4.1 and 13.",
		Setup: fmt.Sprintf("Apache prefork with %d processes serves 8 KB, with %v of its core besides. %d high, %d medium and %d low clients in closed loops, each class from its own network. "+
			"What the server does for the high clients by itself, its capacity, is measured right before each figure. Narthex has %d requests in service and the others wait, by class; "+
			"connections of the high class are limited to nothing, and to %.0f and %.0f %% of the capacity: rate per second, and as many at once. "+
			"HAProxy has the same order, the same number at the server and a rate that denies with 503; nftables limits SYNs of the high class and orders nothing.",
			serverProcesses, serverWork, highClients, mediumClients, lowClients, inService, 100*a, 100*b),
		Repeated: got.repeated, Invalid: got.invalid,
		Notes: []string{"Limits are 79 % and 52 % of the capacity, as 300 and 200 were of 381. Clients whose SYN is dropped come again after 1 s, 3 s and 7 s."},
	}
	table := evidence.Table{Title: "Requests/s that were answered", Columns: []string{"", "limit of high, of the capacity", "high", "medium", "low", "all", "capacity", "all, of the capacity"}}
	for _, v := range variants {
		for _, limit := range tab3Limits {
			if len(got.at(v.name, limit, highServed)) == 0 {
				continue
			}
			row := evidence.Row{Name: v.name, Ours: v.ours, Cells: []evidence.Cell{{Text: "none"}}}
			if limit > 0 {
				row.Cells[0].Text = fmt.Sprintf("%.0f %%", 100*limit)
			}
			for _, what := range tab3Columns {
				row.Cells = append(row.Cells, cell(got.at(v.name, limit, what)))
			}
			table.Rows = append(table.Rows, row)
		}
	}
	r.Tables = []evidence.Table{table}
	of := func(limit float64, what string) []float64 { return got.at(roomAndPolicing, limit, what) }
	share := func(variant string, limit float64, what string) []float64 {
		return over(got.at(variant, limit, what), got.at(variant, limit, byItself))
	}
	least := leastOf(of(0, ofCapacity), of(a, ofCapacity), of(b, ofCapacity))
	r.Claims = []evidence.Claim{
		evidence.AtLeast(evidence.Shape, "no limit: high, of all (then 1.00)", "", 0.95, over(of(0, highServed), of(0, allServed))...),
		evidence.Between(evidence.Shape, "first limit: high, of its limit (then 1.02)", "", 0.85, 1.1, of(a, highOfLimit)...),
		evidence.Between(evidence.Shape, "second limit: high, of its limit (then 0.98)", "", 0.85, 1.1, of(b, highOfLimit)...),
		evidence.AtLeast(evidence.Shape, "second limit: medium, of what high leaves (then 0.93)", "", 0.85, over(of(b, mediumServed), plus(of(b, mediumServed), of(b, lowServed)))...),
		evidence.AtMost(evidence.Shape, "no limit: low, of the capacity (then 0)", "", 0.02, share(roomAndPolicing, 0, lowServed)...),
		evidence.AtMost(evidence.Shape, "first limit: low, of the capacity (then 0.01)", "", 0.05, share(roomAndPolicing, a, lowServed)...),
		evidence.AtMost(evidence.Shape, "second limit: low, of the capacity (then 0.03)", "", 0.08, share(roomAndPolicing, b, lowServed)...),
		evidence.AtLeast(evidence.Shape, "medium: second limit / first (then 2.3)", "", 1.3, over(share(roomAndPolicing, b, mediumServed), share(roomAndPolicing, a, mediumServed))...),
		evidence.AtLeast(evidence.Shape, "all classes together at the worst limit, of the capacity", "", 0.9, least...),
	}
	for _, limit := range []float64{0, a, b} {
		for _, what := range []string{highServed, allServed} {
			r.Ratios = append(r.Ratios, evidence.Ratio{What: fmt.Sprintf("%s of the capacity, high limited to %.0f %% of it (0: not)", what, 100*limit), Peer: haproxyClasses,
				Samples: over(share(roomAndPolicing, limit, what), share(haproxyClasses, limit, what))})
		}
	}
	return r
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
