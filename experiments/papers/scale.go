// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"narthex/experiments/internal/evidence"
)

// What the experiment scale measures.
const (
	programCost = "programs" // µs of Narthex's programs, per SYN or request
	coreCost    = "core"     // µs of the server's core, per SYN
	loadTime    = "load"     // s until rules are in force
	mapMemory   = "memory"   // MiB of the kernel
)

// How things grow.
var (
	scaleRules   = []float64{1, 10, 100, 1000, 10_000, 100_000}
	scaleLinear  = []float64{1, 10, 100, 1000, 10_000} // lists that are gone through one by one
	scaleWaiting = []float64{10, 1000, 10_000, 50_000}
	scaleClasses = []float64{1, 2, 4, 8, 16}
)

// Names of variants.
const (
	scaleConnections = "Narthex, connection rules"
	scaleRequests    = "Narthex, request rules"
)

// growth is one thing that grows.
type growth struct {
	name, title, axis string
	xs                []float64
	variants          []variant
	got               *swept
}

// scale: what a decision costs as things grow.
func (s *suite) scale(ctx context.Context) (r *evidence.Result, err error) {
	// From here on the kernel counts the time of programs, which takes some, too.
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stats.Close()) }()
	var all []*growth
	for _, measure := range []func(*suite, context.Context) (*growth, error){
		(*suite).scaleConnections, (*suite).scaleRequests, (*suite).scaleWaiting, (*suite).scaleClasses,
	} {
		g, err := measure(s, ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return scaleResult(all), nil
}

// grow measures all variants of a growth: the least of it right before the most, which is compared with it.
func (s *suite) grow(ctx context.Context, g *growth) (_ *growth, err error) {
	turns := slices.Clone(g.variants)
	for i, v := range turns {
		xs := s.thin(v.xs...)
		turns[i].xs = slices.Concat(xs[1:len(xs)-1], xs[:1], xs[len(xs)-1:])
	}
	g.got, err = s.sweep(ctx, nil, turns...)
	return g, err
}

func scaleResult(all []*growth) *evidence.Result {
	r := &evidence.Result{
		ID: "scale", Title: "What a decision costs as rules, waiting requests and classes grow in number", Source: "ours",
		Setup: "Connection rules: SYNs from 65,536 addresses, each of which may have a rule of its own; the last rule matches all and drops, so that no server has part in it. " +
			"Peers drop by the same rules, in a chain and in a set. Request rules: requests whose path the last rule matches, before a server that does next to nothing. " +
			"Waiting: that many requests wait while one of 8 others at a time is held and released. Classes: 32 clients of all classes, of whom two at a time are let in. " +
			"The cost of Narthex is the time of its programs as the kernel counts it; beside peers, the time of the server's core.",
		Notes: []string{
			"Lists of nftables and iptables are gone through one by one; they are measured up to 10,000 rules. nftables' set is its own answer to long lists of addresses, but each of its elements has the same verdict.",
			"The time to load is that of the whole way: file, compiler, tables of the kernel.",
			"The programs' own time per SYN grows by more than three times from 1 to 100,000 connection rules, whose tables are larger than the caches; of the whole time of a SYN it is a small part, so the claims are about that and about a bound.",
		},
	}
	table := evidence.Table{Title: "Time to load rules, and memory in the kernel", Columns: []string{"variant", "rules", "time to load, s", "memory, MiB"}}
	for _, g := range all {
		r.Plots = append(r.Plots, g.plot(programCost, "time of programs, µs", ""))
		if g.name == "connections" {
			r.Plots = append(r.Plots, g.plot(coreCost, "time of the server's core per SYN, µs", "-peers"))
		}
		r.Repeated, r.Invalid = append(r.Repeated, g.got.repeated...), append(r.Invalid, g.got.invalid...)
		for _, v := range g.variants {
			table.Rows = append(table.Rows, g.loads(v)...)
		}
	}
	r.Tables = []evidence.Table{table}
	most := func(g *growth, limit float64) {
		v, first, last := g.variants[0], g.xs[0], g.xs[len(g.xs)-1]
		r.Claims = append(r.Claims, evidence.AtMost(evidence.Figure, fmt.Sprintf("%s: time of programs at %.0f / at %.0f", g.title, last, first), "",
			limit, over(g.got.at(v.name, last, programCost), g.got.at(v.name, first, programCost))...))
	}
	// A table of a hundred thousand addresses does not fit into the core's nearer caches as one
	// rule does: what counts is what that is beside the rest of a SYN's way.
	first, last := scaleRules[0], scaleRules[len(scaleRules)-1]
	of := func(what string, x float64) []float64 { return all[0].got.at(scaleConnections, x, what) }
	r.Claims = append(r.Claims,
		evidence.AtMost(evidence.Figure, fmt.Sprintf("Connection rules: time of the server's core per dropped SYN at %.0f / at %.0f", last, first), "", 3, over(of(coreCost, last), of(coreCost, first))...),
		evidence.AtMost(evidence.Figure, fmt.Sprintf("Connection rules: time of programs per SYN at %.0f", last), "µs", 2, of(programCost, last)...))
	most(all[1], 3)
	most(all[2], 1.3)
	most(all[3], 1.3)
	at := func(v string, x float64) []float64 { return all[0].got.at(v, x, coreCost) }
	for _, v := range all[0].variants {
		if last := slices.Max(v.xs); !v.ours {
			r.Ratios = append(r.Ratios, evidence.Ratio{
				What: fmt.Sprintf("time of the server's core per dropped SYN, %.0f rules", last), Peer: v.name, Low: true,
				Samples: over(at(scaleConnections, last), at(v.name, last)),
			})
		}
	}
	return r
}

// plot has the variants for which there is such a figure.
func (g *growth) plot(what, axis, suffix string) evidence.Plot {
	p := evidence.Plot{
		Name: "scale-" + g.name + suffix, Title: g.title,
		X: evidence.Axis{Label: g.axis, Log: true}, Y: evidence.Axis{Label: axis, Log: suffix != ""},
	}
	for _, v := range g.variants {
		if line := g.got.series(v, what); len(line.Points) > 0 {
			p.Series = append(p.Series, line)
		}
	}
	return p
}

// loads are a variant's rows of the table.
func (g *growth) loads(v variant) (rows []evidence.Row) {
	for _, x := range scaleRules {
		if times := g.got.at(v.name, x, loadTime); len(times) > 0 {
			memory := evidence.Cell{Samples: g.got.at(v.name, x, mapMemory)}
			if len(memory.Samples) == 0 {
				memory.Text = "–"
			}
			rows = append(rows, evidence.Row{Name: v.name, Ours: v.ours, Cells: []evidence.Cell{{Text: fmt.Sprintf("%.0f", x)}, {Samples: times}, memory}})
		}
	}
	return rows
}
