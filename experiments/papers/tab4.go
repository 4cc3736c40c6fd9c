// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/evidence"
	"narthex/experiments/internal/peers"
	"narthex/internal/load"
)

// Table 4: CGI goes first, but only so often.
const (
	cgiClients    = 40
	staticClients = 40
	cgiRoom       = 8                     // requests in service at once
	cgiThink      = 20 * time.Millisecond // from a CGI client's answer, or refusal, to its next request
	cgiBurst      = 10
)

// Peers count over windows of a second, the first of which lets all of its requests in at once: it
// is to be over, and those that are measured are to be whole.
const (
	cgiSettle = 1500 * time.Millisecond
	cgiLength = 2 * time.Second
)

// cgiShares are the limits of CGI requests, of what is possible without: 30 and 10 of 61.7 then.
var cgiShares = []float64{1, 30 / 61.7, 10 / 61.7}

// cgiThen are the figures then.
var cgiThen = [][2]string{{"61.7", "0"}, {"29.0", "10.2"}, {"10.1", "117"}}

const (
	cgiHigh   = "CGI"
	staticLow = "static"
)

// limited is a contest in which the load is a limit: an index of cgiShares.
type limited struct {
	*contest
	able float64 // CGI requests/s that the server can do
}

// rate is the limit at x, 0 if there is none.
func (l *limited) rate(x float64) int {
	if x == 0 {
		return 0
	}
	return int(math.Round(cgiShares[int(x)] * l.able))
}

// tab4: a limit of the important class leaves the rest to the other.
func (s *suite) tab4(ctx context.Context) (r *evidence.Result, err error) {
	c, err := s.contest("tab4")
	if err != nil {
		return nil, err
	}
	defer c.closing(&err)
	c.settle, c.length = cgiSettle, cgiLength
	c.check.machine = false // the processes of the CGI program live too short to be counted
	if err := c.apache(peers.Apache{Workers: classProcesses, Work: requestWork, CGI: peers.DynamicScript}); err != nil {
		return nil, err
	}
	l := &limited{contest: c}
	if err := l.capacity(ctx); err != nil {
		return nil, err
	}
	c.contenders = []contender{
		{cgiHigh, func(float64) int { return cgiClients }, load.Closed{Client: c.from(c.preferred, peers.Dynamic), Think: cgiThink}},
		{staticLow, func(float64) int { return staticClients }, load.Closed{Client: c.from(c.low, peers.File8K)}},
	}
	variants := []variant{c.bare(), l.policed(), l.restarted("HAProxy", l.haproxy), l.restarted("nginx", l.nginx), l.restarted("mod_qos", l.qos)}
	variants[0].xs = []float64{0}
	got, err := s.sweep(ctx, []float64{0, 1, 2}, variants...)
	if err != nil {
		return nil, err
	}
	return l.result(got, variants), nil
}

// capacity measures what the server can do of CGI requests alone.
func (l *limited) capacity(ctx context.Context) error {
	s, err := l.once(ctx, load.Closed{Client: l.from(l.preferred, peers.Dynamic), Clients: cgiRoom})
	if err != nil {
		return err
	}
	l.able = s.Reports[0].Rate()
	l.Progress("  the server can do %.0f CGI requests/s", l.able)
	if l.rate(2) == 0 {
		return errors.New("the server does not answer")
	}
	return nil
}

// policy has CGI go first, within a limit.
func (l *limited) policy(x float64) string {
	limit := ""
	if rate := l.rate(x); rate > 0 {
		limit = fmt.Sprintf(", rate: %d/s, burst: %d, over: drop", rate, cgiBurst)
	}
	return fmt.Sprintf(`version: 1
services:
  - {name: web, listen: "%s", xdp: off, concurrency: %d}
classes:
  - {name: high, priority: 1}
  - {name: low, priority: 2}
requests:
  - {name: cgi, path: "%s*", class: high%s}
`, l.web(), cgiRoom, peers.Dynamic, limit)
}

// policed has Narthex take the policy of each limit.
func (l *limited) policed() variant {
	var n *bench.Narthex
	return variant{
		name: "Narthex", ours: true,
		start: func(ctx context.Context) (stop func() error, err error) {
			if n, err = l.narthex(ctx, l.policy(0)); err != nil {
				return nil, err
			}
			return n.Stop, nil
		},
		measure: func(ctx context.Context, x float64) (o outcome, err error) {
			path, err := bench.WritePolicy(l.rig.Server, l.policy(x))
			if err != nil {
				return o, err
			}
			if _, err := n.Swap(ctx, path); err != nil {
				return o, err
			}
			return l.run(ctx, l.web(), x)
		},
	}
}

