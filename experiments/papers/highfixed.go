// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"narthex/experiments/internal/evidence"
	"narthex/experiments/internal/peers"
	"narthex/internal/load"
)

// Of high-fixed: how many clients there are of the high class, and numbers of those of the low one.
const fixedClients = 10

var risingLoads = []float64{0, 5, 10, 20, 40, 80}

const (
	byNetwork = "Narthex, class by network"
	byCookie  = "Narthex, class by cookie"
)

// highFixed: as many clients of the high class as ever, beside more and more of the low one.
func (s *suite) highFixed(ctx context.Context) (r *evidence.Result, err error) {
	c, err := s.contest("high-fixed")
	if err != nil {
		return nil, err
	}
	defer c.closing(&err)
	if err := c.apache(peers.Apache{Workers: classProcesses, Work: requestWork}); err != nil {
		return nil, err
	}
	member := c.from(c.preferred, peers.File8K)
	member.Header = "Cookie: theme=dark; plan=gold\r\n"
	c.contenders = []contender{
		{theOne, func(float64) int { return fixedClients }, load.Closed{Client: member}},
		{theMany, asMany, load.Closed{Client: c.from(c.low, peers.File8K)}},
	}
	variants := []variant{
		c.bare(),
		c.policed(byNetwork, twoClasses(c.stage, fmt.Sprintf("connections: [{name: members, from: %s, class: high}]", preferredNet))),
		c.policed(byCookie, twoClasses(c.stage, `requests: [{name: members, cookie: {plan: gold}, class: high}]`)),
		c.proxied("HAProxy", c.haproxy(narrowRoom, peers.Priority{Class: peers.Class{From: preferredNet}, Priority: -100})),
	}
	xs := s.thin(risingLoads...)
	got, err := s.sweep(ctx, nil, apart(xs, variants...)...)
	if err != nil {
		return nil, err
	}
	return highFixedResult(got, variants, xs), nil
}

// twoClasses is a policy that has others in the low class.
func twoClasses(st *stage, rules string) string {
	return fmt.Sprintf("version: 1\nservices: [{name: web, listen: %q, xdp: off, concurrency: %d}]\n"+
		"classes: [{name: high, priority: 1}, {name: low, priority: 2}]\n%s\n", st.web(), narrowRoom, rules)
}

func highFixedResult(got *swept, variants []variant, xs []float64) *evidence.Result {
	r := &evidence.Result{
		ID: "high-fixed", Title: "A fixed number of clients of the high class beside more and more of the low one",
		Source: "Voigt et al., USENIX ATC 2001, section 4.3",
		Then:   "Named in the text, without a figure.",
		Setup: fmt.Sprintf("Apache prefork with %d processes serves 8 KB, of which each takes %v of work besides what Apache and the network take. %d clients of the high class and a rising number of low ones ask in closed loops, one request per connection. "+
			"Narthex lets %d requests into the server at once, and tells the high class by its network, or by a cookie behind another one. HAProxy has as many connections to the server, and tells it by its network. "+sameCore,
			classProcesses, requestWork, fixedClients, narrowRoom),
		Repeated: got.repeated, Invalid: got.invalid,
		Notes: []string{noClasses, proxiesFirst},
	}
	top := xs[len(xs)-1]
	high, mean := rateOf(theOne), meanOf(theOne)
	undisturbed, quick := got.at("nothing", 0, high), got.at("nothing", 0, mean)
	r.Claims = []evidence.Claim{evidence.AtMost(evidence.Shape, fmt.Sprintf("nothing: high beside %.0f, of that beside none", top), "", 0.5, over(got.at("nothing", top, high), undisturbed)...)}
	for _, v := range []string{byNetwork, byCookie} {
		r.Claims = append(r.Claims,
			evidence.AtLeast(evidence.Shape, fmt.Sprintf("%s: high beside %.0f, of that without Narthex beside none", v, top), "", 0.9, over(got.at(v, top, high), undisturbed)...),
			evidence.AtMost(evidence.Shape, fmt.Sprintf("%s: mean response time of high beside %.0f, of that without Narthex beside none", v, top), "", 1.2, over(got.at(v, top, mean), quick)...))
		r.Ratios = append(r.Ratios,
			evidence.Ratio{What: fmt.Sprintf("high requests/s beside %.0f, %s", top, v), Peer: "HAProxy", Samples: over(got.at(v, top, high), got.at("HAProxy", top, high))},
			evidence.Ratio{What: fmt.Sprintf("all requests/s beside %.0f, %s", top, v), Peer: "HAProxy", Samples: over(got.at(v, top, total), got.at("HAProxy", top, total))})
	}
	plot := evidence.Plot{Title: "Throughput of the high class", X: evidence.Axis{Label: "low clients"}, Y: evidence.Axis{Label: "requests/s"}}
	for _, v := range variants {
		plot.Series = append(plot.Series, got.series(v, high))
	}
	r.Plots = []evidence.Plot{plot}
	r.Tables = []evidence.Table{
		loadTable(got, variants, xs, "low clients", "Requests/s of the high class", high),
		loadTable(got, variants, xs, "low clients", "Requests/s of the low class", rateOf(theMany)),
		loadTable(got, variants, xs, "low clients", "Mean response time of the high class, ms", mean),
	}
	return r
}
