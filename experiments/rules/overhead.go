// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"narthex/experiments/internal/bench"
	"narthex/internal/load"
)

const clients = 20

// longPath has 160 characters.
var longPath = "/" + strings.Repeat("articles-", 17) + "a.html"

// overheadRules have a rule that matches each request behind some that match none.
var overheadRules = `  - {name: noaccess, path: /noaccess, action: drop}
  - {name: cgi, path: ["/cgi-bin/*", "*.php"], rate: 10/s, burst: 2}
  - {name: articles, path: "` + longPath + `", class: gold}
`

// overhead: 20 clients ask for 8 KB by a URL of 160 characters that a rule matches. What is compared is
// for how long the server's core is at work per request, process and softirq.
func (b suite) overhead(ctx context.Context) (figures []bench.Figure, err error) {
	st, o, err := b.inPairs("overhead")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	o.Measure = st.slice
	for _, keepAlive := range []bool{false, true} {
		got, err := o.Figures(ctx, st.Bench, keepAlive, bench.AtMost(1.06))
		if figures = append(figures, got...); err != nil {
			return figures, err
		}
		spent, err := st.programs(ctx, keepAlive)
		if figures = append(figures, spent...); err != nil {
			return figures, err
		}
	}
	return figures, nil
}

// inPairs has nginx with a file of 8 KB on a stage, to be measured with a rule that matches and without.
func (b suite) inPairs(purpose string) (st *stage, o bench.Overhead, err error) {
	if st, err = b.stage(purpose); err != nil {
		return nil, o, err
	}
	if _, err := st.Serve(st.nginx(longPath)); err != nil {
		return nil, o, errors.Join(err, st.close())
	}
	start := func(ctx context.Context) (*bench.Narthex, error) { return st.narthex(ctx, overheadRules) }
	return st, bench.Overhead{Pairs: *pairs, Others: *foreign, Start: start}, nil
}

// slice measures for a short time: the work per request in microseconds, and the share of the core that
// others took.
func (st *stage) slice(ctx context.Context, keepAlive bool) (cost, others float64, err error) {
	c, err := st.visit(ctx, keepAlive)
	if err != nil {
		return 0, 0, err
	}
	defer c.End()
	u, err := st.Use(ctx, bench.OverheadSlice)
	if err != nil {
		return 0, 0, err
	}
	r := c.Interval()[0]
	answered := r.Outcomes[load.OK]
	if answered == 0 || uint64(r.Statuses[http.StatusOK]) != answered+r.Outcomes[load.OtherStatus] {
		return 0, 0, fmt.Errorf("no answers, or others than expected: %s", bench.Outcomes(r))
	}
	return u.Work.Seconds() * 1e6 / float64(answered), u.Others, nil
}

// visit starts clients, and gives them time to settle before what they do next is counted.
func (st *stage) visit(ctx context.Context, keepAlive bool) (*bench.Crowd, error) {
	client := st.Client(st.rig, st.rig.ClientsV4, load.MaxDuration)
	client.Path = longPath
	c, err := bench.Gather(ctx, load.Closed{Client: client, Clients: clients, KeepAlive: keepAlive})
	if err != nil {
		return nil, err
	}
	if err := bench.Sleep(ctx, bench.OverheadSettle); err != nil {
		c.End()
		return nil, err
	}
	c.Interval()
	return c, nil
}
