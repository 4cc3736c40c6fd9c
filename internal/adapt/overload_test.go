// SPDX-License-Identifier: Apache-2.0

package adapt

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func spans(n int, s Sample) []Sample {
	s.Span = 50 * time.Millisecond
	list := make([]Sample, n)
	for i := range list {
		list[i] = s
	}
	return list
}

func TestOverloadState(t *testing.T) {
	var o overload
	config := &Config{QueueSize: 100}
	waits, calm := Sample{Waiting: 50, Held: 5, Arrived: 10}, Sample{Arrived: 10}
	for i, step := range []struct {
		samples int
		s       Sample
		want    bool
	}{
		{4, waits, false}, // 200 ms are not enough
		{1, calm, false},
		{4, waits, false},
		{1, waits, true},
		{39, calm, true},
		{1, calm, false}, // after 2 s
		{5, waits, true}, // again soon:
		{79, calm, true}, // now it takes 4 s
		{1, calm, false},
		{300, calm, false},
		{5, waits, true}, // long after: 2 s again
		{40, calm, false},
	} {
		for _, s := range spans(step.samples, step.s) {
			o.step(&s, config, s.Waiting > 0)
		}
		if got := o.level() == LevelOverload; got != step.want {
			t.Errorf("step %d: overload %v, want %v", i, got, step.want)
		}
	}
	for _, s := range spans(50, Sample{Waiting: 50}) {
		o.step(&s, config, s.Waiting > 0)
	}
	if o.degree < 0.49 || o.degree > 0.51 {
		t.Errorf("degree %.2f with half a queue, want 0.5", o.degree)
	}
	for _, s := range spans(50, Sample{Waiting: 100, Arrived: 100, Rejected: 50}) {
		o.step(&s, config, s.Waiting > 0)
	}
	if o.degree < 1.49 || o.degree > 1.51 {
		t.Errorf("degree %.2f with half of the requests refused, want 1.5", o.degree)
	}
	for _, s := range spans(100, Sample{}) {
		o.step(&s, config, false)
	}
	if o.degree != 0 {
		t.Errorf("degree %g 5 s after it, want 0", o.degree)
	}
}

// Each level has a threshold of its own, and half of it is where it ends.
func TestLevels(t *testing.T) {
	const perSample = 20 // of what happens in a second
	var o overload
	for i, step := range []struct {
		samples         int
		refused, served uint64 // per second
		config          Thresholds
		want            Level
	}{
		{40, 0, 1000, Thresholds{}, LevelOverload},
		{40, 20, 1000, Thresholds{}, LevelRejecting},
		{100, 600, 1000, Thresholds{}, LevelRejecting}, // less than is answered
		{60, 1600, 1000, Thresholds{}, LevelFlooded},
		{200, 700, 1000, Thresholds{}, LevelFlooded}, // more than half of what begins it
		{60, 400, 1000, Thresholds{}, LevelFlooded},  // not for long yet
		{40, 400, 1000, Thresholds{}, LevelRejecting},
		{200, 0, 1000, Thresholds{}, LevelOverload},
		{60, 100, 1000, Thresholds{Rejecting: 200}, LevelOverload},
		{60, 100, 1000, Thresholds{Flooded: 60}, LevelFlooded},
	} {
		for _, s := range spans(step.samples, Sample{Waiting: 50, Arrived: 10, Served: step.served / perSample, Rejected: step.refused / perSample}) {
			o.step(&s, &Config{QueueSize: 100, Thresholds: step.config}, true)
		}
		if got := o.level(); got != step.want {
			t.Errorf("step %d: %s at %.0f turned away, %.0f answered, want %s", i, got, o.refused, o.served, step.want)
		}
	}
}

