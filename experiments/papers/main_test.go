// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/evidence"
)

func TestChoose(t *testing.T) {
	all := inOrder([]experiment{{id: "tab6"}, {id: "mine"}}, []experiment{{id: "fig12"}, {id: "fig5"}})
	for only, want := range map[string]string{
		"": "fig5 tab6 fig12 mine", "fig12": "fig12", "fig12, fig5": "fig5 fig12", "mine,tab6": "tab6 mine",
	} {
		chosen, err := choose(all, only)
		if got := ids(chosen, " "); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", only, got, err, want)
		}
	}
	if _, err := choose(all, "fig5,fig1"); err == nil || !strings.Contains(err.Error(), `"fig1"`) {
		t.Errorf("an unknown experiment: %v", err)
	}
}

func TestCommand(t *testing.T) {
	for _, c := range []struct {
		options options
		want    string
	}{
		{options{program: "bin/narthex", runs: 3, seconds: 1.2, out: "x"}, "make experiments ONLY=fig5"},
		{options{only: "fig5,tab6", runs: 1, seconds: 1.2, quick: true}, "make experiments ONLY=fig5 QUICK=1"},
		{options{runs: 5, seconds: 2}, `make experiments ONLY=fig5 EXPERIMENTARGS="-runs 5 -seconds 2"`},
	} {
		if got := c.options.command("fig5"); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if got := (options{only: "fig5,tab6", runs: 3, seconds: 1.2}).command(); got != "make experiments ONLY=fig5,tab6" {
		t.Errorf("of the whole: %q", got)
	}
}

// TestApart has variants compared at a load be measured one after the other.
func TestApart(t *testing.T) {
	var got []string
	for _, v := range apart([]float64{0, 2, 10}, variant{name: "a"}, variant{name: "b", xs: []float64{2, 10}}, variant{name: "c", xs: []float64{0, 5}}) {
		got = append(got, fmt.Sprint(v.name, v.xs))
	}
	if want := []string{"a[0]", "c[0]", "a[2]", "b[2]", "a[10]", "b[10]"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// found is an experiment that finds something, or not.
func found(id string, samples ...float64) experiment {
	return experiment{id, func(*suite, context.Context) (*evidence.Result, error) {
		return &evidence.Result{Claims: []evidence.Claim{evidence.AtLeast(evidence.Figure, "x", "", 1, samples...)}}, nil
	}}
}

// do does experiments and returns what the report has then.
func do(t *testing.T, ctx context.Context, chosen ...experiment) (ok bool, verdicts map[string]evidence.Verdict, err error) {
	t.Helper()
	dir := t.TempDir()
	p := &paper{options{out: dir, runs: 3, seconds: 1.2, only: ids(chosen, ",") + ","}, &evidence.Machine{}, time.Now()}
	ok, err = (&suite{Bench: &bench.Bench{}, runs: 3}).doAll(ctx, chosen, p)
	report, openErr := evidence.Open(dir, nil)
	if openErr != nil {
		t.Fatal(openErr)
	}
	verdicts = map[string]evidence.Verdict{}
	for _, r := range report.Results {
		verdicts[r.ID] = r.Verdict()
	}
	return ok, verdicts, err
}

// TestGoesOn has the report hold what did not work, and the exit status say so.
func TestGoesOn(t *testing.T) {
	broken := experiment{"fig6", func(*suite, context.Context) (*evidence.Result, error) { return nil, errors.New("no nginx") }}
	for _, c := range []struct {
		name   string
		chosen []experiment
		want   []evidence.Verdict
		ok     bool
	}{
		{"all hold", []experiment{found("fig5", 1), found("fig6", 2)}, []evidence.Verdict{evidence.Holds, evidence.Holds}, true},
		{"one does not", []experiment{found("fig5", 0.5), found("fig6", 2)}, []evidence.Verdict{evidence.Fails, evidence.Holds}, false},
		{"one measures nothing", []experiment{found("fig5"), found("fig6", 2)}, []evidence.Verdict{evidence.NotJudged, evidence.Holds}, false},
		{"one fails", []experiment{broken, found("fig5", 1)}, []evidence.Verdict{evidence.NotJudged, evidence.Holds}, false},
		{"nothing is done", nil, nil, false},
	} {
		ok, verdicts, err := do(t, t.Context(), c.chosen...)
		if ok != c.ok || err != nil {
			t.Errorf("%s: %v, %v, want %v", c.name, ok, err, c.ok)
		}
		var got []evidence.Verdict
		for _, e := range c.chosen {
			got = append(got, verdicts[e.id])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestComplete has a report fail that lacks experiments, unless only some were wanted.
func TestComplete(t *testing.T) {
	var all []experiment
	for _, id := range order {
		all = append(all, found(id, 1))
	}
	p := &paper{options{out: t.TempDir(), runs: 3, seconds: 1.2}, &evidence.Machine{}, time.Now()}
	s := &suite{Bench: &bench.Bench{}, runs: 3}
	if _, err := s.doAll(t.Context(), all[1:], p); err == nil || !strings.Contains(err.Error(), order[0]) {
		t.Errorf("without %s: %v", order[0], err)
	}
	if ok, err := s.doAll(t.Context(), all, p); !ok || err != nil {
		t.Errorf("with all: %v, %v", ok, err)
	}
}

// TestInterrupted has the report keep what was done, and nothing of what was not.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	interrupted := experiment{"fig6", func(*suite, context.Context) (*evidence.Result, error) {
		cancel()
		return nil, ctx.Err()
	}}
	ok, verdicts, err := do(t, ctx, found("fig5", 1), interrupted, found("fig7", 1))
	if ok || err == nil || len(verdicts) != 1 || verdicts["fig5"] != evidence.Holds {
		t.Errorf("%v, %v, the report has %v", ok, err, verdicts)
	}
}

// TestNoTimeLeft has the experiment in which time ran out not judged, and the rest not done.
func TestNoTimeLeft(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	late := experiment{"fig6", func(_ *suite, ctx context.Context) (*evidence.Result, error) { return nil, ctx.Err() }}
	ok, verdicts, err := do(t, ctx, late, found("fig7", 1))
	if ok || err == nil || len(verdicts) != 1 || verdicts["fig6"] != evidence.NotJudged {
		t.Errorf("%v, %v, the report has %v", ok, err, verdicts)
	}
}
