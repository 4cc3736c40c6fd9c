// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/load"
)

// Both cases take turns many times and for a short time each: the machine is noisy.
const (
	settle  = 100 * time.Millisecond // after Narthex came or went, and after the clients came
	slice   = 150 * time.Millisecond
	clients = 20
)

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
	st, err := b.stage("overhead")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if err := st.serve(st.nginx(longPath)); err != nil {
		return nil, err
	}
	for _, c := range []struct {
		what      string
		keepAlive bool
		control   bool
		wanted    *bench.Bound
	}{
		{"control, one request per connection", false, true, nil},
		{"one request per connection, with / without", false, false, bench.AtMost(1.06)},
		{"control, connections kept", true, true, nil},
		{"connections kept, with / without", true, false, bench.AtMost(1.06)},
	} {
		f, err := st.compare(ctx, c.keepAlive, c.control)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", c.what, err)
		}
		f.What, f.Wanted = c.what, c.wanted
		st.Progress("  %s: × %s (quartiles %s); %s", f.What, bench.Number(f.Median()), f.Spread(), f.Note)
		figures = append(figures, f)
		if c.control {
			continue
		}
		time, err := st.programs(ctx, strings.TrimSuffix(c.what, ", with / without"), c.keepAlive)
		if figures = append(figures, time...); err != nil {
			return figures, err
		}
	}
	return figures, nil
}

// compare returns how much more work the server's core has per request with Narthex than
// without. The control has Narthex come and go again before the one half.
func (st *stage) compare(ctx context.Context, keepAlive, control bool) (f bench.Figure, err error) {
	var costs [2][]float64 // per request in microseconds, without and with
	disturbed := 0
	for i := 0; len(f.Samples) < *pairs && disturbed < *pairs; i++ {
		var cost, others [2]float64
		for _, with := range []int{i % 2, 1 - i%2} {
			if cost[with], others[with], err = st.once(ctx, keepAlive, with == 1, control); err != nil {
				return f, err
			}
		}
		if max(others[0], others[1]) > *foreign {
			disturbed++
			continue
		}
		for with := range costs {
			costs[with] = append(costs[with], cost[with])
		}
		f.Samples = append(f.Samples, cost[1]/cost[0])
	}
	f.Note = fmt.Sprintf("%s µs per request without and %s µs with; %d pairs not counted, as others took more than %.0f %% of the core",
		bench.Number(bench.Median(costs[0])), bench.Number(bench.Median(costs[1])), disturbed, 100**foreign)
	return f, nil
}

// once measures for a short time: the work per request in microseconds, and the share of the core that
// others took.
func (st *stage) once(ctx context.Context, keepAlive, with, control bool) (cost, others float64, err error) {
	if with {
		n, err := st.narthex(ctx, overheadRules)
		if err != nil {
			return 0, 0, err
		}
		stop := n.Stop
		if control {
			if err := n.Stop(); err != nil {
				return 0, 0, err
			}
			stop = func() error { return nil }
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	if err := bench.Sleep(ctx, settle); err != nil {
		return 0, 0, err
	}
	run, end, err := st.visit(ctx, keepAlive)
	if err != nil {
		return 0, 0, err
	}
	defer end()
	begun, busy := time.Now(), st.core.Busy()
	worked, err := st.core.Spent(st.workers)
	if err != nil {
		return 0, 0, err
	}
	if err := bench.Sleep(ctx, slice); err != nil {
		return 0, 0, err
	}
	work, err := st.core.Spent(st.workers)
	if err != nil {
		return 0, 0, err
	}
	r, took := run.Interval(), time.Since(begun)
	work -= worked
	answered := r.Outcomes[load.OK]
	if answered == 0 || uint64(r.Statuses[http.StatusOK]) != answered+r.Outcomes[load.OtherStatus] {
		return 0, 0, fmt.Errorf("no answers, or others than expected: %s", bench.Outcomes(r))
	}
	return work.Seconds() * 1e6 / float64(answered), (st.core.Busy() - busy - work).Seconds() / took.Seconds(), nil
}

// visit starts clients, and gives them time to settle before what they do next is counted.
func (st *stage) visit(ctx context.Context, keepAlive bool) (run *load.Run, end func(), err error) {
	client := st.Client(st.lab, st.lab.ClientsV4, load.MaxDuration)
	client.Path = longPath
	ctx, cancel := context.WithCancel(ctx)
	run, err = load.Closed{Client: client, Clients: clients, KeepAlive: keepAlive}.Start(ctx)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	end = func() {
		cancel()
		<-run.Done()
	}
	if err := bench.Sleep(ctx, settle); err != nil {
		end()
		return nil, nil, err
	}
	run.Interval()
	return run, end, nil
}
