// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"narthex/experiments/internal/evidence"
	"narthex/experiments/internal/peers"
	"narthex/internal/load"
)

// pathRoom is how many requests are in service at once in figure 10.
const pathRoom = 40

// Folders that the rules of figure 10 are about.
const (
	highFolder = "/high"
	lowFolder  = "/low"
)

var (
	pathNames = []string{"high", "low"}
	pathLoads = []float64{5, 10, 20, 30, 40, 50, 60, 80} // clients of each class
)

// fig10: of two kinds of URLs only the more important is served once it can take all there is.
func (s *suite) fig10(ctx context.Context) (r *evidence.Result, err error) {
	c, err := s.contest("fig10")
	if err != nil {
		return nil, err
	}
	defer c.closing(&err)
	if err := c.apache(peers.Apache{Workers: classProcesses, Work: requestWork}); err != nil {
		return nil, err
	}
	for i, folder := range []string{highFolder, lowFolder} {
		c.contenders = append(c.contenders, contender{pathNames[i], asMany, load.Closed{Client: c.from(c.preferred, peers.In(folder, peers.File8K))}})
	}
	variants := []variant{
		c.bare(),
		c.policed("Narthex", pathPolicy(c.stage)),
		c.proxied("HAProxy", c.haproxy(pathRoom, peers.Priority{Class: peers.Class{Path: highFolder}, Priority: -100})),
	}
	xs := s.thin(pathLoads...)
	got, err := s.sweep(ctx, nil, apart(xs, variants...)...)
	if err != nil {
		return nil, err
	}
	return fig10Result(got, xs, variants), nil
}

// pathPolicy has a class for each folder.
func pathPolicy(st *stage) string {
	return fmt.Sprintf(`version: 1
services:
  - {name: web, listen: "%s", xdp: off, concurrency: %d}
classes:
  - {name: high, priority: 1}
  - {name: low, priority: 2}
requests:
  - {name: high, path: "%s/*", class: high}
  - {name: low, path: "%s/*", class: low}
`, st.web(), pathRoom, highFolder, lowFolder)
}

func fig10Result(got *swept, xs []float64, variants []variant) *evidence.Result {
	r := &evidence.Result{
		ID: "fig10", Title: "Two priorities by URL with an equal number of clients",
		Source: "Voigt et al., USENIX ATC 2001, figure 10",
		Then:   "The low class is starved above 40 high clients.",
		Setup: fmt.Sprintf("Apache prefork with %d processes serves 8 KB, of which each takes %v of work besides what Apache and the network take. "+
			"Two kinds of clients from the same network ask for different folders, equally many, in a closed loop, one request per connection. "+
			"Narthex lets %d requests into the server at once, request rules give the classes. HAProxy has as many connections to the server (maxconn) "+
			"and the same order (set-priority-class by path). "+sameCore, classProcesses, requestWork, pathRoom),
		Repeated: got.repeated, Invalid: got.invalid,
		Notes: []string{fmt.Sprintf("Above 40 clients the high class kept all that the server had then; so %d requests are in service at once here, of its %d processes.", pathRoom, classProcesses),
			noClasses, proxiesFirst},
	}
	top, full, crowded := xs[len(xs)-1], above(xs, pathRoom)[0], above(xs, pathRoom/2)
	at := func(x float64, class string) []float64 { return got.at("Narthex", x, rateOf(class)) }
	low := func(x float64) []float64 { return over(at(x, "low"), got.at("Narthex", x, total)) }
	r.Claims = []evidence.Claim{
		evidence.Between(evidence.Shape, fmt.Sprintf("%.0f clients a class, who all find room: requests of the low class / of the high class", xs[0]), "", 0.8, 1.25, over(at(xs[0], "low"), at(xs[0], "high"))...),
		evidence.AtMost(evidence.Shape, fmt.Sprintf("%.0f clients a class: share of the low class of all requests", full), "", 0.03, low(full)...),
		evidence.AtMost(evidence.Shape, fmt.Sprintf("%.0f clients a class: share of the low class of all requests", top), "", 0.03, low(top)...),
		evidence.AtMost(evidence.Shape, fmt.Sprintf("high class' mean response time at %.0f clients a class, of that without Narthex", top), "", 0.6, over(got.at("Narthex", top, meanOf("high")), got.at("nothing", top, meanOf("high")))...),
		evidence.AtLeast(evidence.Figure, "all requests, more clients than are let in: with Narthex / without", "", 0.95, over(got.sum("Narthex", total, crowded), got.sum("nothing", total, crowded))...),
	}
	for _, v := range []string{"HAProxy", "nothing"} {
		r.Ratios = append(r.Ratios,
			evidence.Ratio{What: fmt.Sprintf("high requests/s, %.0f clients a class", top), Peer: v, Samples: over(at(top, "high"), got.at(v, top, rateOf("high")))},
			evidence.Ratio{What: fmt.Sprintf("high class' mean response time, %.0f clients a class", top), Peer: v, Low: true, Samples: over(got.at("Narthex", top, meanOf("high")), got.at(v, top, meanOf("high")))})
	}
	r.Plots = []evidence.Plot{
		{Title: "Two priorities by URL: throughput", X: evidence.Axis{Label: "clients of each class"}, Y: evidence.Axis{Label: "requests/s"}, Series: got.lines(variants, pathNames, rateOf)},
		{Name: "fig10-times", Title: "Two priorities by URL: response time", X: evidence.Axis{Label: "clients of each class"}, Y: evidence.Axis{Label: "mean response time, ms", Log: true}, Series: got.lines(variants, pathNames, meanOf)},
	}
	return r
}