// restarted starts a peer anew for each limit.
func (l *limited) restarted(name string, with func(x float64) peer) variant {
	v := l.bare()
	v.name = name
	v.measure = func(ctx context.Context, x float64) (o outcome, err error) {
		stop, err := l.before(with(x))
		if err != nil {
			return o, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		return l.run(ctx, l.beside(), x)
	}
	return v
}

// limits are those of a peer at x.
func (l *limited) limits(x float64) []peers.RateLimit {
	rate := l.rate(x)
	if rate == 0 {
		return nil
	}
	return []peers.RateLimit{{Class: peers.Class{Path: peers.Dynamic}, Rate: rate, Burst: cgiBurst}}
}

// haproxy orders and limits.
func (l *limited) haproxy(x float64) peer {
	p := l.contest.haproxy(cgiRoom, peers.Priority{Class: peers.Class{Path: peers.Dynamic}, Priority: -100})
	p.Deny = l.limits(x)
	return p
}

// nginx limits but has no order.
func (l *limited) nginx(x float64) peer {
	return peers.NginxLimit{
		Listen: []netip.AddrPort{l.beside()}, Backlog: backlog, CPUs: l.ServerCPUs, Origin: l.web(), LimitReq: l.limits(x),
	}
}

// qos is the same server with mod_qos, which limits but has no order.
func (l *limited) qos(x float64) peer {
	a := peers.Apache{
		Listen: []netip.AddrPort{l.beside()}, Workers: classProcesses, Backlog: backlog, CPUs: l.ServerCPUs,
		Work: requestWork, CGI: peers.DynamicScript,
	}
	if limits := l.limits(x); limits != nil {
		a.QoS = &peers.QoS{Deny: limits}
	}
	return a
}

func (l *limited) result(got *swept, variants []variant) *evidence.Result {
	r := &evidence.Result{
		ID: "tab4", Title: "CGI requests go first, within a limit; static ones get the rest",
		Source: "Voigt et al., USENIX ATC 2001, table 4",
		Then:   "CGI limited to none / (30, 10) / (10, 10): CGI 61.7 / 29.0 / 10.1 connections/s, static 0 / 10.2 / 117.",
		Setup: fmt.Sprintf("Apache prefork with %d processes runs a CGI program (Perl, 16 KB), of which it can do %.0f/s, and serves 8 KB that take %v of work. "+
			"%d clients ask for the one and %d for the other, in closed loops, one request per connection. A CGI client comes again %v after its answer or its refusal; a static client at once. "+
			"Narthex lets %d requests into the server at once; a request rule gives CGI the high class and a rate with a burst of %d, beyond which clients get a reset, as then. "+
			"HAProxy has the same order, as many connections to the server, and answers 503 beyond the rate. nginx (limit_req) and mod_qos (QS_EventLimitCount) limit, with 503, but order nothing. "+sameCore,
			classProcesses, l.able, requestWork, cgiClients, staticClients, cgiThink, cgiRoom, cgiBurst),
		Repeated: got.repeated, Invalid: got.invalid,
		Notes: []string{
			fmt.Sprintf("Limits are scaled: 30 and 10 were 49 %% and 16 %% of the 61.7/s that the server could do; here they are %d/s and %d/s of %.0f/s.", l.rate(1), l.rate(2), l.able),
			"Static requests get more at the first limit than then: what CGI clients leave is left to them whole, because refused clients cost next to nothing.",
			proxiesFirst,
		},
	}
	at := func(x float64, who string) []float64 { return got.at("Narthex", x, rateOf(who)) }
	ofLimit := func(x float64) (shares []float64) {
		for _, rate := range at(x, cgiHigh) {
			shares = append(shares, rate/float64(l.rate(x)))
		}
		return shares
	}
	r.Claims = []evidence.Claim{
		evidence.AtMost(evidence.Shape, "no limit: static requests/s, of those at the lower limit", "", 0.02, over(at(0, staticLow), at(2, staticLow))...),
		evidence.Between(evidence.Shape, fmt.Sprintf("CGI requests/s at %d/s, of the limit (then 0.97)", l.rate(1)), "", 0.93, 1.05, ofLimit(1)...),
		evidence.Between(evidence.Shape, fmt.Sprintf("CGI requests/s at %d/s, of the limit (then 1.01)", l.rate(2)), "", 0.93, 1.05, ofLimit(2)...),
		evidence.AtLeast(evidence.Shape, "static requests/s at the lower limit, of those at the higher", "", 1.2, over(at(2, staticLow), at(1, staticLow))...),
		evidence.AtLeast(evidence.Shape, "no limit: CGI requests/s, of those without Narthex, where nobody goes first", "", 1.2, over(at(0, cgiHigh), got.at("nothing", 0, rateOf(cgiHigh)))...),
	}
	for _, v := range []string{"HAProxy", "nginx", "mod_qos"} {
		r.Ratios = append(r.Ratios, evidence.Ratio{What: "CGI requests/s without a limit", Peer: v, Samples: over(at(0, cgiHigh), got.at(v, 0, rateOf(cgiHigh)))})
		for x := 1.0; x <= 2; x++ {
			for _, who := range []string{cgiHigh, staticLow} {
				r.Ratios = append(r.Ratios, evidence.Ratio{What: fmt.Sprintf("%s requests/s with CGI limited to %d/s", who, l.rate(x)), Peer: v, Samples: over(at(x, who), got.at(v, x, rateOf(who)))})
			}
		}
	}
	r.Tables = []evidence.Table{l.table(got, variants)}
	return r
}

// table has a row for each variant and kind of request, and what was found then.
func (l *limited) table(got *swept, variants []variant) evidence.Table {
	t := evidence.Table{Title: "Requests/s", Columns: []string{"", "no limit", fmt.Sprintf("CGI limited to %d/s", l.rate(1)), fmt.Sprintf("CGI limited to %d/s", l.rate(2))}}
	for i, who := range []string{cgiHigh, staticLow} {
		row := evidence.Row{Name: "then, " + who}
		for _, then := range cgiThen {
			row.Cells = append(row.Cells, evidence.Cell{Text: then[i]})
		}
		t.Rows = append(t.Rows, row)
	}
	for _, v := range variants {
		for _, figure := range []string{rateOf(cgiHigh), rateOf(staticLow), refusedOf(cgiHigh)} {
			row := evidence.Row{Name: v.name + ", " + figure, Ours: v.ours}
			for x := range cgiShares {
				row.Cells = append(row.Cells, evidence.Cell{Samples: got.at(v.name, float64(x), figure)})
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}
