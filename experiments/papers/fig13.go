// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"narthex/experiments/internal/evidence"
)

// slower is how many times as long preferred clients wait at a load as alone, just before with the same variant.
func (g *greedySweep) slower(variant string, x float64) []float64 {
	return g.at(variant, x, timesAsLong)
}

// fig13 is how long preferred clients wait, in the runs of fig12.
func (s *suite) fig13(ctx context.Context) (*evidence.Result, error) {
	g, err := s.greedy(ctx)
	if err != nil {
		return nil, err
	}
	r := g.result("fig13", "Response time of preferred clients beside greedy ones")
	r.Then = "The kernel's SYN policing hardly lets preferred clients wait longer as the greedy rate grows, its URL rules somewhat; with the module of Apache they wait several times as long."
	r.Notes = append(r.Notes, "It is from the same runs as fig12.",
		"A preferred client waits for an answer all the time. So the time that it waits for one is the number of clients by the answers per second (Little's law), and what was asked in vain is in it. "+
			"The median of those that were answered, in the table, hides who was not: with nothing and with the module of Apache few are, soon or never.")
	plot := evidence.Plot{Title: r.Title, X: evidence.Axis{Label: "greedy requests/s offered"}, Y: evidence.Axis{Label: "mean time for an answer, ms", Log: true}}
	for _, v := range g.variants {
		plot.Series = append(plot.Series, g.series(v, preferredTime))
	}
	r.Plots, r.Tables = []evidence.Plot{plot}, []evidence.Table{
		g.times("Time for an answer, in vain or not, ms", preferredTime), g.times("Median of those that were answered, ms", preferredHalf)}
	last, then := g.load(topLoad), g.load(thenLoad)
	r.Claims = []evidence.Claim{
		evidence.AtMost(evidence.Shape, "SYN policing at 1.7 times the capacity, of the time without greedy load", "", 1.05, g.slower(synPolicing, then)...),
		evidence.AtMost(evidence.Shape, "SYN policing at 10 times the capacity, of the time without greedy load", "", 1.05, g.slower(synPolicing, last)...),
		evidence.AtMost(evidence.Shape, "request rules at 1.7 times the capacity, of the time without greedy load", "", 1.35, g.slower(requestRules, then)...),
		evidence.AtLeast(evidence.Shape, "how much slower at the highest load: module of Apache / request rules", "", 1.2, over(g.slower(apacheModule, last), g.slower(requestRules, last))...),
		evidence.AtLeast(evidence.Shape, "nothing at the highest load, of the time without greedy load", "", 5, g.slower(unprotected, last)...),
	}
	for _, ours := range []string{synPolicing, requestRules, blockingRules} {
		for _, peer := range g.variants {
			if !peer.ours {
				r.Ratios = append(r.Ratios, evidence.Ratio{
					What: fmt.Sprintf("preferred time for an answer at 10 times the capacity, %s", ours), Peer: peer.name, Low: true,
					Samples: over(g.at(ours, last, preferredTime), g.at(peer.name, last, preferredTime)),
				})
			}
		}
	}
	return r, nil
}

// times is a table of one of the figures about time, at each load.
func (g *greedySweep) times(title, what string) evidence.Table {
	return loadTable(g.swept, g.variants, g.xs, "greedy requests/s", title, what)
}
