// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/evidence"
)

// TestResultsJudged has no claim or ratio ask for samples that no run gives: with a sample of all
// that is measured, each of them says something.
func TestResultsJudged(t *testing.T) {
	st := &stage{suite: &suite{Bench: &bench.Bench{}, runs: 1}}
	named := func(names ...string) (all []variant) {
		for _, name := range names {
			all = append(all, variant{name: name, ours: slices.Contains([]string{collapseFixed, collapseAuto, synPolicing, floodTCX, roomAndPolicing, withoutRules, withRule, thrashPoliced, thrashRuled, thrashBlocked, thrashAuto}, name)})
		}
		return all
	}
	collapse := named(alone, collapseFixed, collapseAuto, synPolicing, collapseNFTables, collapseIPTables)
	tab3 := named(unprotected, roomAndPolicing, haproxyClasses, nftTables)
	tab5 := named(unwatched, withoutRules, withRule, "mod_qos")
	flood := named(unprotected, synPolicing, floodTCX, nftTables)
	lengths := []float64{shortPath, longerPath, longestPath}
	thrashed := named(alone, thrashPoliced, thrashRuled, thrashBlocked, thrashAuto, "HAProxy")
	event := named("nothing", "Narthex", selfSet, "HAProxy", limitConn)
	event[2].xs = autoLoads
	fixed := named("nothing", byNetwork, byCookie, "HAProxy")
	const most, able = 2 * floodFirst, 60
	floods := []float64{0, floodShare, floodFirst, most}
	for _, r := range []*evidence.Result{
		(&collapsing{stage: st}).result(measured(collapse, collapseLoads, goldTail, goldRate, goldShare, totalRate, totalShare, beyondAlone, rejection, limitInUse), collapse),
		(&rankedServer{&policed{stage: st}}).result(measured(tab3, tab3Limits, append(tab3Columns, highOfLimit)...), tab3),
		tab5Result(measured(tab5, lengths, connections, coreTime), tab5, lengths),
		(&thrashing{stage: st}).result(measured(thrashed, times(able, thrashLoads), completed, answered), thrashed, able, times(able, thrashLoads)),
		banga11Result(measured(event, eventLoads, meanOf(theOne), p99Of(theOne), total), event, busyCrowd),
		highFixedResult(measured(fixed, risingLoads, rateOf(theOne), rateOf(theMany), meanOf(theOne), total), fixed, risingLoads),
		floodResult(measured(flood, floods, goldServed, bronzeServed, bothKept, serverShare, clientShare), flood, most),
	} {
		for _, c := range r.Claims {
			if r.On(&c) == evidence.NotJudged {
				t.Errorf("%s: %q is not judged", r.ID, c.What)
			}
		}
		for _, q := range r.Compared() {
			if q.Standing == evidence.NotCompared {
				t.Errorf("%s: %q is not compared with %s", r.ID, q.What, q.Peer)
			}
		}
		if err := evidence.Save(t.TempDir(), r, &evidence.Machine{}); err != nil {
			t.Errorf("%s: %v", r.ID, err)
		}
	}
}

// measured is a sweep of one round that has given 1 for everything.
func measured(variants []variant, xs []float64, figures ...string) *swept {
	all := &swept{values: map[string]map[float64]map[string][]float64{}}
	for _, v := range variants {
		for _, x := range xs {
			for _, what := range figures {
				all.add(v.name, x, map[string]float64{what: 1})
			}
		}
	}
	return all
}
