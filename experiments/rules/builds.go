// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"narthex/experiments/internal/bench"
)

var (
	beside = flag.String("beside", "", "another build of narthex, with which builds compares the one at hand")
	match  = flag.Bool("match", false, "builds: with a request rule that matches")
)

// builds compares two builds by the time that their programs take per request, of new connections and kept ones. They
// take turns, so that each sample is of a pair.
func (b suite) builds(ctx context.Context) (figures []bench.Figure, err error) {
	if *beside == "" {
		return nil, errors.New("-beside says with which build")
	}
	st, err := b.stage("builds")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if _, err := st.Serve(st.nginx(longPath)); err != nil {
		return nil, err
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stats.Close()) }()
	for _, keepAlive := range []bool{false, true} {
		got, err := st.pairs(ctx, keepAlive)
		if figures = append(figures, got...); err != nil {
			return figures, err
		}
	}
	return figures, nil
}

// pairs measures both builds so often.
func (st *stage) pairs(ctx context.Context, keepAlive bool) ([]bench.Figure, error) {
	what := bench.Manner(keepAlive)
	this, other, ratio := bench.Figure{What: what, Unit: "µs"}, bench.Figure{What: what + ", beside", Unit: "µs"}, bench.Figure{What: what + ", ratio"}
	programs := [2]string{st.Program, *beside}
	defer func() { st.Program = programs[0] }()
	var each [2]map[string]bench.Spent
	for i := range *pairs {
		var spent [2]float64
		for _, k := range []int{i % 2, 1 - i%2} {
			st.Program = programs[k]
			rules := noRules
			if *match {
				rules = overheadRules
			}
			got, err := st.programsOnce(ctx, rules, keepAlive)
			if err != nil {
				return nil, err
			}
			each[k] = got
			for _, s := range got {
				spent[k] += s.Microseconds
			}
		}
		this.Samples, other.Samples = append(this.Samples, spent[0]), append(other.Samples, spent[1])
		ratio.Samples = append(ratio.Samples, spent[0]/spent[1])
	}
	low, high := bench.Interval(ratio.Samples)
	ratio.Note = fmt.Sprintf("95 %% interval of the median %s–%s", bench.Number(low), bench.Number(high))
	for _, name := range slices.Sorted(maps.Keys(each[0])) {
		a, z := each[0][name], each[1][name]
		st.Progress("  %-24s %6.2f µs in %5.2f runs, beside %6.2f µs in %5.2f", name, a.Microseconds, a.Runs, z.Microseconds, z.Runs)
	}
	return []bench.Figure{this, other, ratio}, nil
}
