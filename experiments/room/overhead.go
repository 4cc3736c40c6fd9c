// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"narthex/experiments/internal/bench"
	"narthex/internal/load"
	"narthex/internal/testnet"
)

// Both cases take turns many times and for a short time each: the machine is noisy.
const (
	overheadPairs   = 30
	overheadSettle  = 100 * time.Millisecond // after Narthex came or went, and after the clients came
	overheadSlice   = 150 * time.Millisecond
	overheadClients = 32 // enough to keep the server's core at work
)

// overheadOthers is the share of the core's time that others on the machine may take during
// such a short time. It does not count as work.
func overheadOthers() float64 { return 4 * *foreign }

// overheadRoom has room for all clients.
var overheadRoom = room{concurrency: 10 * overheadClients}

// overhead: a waiting room in which nobody has to wait. What is compared is for how long the
// server's core is at work per request, process and softirq.
func (b suite) overhead(ctx context.Context) (figures []bench.Figure, err error) {
	st, err := b.stage("overhead")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if _, err := st.serve(st.Nginx(st.lab)); err != nil {
		return nil, err
	}
	for _, c := range []struct {
		what      string
		keepAlive bool
		control   bool
		wanted    *bench.Bound
	}{
		{"control, one request per connection", false, true, nil},
		{"one request per connection, with / without", false, false, bench.AtMost(1.05)},
		{"control, connections kept", true, true, nil},
		{"connections kept, with / without", true, false, bench.AtMost(1.03)},
	} {
		f, err := st.compare(ctx, c.keepAlive, c.control)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", c.what, err)
		}
		f.What, f.Wanted = c.what, c.wanted
		st.Progress("  %s: × %s (quartiles %s); %s", f.What, bench.Number(f.Median()), f.Spread(), f.Note)
		figures = append(figures, f)
	}
	for _, keepAlive := range []bool{false, true} {
		share, err := st.programs(ctx, keepAlive)
		if err != nil {
			return figures, err
		}
		figures = append(figures, share)
	}
	return figures, nil
}

// programs returns the time of Narthex's programs per request. It is the greater part of the
// difference, and less noisy than that.
func (st *stage) programs(ctx context.Context, keepAlive bool) (f bench.Figure, err error) {
	f = bench.Figure{What: "time of programs, one request per connection", Unit: "µs"}
	if keepAlive {
		f.What = "time of programs, connections kept"
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, stats.Close()) }()
	n, err := st.narthex(ctx, overheadRoom)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	attached, err := bench.OpenPrograms(n.Instance)
	if err != nil {
		return f, err
	}
	defer attached.Close()
	c, err := start(ctx, st.few(keepAlive))
	if err != nil {
		return f, err
	}
	defer c.end()
	for range *runs {
		before, err := attached.Spent()
		if err != nil {
			return f, err
		}
		s, err := st.measure(ctx, c, 0, length()/2)
		if err != nil {
			return f, err
		}
		after, err := attached.Spent()
		if err != nil {
			return f, err
		}
		f.Samples = append(f.Samples, (after-before).Seconds()*1e6/float64(s.answered()))
	}
	return f, nil
}

// few are clients none of whom has to wait.
func (st *stage) few(keepAlive bool) load.Closed {
	client := st.goldClients()
	client.Path = testnet.NginxFile
	return load.Closed{Client: client, Clients: overheadClients, KeepAlive: keepAlive}
}

// compare returns how much more work the server's core has per request with Narthex than
// without. The control has Narthex come and go again before the one half.
func (st *stage) compare(ctx context.Context, keepAlive, control bool) (f bench.Figure, err error) {
	var costs [2][]float64 // per request in microseconds, without and with
	disturbed := 0
	for i := 0; len(f.Samples) < overheadPairs && disturbed < overheadPairs; i++ {
		var s [2]*sample
		for _, with := range []int{i % 2, 1 - i%2} {
			if s[with], err = st.slice(ctx, keepAlive, with == 1, control); err != nil {
				return f, err
			}
		}
		if max(s[0].others, s[1].others) > overheadOthers() {
			disturbed++
			continue
		}
		for with := range costs {
			costs[with] = append(costs[with], s[with].perAnswer())
		}
		f.Samples = append(f.Samples, s[1].perAnswer()/s[0].perAnswer())
	}
	f.Note = fmt.Sprintf("%s µs per request without and %s µs with; %d pairs not counted, as others took more than %.0f %% of the core",
		bench.Number(bench.Median(costs[0])), bench.Number(bench.Median(costs[1])), disturbed, 100*overheadOthers())
	return f, nil
}

// slice measures for a short time.
func (st *stage) slice(ctx context.Context, keepAlive, with, control bool) (s *sample, err error) {
	if with {
		n, err := st.narthex(ctx, overheadRoom)
		if err != nil {
			return nil, err
		}
		stop := n.Stop
		if control {
			if err := n.Stop(); err != nil {
				return nil, err
			}
			stop = func() error { return nil }
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	if err := bench.Sleep(ctx, overheadSettle); err != nil {
		return nil, err
	}
	s, err = st.once(ctx, overheadSettle, overheadSlice, st.few(keepAlive))
	if err != nil {
		return nil, err
	}
	if s.answered() == 0 || failed(s.reports[0]) > 0 || s.overflows > 0 {
		return nil, fmt.Errorf("no answers, or others than expected: %s", bench.Outcomes(s.reports[0]))
	}
	return s, nil
}
