// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/internal/load"
)

const (
	fairRate    = 50            // connections/s that the first client may open
	fairOffered = 20 * fairRate // and that it tries to open
	fairWork    = 500 * time.Microsecond
	fairClients = 10
)

// fairCase is a second client beside one that is policed.
type fairCase struct {
	what   string
	rules  string
	second func(b suite, c load.Client) bench.Starter
}

// The second client is once a closed loop that takes all the server has to give, with a
// bucket of its own that it cannot empty, so that the first client's SYNs would be felt at
// once; and once subject to the very rule that polices the first, close to its rate. What
// the first client is let in it only connects, for its requests would rightly take their
// share.
var fairCases = []fairCase{
	{
		what: "a saturating closed loop, together / alone",
		rules: fmt.Sprintf("  - {name: first, from: 10.77.1.1, rate: %d/s, burst: 5, per: source}\n", fairRate) +
			fmt.Sprintf("  - {name: everyone, %s, per: source}\n", unlimited),
		second: func(_ suite, c load.Client) bench.Starter { return load.Closed{Client: c, Clients: fairClients} },
	},
	{
		what:  "48 connections/s under the same rule, together / alone",
		rules: fmt.Sprintf("  - {name: everyone, rate: %d/s, burst: 5, per: source}\n", fairRate),
		second: func(_ suite, c load.Client) bench.Starter {
			c.ConnectTimeout = load.OneSYN
			return load.Open{Client: c, Rate: 0.96 * fairRate}
		},
	},
}

// fairness compares what the second client gets alone and while the first is policed.
func (b suite) fairness(ctx context.Context) ([]bench.Figure, error) {
	var figures []bench.Figure
	for _, c := range fairCases {
		b.Progress("  %s", c.what)
		f, err := b.fair(ctx, c)
		if err != nil {
			return figures, err
		}
		figures = append(figures, f)
	}
	return figures, nil
}

func (b suite) fair(ctx context.Context, c fairCase) (f bench.Figure, err error) {
	f = bench.Figure{What: c.what, Wanted: bench.AtLeast(0.98)}
	rig, err := b.Lab("fairness", 2)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, rig.Close()) }()
	if _, err := origin.Start(rig.Server, origin.Config{
		Listen: []netip.AddrPort{bench.Web(rig)}, Work: fairWork, Workers: 50, CPUs: b.ServerCPUs,
	}); err != nil {
		return f, err
	}
	policy, err := writePolicy(rig, "", c.rules)
	if err != nil {
		return f, err
	}
	if _, err := b.Start(ctx, rig.Server, policy); err != nil {
		return f, err
	}
	var alone, together []float64
	for i := range pick(7, 3) {
		rates, err := b.fairPair(ctx, rig, c, i%2 == 1)
		if err != nil {
			return f, err
		}
		b.Progress("    %4.0f/s alone, %4.0f/s together", rates[0], rates[1])
		alone, together = append(alone, rates[0]), append(together, rates[1])
		f.Samples = append(f.Samples, rates[1]/rates[0])
	}
	f.Note = fmt.Sprintf("medians: %s/s alone, %s/s together", bench.Number(bench.Median(alone)), bench.Number(bench.Median(together)))
	return f, nil
}

// fairPair measures the second client alone and together with the first, or the other way
// round, so that a drift weighs on both.
func (b suite) fairPair(ctx context.Context, rig *lab.Lab, c fairCase, togetherFirst bool) (rates [2]float64, err error) {
	order := []int{0, 1}
	if togetherFirst {
		order = []int{1, 0}
	}
	for _, together := range order {
		if rates[together], err = b.fairOnce(ctx, rig, c, together == 1); err != nil {
			return rates, err
		}
	}
	return rates, nil
}

// fairOnce returns the requests/s of the second client.
func (b suite) fairOnce(ctx context.Context, rig *lab.Lab, c fairCase, together bool) (float64, error) {
	const warmUp = 300 * time.Millisecond
	measured := pick(1700*time.Millisecond, 1200*time.Millisecond)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if together {
		first := b.client(rig, 0, warmUp+measured+time.Second)
		first.ConnectTimeout = load.OneSYN
		run, err := load.Open{Client: first, Rate: fairOffered, ConnectOnly: true}.Start(ctx)
		if err != nil {
			return 0, err
		}
		defer func() {
			cancel()
			<-run.Done()
		}()
	}
	run, err := c.second(b, b.client(rig, 1, warmUp+measured+time.Second)).Start(ctx)
	if err != nil {
		return 0, err
	}
	defer func() {
		cancel()
		<-run.Done()
	}()
	if err := bench.Sleep(ctx, warmUp); err != nil {
		return 0, err
	}
	run.Interval()
	if err := bench.Sleep(ctx, measured); err != nil {
		return 0, err
	}
	r := run.Interval()
	if r.Outcomes[load.OK] == 0 {
		return 0, fmt.Errorf("the second client was not served: %s", bench.Outcomes(r))
	}
	return r.Rate(), nil
}
