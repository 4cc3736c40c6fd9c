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
	r.Notes = append(r.Notes, "It is from the same runs as fig12. Where no preferred request was answered, the median is no less than the time that was measured, which stands in its place.")
	plot := evidence.Plot{Title: r.Title, X: evidence.Axis{Label: "greedy requests/s offered"}, Y: evidence.Axis{Label: "median response time, ms", Log: true}}
	for _, v := range g.variants {
		plot.Series = append(plot.Series, g.series(v, preferredTime))
	}
	r.Plots = []evidence.Plot{plot}
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
					What: fmt.Sprintf("preferred median at 10 times the capacity, %s", ours), Peer: peer.name, Low: true,
					Samples: over(g.at(ours, last, preferredTime), g.at(peer.name, last, preferredTime)),
				})
			}
		}
	}
	return r, nil
}
