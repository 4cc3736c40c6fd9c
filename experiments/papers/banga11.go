// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"narthex/experiments/internal/evidence"
	"narthex/experiments/internal/peers"
	"narthex/internal/load"
)

// eventRoom is how many requests are in service at once before an event-driven server. One is
// enough: the next is there before the server looks for it, because the packet that ends the one
// lets the other in.
const eventRoom = 1

// eventLoads are numbers of low-priority clients beside the one that counts. At the last two, runs
// without control are longer: few requests of that one are answered.
var eventLoads = []float64{0, 5, 20, 35, 70, 200, 500}

// autoLoads are those at which the limit that sets itself is measured, and autoSettle is what it
// gets to do so.
var autoLoads = []float64{5, 35, 200}

const autoSettle = 4 * time.Second

// refusedLoads are those at which limit_conn is measured, and refusedPause is how long low-priority
// clients pause there after an answer: who is refused and comes again at once leaves no core any time.
var refusedLoads = []float64{0, 5, 20, 35, 70}

const refusedPause = 20 * time.Millisecond

const (
	theOne    = "high"
	theMany   = "low"
	selfSet   = "Narthex, auto"
	limitConn = "nginx limit_conn"
)

// crowd is a server whose clients are more and more, and how many they are.
type crowd struct {
	work                   time.Duration // of its core for each request, besides what it takes to serve it
	loads, autos, refusals []float64
	factor                 float64 // how much slower it is at least with the most of them
}

var (
	busyCrowd = crowd{requestWork, eventLoads, autoLoads, refusedLoads, 20}
	// A core of clients cannot do much more than a server that sends files: there are as many as then.
	fileCrowd = crowd{0, eventLoads[:4], autoLoads[:2], refusedLoads[:4], 2}
)

// banga11: one client that counts, of an event-driven server that others saturate.
func (s *suite) banga11(ctx context.Context) (*evidence.Result, error) {
	return s.crowded(ctx, "banga11", busyCrowd)
}

// banga11Static is the same before a server that sends a file and does no other work, as then.
func (s *suite) banga11Static(ctx context.Context) (*evidence.Result, error) {
	return s.crowded(ctx, "banga11-static", fileCrowd)
}

// crowded does that before a server.
func (s *suite) crowded(ctx context.Context, id string, k crowd) (r *evidence.Result, err error) {
	c, err := s.contest(id)
	if err != nil {
		return nil, err
	}
	defer c.closing(&err)
	server := peers.Nginx{Listen: []netip.AddrPort{c.web()}, Backlog: backlog, CPUs: c.ServerCPUs, Work: k.work}
	if _, err := c.Serve(server.Start(c.rig.Server)); err != nil {
		return nil, err
	}
	c.contenders = []contender{
		{theOne, func(float64) int { return 1 }, load.Closed{Client: c.from(c.preferred, peers.File1K)}},
		{theMany, asMany, load.Closed{Client: c.from(c.low, peers.File1K)}},
	}
	first := peers.Priority{Class: peers.Class{From: preferredNet}, Priority: -100}
	variants := []variant{
		c.bare(),
		c.policed("Narthex", eventPolicy(c.stage, fmt.Sprint(eventRoom))),
		c.policed(selfSet, eventPolicy(c.stage, "auto")),
		c.proxied("HAProxy", c.haproxy(eventRoom, first)),
		c.proxied(limitConn, peers.NginxLimit{
			Listen: []netip.AddrPort{c.beside()}, Backlog: backlog, CPUs: c.ServerCPUs, Origin: c.web(), Keepalive: 8,
			LimitConn: []peers.ConcurrencyLimit{{Class: peers.Class{From: lowNet}, Requests: 1}},
		}),
	}
	variants[0].measure, variants[2].measure, variants[4].measure = c.longer, c.patient, c.pausing
	if s.quick {
		k.loads = []float64{k.loads[0], k.loads[1], k.loads[len(k.loads)-1]}
		k.autos, k.refusals = both(k.autos, k.loads), both(k.refusals, k.loads)
	}
	variants[2].xs, variants[4].xs = k.autos, k.refusals
	// A limit that sets itself keeps what it has learnt from load to load, as it would elsewhere.
	byLoad := apart(k.loads, variants[0], variants[1], variants[3], variants[4])
	got, err := s.sweep(ctx, nil, append(byLoad, variants[2])...)
	if err != nil {
		return nil, err
	}
	r = banga11Result(got, variants, k)
	r.ID = id
	return r, nil
}

// both are the loads that are in both lists.
func both(xs, others []float64) (some []float64) {
	for _, x := range xs {
		if slices.Contains(others, x) {
			some = append(some, x)
		}
	}
	return some
}

// longer measures longer where the response time is long.
func (c *contest) longer(ctx context.Context, x float64) (outcome, error) {
	long := *c
	if x >= 200 {
		long.length *= 3
	}
	return long.run(ctx, c.web(), x)
}

// patient gives a limit the time to set itself.
func (c *contest) patient(ctx context.Context, x float64) (outcome, error) {
	long := *c
	long.settle = autoSettle
	return long.run(ctx, c.web(), x)
}

// pausing measures low-priority clients who pause, behind a proxy.
func (c *contest) pausing(ctx context.Context, x float64) (outcome, error) {
	slow := *c
	slow.contenders = slices.Clone(c.contenders)
	slow.contenders[1].load.Think = refusedPause
	return slow.run(ctx, c.beside(), x)
}

