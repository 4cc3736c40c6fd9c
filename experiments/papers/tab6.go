// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/evidence"
	"narthex/experiments/internal/peers"
)

// timesLess is how many times less than then a decision must cost.
const timesLess = 40

// Lengths of paths, as in table 5. Decisions are judged by the shortest.
const shortPath, longerPath, longestPath = 11, 80, 160

// decisions are those of the table, and a few more.
func decisions() []decision {
	var all []decision
	for i, then := range []float64{7.9, 9.6} {
		rules := []int{1, 3}[i]
		all = append(all, decision{
			what: "SYN policing, " + plural(rules, "rule"), then: then, policy: policing(rules),
			frame: synFrame(), program: "bench_known", over: "bench_nothing", xdp: true,
			how: "all of the XDP program: headers, service, rule, token, counters",
		})
	}
	for i, then := range []float64{4.4, 5} {
		rules := []int{1, 3}[i]
		all = append(all, decision{
			what: "class of a connection, " + plural(rules, "rule"), then: then, policy: classing(rules),
			frame: requestFrame(shortPath), program: "bench_class", over: "bench_segment",
			how: "service, waiting room, rule, class",
		})
	}
	for _, length := range []int{shortPath, longerPath, longestPath} {
		then := 0.0
		if length == shortPath {
			then = 19
		}
		all = append(all, decision{
			what: fmt.Sprintf("URL parsing, %d characters", length), then: then, policy: asking(1, length, "class: gold"),
			frame: requestFrame(length), program: "bench_url", over: "bench_class",
			how: "end of the head; the path, decoded, cleaned and hashed",
		})
	}
	rate := decision{
		what: "URL rate control", program: "bench_rule", over: "bench_connection", request: true,
		how: "beyond parsing: which rule, the clock, a token, counters",
	}
	priority := decision{
		what: "URL priority", program: "bench_rule", over: "bench_clock", request: true,
		how: "beyond parsing: which rule, its class, counters",
	}
	all = append(all, rate.of(generous, 5, 5.8, 6.5)...)
	all = append(all, priority.of("class: gold", 3.8, 4.1, 4.3)...)
	return append(all, decision{
		what: "all of URL parsing and rate control", policy: asking(1, shortPath, generous),
		frame: requestFrame(shortPath), program: "bench_rules", over: "bench_class", request: true,
		how: "from the class of the connection to the turn in the waiting room, as the gate does it, connection looked up twice",
	})
}

// of is a decision about a request by one rule, two rules, and so on.
func (d decision) of(does string, thens ...float64) (all []decision) {
	what := d.what
	for i, then := range thens {
		d.what, d.then = what+", "+plural(i+1, "rule"), then
		d.policy, d.frame = asking(i+1, shortPath, does), requestFrame(shortPath)
		all = append(all, d)
	}
	return all
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// generous is a rate that has a token for every decision that is timed.
const generous = "rate: 1000000/s, burst: 1000000"

// Sources of the connection rules; what is timed comes from the last.
var ruleSources = []string{"198.51.100.0/24", "192.0.2.0/24", "203.0.113.0/24"}

func policing(rules int) string {
	return "version: 1\nservices: [{name: web, listen: [\"" + decider + "\"]}]\nconnections:\n" +
		lastRules(rules, func(i int) string { return fmt.Sprintf("from: %s, %s", ruleSources[i], generous) })
}

// withRoom begins a policy of a service where requests can have to wait.
const withRoom = "version: 1\nservices: [{name: web, listen: [\"" + decider + "\"], concurrency: 100}]\n" +
	"classes: [{name: gold, priority: 1}, {name: silver, priority: 2}, {name: bronze, priority: 3}]\n"

func classing(rules int) string {
	return withRoom + "connections:\n" + lastRules(rules, func(i int) string {
		return fmt.Sprintf("from: %s, class: %s", ruleSources[i], []string{"silver", "bronze", "gold"}[i])
	})
}

// asking has request rules, the last of which the request for a path of that length matches.
func asking(rules, length int, does string) string {
	return withRoom + "requests:\n" + lastRules(rules, func(i int) string {
		path := peers.LongPath(length)
		if i < len(ruleSources)-1 {
			path = strings.Repeat("/other", i+1)
		}
		return fmt.Sprintf("path: %q, %s", path, does)
	})
}

// lastRules lists the last so many of as many rules as there are sources.
func lastRules(n int, rule func(i int) string) (text string) {
	for i := len(ruleSources) - n; i < len(ruleSources); i++ {
		text += fmt.Sprintf("  - {name: r%d, %s}\n", i, rule(i))
	}
	return text
}

// tab6: what each decision costs, by test runs of the programs in the kernel.
func (s *suite) tab6(ctx context.Context) (r *evidence.Result, err error) {
	d, err := newDecider()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	all := decisions()
	costs := make([][]float64, len(all))
	for round := range s.runs {
		for i := range all {
			ns, err := d.cost(ctx, &all[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", all[i].what, err)
			}
			costs[i] = append(costs[i], ns)
			s.Progress("  round %d, %s: %.0f ns", round+1, all[i].what, ns)
		}
	}
	return tab6Result(all, costs), nil
}

func tab6Result(all []decision, costs [][]float64) *evidence.Result {
	r := &evidence.Result{
		ID: "tab6", Title: "What a decision costs",
		Source: "Voigt et al., USENIX ATC 2001, table 6",
		Then: "On a processor of 375 MHz, in µs: SYN policing 7.9 (1 rule), 9.6 (3); class 4.4, 5.0; URL parsing 19; " +
			"URL rate control 5.0, 5.8, 6.5; URL priority 3.8, 4.1, 4.3.",
		Setup: fmt.Sprintf("Test runs (BPF_PROG_TEST_RUN) of the data path's own functions over the maps of an instance with the row's policy. "+
			"The figure of a round is the difference between the run of a program that decides and of one that does only what precedes "+
			"the decision: of each the fastest of %d means of %d runs, which take turns. The packet matches the last rule, whose counters say that it has decided each time. "+
			"A request is as the clients of the other experiments send it; its path has %d characters unless the row says otherwise.",
			timings, timed, shortPath),
		Notes: []string{
			"Hardware has become faster since; the ratio has that in it. Caches and branch predictors are warm, as where one decision follows the other.",
			"Of rows with two figures then it is taken that they are of 1 and 3 rules, of rows with three that they are of 1, 2 and 3.",
			"A rule needs what is known of the connection, which is at hand by then: it is looked up in what precedes. Priority has no queue in it, and not the clock, which the queue needs.",
			"What is left out of the rows of rates and priorities for that reason is more than what is in them: all that the gate does about a request beyond parsing it takes two to three times as long. The row of parsing and rate control together leaves nothing out.",
		},
	}
	t := evidence.Table{Title: "Cost of a decision", Columns: []string{"decision", "then, µs", "now, ns", "then / now", "what is in it"}}
	for i, d := range all {
		row := evidence.Row{Name: d.what, Ours: true, Cells: []evidence.Cell{{Text: "–"}, {Samples: costs[i]}, {Text: "–"}, {Text: d.how}}}
		if d.then > 0 {
			var less []float64
			for _, ns := range costs[i] {
				less = append(less, d.then*1e3/ns)
			}
			row.Cells[0].Text, row.Cells[2] = bench.Number(d.then), evidence.Cell{Samples: less}
			r.Claims = append(r.Claims, evidence.AtLeast(evidence.Figure, d.what+", then / now", "×", timesLess, less...))
		}
		t.Rows = append(t.Rows, row)
	}
	r.Tables = []evidence.Table{t}
	return r
}