func TestKeep(t *testing.T) {
	flood := func(arrived, rejected uint64, waiting int) Sample {
		return Sample{Waiting: waiting, Rejected: rejected, Classes: []ClassSample{
			{Arrived: 10}, {Arrived: 10}, {Arrived: arrived, Rejected: rejected}}}
	}
	var k keeper
	step := func(n int, s Sample) (keep []float64) {
		for _, s := range spans(n, s) {
			keep = k.step(&s, 100)
		}
		return keep
	}
	if keep := step(100, flood(100, 0, 95)); keep != nil {
		t.Errorf("keep %v without a rejection, want all", keep)
	}
	if keep := step(100, flood(100, 90, 50)); keep != nil {
		t.Errorf("keep %v with half a queue, want all", keep)
	}
	if keep := step(100, flood(100, 20, 95)); keep != nil {
		t.Errorf("keep %v with 400 rejections/s, want all", keep)
	}
	if keep := step(3, flood(100, 90, 95)); keep != nil {
		t.Errorf("keep %v after 150 ms of a flood, want all", keep)
	}
	if diff := cmp.Diff([]float64{1, 1, 0.12}, step(1, flood(100, 90, 95)), near); diff != "" {
		t.Errorf("first cut: %s", diff)
	}
	if diff := cmp.Diff([]float64{1, 1, 0.12 * 0.7}, step(4, flood(100, 90, 95)), near); diff != "" {
		t.Errorf("second cut, after 200 ms: %s", diff)
	}
	keep := step(400, flood(100, 90, 95))
	if keep[0] != 1 || keep[1] > 0.1 || keep[2] != keepLeast {
		t.Errorf("keep %v after 20 s of it, want the lowest least, then the next, never the highest", keep)
	}
	if keep := step(200, flood(100, 0, 80)); keep[1] < 0.4 || keep[2] > keepLeast {
		t.Errorf("keep %v 10 s after the flood, want the higher class back first", keep)
	}
	if keep := step(80, flood(100, 0, 10)); keep != nil {
		t.Errorf("keep %v 4 s after the queue is short, want all", keep)
	}
	if keep := step(40, flood(100, 90, 95)); keep[2] > 0.1 {
		t.Errorf("keep %v after 2 s of another flood", keep)
	}
	if keep := step(4, flood(100, 0, 0)); keep != nil {
		t.Errorf("keep %v when nobody waits, want all", keep)
	}
}

// Strangers are let in up to a rate of rejections that a quarter of a core does.
func TestKeepStrangers(t *testing.T) {
	var k keeper
	step := func(n int, rate float64, waiting int) float64 {
		for _, s := range spans(n, Sample{Waiting: waiting, Rejected: uint64(rate / 20), Classes: []ClassSample{{}, {}}}) {
			k.step(&s, 100)
		}
		return k.strangers
	}
	if got := step(100, 16_000, 95); got != 0 {
		t.Errorf("%g of the strangers are kept out at 16,000 rejections/s, want none", got)
	}
	if got := step(4, 100_000, 95); got < 0.8 || got > 0.85 {
		t.Errorf("%g of the strangers are kept out at 100,000 rejections/s, want five in six", got)
	}
	if got := step(4, 100_000*(1-k.strangers), 95); got < 0.8 || got > 0.85 {
		t.Errorf("%g of the strangers are kept out when what is left is right, want as many", got)
	}
	if got := step(400, 1e6, 95); got > 1-keepLeast {
		t.Errorf("%g of the strangers are kept out, want some let in", got)
	}
	if got := step(4, 0, 0); got != 0 {
		t.Errorf("%g of the strangers are kept out when nobody waits, want none", got)
	}
}

var near = cmp.Comparer(func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 })

func TestSafe(t *testing.T) {
	var l safeLimit
	step := func(n, limit int) (safe int) {
		for range n {
			safe = l.step(&Sample{Span: time.Second}, limit)
		}
		return safe
	}
	for i, x := range []struct{ seconds, limit, want int }{
		{100, 0, 0}, // never limited
		{20, 8, 0},  // not for long
		{20, 8, 16}, // for most of a minute
		{10, 1, 16}, // short disturbances do not move it
		{70, 50, 100},
		{29, 0, 100},
		{3, 0, 0},
	} {
		if got := step(x.seconds, x.limit); got != x.want {
			t.Errorf("step %d: safe limit %d, want %d", i, got, x.want)
		}
	}
}
