// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/evidence"
	"narthex/experiments/internal/peers"
	"narthex/internal/lab"
	"narthex/internal/load"
)

// spoofedNet is most of the addresses that a flood from everywhere has: 2^29 of them.
var spoofedNet = netip.MustParsePrefix("64.0.0.0/3")

const (
	floodClients = 20        // of each class
	floodLimit   = 100       // SYNs/s from whom nobody knows
	floodShare   = 100_000.0 // where variants are compared that do not take the most

	// The most that is offered is what the generator can do beside the clients on its core: it is tried
	// in steps, up to a rate that leaves the core this share of time.
	floodFirst   = 400_000.0
	floodStep    = 1.25
	floodMostTry = 2_000_000.0
	floodBusy    = 0.85
)

// What the flood is about, at each load.
const (
	goldServed   = "gold/s"
	bronzeServed = "bronze/s"
	bothKept     = "kept" // of what both got without a flood just before
	serverShare  = "server's core"
	clientShare  = "clients' core"
)

// Names of the flood's variants that have no other.
const floodTCX = "Narthex, SYN policing by tcx"

// floodPolicy knows its clients and lets few SYNs of others pass.
const floodPolicy = `version: 1
services: [{name: web, listen: "*:80", protocol: tcp, xdp: %s}]
classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]
connections:
  - {name: gold, from: 10.77.1.0/24, class: gold}
  - {name: bronze, from: 10.77.66.0/24, class: bronze}
  - {name: others, rate: 100/s, burst: 20}
`

// flood is a SYN flood from made-up addresses beside clients of two classes.
func (s *suite) flood(ctx context.Context) (r *evidence.Result, err error) {
	p, err := s.policed("flood")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.generate(ctx, spoofedNet, ""); err != nil {
		return nil, err
	}
	wall := peers.NFTables{Port: 80, From: spoofedNet, Rate: floodLimit, Burst: 20, Device: lab.Dev}
	tables := peers.IPTables{Port: 80, From: spoofedNet, Rate: floodLimit, Burst: 20}
	variants := []variant{
		p.variant(unprotected, p.alone, p.flooded),
		p.variant(synPolicing, p.narthexWith(fmt.Sprintf(floodPolicy, "auto")), p.flooded),
		p.variant(floodTCX, p.narthexWith(fmt.Sprintf(floodPolicy, "\"off\"")), p.flooded),
		p.variant(nftTables, p.walled(wall), p.flooded),
		p.variant(ipTables, p.walled(tables), p.flooded),
	}
	most, err := p.mostSYNs(ctx, variants[1])
	if err != nil {
		return nil, err
	}
	got, err := s.sweep(ctx, s.thin(slices.Compact([]float64{0, 5_000, 20_000, 50_000, floodShare, 200_000, floodFirst, most})...), variants...)
	if err != nil {
		return nil, err
	}
	return floodResult(got, variants, most), nil
}

