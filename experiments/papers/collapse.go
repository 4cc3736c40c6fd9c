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
	variants := c.variants()
	got, err := s.sweep(ctx, collapsePeers, variants...)
	if err != nil {
		return nil, err
	}
	return c.result(got, variants), nil
}

func (c *collapsing) result(got *swept, variants []variant) *evidence.Result {
	r := &evidence.Result{
		ID: "collapse", Title: "Gold clients at half of what the server can do, everybody else at 2, 5 and 10 times",
		Source: "ours",
		Setup: fmt.Sprintf("Apache prefork with %d processes, a file of 8 KB for which it works %v besides, one request per connection: it can do %.0f requests/s. "+
			"Gold clients are an open loop at half of that; everybody else are stateless clients with 65,536 addresses, who send nothing again and whose waiting requests count. "+
			"At most %d requests are in service at once where that is bounded; rates are bounded to what gold leaves (%.0f %% of the capacity). Each point: %v pass, then %v are measured.",
			collapseWorkers, collapseWork, c.capacity, collapseLimit, 100*(0.95-collapseGold), collapseSettle, c.length),
		Repeated: got.repeated, Invalid: got.invalid,
		Notes: []string{
			"Gold requests that got no answer count in the p99 with all their patience, 4 s.",
			"CPU per rejection is the time of the server's core beyond what the requests that it served cost alone, per request that it did not serve. What holding and releasing costs is in it. It is not measured with a limit that sets itself, since that goes by how busy the core is and nothing may soak up its idle time.",
			"nginx, mod_qos, nftables, iptables and HAProxy's rates have to be told what the server can do, and let in no more of the others when gold clients ask for less. Those with a limit of how many are served at once, and Narthex, are not told.",
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
	r.Tables = []evidence.Table{c.costs(got, variants)}
	r.Claims = c.claims(got)
	ten := collapseLoads[len(collapseLoads)-1]
	for _, v := range variants {
		if v.ours {
			continue
		}
		of := func(what string) []float64 { return over(got.at(collapseFixed, ten, what), got.at(v.name, ten, what)) }
		r.Ratios = append(r.Ratios,
			evidence.Ratio{What: "gold p99 at 10 times, concurrency 4", Peer: v.name, Samples: of(goldTail), Low: true},
			evidence.Ratio{What: "all requests served at 10 times, concurrency 4", Peer: v.name, Samples: of(totalRate)},
			evidence.Ratio{What: "CPU per rejection at 10 times, concurrency 4", Peer: v.name, Low: true, Samples: over(c.perRejection(got, collapseFixed, ten), c.perRejection(got, v.name, ten))},
		)
	}
	return r
}

// claims are the figures of the issue, for the limit of a number and the one that sets itself.
func (c *collapsing) claims(got *swept) (all []evidence.Claim) {
	ten := collapseLoads[len(collapseLoads)-1]
	capacity := got.at(alone, 0, closedRate)
	for _, name := range []string{collapseFixed, collapseAuto} {
		var beyond []float64
		limits := got.at(name, ten, limitInUse)
		for i, p99 := range got.at(name, ten, goldTail) {
			if i < len(limits) && i < len(capacity) {
				beyond = append(beyond, (p99-got.at(alone, 0, aloneTail)[i])/(limits[i]*1000/capacity[i]))
			}
		}
		all = append(all,
			evidence.AtMost(evidence.Figure, name+": gold's p99 beyond its p99 alone, at 10 times, in concurrency × time in service", "", 2, beyond...),
			evidence.AtLeast(evidence.Figure, name+": all requests served, at 10 times, of the capacity", "%", 95, percent(over(got.at(name, ten, totalRate), capacity))...))
	}
	gold := func(v string) []float64 { return percent(over(got.at(v, ten, goldRate), got.at(v, ten, offeredGold))) }
	return append(all,
		evidence.AtLeast(evidence.Figure, collapseFixed+": gold requests served, at 10 times, of those offered", "%", 99, gold(collapseFixed)...),
		evidence.AtMost(evidence.Shape, "nothing: gold requests served, at 10 times, of those offered", "%", 50, gold(alone)...))
}

// perRejection is the CPU time per request that was not served, in µs, in each round.
func (c *collapsing) perRejection(got *swept, variant string, x float64) (costs []float64) {
	rate, work := got.at(alone, 0, closedRate), got.at(alone, 0, closedWork)
	spent, served, not := got.at(variant, x, workRate), got.at(variant, x, totalRate), got.at(variant, x, unserved)
	for i := range min(len(rate), len(spent)) {
		costs = append(costs, 1e6*(spent[i]-served[i]*work[i]/rate[i])/not[i])
	}
	return costs
}

// costs is the table of what rejections cost.
func (c *collapsing) costs(got *swept, variants []variant) evidence.Table {
	t := evidence.Table{Title: "CPU time of the server's core per rejection", Columns: []string{"variant"}}
	for _, x := range collapseLoads {
		t.Columns = append(t.Columns, fmt.Sprintf("at %g times, µs", x))
	}
	for _, v := range variants {
		row := evidence.Row{Name: v.name, Ours: v.ours}
		for _, x := range collapseLoads {
			row.Cells = append(row.Cells, evidence.Cell{Samples: c.perRejection(got, v.name, x)})
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// percent are shares in percent.
func percent(shares []float64) (all []float64) {
	for _, s := range shares {
		all = append(all, 100*s)
	}
	return all
}
