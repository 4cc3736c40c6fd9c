// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"narthex/experiments/internal/evidence"
	"narthex/experiments/internal/peers"
	"narthex/internal/load"
)

// costExperiments are those of what Narthex costs where it refuses nothing.
var costExperiments = []experiment{
	{"tab5", (*suite).tab5},
	{"tab6", (*suite).tab6},
}

// Variants of table 5, and what is measured.
const (
	unwatched    = "off"
	withoutRules = "on, no rule"
	withRule     = "on, a rule matches"
	connections  = "connections/s"
	coreTime     = "µs" // of the server's core for each, its packets included
)

// What table 5 has: connections/s for URLs of 11, 80 and 160 characters. And what a rule that matches cost at the most.
var tab5Then = map[string][]float64{unwatched: {370.1, 361.5, 355.1}, withoutRules: {340.5, 321.9, 321.1}, withRule: {338.3, 319.4, 303.7}}

const matchCost = 0.06

// tab5Clients are as many as then.
const tab5Clients = 20

// ruled are the requests that the peers' rules are about: all.
var ruled = peers.RateLimit{Class: peers.Class{Path: "/a"}, Rate: 1_000_000, Burst: 1000}

// tab5: the same load, of which nothing is refused, with and without rules.
func (s *suite) tab5(ctx context.Context) (r *evidence.Result, err error) {
	often := *s // what is looked for is small: many short runs
	often.runs, often.settle, often.length = 3*s.runs, 250*time.Millisecond, 600*time.Millisecond
	if s.quick {
		often.runs = s.runs
	}
	st, err := often.stage("tab5")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	apache := peers.Apache{Listen: []netip.AddrPort{st.web(), st.behind()}, Workers: 50, Backlog: backlog, CPUs: st.ServerCPUs}
	qos := apache
	qos.Listen, qos.QoS = []netip.AddrPort{st.port(8082)}, &peers.QoS{Deny: []peers.RateLimit{ruled}}
	for _, a := range []peers.Apache{apache, qos} {
		if _, err := st.Serve(a.Start(st.rig.Server)); err != nil {
			return nil, err
		}
	}
	variants := st.tab5Variants()
	lengths := []float64{shortPath, longerPath, longestPath}
	got, err := often.sweep(ctx, nil, apart(lengths, variants...)...)
	if err != nil {
		return nil, err
	}
	return tab5Result(got, variants, lengths), nil
}

func (st *stage) port(n uint16) netip.AddrPort { return netip.AddrPortFrom(st.rig.ServerV4, n) }

func (st *stage) tab5Variants() []variant {
	ours := func(rules string) func(context.Context) (func() error, error) {
		return func(ctx context.Context) (func() error, error) {
			n, err := st.narthex(ctx, fmt.Sprintf("version: 1\nservices: [{name: web, listen: [%q], xdp: off, concurrency: 4096}]\n%s", st.web(), rules))
			if err != nil {
				return nil, err
			}
			return n.Stop, nil
		}
	}
	rule := fmt.Sprintf("classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]\nrequests:\n  - {name: long, path: [%q, %q, %q], class: gold}\n",
		peers.LongPath(shortPath), peers.LongPath(longerPath), peers.LongPath(longestPath))
	proxied := func(p peer) func(context.Context) (func() error, error) {
		return func(context.Context) (func() error, error) { return (&contest{stage: st}).before(p) }
	}
	proxy := st.port(8081)
	return []variant{
		{name: unwatched, start: nobody, measure: st.asked(st.web())},
		{name: withoutRules, ours: true, start: ours(""), measure: st.asked(st.web())},
		{name: withRule, ours: true, start: ours(rule), measure: st.asked(st.web())},
		{name: "mod_qos, a rule matches", start: nobody, measure: st.asked(st.port(8082))},
		{name: "nginx, limit_req matches", measure: st.asked(proxy), start: proxied(peers.NginxLimit{
			Listen: []netip.AddrPort{proxy}, Backlog: backlog, CPUs: st.ServerCPUs, Origin: st.behind(), LimitReq: []peers.RateLimit{ruled}, Keepalive: tab5Clients,
		})},
		{name: "HAProxy, a rule matches", measure: st.asked(proxy), start: proxied(peers.HAProxy{
			Listen: []netip.AddrPort{proxy}, Backlog: backlog, CPUs: st.ServerCPUs, Origin: st.behind(), Deny: []peers.RateLimit{ruled},
		})},
	}
}

// asked measures clients who ask there for a path of a length.
func (st *stage) asked(target netip.AddrPort) func(context.Context, float64) (outcome, error) {
	return func(ctx context.Context, length float64) (o outcome, err error) {
		client := st.from(st.preferred, peers.LongPath(int(length)))
		client.Target = target
		s, err := st.once(ctx, load.Closed{Client: client, Clients: tab5Clients})
		if err != nil {
			return o, err
		}
		r := s.Reports[0]
		o.values, o.invalid = map[string]float64{connections: r.Rate(), coreTime: s.PerAnswer()}, check{overflows: true, generator: true, machine: true}.invalid(s)
		if r.Outcomes[load.OK] == 0 || r.Outcomes[load.OtherStatus] > 0 {
			o.invalid = fmt.Sprintf("%d were answered as they should, %d otherwise", r.Outcomes[load.OK], r.Outcomes[load.OtherStatus])
		}
		return o, nil
	}
}

