// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/load"
)

const (
	accuracyRate    = 50 // connections/s that the rule lets in
	accuracyBurst   = 5
	accuracyOffered = 2000 // connections/s

	// accuracyInterval is how long a token takes. A time that ends in the middle of one
	// does not hang on which came first, the last SYN or the last token.
	accuracyInterval = time.Second / accuracyRate
)

// accuracy offers a rule many more connections than it lets in. Each client gives up
// before its SYN is repeated, so that connections, SYNs and attempts are the same number.
func (b suite) accuracy(ctx context.Context) ([]bench.Figure, error) {
	var figures []bench.Figure
	for _, per := range []string{"rule", "source"} {
		b.Progress("  %d/s offered to %d/s, per: %s", accuracyOffered, accuracyRate, per)
		f, err := b.accuracyPer(ctx, per)
		if err != nil {
			return figures, err
		}
		figures = append(figures, f...)
	}
	return figures, nil
}

func (b suite) accuracyPer(ctx context.Context, per string) (figures []bench.Figure, err error) {
	rig, err := b.Lab("accuracy", 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rig.Close()) }()
	if _, err := b.Nginx(rig); err != nil {
		return nil, err
	}
	policy, err := writePolicy(rig, "", fmt.Sprintf("  - {name: limited, rate: %d/s, burst: %d, per: %s}\n",
		accuracyRate, accuracyBurst, per))
	if err != nil {
		return nil, err
	}
	n, err := b.Start(ctx, rig.Server, policy)
	if err != nil {
		return nil, err
	}
	client := b.client(rig, 0, pick(10*time.Second, 3*time.Second)+accuracyInterval/2)
	client.ConnectTimeout, client.Record = load.OneSYN, true
	run, err := load.Open{Client: client, Rate: accuracyOffered, ConnectOnly: true}.Start(ctx)
	if err != nil {
		return nil, err
	}
	offered, err := run.Wait()
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	status, err := n.Status(ctx)
	if err != nil {
		return nil, err
	}
	limited, err := bench.Rule(status, "limited")
	if err != nil {
		return nil, err
	}
	return judgeAccuracy(per, offered, limited.Matched, limited.Passed)
}

// judgeAccuracy compares what was let in with rate × time + burst, where time is that
// from the first SYN to the last. The rule's counters are exact, and must agree with what
// the clients saw.
func judgeAccuracy(per string, offered *load.Report, matched, passed uint64) ([]bench.Figure, error) {
	events := offered.Events
	slices.SortFunc(events, func(a, b load.Event) int { return cmp.Compare(a.Begun, b.Begun) })
	if matched != offered.Begun || len(events) != int(offered.Begun) || len(events) <= accuracyBurst {
		return nil, fmt.Errorf("per: %s: the clients began %d connections, the rule saw %d SYNs", per, offered.Begun, matched)
	}
	span := events[len(events)-1].Begun - events[0].Begun
	ideal := accuracyRate*span.Seconds() + accuracyBurst
	note := fmt.Sprintf("%d SYNs in %.4f s: %.2f expected, %d let in, %d connected",
		matched, span.Seconds(), ideal, passed, offered.Connected)
	atOnce := 0
	for _, e := range events[:accuracyBurst] {
		if e.Outcome == load.OK {
			atOnce++
		}
	}
	return []bench.Figure{
		{What: "let in − (rate × time + burst), per: " + per, Samples: []float64{float64(passed) - ideal}, Wanted: bench.Always(-1, 1), Note: note},
		{What: "let in − connected, per: " + per, Samples: []float64{float64(passed) - float64(offered.Connected)}, Wanted: bench.Always(0, 0)},
		{What: "of the first 5 SYNs let in, per: " + per, Samples: []float64{float64(atOnce)}, Wanted: bench.Always(accuracyBurst, accuracyBurst)},
	}, nil
}
