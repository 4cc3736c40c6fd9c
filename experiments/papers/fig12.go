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
	"narthex/internal/lab"
	"narthex/internal/load"
)

// Greedy clients of figures 12 and 13.
const (
	greedyFolder = "/greedy"
	greedyRate   = 10 // requests/s that are let through
	greedyBurst  = 2
	webstone     = 100 // preferred clients

	addresses     = 1 << 16 // of the greedy side
	longestAround = 12 * time.Second
)

// What figures 12 and 13 are about, at each load.
const (
	preferredRate = "preferred/s" // requests of preferred clients that were answered
	preferredTime = "mean ms"     // that a preferred client waits for an answer, in vain or not
	preferredHalf = "median ms"   // response time of those that were answered
	preferredKept = "kept"        // of the requests/s that preferred clients got alone just before
	timesAsLong   = "times"       // that they wait, of what they waited then
	timesAsMany   = "offered"     // greedy requests/s, of those that preferred clients got then
	greedyServed  = "greedy/s"    // requests of greedy clients that were answered by the server
)

// Loads of figures 12 and 13 as multiples of the server's capacity.
const (
	thenLoad = 1.7 // the paper's highest
	topLoad  = 10.0
)

// greedySweep is what both figures show.
type greedySweep struct {
	*swept
	variants []variant
	capacity float64
	xs       []float64
}

// greedySwept has what has been measured, so that both figures together measure once.
var greedySwept = map[*suite]*greedySweep{}

// greedy measures preferred clients beside greedy ones.
func (s *suite) greedy(ctx context.Context) (_ *greedySweep, err error) {
	if g := greedySwept[s]; g != nil {
		return g, nil
	}
	p, err := s.policed("fig12")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", peers.In(greedyFolder, peers.File8K), p.web())
	if err := p.generate(ctx, greedyNet, request); err != nil {
		return nil, err
	}
	g := &greedySweep{}
	if g.capacity, err = p.capacity(ctx, p.webstone()); err != nil {
		return nil, err
	}
	loads := []float64{0, 0.5, 1, thenLoad, 5, topLoad}
	if s.quick {
		loads = []float64{0, thenLoad, topLoad}
	}
	for _, l := range loads {
		g.xs = append(g.xs, g.load(l))
	}
	g.variants = p.treatments()
	if g.swept, err = s.sweep(ctx, g.xs, g.variants...); err != nil {
		return nil, err
	}
	greedySwept[s] = g
	return g, nil
}

// webstone is the preferred clients.
func (p *policed) webstone() load.Closed {
	return load.Closed{Client: p.from(p.preferred, peers.File8K), Clients: webstone}
}

// Policies of figures 12 and 13. A service with protocol tcp and no limit is policed by its SYNs alone.
const (
	synPolicy = `version: 1
services: [{name: web, listen: "*:80", protocol: tcp}]
connections: [{name: greedy, from: 198.18.0.0/16, rate: 10/s, burst: 2}]
`
	requestPolicy = `version: 1
services: [{name: web, listen: "*:80", concurrency: unlimited}]
requests: [{name: greedy, path: "/greedy/*", rate: 10/s, burst: 2}]
`
	blockPolicy = `version: 1
services: [{name: web, listen: "*:80", concurrency: unlimited}]
requests: [{name: greedy, path: "/greedy/*", rate: 10/s, burst: 2, block: 1m}]
`
)

// treatments are the variants of figures 12 and 13. A limit per source would do nothing against
// greedy clients of 65,536 addresses, so the peers limit the path or the network.
func (p *policed) treatments() []variant {
	limit := peers.RateLimit{Class: peers.Class{Path: greedyFolder + "/"}, Rate: greedyRate, Burst: greedyBurst}
	withModule := p.server
	withModule.QoS = &peers.QoS{Deny: []peers.RateLimit{limit}}
	return []variant{
		p.variant(unprotected, p.alone, p.beside(false)),
		p.variant(synPolicing, p.narthexWith(synPolicy), p.beside(true)),
		p.variant(requestRules, p.narthexWith(requestPolicy), p.beside(true)),
		p.variant(blockingRules, p.narthexWith(blockPolicy), p.besideBlocked),
		p.variant(apacheModule, func(context.Context) (func() error, error) {
			return p.started(p.serveAt(withModule, p.web()))
		}, p.beside(false)),
		p.variant(nginxProxy, p.proxy(func() (*lab.Server, error) {
			return peers.NginxLimit{Listen: p.webs(), Backlog: backlog, CPUs: p.ServerCPUs, Origin: p.behind(), LimitReq: []peers.RateLimit{limit}}.Start(p.rig.Server)
		}), p.beside(false)),
		p.variant(haproxyProxy, p.proxy(func() (*lab.Server, error) {
			return peers.HAProxy{Listen: p.webs(), Backlog: backlog, CPUs: p.ServerCPUs, Origin: p.behind(), MaxConn: serverProcesses, Deny: []peers.RateLimit{limit}}.Start(p.rig.Server)
		}), p.beside(false)),
		p.variant(nftTables, p.walled(peers.NFTables{Port: 80, From: greedyNet, Rate: greedyRate, Burst: greedyBurst, Device: lab.Dev}),
			p.beside(false)),
		p.variant(ipTables, p.walled(peers.IPTables{Port: 80, From: greedyNet, Rate: greedyRate, Burst: greedyBurst}),
			p.beside(false)),
	}
}

