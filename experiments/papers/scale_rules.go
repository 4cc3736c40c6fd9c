// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab/origin"
	"narthex/internal/load"
	"narthex/test/attack"
)

// SYNs that are sent per second, by how many rules are gone through for each.
const (
	scaleSYNs       = 20_000
	scaleSYNsLinear = 1_000
)

// scaleFrom is the address of a rule: of the clients', as far as they go, then of others.
func scaleFrom(i int) netip.Addr {
	b := greedyNet.Addr().As4()
	// Neighbours in the list are no neighbours in the network.
	n := i*40503%65536 + i/65536*65536
	b[1] += byte(n >> 16)
	b[2], b[3] = byte(n>>8), byte(n)
	return netip.AddrFrom4(b)
}

// scaleConnections: rules on SYNs.
func (s *suite) scaleConnections(ctx context.Context) (g *growth, err error) {
	st, err := s.stage("scale")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	g = &growth{name: "connections", title: "Connection rules", axis: "rules", xs: scaleRules}
	var n *bench.Narthex
	policy := func(x float64) string {
		var b strings.Builder
		fmt.Fprintf(&b, "version: 1\nservices:\n  - {name: web, listen: \"%s\", protocol: tcp, xdp: off}\nconnections:\n", st.web())
		for i := range int(x) - 1 {
			fmt.Fprintf(&b, "  - {name: r%d, from: %s, action: drop}\n", i, scaleFrom(i))
		}
		fmt.Fprintf(&b, "  - {name: all, from: %s, action: drop}\n", greedyNet)
		return b.String()
	}
	ours := variant{name: scaleConnections, ours: true, xs: scaleRules}
	ours.start = func(ctx context.Context) (stop func() error, err error) {
		if n, err = st.narthex(ctx, policy(1)); err != nil {
			return nil, err
		}
		return n.Stop, nil
	}
	ours.measure = func(ctx context.Context, x float64) (outcome, error) {
		return st.swapped(ctx, n, policy(x), func(programs bench.Programs) (outcome, error) { return st.syns(ctx, scaleSYNs, programs) })
	}
	g.variants = append([]variant{ours}, st.chains()...)
	return s.grow(ctx, g)
}

// swap puts a policy in force and returns how many seconds that took, and the memory in MiB.
func (st *stage) swap(ctx context.Context, n *bench.Narthex, policy string) (seconds, memory float64, err error) {
	path, err := bench.WritePolicy(st.rig.Server, policy)
	if err != nil {
		return 0, 0, err
	}
	took, err := n.Swap(ctx, path)
	if err != nil {
		return 0, 0, err
	}
	memory, err = bench.MapMemory(n.Instance)
	return took.Seconds(), memory, err
}

// swapped puts a policy in force and measures the programs, and what it took to put it in force.
func (st *stage) swapped(ctx context.Context, n *bench.Narthex, policy string, measure func(bench.Programs) (outcome, error)) (o outcome, err error) {
	seconds, memory, err := st.swap(ctx, n, policy)
	if err != nil {
		return o, err
	}
	programs, err := bench.OpenPrograms(n.Instance)
	if err != nil {
		return o, err
	}
	defer programs.Close()
	if o, err = measure(programs); err == nil {
		o.values[loadTime], o.values[mapMemory] = seconds, memory
	}
	return o, err
}

// syns measures SYNs that are dropped: the time of the server's core for each in µs, and of
// programs if there are any.
func (st *stage) syns(ctx context.Context, rate int, programs bench.Programs) (o outcome, err error) {
	flood, err := attack.Flood{Link: attack.Over(st.rig), Pace: attack.Pace{Rate: rate, Seed: 1}, From: greedyNet, To: st.web()}.Start(ctx)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, flood.Stop()) }()
	if err := bench.Sleep(ctx, st.settle/2); err != nil {
		return o, err
	}
	now := func() (sent uint64, spent, core time.Duration) {
		if err == nil && programs != nil {
			spent, err = programs.Spent()
		}
		if err == nil {
			core, err = st.Spent()
		}
		return flood.Counts().Sent, spent, core
	}
	sent, spent, core := now()
	if err := bench.Sleep(ctx, st.length/2); err != nil {
		return o, err
	}
	sent2, spent2, core2 := now()
	if err != nil {
		return o, err
	}
	count := float64(sent2 - sent)
	o.values = map[string]float64{coreCost: (core2 - core).Seconds() * 1e6 / count}
	if programs != nil {
		o.values[programCost] = (spent2 - spent).Seconds() * 1e6 / count
	}
	if programs != nil && spent2 == spent {
		o.invalid = "the kernel has counted no time of programs"
	}
	if lost := flood.Counts().Lost; lost > 0 {
		o.invalid = fmt.Sprintf("%d SYNs were not sent", lost)
	}
	return o, nil
}

