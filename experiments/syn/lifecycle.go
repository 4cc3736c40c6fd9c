// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"narthex/internal/testnet"
)

// lifecycle times what a large policy makes slow. Each time is that of a whole command as
// a user sees it.
func (b *bench) lifecycle(ctx context.Context) (figures []figure, err error) {
	lab, err := b.lab("lifecycle", 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	policies, err := twoPolicies(lab)
	if err != nil {
		return nil, err
	}
	checks := figure{What: "check of 10,000 rules", Unit: "s", Wanted: atMost(1)}
	loads := figure{What: "run of 10,000 rules, until ready", Unit: "s", Wanted: atMost(2)}
	reloads := figure{What: "reload of 10,000 rules by 10,000 others", Unit: "s", Wanted: atMost(2)}
	for i := range pick(b, 9, 5) {
		begun := time.Now()
		if _, err := command(ctx, b.narthex, "check", policies[i%2]); err != nil {
			return nil, err
		}
		checks.Samples = append(checks.Samples, time.Since(begun).Seconds())
		n, err := b.start(ctx, lab.Server, policies[i%2])
		if err != nil {
			return nil, err
		}
		loads.Samples = append(loads.Samples, n.Startup.Seconds())
		took, err := n.reload(ctx, policies[(i+1)%2])
		if err := errors.Join(err, n.stop()); err != nil {
			return nil, err
		}
		reloads.Samples = append(reloads.Samples, took.Seconds())
	}
	return []figure{checks, loads, reloads}, nil
}

// twoPolicies writes two large policies that have in common only the rule for everyone.
func twoPolicies(lab *testnet.Lab) (paths [2]string, err error) {
	for i := range paths {
		if paths[i], err = largePolicy(lab, uint64(i)+1); err != nil {
			return paths, err
		}
	}
	return paths, nil
}
