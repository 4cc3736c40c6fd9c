// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"

	"narthex/internal/datapath"
	"narthex/test/verifier/baseline"
)

const (
	oldLog = `verification time 97082 usec
stack depth 80+216+48
processed 170130 insns (limit 1000000) max_states_per_insn 19 total_states 6062 peak_states 1396 mark_read 0
`
	newLog = `verification time 5475368 usec
stack depth max 416
subprog 0 (narthex_xdp_syn) main insns_self 1970 insns_total 1970 stack 80
subprog 1 (decide_syn) global insns_self 674537 insns_total 674537 stack 216
processed 676507 insns (limit 1000000) max_states_per_insn 41 total_states 23423 peak_states 1714 mark_read 0
`
	stepsLog = `func#0 @0
Live regs before insn:
      0: .1........ (bf) r6 = r1
0: R1=ctx() R10=fp0
; comment
0: (bf) r6 = r1                       ; R1=ctx() R6=ctx()
1: (85) call pc+3
mark_precise: frame0: regs=r2 stack= before 0: (bf) r6 = r1
2: (95) exit

from 1 to 2: R0=scalar()
2: R0=scalar()
2: (95) exit
from 1 to 2: safe
2: safe
from 1 to 2 (speculative execution): safe
4: (b7) r0 = 0
5: (95) exit
`
)

func TestParseStats(t *testing.T) {
	all := cmp.AllowUnexported(stats{})
	want := stats{processed: 170130, verifyMS: 97.082, frames: []int{80, 216, 48}}
	if diff := cmp.Diff(want, parseStats(oldLog), all); diff != "" {
		t.Errorf("up to 7.0: %s", diff)
	}
	want = stats{processed: 676507, verifyMS: 5475.368, frames: []int{80, 216}, names: []string{"narthex_xdp_syn", "decide_syn"}, self: []int{1970, 674537}}
	if diff := cmp.Diff(want, parseStats(newLog), all); diff != "" {
		t.Errorf("newer: %s", diff)
	}
}

func TestCountSteps(t *testing.T) {
	subs := []subprogram{{start: 0}, {start: 4}}
	countSteps(stepsLog, subs)
	if subs[0].self != 7 || subs[1].self != 2 {
		t.Errorf("%+v", subs)
	}
}

// TestSubprograms looks at the largest program, whose functions are many.
func TestSubprograms(t *testing.T) {
	spec, err := datapath.Spec()
	if err != nil {
		t.Fatal(err)
	}
	name := slices.MaxFunc(slices.Collect(maps.Keys(spec.Programs)), func(a, b string) int {
		return len(spec.Programs[a].Instructions) - len(spec.Programs[b].Instructions)
	})
	all := spec.Programs[name].Instructions
	subs := subprograms(all)
	if subs[0].name != name || len(subs) < 3 {
		t.Errorf("%q begins with %q and has %d functions", name, subs[0].name, len(subs))
	}
	ends := 0
	for _, i := range all {
		ends += int(i.Size() / asm.InstructionSize)
	}
	if last := subs[len(subs)-1].start; last >= ends {
		t.Errorf("the last function begins at %d of %d", last, ends)
	}
	called := map[int]bool{0: true}
	for _, s := range subs {
		for _, to := range s.calls {
			called[to] = true
		}
	}
	for i, s := range subs {
		if !called[i] {
			t.Errorf("nothing calls %q", s.name)
		}
	}
}

func TestDeepest(t *testing.T) {
	subs := []subprogram{{frame: 80, calls: []int{1, 2}}, {frame: 216, calls: []int{3}}, {frame: 48}, {frame: 104}}
	if got := deepest(subs, 0); got != 80+224+112 {
		t.Errorf("%d bytes", got)
	}
}

func TestKernelName(t *testing.T) {
	for release, want := range map[string]string{
		"6.12.117+deb13-amd64": "6.12",
		"6.1.0-50-amd64":       "6.1",
		"6.8.0-45-generic":     "6.8",
		"7.1.2":                "7.1",
		"other":                "other",
	} {
		if got := kernelName(release); got != want {
			t.Errorf("%q is %q, not %q", release, got, want)
		}
	}
}

func TestJudge(t *testing.T) {
	l := limits{mark: 300, fail: 400, growth: 5}
	for _, c := range []struct {
		p    program
		want string
	}{
		{program{Processed: 400, Baseline: 400}, ""},
		{program{Processed: 105, Baseline: 100}, ""},
		{program{Processed: 106, Baseline: 100}, "6.0 % more"},
		{program{Processed: 106, Baseline: 100}, "commit what make kernels KERNELS=6.12 UPDATE=1 writes"},
		{program{Processed: 399}, ""},
		{program{Processed: 401, Baseline: 401}, "more than 400"},
		{program{Error: "too complex"}, "too complex"},
	} {
		err := report{Kernel: "debian-6.12", Programs: []program{c.p}}.judge(l)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.p, err, c.want)
		}
	}
}

func TestUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baseline.json")
	b := baseline.Baseline{"6.1": {"a": 1}, "6.12": {"gone": 1, "b": 2}}
	for _, programs := range [][]program{{{Name: "a", Processed: 3}, {Name: "b", Processed: 4}}, {{Name: "b", Processed: 5}}} {
		if err := (report{Kernel: "6.12", Programs: programs}).update(b, path); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readBaseline(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(baseline.Baseline{"6.1": {"a": 1}, "6.12": {"a": 3, "b": 5}}, got); diff != "" {
		t.Error(diff)
	}
	if (report{Programs: []program{{Error: "too complex"}}}).update(b, path) == nil {
		t.Error("a program that does not load has a figure")
	}
}
