// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"narthex/experiments/internal/evidence"
	"narthex/experiments/internal/peers"
	"narthex/internal/load"
)

// Figures 7 and 8 are of the same runs.
const (
	classProcesses = 50 // of the server
	// classRoom is how many requests are in service at once, of Narthex and HAProxy. Then it was as
	// many as the server's processes took, of whose 50 all were at work for one class above 30 clients.
	classRoom = 30
	// narrowRoom is another limit for Narthex: a few are enough to keep one core busy.
	narrowRoom = 4
)

const narrow = "Narthex, 4 in service"

// requestWork is what a static request takes of the server's core, besides what it takes to serve it.
const requestWork = 500 * time.Microsecond

var (
	classNames = []string{"high", "medium", "low"}
	classLoads = []float64{2, 5, 10, 20, 30, 40, 60, 80} // clients of each class
)

// classRuns are what figures 7 and 8 show.
type classRuns struct {
	*swept
	xs       []float64
	variants []variant
}

// classRunsOf keeps them for the second of the figures.
var classRunsOf = map[*suite]*classRuns{}

// classes does the runs if they have not been done.
func (s *suite) classes(ctx context.Context) (runs *classRuns, err error) {
	if runs := classRunsOf[s]; runs != nil {
		return runs, nil
	}
	c, err := s.contest("fig7")
	if err != nil {
		return nil, err
	}
	defer c.closing(&err)
	if err := c.apache(peers.Apache{Workers: classProcesses, Work: requestWork}); err != nil {
		return nil, err
	}
	for i, from := range [][]netip.Addr{c.preferred, c.middle, c.low} {
		c.contenders = append(c.contenders, contender{classNames[i], asMany, load.Closed{Client: c.from(from, peers.File8K)}})
	}
	runs = &classRuns{xs: s.thin(classLoads...), variants: []variant{
		c.bare(),
		c.policed("Narthex", classPolicy(c.stage, classRoom)),
		c.policed(narrow, classPolicy(c.stage, narrowRoom)),
		c.proxied("HAProxy", c.haproxy(classRoom,
			peers.Priority{Class: peers.Class{From: preferredNet}, Priority: -100},
			peers.Priority{Class: peers.Class{From: lowNet}, Priority: 100})),
	}}
	if runs.swept, err = s.sweep(ctx, nil, apart(runs.xs, runs.variants...)...); err != nil {
		return nil, err
	}
	classRunsOf[s] = runs
	return runs, nil
}

// classPolicy has a class for each network.
func classPolicy(st *stage, concurrency int) string {
	return fmt.Sprintf(`version: 1
services:
  - {name: web, listen: "%s", xdp: off, concurrency: %d}
classes:
  - {name: high, priority: 1}
  - {name: medium, priority: 2}
  - {name: low, priority: 3}
connections:
  - {name: high, from: %s, class: high}
  - {name: medium, from: %s, class: medium}
  - {name: low, from: %s, class: low}
`, st.web(), concurrency, preferredNet, middleNet, lowNet)
}

// result is what both figures have in common.
func (r *classRuns) result(id string) *evidence.Result {
	return &evidence.Result{
		ID: id, Source: "Voigt et al., USENIX ATC 2001, figures 7 and 8",
		Setup: fmt.Sprintf("Apache prefork with %d processes serves 8 KB, of which each takes %v of work besides what Apache and the network take. "+
			"Three classes by network have an equal number of clients each, in a closed loop, one request per connection. "+
			"Narthex lets %d requests into the server at once (another line: %d); connection rules give the classes. HAProxy before the same server has %d connections to it (maxconn) "+
			"and the same order (set-priority-class). "+sameCore, classProcesses, requestWork, classRoom, narrowRoom, classRoom),
		Repeated: r.repeated, Invalid: r.invalid,
		Notes: []string{
			fmt.Sprintf("Then all %d processes could have a request at once, and above 30 clients those of the high class kept them. Here that is what %d requests in service are for: "+
				"that many clients of the high class leave nothing to others.", classProcesses, classRoom),
			noClasses, proxiesFirst,
			"Figures 7 and 8 are of the same runs.",
		},
	}
}

// highest is the load at the end of the axis.
func (r *classRuns) highest() float64 { return r.xs[len(r.xs)-1] }

// rest is what is left to the lower classes, of all requests.
func (r *classRuns) rest(variant string, x float64) []float64 {
	return over(plus(r.at(variant, x, rateOf("medium")), r.at(variant, x, rateOf("low"))), r.at(variant, x, total))
}