func tab5Result(got *swept, variants []variant, lengths []float64) *evidence.Result {
	r := &evidence.Result{
		ID: "tab5", Title: "What rules cost that refuse nothing, by length of the URL",
		Source: "Voigt et al., USENIX ATC 2001, table 5",
		Then:   "Connections/s for a URL of 11 / 80 / 160 characters: off 370 / 362 / 355; on without a rule 341 / 322 / 321; on with a rule that matches 338 / 319 / 304, so that the match itself costs less than 6 %.",
		Setup: fmt.Sprintf("%d clients in closed loops ask Apache (prefork, 50 processes) for a file of 8 KB, one request per connection, by a URL of 11, 80 or 160 characters. "+
			"Without a rule Narthex reads each head to its end and counts requests in service, of which there may be 4,096; with one it finds the path in a rule, too, and gives the request its class. "+
			"Peers have a limit on the path that is never reached. nginx and HAProxy are proxies on the server's core; mod_qos is within Apache.", tab5Clients),
		Repeated: got.repeated, Invalid: got.invalid,
		Notes: []string{"Runs are short and many, and take turns: what is looked for is a few per cent. All variants are measured with one length of the URL before the next.",
			"The server's core was the bottleneck then, so that connections/s were the inverse of its time for each. That time is measured itself here, too: that of the server's processes, a proxy's, and what handles packets, softirqs included, without what others on the machine took of the core. It is judged by the same figures: connections/s are noisier, since what others take is in them.",
			"The server does nothing but send a small file; the more work a request is, the less of it are Narthex's microseconds."},
	}
	r.Tables = []evidence.Table{
		tab5Table(got, variants, lengths, connections, "Connections/s"),
		tab5Table(got, variants, lengths, coreTime, "Time of the server's core for a connection, µs"),
	}
	for _, name := range []string{withoutRules, withRule} {
		for i, x := range lengths {
			least := tab5Then[name][i] / tab5Then[unwatched][i]
			r.Claims = append(r.Claims,
				evidence.AtLeast(evidence.Shape, fmt.Sprintf("%s, of off, by time of the core, %.0f characters: no less than then", name, x), "", least, got.ofOff(coreTime, name, x)...),
				evidence.AtLeast(evidence.Shape, fmt.Sprintf("%s, of off, by connections/s, %.0f characters: no less than then", name, x), "", least, got.ofOff(connections, name, x)...))
		}
	}
	for _, x := range lengths {
		r.Claims = append(r.Claims, evidence.AtLeast(evidence.Shape, fmt.Sprintf("%s, of no rule, by time of the core, %.0f characters: less than 6 %% as then", withRule, x), "", 1-matchCost,
			over(got.at(withoutRules, x, coreTime), got.at(withRule, x, coreTime))...))
	}
	for _, v := range variants[3:] {
		r.Ratios = append(r.Ratios,
			evidence.Ratio{What: "connections/s with a rule, 160 characters", Peer: v.name,
				Samples: over(got.at(withRule, longestPath, connections), got.at(v.name, longestPath, connections))},
			evidence.Ratio{What: "time of the core for a connection with a rule, 160 characters", Peer: v.name, Low: true,
				Samples: over(got.at(withRule, longestPath, coreTime), got.at(v.name, longestPath, coreTime))})
	}
	return r
}

// tab5Table is the table of a figure.
func tab5Table(got *swept, variants []variant, lengths []float64, what, title string) evidence.Table {
	t := evidence.Table{Title: title, Columns: []string{"", "11 characters", "80 characters", "160 characters", "of off, 160 characters", "connections/s then"}}
	for _, v := range variants {
		row := evidence.Row{Name: v.name, Ours: v.ours}
		for _, x := range lengths {
			row.Cells = append(row.Cells, cell(got.at(v.name, x, what)))
		}
		then := evidence.Cell{Text: "–"}
		if c := tab5Then[v.name]; c != nil {
			then.Text = fmt.Sprintf("%.0f / %.0f / %.0f", c[0], c[1], c[2])
		}
		row.Cells = append(row.Cells, cell(got.ofOff(what, v.name, longestPath)), then)
		t.Rows = append(t.Rows, row)
	}
	return t
}

// ofOff is what is left of the connections/s without anything, or would be by the time that one takes.
func (a *swept) ofOff(what, variant string, length float64) []float64 {
	with, without := a.at(variant, length, what), a.at(unwatched, length, what)
	if what == coreTime {
		return over(without, with)
	}
	return over(with, without)
}