// eventPolicy has the one go first.
func eventPolicy(st *stage, concurrency string) string {
	return fmt.Sprintf(`version: 1
services:
  - {name: web, listen: "%s", xdp: off, concurrency: %s}
classes:
  - {name: high, priority: 1}
  - {name: low, priority: 2}
connections:
  - {name: one, from: %s, class: high}
  - {name: many, from: %s, class: low}
`, st.web(), concurrency, preferredNet, lowNet)
}

func banga11Result(got *swept, variants []variant, k crowd) *evidence.Result {
	server, titled := "nginx with one process sends a file of 1 KB. ", " that sends files"
	if k.work > 0 {
		titled = ""
		server = fmt.Sprintf("nginx with one process, whose Perl handler works %v for each request and then answers with 1 KB. ", k.work)
	}
	r := &evidence.Result{
		Title:  "One client that counts, beside more and more that do not, of an event-driven server" + titled,
		Source: "Banga, Druschel, Mogul: Resource Containers, OSDI 1999, figure 11",
		Then:   "The response time of the high-priority client rises sharply with the number of low-priority clients; with containers and select() much less; with containers and an event API hardly at all.",
		Setup: server + fmt.Sprintf("One client of high priority and a rising number of low priority, by network, ask in closed loops, "+
			"one request per connection. Narthex lets %d request into the server at once, or finds the number (auto, %v after clients have begun). HAProxy has as many connections to the server (maxconn) and the same order. "+
			"nginx as a proxy lets low-priority clients have one request at once (limit_conn) and refuses others. "+sameCore,
			eventRoom, autoSettle),
		Repeated: got.repeated, Invalid: got.invalid,
		Notes: []string{"Then the loads went to 35 low-priority clients.",
			"One request in service keeps the server busy: the packet that ends it lets the next one in. Alone, the client that counts waits for nobody; beside others it waits for the one request that is worked on.",
			fmt.Sprintf("Behind limit_conn low-priority clients pause %v after each answer or refusal, and are no more than %.0f: those who are refused and come again at once leave neither core any time. "+
				"It is a lighter load than that of the others, and no order: nginx has no queue with one.", refusedPause, k.refusals[len(k.refusals)-1]),
			proxiesFirst},
	}
	top, refused := k.loads[len(k.loads)-1], k.refusals[len(k.refusals)-1]
	mean, p99, crowded := meanOf(theOne), p99Of(theOne), above(k.loads, 0)
	at := func(v string, x float64) []float64 { return got.at(v, x, mean) }
	unprotected := at("nothing", 0) // of the one client, of whom nothing is in the way
	r.Claims = []evidence.Claim{
		evidence.AtLeast(evidence.Shape, fmt.Sprintf("nothing: mean response time beside %.0f, of that beside none", top), "", k.factor, over(at("nothing", top), unprotected)...),
		evidence.AtMost(evidence.Shape, fmt.Sprintf("Narthex: mean response time beside %.0f, of that without Narthex beside none", top), "", 2.5, over(at("Narthex", top), unprotected)...),
		evidence.AtLeast(evidence.Figure, "all requests, sum of all loads but the first: with Narthex / without", "", 0.95, over(got.sum("Narthex", total, crowded), got.sum("nothing", total, crowded))...),
	}
	for _, x := range variants[2].xs {
		r.Claims = append(r.Claims, evidence.AtMost(evidence.Figure, fmt.Sprintf("Narthex, auto: mean response time beside %.0f, more than with a limit of %d", x, eventRoom), "ms", 1, minus(at(selfSet, x), at("Narthex", x))...))
	}
	r.Ratios = []evidence.Ratio{
		{What: fmt.Sprintf("mean response time beside %.0f", refused), Peer: limitConn, Low: true, Samples: over(at("Narthex", refused), at(limitConn, refused))},
		{What: fmt.Sprintf("all requests/s beside %.0f", refused), Peer: limitConn, Samples: over(got.at("Narthex", refused, total), got.at(limitConn, refused, total))},
	}
	for _, v := range []string{"HAProxy", "nothing"} {
		r.Ratios = append(r.Ratios,
			evidence.Ratio{What: fmt.Sprintf("mean response time beside %.0f", top), Peer: v, Low: true, Samples: over(at("Narthex", top), at(v, top))},
			evidence.Ratio{What: fmt.Sprintf("99th percentile beside %.0f", top), Peer: v, Low: true, Samples: over(got.at("Narthex", top, p99), got.at(v, top, p99))},
			evidence.Ratio{What: fmt.Sprintf("all requests/s beside %.0f", top), Peer: v, Samples: over(got.at("Narthex", top, total), got.at(v, top, total))})
	}
	plot := evidence.Plot{Title: r.Title, X: evidence.Axis{Label: "low-priority clients"}, Y: evidence.Axis{Label: "mean response time of the high-priority client, ms", Log: true}}
	for _, v := range variants {
		plot.Series = append(plot.Series, got.series(v, mean))
	}
	r.Plots = []evidence.Plot{plot}
	r.Tables = []evidence.Table{
		loadTable(got, variants, k.loads, "low-priority clients", "Mean response time of the high-priority client, ms", mean),
		loadTable(got, variants, k.loads, "low-priority clients", "Its 99th percentile, ms", p99),
		loadTable(got, variants, k.loads, "low-priority clients", "Requests/s of all clients", total),
	}
	return r
}
