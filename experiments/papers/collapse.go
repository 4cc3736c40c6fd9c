// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"narthex/experiments/internal/evidence"
)

// collapseLoads are what everybody else asks for, as multiples of what the server can do, and
// those at which peers are measured.
var (
	collapseLoads = []float64{2, 5, 10}
	collapsePeers = []float64{2, 10}
)

// collapse: what becomes of the server and of gold clients beside ever more others.
func (s *suite) collapse(ctx context.Context) (r *evidence.Result, err error) {
	c, err := s.collapsing(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	variants, loads := c.variants(), collapseLoads
	if s.quick {
		loads = loads[len(loads)-1:]
	}
	got, err := s.sweep(ctx, nil, apart(loads, variants...)...)
	if err != nil {
		return nil, err
	}
	return c.result(got, variants), nil
}

func (c *collapsing) result(got *swept, variants []variant) *evidence.Result {
	r := &evidence.Result{
		ID: "collapse", Title: "Gold clients at half of what the server can do, everybody else at 2, 5 and 10 times",
		Source: "ours",
		Setup: fmt.Sprintf("Apache prefork with %d processes, a file of 8 KB for which it works %v besides, one request per connection: it can do some %.0f requests/s. "+
			"Gold clients are an open loop at half of that; everybody else are stateless clients with 65,536 addresses, who send nothing again and whose waiting requests count. "+
			"What the server can do, and gold's p99 alone, are measured by themselves right before each variant at each load: loads, rates and figures are in terms of that. "+
			"At most %d requests are in service at once where that is bounded; rates are bounded to what gold leaves (%.0f %% of the capacity). Each point: %v pass (%v with a limit that sets itself), then %v are measured.",
			collapseWorkers, collapseWork, c.rate, collapseLimit, 100*(0.95-collapseGold), collapseSettle, autoSettle, c.window()),
		Repeated: got.repeated, Invalid: got.invalid,
		Notes: []string{
			"Gold requests that got no answer count in the p99 with all their patience, 4 s.",
			"CPU per rejection is the time of the server's core beyond what the requests that it served cost by themselves, per request that it did not serve. What holding and releasing costs is in it, and what the server itself does less well: 1 % of the core is 1.4 µs at 10 times, 7 µs at 2 times. It is not measured with a limit that sets itself, since that goes by how busy the core is and nothing may soak up its idle time.",
			"A rejection is not the same everywhere. Narthex's SYN policing, nftables and iptables drop a SYN: one packet, and the client is told nothing. Narthex with a concurrency accepts the connection, reads the request and answers it (503 and the end of the connection), as proxies and mod_qos do: the kernel's handshake and three more packets. Who drops is compared with SYN policing, too.",
			"SYN policing, nginx, mod_qos, nftables, iptables and HAProxy's rates have to be told what the server can do, and let in no more of the others when gold clients ask for less. Those with a limit of how many are served at once are not told.",
		},
	}
	for _, p := range []struct{ what, name, title, y string }{
		{goldTail, "", "Response time of gold clients", "gold p99, ms"},
		{goldRate, "collapse-gold", "Gold requests served", "gold requests/s"},
		{totalRate, "collapse-total", "All requests served", "requests/s"},
	} {
		plot := evidence.Plot{Name: p.name, Title: p.title, X: evidence.Axis{Label: "requests of others / capacity"}, Y: evidence.Axis{Label: p.y, Log: p.what == goldTail}}
		for _, v := range variants {
			plot.Series = append(plot.Series, got.series(v, p.what))
		}
		r.Plots = append(r.Plots, plot)
	}
	r.Tables = []evidence.Table{collapseCosts(got, variants)}
	r.Claims = collapseClaims(got)
	ten := collapseLoads[len(collapseLoads)-1]
	compare := func(ours, peer string) {
		of := func(what string) []float64 { return over(got.at(ours, ten, what), got.at(peer, ten, what)) }
		r.Ratios = append(r.Ratios,
			evidence.Ratio{What: "gold p99 at 10 times, " + ours, Peer: peer, Samples: of(goldTail), Low: true},
			evidence.Ratio{What: "all requests served at 10 times, of the capacity, " + ours, Peer: peer, Samples: of(totalShare)},
			evidence.Ratio{What: "CPU per rejection at 10 times, " + ours, Peer: peer, Low: true, Samples: of(rejection)},
		)
	}
	for _, v := range variants {
		if !v.ours {
			compare(collapseFixed, v.name)
		}
	}
	for _, peer := range droppers {
		compare(synPolicing, peer)
	}
	return r
}

// collapseClaims are the figures of the issue, for the limit of a number and the one that sets itself.
func collapseClaims(got *swept) (all []evidence.Claim) {
	ten := collapseLoads[len(collapseLoads)-1]
	for _, name := range []string{collapseFixed, collapseAuto} {
		all = append(all,
			evidence.AtMost(evidence.Figure, name+": gold's p99 beyond its p99 alone, at 10 times, in concurrency × time in service", "", 2, got.at(name, ten, beyondAlone)...),
			evidence.AtLeast(evidence.Figure, name+": all requests served, at 10 times, of the capacity", "%", 95, got.at(name, ten, totalShare)...))
	}
	return append(all,
		evidence.AtLeast(evidence.Figure, collapseFixed+": gold requests served, at 10 times, of those offered", "%", 99, got.at(collapseFixed, ten, goldShare)...),
		evidence.AtMost(evidence.Shape, "nothing: gold requests served, at 10 times, of those offered", "%", 50, got.at(alone, ten, goldShare)...))
}

// collapseCosts is the table of what rejections cost.
func collapseCosts(got *swept, variants []variant) evidence.Table {
	t := evidence.Table{Title: "CPU time of the server's core per rejection", Columns: []string{"variant"}}
	for _, x := range collapseLoads {
		t.Columns = append(t.Columns, fmt.Sprintf("at %g times, µs", x))
	}
	for _, v := range variants {
		row := evidence.Row{Name: v.name, Ours: v.ours}
		for _, x := range collapseLoads {
			row.Cells = append(row.Cells, evidence.Cell{Samples: got.at(v.name, x, rejection)})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