// beside measures preferred clients beside greedy ones that ask at a rate.
func (p *policed) beside(protected bool) func(context.Context, float64) (outcome, error) {
	return func(ctx context.Context, x float64) (outcome, error) {
		return p.besideAfter(ctx, x, p.settle, protected)
	}
}

// besideBlocked is the same where those are blocked who were rejected: from the greedy side's
// second round through its addresses on, if that comes soon.
func (p *policed) besideBlocked(ctx context.Context, x float64) (outcome, error) {
	settle := p.settle
	if around := time.Duration(addresses / x * float64(time.Second)); x > 0 && around < longestAround {
		settle += around
	}
	return p.besideAfter(ctx, x, settle, true)
}

func (p *policed) besideAfter(ctx context.Context, x float64, settle time.Duration, protected bool) (outcome, error) {
	c := check{overflows: protected, generator: true, machine: true}
	alone, o, invalid, err := p.offerAfter(ctx, c, x, settle, p.webstone())
	if err != nil {
		return outcome{}, err
	}
	r, before := o.sample.Reports[0], alone.Reports[0]
	values := map[string]float64{
		preferredRate: r.Rate(), greedyServed: float64(o.Answers[200]) / o.sample.Took.Seconds(),
		preferredTime: waited(r),
		preferredKept: r.Rate() / before.Rate(), timesAsMany: o.rate() / before.Rate(),
		timesAsLong: waited(r) / waited(before),
	}
	if r.Outcomes[load.OK] > 0 {
		values[preferredHalf] = bench.Milliseconds(r.Median())
	}
	return outcome{values: values, invalid: joined(invalid, o.short(x), c.invalid(o.sample))}, nil
}

// waited is how many milliseconds a preferred client waits for an answer, in vain or not: all of them wait all
// the time. Where none was answered, it is the least that it can be.
func waited(r *load.Report) float64 {
	return webstone * bench.Milliseconds(r.Elapsed) / max(1, float64(r.Outcomes[load.OK]))
}

// kept is how much of what preferred clients got alone, just before with the same variant, they get at a load.
func (g *greedySweep) kept(variant string, x float64) []float64 {
	return g.at(variant, x, preferredKept)
}

// load is a rate of two digits that is a multiple of the capacity, or a little more.
func (g *greedySweep) load(multiple float64) float64 { return roundedUp(multiple * g.capacity) }

// result is what both figures say of how it was measured.
func (g *greedySweep) result(id, title string) *evidence.Result {
	r := &evidence.Result{
		ID: id, Title: title, Source: "Voigt et al., USENIX ATC 2001, figures 12 and 13",
		Setup: fmt.Sprintf("Apache prefork with %d processes serves 8 KB; each request takes %v of its core besides, by mod_lua. %d preferred clients in a closed loop, one request per connection, "+
			"get %.0f/s alone. Greedy clients ask for another path (%s/) from %s, 65,536 addresses, at the rate of the x axis whatever the answers: 0, 0.5, 1, 1.7, 5 and 10 times that (0, 1.7, 10 in a quick run). "+
			"All protections are to let through %d requests/s of them, burst %d: Narthex by SYNs from the network (a connection rule) or by path (a request rule that answers 429, and one that blocks the address for a minute besides), nginx, HAProxy and mod_qos by path, "+
			"nftables (ingress hook) and iptables by SYNs from the network. A limit per source would do nothing against so many. Proxies run on the server's core.",
			serverProcesses, serverWork, webstone, g.capacity, greedyFolder, greedyNet, greedyRate, greedyBurst),
		Repeated: g.repeated, Invalid: g.invalid,
		Notes: []string{
			"What preferred clients keep is of what they got alone right before, with the same variant: a machine's speed changes within minutes.",
			"The greedy side is a stateless generator (XDP) on the clients' core; each of its exchanges that is answered is received to its end. Loads are multiples of this server's capacity.",
			"What either end of the veth receives is handled on its own core, by a thread (threaded NAPI), XDP programs too.",
			"Rules that block drop the SYNs of addresses that were rejected in the last minute: at 5 and 10 times the capacity each greedy address has come once before it is measured.",
			"Of HAProxy a rate is known over a second, of mod_qos too; neither knows of bursts.",
		},
	}
	return r
}