// scaleRequests: rules on requests.
func (s *suite) scaleRequests(ctx context.Context) (g *growth, err error) {
	st, err := s.stage("scale")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if _, err := st.Serve(origin.Start(st.rig.Server, origin.Config{Listen: at(st.rig.ServerV4, st.web().Port()), CPUs: st.ServerCPUs, Backlog: backlog})); err != nil {
		return nil, err
	}
	g = &growth{name: "requests", title: "Request rules", axis: "rules", xs: scaleRules}
	policy := func(x float64) string {
		var b strings.Builder
		fmt.Fprintf(&b, "version: 1\nservices:\n  - {name: web, listen: \"%s\", xdp: off, concurrency: 64}\nclasses:\n  - {name: gold, priority: 1}\n  - {name: others, priority: 2}\nrequests:\n", st.web())
		for i := range int(x) - 1 {
			pattern := []string{"/shop/%d/index.html", "/shop/%d/cart/*", "*/%d.php", "/area%d/*.gif"}[i%4]
			fmt.Fprintf(&b, "  - {name: r%d, path: \"%s\", action: drop}\n", i, fmt.Sprintf(pattern, i))
		}
		fmt.Fprintf(&b, "  - {name: mine, path: %s, class: gold}\n", scalePath)
		return b.String()
	}
	ask := load.Closed{Client: st.from(st.preferred, scalePath), Clients: 16}
	g.variants = []variant{st.programs(scaleRequests, scaleRules, policy, ask)}
	return s.grow(ctx, g)
}

// scalePath is what clients ask for: no rule but the last matches it, and many begin like it.
const scalePath = "/shop/5000/cart.html"

// programs is Narthex with ever other policies, and the time of its programs per request.
func (st *stage) programs(name string, xs []float64, policy func(x float64) string, clients ...bench.Starter) variant {
	var n *bench.Narthex
	v := variant{name: name, ours: true, xs: xs}
	v.start = func(ctx context.Context) (stop func() error, err error) {
		if n, err = st.narthex(ctx, policy(xs[0])); err != nil {
			return nil, err
		}
		return n.Stop, nil
	}
	v.measure = func(ctx context.Context, x float64) (outcome, error) {
		return st.swapped(ctx, n, policy(x), func(programs bench.Programs) (outcome, error) {
			c, err := bench.Gather(ctx, clients...)
			if err != nil {
				return outcome{}, err
			}
			defer c.End()
			return st.perRequest(ctx, c, programs, st.settle, st.length)
		})
	}
	return v
}

// perRequest measures the time of programs per request that is served, in µs.
func (st *stage) perRequest(ctx context.Context, c *bench.Crowd, programs bench.Programs, settle, length time.Duration) (o outcome, err error) {
	if err := bench.Sleep(ctx, settle); err != nil {
		return o, err
	}
	before, err := programs.Spent()
	if err != nil {
		return o, err
	}
	s, err := st.Measure(ctx, c, 0, length)
	if err != nil {
		return o, err
	}
	after, err := programs.Spent()
	if err != nil {
		return o, err
	}
	served := s.Answered()
	o.values = map[string]float64{programCost: (after - before).Seconds() * 1e6 / float64(served)}
	// That others take time of the cores makes programs no slower.
	o.invalid = check{}.invalid(s)
	if o.invalid == "" && (served < 100 || after == before) {
		o.invalid = fmt.Sprintf("only %d requests were served, with %v of programs", served, after-before)
	}
	return o, nil
}
