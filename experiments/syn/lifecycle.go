// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
)

// lifecycle times what a large policy makes slow. Each time is that of a whole command as
// a user sees it.
func (b suite) lifecycle(ctx context.Context) (figures []bench.Figure, err error) {
	rig, err := b.Lab("lifecycle", 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rig.Close()) }()
	policies, err := twoPolicies(rig)
	if err != nil {
		return nil, err
	}
	checks := bench.Figure{What: "check of 10,000 rules", Unit: "s", Wanted: bench.AtMost(1)}
	loads := bench.Figure{What: "run of 10,000 rules, until ready", Unit: "s", Wanted: bench.AtMost(2)}
	reloads := bench.Figure{What: "reload of 10,000 rules by 10,000 others", Unit: "s", Wanted: bench.AtMost(2)}
	for i := range pick(9, 5) {
		begun := time.Now()
		if _, err := bench.Command(ctx, b.Program, "check", policies[i%2]); err != nil {
			return nil, err
		}
		checks.Samples = append(checks.Samples, time.Since(begun).Seconds())
		n, err := b.Start(ctx, rig.Server, policies[i%2])
		if err != nil {
			return nil, err
		}
		loads.Samples = append(loads.Samples, n.Startup.Seconds())
		took, err := n.Reload(ctx, policies[(i+1)%2])
		if err := errors.Join(err, n.Stop()); err != nil {
			return nil, err
		}
		reloads.Samples = append(reloads.Samples, took.Seconds())
	}
	return []bench.Figure{checks, loads, reloads}, nil
}

// twoPolicies writes two large policies that have in common only the rule for everyone.
func twoPolicies(rig *lab.Lab) (paths [2]string, err error) {
	for i := range paths {
		if paths[i], err = largePolicy(rig, uint64(i)+1); err != nil {
			return paths, err
		}
	}
	return paths, nil
}