// fig12 is how much preferred clients get.
func (s *suite) fig12(ctx context.Context) (*evidence.Result, error) {
	g, err := s.greedy(ctx)
	if err != nil {
		return nil, err
	}
	r := g.result("fig12", "Throughput of preferred clients beside greedy ones")
	r.Then = "At 650/s offered, 1.7 times the capacity, preferred clients kept 374 of 392/s (95 %) with SYN policing in the kernel, 261 of 354 (74 %) with URL rules in the kernel, 75 of 387 (19 %) with a module of Apache."
	plot := evidence.Plot{Title: r.Title, X: evidence.Axis{Label: "greedy requests/s offered"}, Y: evidence.Axis{Label: "preferred requests/s"}}
	for _, v := range g.variants {
		plot.Series = append(plot.Series, g.series(v, preferredRate))
	}
	r.Plots, r.Tables = []evidence.Plot{plot}, []evidence.Table{g.table()}
	last, then := g.load(topLoad), g.load(thenLoad)
	r.Claims = []evidence.Claim{
		evidence.AtLeast(evidence.Figure, "SYN policing at 10 times the capacity: preferred throughput, of that without greedy load", "", 0.97, g.kept(synPolicing, last)...),
		evidence.AtLeast(evidence.Figure, "request rules at 10 times the capacity: preferred throughput, of that without greedy load", "", 0.95, g.kept(requestRules, last)...),
		evidence.AtLeast(evidence.Figure, "request rules that block at 10 times the capacity: preferred throughput, of that without greedy load", "", 0.95, g.kept(blockingRules, last)...),
		evidence.AtLeast(evidence.Shape, "SYN policing at 1.7 times the capacity, of that without greedy load (then 0.95)", "", 0.95, g.kept(synPolicing, then)...),
		evidence.AtLeast(evidence.Shape, "request rules at 1.7 times the capacity, of that without greedy load (then 0.74)", "", 0.74, g.kept(requestRules, then)...),
		evidence.AtLeast(evidence.Shape, "what is kept at the highest load: SYN policing / request rules, but for 2 %", "", 0.98, over(g.kept(synPolicing, last), g.kept(requestRules, last))...),
		evidence.AtLeast(evidence.Shape, "what is kept at the highest load: request rules / module of Apache", "", 1.2, over(g.kept(requestRules, last), g.kept(apacheModule, last))...),
		evidence.AtMost(evidence.Shape, "nothing at the highest load, of that without greedy load", "", 0.2, g.kept(unprotected, last)...),
		evidence.AtLeast(evidence.Shape, "request rules at the highest load: offered, of what preferred clients got without greedy load", "×", 9.5, g.at(requestRules, last, timesAsMany)...),
	}
	for _, ours := range []string{synPolicing, requestRules, blockingRules} {
		for _, peer := range g.variants {
			if peer.ours {
				continue
			}
			for _, x := range []float64{thenLoad, topLoad} {
				r.Ratios = append(r.Ratios, evidence.Ratio{
					What: fmt.Sprintf("preferred throughput at %g times the capacity, %s", x, ours), Peer: peer.name,
					Samples: over(g.at(ours, g.load(x), preferredRate), g.at(peer.name, g.load(x), preferredRate)),
				})
			}
		}
	}
	return r, nil
}

// table is what figure 12 comes down to.
func (g *greedySweep) table() evidence.Table {
	t := evidence.Table{Title: "Preferred and greedy requests/s that were answered", Columns: []string{
		"", "preferred/s alone", "at 1.7 times the capacity", "at 10 times", "kept at 0 (control)", "kept at 1.7 times", "kept at 10 times", "greedy/s at 10 times", "offered at 10 times, of preferred/s alone", "then kept at 1.7 times"}}
	paper := map[string]string{synPolicing: "0.95 (kernel, SYN)", requestRules: "0.74 (kernel, URL)", apacheModule: "0.19 (module)"}
	last, then := g.load(topLoad), g.load(thenLoad)
	for _, v := range g.variants {
		t.Rows = append(t.Rows, evidence.Row{Name: v.name, Ours: v.ours, Cells: []evidence.Cell{
			cell(g.at(v.name, 0, preferredRate)), cell(g.at(v.name, then, preferredRate)), cell(g.at(v.name, last, preferredRate)),
			cell(g.kept(v.name, 0)), cell(g.kept(v.name, then)), cell(g.kept(v.name, last)), cell(g.at(v.name, last, greedyServed)), cell(g.at(v.name, last, timesAsMany)), {Text: paper[v.name]},
		}})
	}
	return t
}