// fig7: of three classes only the highest is served once it can take all there is.
func (s *suite) fig7(ctx context.Context) (*evidence.Result, error) {
	runs, err := s.classes(ctx)
	if err != nil {
		return nil, err
	}
	r, top := runs.result("fig7"), runs.highest()
	r.Title = "Three classes with an equal number of clients: throughput"
	r.Then = "With few clients all classes are served alike; above 30 clients a class only the high one is."
	at := func(x float64, class string) []float64 { return runs.at("Narthex", x, rateOf(class)) }
	full, crowded := above(runs.xs, classRoom)[0], above(runs.xs, classRoom/3)
	roomy := runs.xs[:len(runs.xs)-len(crowded)]
	r.Claims = []evidence.Claim{
		evidence.Between(evidence.Shape, "up to 10 clients a class, who all find room: requests of the low class / of the high class", "", 0.8, 1.25, over(runs.sum("Narthex", rateOf("low"), roomy), runs.sum("Narthex", rateOf("high"), roomy))...),
		evidence.AtMost(evidence.Shape, fmt.Sprintf("%.0f clients a class: share of the medium and the low class of all requests", full), "", 0.03, runs.rest("Narthex", full)...),
		evidence.AtMost(evidence.Shape, fmt.Sprintf("%.0f clients a class: share of the medium and the low class of all requests", top), "", 0.03, runs.rest("Narthex", top)...),
		evidence.AtLeast(evidence.Figure, "all requests, more clients than are let in: with Narthex / without", "", 0.95, over(runs.sum("Narthex", total, crowded), runs.sum("nothing", total, crowded))...),
	}
	for _, rate := range []string{rateOf("high"), total} {
		r.Ratios = append(r.Ratios, evidence.Ratio{What: fmt.Sprintf("%s, %.0f clients a class", rate, top), Peer: "HAProxy",
			Samples: over(runs.at("Narthex", top, rate), runs.at("HAProxy", top, rate))})
	}
	r.Ratios = append(r.Ratios, evidence.Ratio{What: fmt.Sprintf("%s, %.0f clients a class", rateOf("high"), top), Peer: "nothing", Samples: over(at(top, "high"), runs.at("nothing", top, rateOf("high")))})
	r.Plots = []evidence.Plot{{Title: r.Title, X: evidence.Axis{Label: "clients of each class"}, Y: evidence.Axis{Label: "requests/s"},
		Series: runs.lines(runs.variants, classNames, rateOf)}}
	return r, nil
}

// fig8: the response time of the high class grows more slowly than its number of clients.
func (s *suite) fig8(ctx context.Context) (*evidence.Result, error) {
	runs, err := s.classes(ctx)
	if err != nil {
		return nil, err
	}
	r, top := runs.result("fig8"), runs.highest()
	r.Title = "Three classes with an equal number of clients: response time"
	r.Then = "The response time of the high class grows sublinearly with its number of clients."
	// How much the response time grows, of how much the number of clients does.
	growth := func(variant string) (all []float64) {
		for _, g := range over(runs.at(variant, top, meanOf("high")), runs.at(variant, 2, meanOf("high"))) {
			all = append(all, g/(top/2))
		}
		return all
	}
	high := func(variant string) []float64 { return runs.at(variant, top, meanOf("high")) }
	r.Claims = []evidence.Claim{
		evidence.AtMost(evidence.Shape, fmt.Sprintf("growth of the high class' mean response time from 2 to %.0f clients, of the growth of their number", top), "", 0.5, growth("Narthex")...),
		evidence.AtLeast(evidence.Shape, "the same without Narthex, where all classes are alike", "", 0.8, growth("nothing")...),
		evidence.AtMost(evidence.Shape, fmt.Sprintf("high class' mean response time at %.0f clients a class, of that without Narthex", top), "", 0.4, over(high("Narthex"), high("nothing"))...),
	}
	for _, v := range []string{"HAProxy", "nothing"} {
		r.Ratios = append(r.Ratios, evidence.Ratio{What: fmt.Sprintf("high class' 99th percentile, %.0f clients a class", top), Peer: v, Low: true, Samples: over(runs.at("Narthex", top, p99Of("high")), runs.at(v, top, p99Of("high")))},
			evidence.Ratio{What: fmt.Sprintf("high class' 99th percentile, %.0f clients a class, 4 in service", top), Peer: v, Low: true, Samples: over(runs.at(narrow, top, p99Of("high")), runs.at(v, top, p99Of("high")))},
			evidence.Ratio{What: fmt.Sprintf("high class' mean response time, %.0f clients a class", top), Peer: v, Low: true, Samples: over(high("Narthex"), high(v))})
	}
	r.Plots = []evidence.Plot{{Title: r.Title, X: evidence.Axis{Label: "clients of each class"}, Y: evidence.Axis{Label: "mean response time, ms", Log: true},
		Series: runs.lines(runs.variants, classNames, meanOf)}}
	r.Tables = []evidence.Table{loadTable(runs.swept, runs.variants, runs.xs, "clients of each class", "99th percentile of the high class' response time, ms", p99Of("high"))}
	r.Notes = append(r.Notes, "Who is not served at a load has no response time there.")
	return r, nil
}
