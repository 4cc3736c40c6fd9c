// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"narthex/experiments/internal/evidence"
)

// result is what both experiments say.
func (sh *shop) result(got *swept, variants []variant, limited string) *evidence.Result {
	r := &evidence.Result{Repeated: got.repeated, Invalid: got.invalid, Notes: []string{
		fmt.Sprintf("Rates are those then as shares of what the server can do for the others, not the same figures. That is measured again right before each variant in each round, and its limits are shares of that: "+
			"they are called by the rates that they are if the server does %.0f/s, as it did at first.", sh.able),
		"A KB is 1024 bytes. What counts is complete answers; a request that is not answered by the end of the day counts for nothing.",
	}}
	for _, p := range []struct{ name, title, what, label string }{
		{"", "Throughput of the preferred client", goodput, "preferred client, KB/s"},
		{"others", "What others get", othersServed, "others, requests/s"},
	} {
		plot := evidence.Plot{Name: p.name, Title: p.title, X: evidence.Axis{Label: limited + ", requests/s"}, Y: evidence.Axis{Label: p.label}}
		for _, v := range variants {
			line := got.series(v, p.what)
			if len(v.xs) > 0 && len(line.Points) > 0 {
				// The same at any rate.
				line.Points = append(line.Points, evidence.Point{X: sh.xs[0], Samples: line.Points[0].Samples})
			}
			if len(line.Points) > 0 {
				plot.Series = append(plot.Series, line)
			}
		}
		r.Plots = append(r.Plots, plot)
	}
	ours := variants[2].name
	r.Claims = sh.claims(got, ours)
	for _, v := range variants[3:] {
		for _, x := range []float64{sh.tightest(), sh.midway()} {
			r.Ratios = append(r.Ratios, evidence.Ratio{
				What: fmt.Sprintf("throughput of the preferred client, others limited to %.0f/s", x), Peer: v.name,
				Samples: over(got.at(ours, x, goodput), got.at(v.name, x, goodput)),
			})
		}
	}
	return r
}

// qosDenies says which of mod_qos' two kinds of rates is used.
const qosDenies = "mod_qos limits by QS_EventLimitCount, which denies as the others do: so many requests in each second. " +
	"QS_LocRequestPerSecLimit delays, by what it has learnt in ten seconds, and each request that it delays has a process."

// setup says what is there in both experiments.
func (sh *shop) setup(others string) string {
	return fmt.Sprintf("Apache prefork with %d processes; a file of 8 KB costs it %v of its core besides. "+
		"%s, one request per connection, with %v between requests; a SYN without an answer is given up after %v to %v. That is %.0f requests/s at most. "+
		"The preferred client replays a generated day of a shop (SURGE, seed %d) in %v: %d requests for the file, %.0f KB/s in the mean, over one connection at a time. "+
		"What a limit lets through at once is the rate's share of 100 ms, at least 2. HAProxy and mod_qos know of no bursts; proxies are on the server's core.",
		shopProcesses, shopWork, others, othersThink, othersConnect, othersConnect+(othersGroups-1)*othersMore, sh.able, shopSeed, sh.length, len(sh.day), sh.offered)
}

// claims are those of both experiments.
func (sh *shop) claims(got *swept, ours string) []evidence.Claim {
	first, last := sh.xs[0], sh.tightest()
	alone := got.at(shopAlone, last, goodput)
	tightest := got.at(ours, last, goodput)
	return []evidence.Claim{
		evidence.AtMost(evidence.Shape, "nothing: throughput of the preferred client, of that alone", "", 0.10,
			over(got.at(shopBare, last, goodput), alone)...),
		evidence.AtLeast(evidence.Shape, fmt.Sprintf("throughput of the preferred client at %.0f/s for the others, of that at %.0f/s", last, first), "×", 3,
			over(tightest, got.at(ours, first, goodput))...),
		evidence.AtLeast(evidence.Shape, "the least of the steps from each rate to the next lower one, of the throughput before it", "×", 0.9,
			sh.leastStep(got, ours)...),
		evidence.AtLeast(evidence.Shape, fmt.Sprintf("throughput of the preferred client at %.0f/s for the others, of that alone", last), "", 0.90,
			over(tightest, alone)...),
		evidence.Between(evidence.Shape, fmt.Sprintf("requests of the others that are answered at %.0f/s, of that rate", last), "", 0.8, 1.1,
			got.at(ours, last, ofLimit)...),
	}
}

// leastStep is, of each round, the least by which the throughput rises from a rate to the next.
func (sh *shop) leastStep(got *swept, ours string) (least []float64) {
	for i := range sh.xs[1:] {
		for round, step := range over(got.at(ours, sh.xs[i+1], goodput), got.at(ours, sh.xs[i], goodput)) {
			if round == len(least) {
				least = append(least, step)
			}
			least[round] = min(least[round], step)
		}
	}
	return least
}
