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

// byName are experiments that are done only if they are named: no evidence, but a way to see in
// seconds whether a program does what the others are about.
var byName = []experiment{{"check", (*suite).checkLimits}}

// Limits that are checked, and what is offered to each.
const (
	checkRate    = 10 // per second
	checkOffered = 200
	checkFolder  = "/limited"
)

// Figures of the check.
const (
	byConnection = "connections/s of a limited network"
	byRequest    = "requests/s of a limited path"
)

// checkLimits: a limit of connections and one of requests, both offered many times as much.
func (s *suite) checkLimits(ctx context.Context) (r *evidence.Result, err error) {
	st, err := s.stage("check")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	nginx := peers.Nginx{Listen: []netip.AddrPort{st.web()}, Backlog: backlog, CPUs: st.ServerCPUs}
	if _, err := st.Serve(nginx.Start(st.rig.Server)); err != nil {
		return nil, err
	}
	ours := variant{
		name: "Narthex", ours: true, measure: st.offerTwo,
		start: func(ctx context.Context) (func() error, error) {
			n, err := st.narthex(ctx, fmt.Sprintf("version: 1\nservices: [{name: web, listen: [%q], xdp: off, concurrency: 40}]\n"+
				"connections:\n  - {name: greedy, from: %s, rate: %d/s, burst: 2}\n"+
				"requests:\n  - {name: limited, path: %s/*, rate: %d/s, burst: 2}\n", st.web(), lowNet, checkRate, checkFolder, checkRate))
			if err != nil {
				return nil, err
			}
			return n.Stop, nil
		},
	}
	got, err := s.sweep(ctx, []float64{checkOffered}, ours)
	if err != nil {
		return nil, err
	}
	r = &evidence.Result{
		ID: "check", Title: "Whether limits hold", Source: "ours",
		Setup: fmt.Sprintf("nginx; open loops offer %d connections/s from a network and as many requests/s for a path; each is limited to %d/s, burst 2.",
			checkOffered, checkRate),
		Repeated: got.repeated, Invalid: got.invalid,
	}
	t := evidence.Table{Title: "Answered", Columns: []string{"", "per second"}}
	for _, what := range []string{byConnection, byRequest} {
		samples := got.at(ours.name, checkOffered, what)
		t.Rows = append(t.Rows, evidence.Row{Name: what, Ours: true, Cells: []evidence.Cell{{Samples: samples}}})
		r.Claims = append(r.Claims, evidence.Between(evidence.Figure, what+" that are answered", "/s", checkRate/2, 2*checkRate, samples...))
	}
	r.Tables = []evidence.Table{t}
	return r, nil
}

// offerTwo offers so much to both limits.
func (st *stage) offerTwo(ctx context.Context, rate float64) (o outcome, err error) {
	network := load.Open{Client: st.from(st.low, peers.File8K), Rate: rate}
	network.ConnectTimeout = time.Second
	path := load.Open{Client: st.from(st.middle, peers.In(checkFolder, peers.File8K)), Rate: rate}
	s, err := st.once(ctx, network, path)
	if err != nil {
		return o, err
	}
	o.invalid = check{}.invalid(s)
	o.values = map[string]float64{byConnection: s.Reports[0].Rate(), byRequest: s.Reports[1].Rate()}
	return o, nil
}
