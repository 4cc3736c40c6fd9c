// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/load"
)

const (
	overheadPairs   = 30
	overheadClients = 32 // enough to keep the server's core at work
)

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
	if _, err := st.Serve(st.Nginx(st.rig)); err != nil {
		return nil, err
	}
	o := bench.Overhead{
		Pairs:   overheadPairs,
		Others:  4 * *foreign, // of such a short time; it does not count as work
		Start:   func(ctx context.Context) (*bench.Narthex, error) { return st.narthex(ctx, overheadRoom) },
		Measure: st.slice,
	}
	for _, c := range []struct {
		keepAlive bool
		most      float64
	}{{false, 1.05}, {true, 1.03}} {
		got, err := o.Figures(ctx, st.Bench, c.keepAlive, bench.AtMost(c.most))
		if figures = append(figures, got...); err != nil {
			return figures, err
		}
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
	f = bench.Figure{What: "time of programs, " + bench.Manner(keepAlive), Unit: "µs"}
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
	c, err := bench.Gather(ctx, st.few(keepAlive))
	if err != nil {
		return f, err
	}
	defer c.End()
	for range *runs {
		before, err := attached.Spent()
		if err != nil {
			return f, err
		}
		s, err := st.Measure(ctx, c, 0, length()/2)
		if err != nil {
			return f, err
		}
		after, err := attached.Spent()
		if err != nil {
			return f, err
		}
		f.Samples = append(f.Samples, (after-before).Seconds()*1e6/float64(s.Answered()))
	}
	return f, nil
}

// few are clients none of whom has to wait.
func (st *stage) few(keepAlive bool) load.Closed {
	client := st.goldClients()
	client.Path = lab.NginxFile
	return load.Closed{Client: client, Clients: overheadClients, KeepAlive: keepAlive}
}

// slice measures for a short time: the work per request in microseconds, and the share of the core
// that others took.
func (st *stage) slice(ctx context.Context, keepAlive bool) (cost, others float64, err error) {
	s, err := st.Once(ctx, bench.OverheadSettle, bench.OverheadSlice, st.few(keepAlive))
	if err != nil {
		return 0, 0, err
	}
	if s.Answered() == 0 || bench.Failed(s.Reports[0]) > 0 || s.Overflows > 0 {
		return 0, 0, fmt.Errorf("no answers, or others than expected: %s", bench.Outcomes(s.Reports[0]))
	}
	return s.PerAnswer(), s.Others, nil
}