// mostSYNs is the highest rate of SYNs that the generator sends beside the clients while a variant is in force.
func (p *policed) mostSYNs(ctx context.Context, v variant) (most float64, err error) {
	stop, err := v.start(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for rate := floodFirst; rate <= floodMostTry; rate *= floodStep {
		o, err := p.offer(ctx, rate, p.settle, p.length, p.floodClients()...)
		if err != nil {
			return 0, err
		}
		p.Progress("  %.0f SYNs/s: %.0f sent, clients' core %.0f %%", rate, o.sent(), 100*o.sample.ClientBusy)
		if o.unsent(rate) != "" || o.sample.ClientBusy > floodBusy {
			break
		}
		most = rate
	}
	if most == 0 {
		return 0, fmt.Errorf("the generator cannot send %.0f SYNs/s: give it a core that does nothing else", floodFirst)
	}
	return rounded(most), nil
}

// floodClients are those of both classes.
func (p *policed) floodClients() []bench.Starter {
	return []bench.Starter{
		load.Closed{Client: p.from(p.preferred, peers.File8K), Clients: floodClients},
		load.Closed{Client: p.from(p.middle, peers.File8K), Clients: floodClients},
	}
}

// sent is how many SYNs were sent per second: frames that find the server's ring full were offered, too.
func (o offered) sent() float64 { return float64(o.SYNs) / o.sample.Took.Seconds() }

// unsent says how much less was sent than asked for, if that is too much.
func (o offered) unsent(asked float64) string {
	if o.sent() < 0.95*asked {
		return fmt.Sprintf("%.0f SYNs/s were sent in place of %.0f", o.sent(), asked)
	}
	return ""
}

// flooded measures both classes beside SYNs at a rate. Nobody's queues overflow by clients.
func (p *policed) flooded(ctx context.Context, x float64) (outcome, error) {
	c := check{generator: true}
	alone, o, invalid, err := p.offerAfter(ctx, c, x, p.settle, p.floodClients()...)
	if err != nil {
		return outcome{}, err
	}
	return outcome{values: map[string]float64{
		goldServed: o.sample.Reports[0].Rate(), bronzeServed: o.sample.Reports[1].Rate(), bothKept: o.sample.Rate() / alone.Rate(),
		serverShare: 100 * o.sample.ServerBusy, clientShare: 100 * o.sample.ClientBusy,
	}, invalid: joined(invalid, o.unsent(x), c.invalid(o.sample))}, nil
}

func floodResult(got *swept, variants []variant, most float64) *evidence.Result {
	r := &evidence.Result{
		ID: "flood", Title: "A SYN flood from made-up addresses: what clients of two classes get", Source: "ours",
		Setup: fmt.Sprintf("Apache prefork with %d processes serves 8 KB, with %v of its core besides; SYN cookies are on, as is usual. %d gold and %d bronze clients in closed loops, each class from its own network. "+
			"A generator sends SYNs from %s, each from another address, and answers nothing. Narthex knows both classes and lets %d SYNs/s of all others pass (burst 20), by XDP and by tcx; nftables (ingress hook) and iptables limit SYNs from that network to the same.",
			serverProcesses, serverWork, floodClients, floodClients, spoofedNet, floodLimit),
		Repeated: got.repeated, Invalid: got.invalid,
		Notes: []string{"All that the server's device receives is handled on the server's core by a thread (threaded NAPI), XDP programs too. SYNs that find the ring of the server's device full are lost before anybody sees them; they count as offered.",
			fmt.Sprintf("The highest rate is what the generator can do beside the clients on its core with SYN policing in force, in steps of a quarter, while that core has %.0f %% of its time left.", 100*(1-floodBusy)),
			"What classes keep is of what they got without a flood right before, with the same variant. In preparation clients kept all of it beside 200,000 SYNs/s that XDP dropped: programs then ran on the sender's core, here the server's does it."},
	}
	table := evidence.Table{Title: "How busy the cores are at the highest rate, and what clients get", Columns: []string{"", "gold/s", "bronze/s", "kept by both", "server's core, %", "clients' core, %"}}
	for _, what := range []string{goldServed, bronzeServed} {
		plot := evidence.Plot{Name: "flood-" + what[:len(what)-2], Title: what[:len(what)-2] + " requests answered",
			X: evidence.Axis{Label: "SYNs/s"}, Y: evidence.Axis{Label: what[:len(what)-2] + " requests/s"}}
		for _, v := range variants {
			plot.Series = append(plot.Series, got.series(v, what))
		}
		r.Plots = append(r.Plots, plot)
	}
	for _, v := range variants {
		row := evidence.Row{Name: v.name, Ours: v.ours}
		for _, what := range []string{goldServed, bronzeServed, bothKept, serverShare, clientShare} {
			row.Cells = append(row.Cells, cell(got.at(v.name, most, what)))
		}
		table.Rows = append(table.Rows, row)
	}
	r.Tables = []evidence.Table{table}
	kept := func(variant string, x float64) []float64 { return got.at(variant, x, bothKept) }
	r.Claims = []evidence.Claim{
		evidence.AtLeast(evidence.Shape, "SYN policing at 100,000 SYNs/s: both classes, of what they get without a flood", "", 0.8, kept(synPolicing, floodShare)...),
		evidence.AtLeast(evidence.Shape, fmt.Sprintf("SYN policing at %.0f SYNs/s: both classes, of what they get without a flood", floodFirst), "", 0.5, kept(synPolicing, floodFirst)...),
		evidence.AtLeast(evidence.Shape, "what both classes keep at the highest rate: SYN policing / nothing", "", 1.2, over(kept(synPolicing, most), kept(unprotected, most))...),
	}
	for _, peer := range variants {
		if !peer.ours {
			for _, x := range []float64{floodShare, most} {
				r.Ratios = append(r.Ratios, evidence.Ratio{What: fmt.Sprintf("gold requests/s at %.0f SYNs/s, SYN policing", x), Peer: peer.name,
					Samples: over(got.at(synPolicing, x, goldServed), got.at(peer.name, x, goldServed))},
					evidence.Ratio{What: fmt.Sprintf("what both classes keep at %.0f SYNs/s, SYN policing", x), Peer: peer.name,
						Samples: over(kept(synPolicing, x), kept(peer.name, x))})
			}
		}
	}
	return r
}
