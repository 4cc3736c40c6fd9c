// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"narthex/experiments/internal/bench"
)

// noRules have nothing asked of requests: what remains is the waiting room.
const noRules = "  []\n"

// programs returns the time of Narthex's programs per request, with rules and without. It is the greater part
// of what they add to the work, and less noisy than that.
func (st *stage) programs(ctx context.Context, keepAlive bool) (figures []bench.Figure, err error) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stats.Close()) }()
	what := bench.Manner(keepAlive)
	figures = []bench.Figure{
		{What: "time of programs, " + what + ", no rules", Unit: "µs"},
		{What: "time of programs, " + what + ", a rule matches", Unit: "µs"},
	}
	for i := range 2 * *runs {
		f, rules := &figures[0], noRules
		if i%2 > 0 {
			f, rules = &figures[1], overheadRules
		}
		spent, err := st.programsOnce(ctx, rules, keepAlive)
		if err != nil {
			return figures, err
		}
		sum := 0.0
		for _, s := range spent {
			sum += s.Microseconds
		}
		f.Samples = append(f.Samples, sum)
	}
	return figures, nil
}

// programsOnce returns what each program takes per request.
func (st *stage) programsOnce(ctx context.Context, rules string, keepAlive bool) (perRequest map[string]bench.Spent, err error) {
	n, err := st.narthex(ctx, rules)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	attached, err := bench.OpenPrograms(n.Instance)
	if err != nil {
		return nil, err
	}
	defer attached.Close()
	c, err := st.visit(ctx, keepAlive)
	if err != nil {
		return nil, err
	}
	defer c.End()
	before, err := attached.Each()
	if err != nil {
		return nil, err
	}
	if err := bench.Sleep(ctx, 4*bench.OverheadSlice); err != nil {
		return nil, err
	}
	after, err := attached.Each()
	return bench.Since(after, before, float64(c.Interval().Answered())), err
}
