// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"narthex/test/verifier/baseline"
)

const log = `=== RUN   TestA
=== PAUSE TestA
=== RUN   TestB
    b_test.go:12: something
--- FAIL: TestB (0.10s)
    --- PASS: TestB/part (0.00s)
=== RUN   TestC
    c_test.go:5: the kernel has no tcx
--- SKIP: TestC (0.00s)
=== RUN   TestD
    d_test.go:5: it goes well
--- PASS: TestD (0.00s)
=== RUN   TestE
=== RUN   TestE/netkit
    e_test.go:5: the kernel has no netkit
=== RUN   TestE/veth
    e_test.go:9: it goes well
--- PASS: TestE (0.00s)
    --- SKIP: TestE/netkit (0.00s)
    --- PASS: TestE/veth (0.00s)
=== CONT  TestA
panic: runtime error
`

func TestVerdict(t *testing.T) {
	outcomes, err := readLog([]byte(log))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name, tests := range map[string][]string{
		"good": {"TestD"}, "bad": {"TestB", "TestD"}, "lacking": {"TestC", "TestD"}, "partly": {"TestD", "TestE"}, "broken": {"TestA"}, "empty": {},
	} {
		got[name], _ = verdict(outcomes, tests)
	}
	want := map[string]string{
		"good": "ok", "bad": "fail: TestB", "lacking": "missing: the kernel has no tcx", "partly": "missing: the kernel has no netkit", "broken": "fail: TestA (did not end)",
		"empty": "fail: no test has this check's names",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A skipped test is a failure but where kernels are known to lack something.
func TestFailure(t *testing.T) {
	for _, c := range []struct {
		series, verdict string
		fails           bool
	}{
		{"6.12", ok, false}, {"6.12", missing + "x", true}, {"6.12", fail + "x", true}, {"6.1", missing + "x", false}, {"6.1", fail + "x", true},
	} {
		r := result{Series: c.series, Checks: map[string]string{"a": c.verdict}}
		if got := r.failure() != nil; got != c.fails {
			t.Errorf("%s on %s: %v", c.verdict, c.series, got)
		}
	}
}

// What a kernel takes is accepted by its series, and nothing of a kernel that does not load all.
func TestAccept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baseline.json")
	if err := (baseline.Baseline{"6.18": {"a": 1}, "debian-6.12": {"gone": 2}}).Write(path); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		r     result
		path  string
		fails bool
	}{
		{result{Series: "6.12", Programs: []program{{Name: "a", Instructions: 3}}}, path, false},
		{result{Series: "newest", Programs: []program{{Name: "a", Instructions: 4}}}, path, false},
		{result{Series: "6.1", Programs: []program{{Name: "a", Instructions: 5}}, unloaded: true}, path, true},
		{result{Series: "6.1"}, path, true},
		{result{Series: "6.1", Programs: []program{{Name: "a", Instructions: 5}}}, "", false},
	} {
		if err := c.r.accept(c.path); (err != nil) != c.fails {
			t.Errorf("%+v: %v", c.r, err)
		}
	}
	got, err := baseline.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	want := baseline.Baseline{"6.18": {"a": 1}, "debian-6.12": {"a": 3}, "debian-newest": {"a": 4}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Tests that fail run again, of those with parts the parts.
func TestFailedAgain(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	text := "\x16=== RUN   TestA\n\x16--- FAIL: TestA (0.1s)\n\x16--- PASS: TestB (0.1s)\n\x16--- FAIL: TestC (0.1s)\n" +
		"    \x16--- FAIL: TestC/VLAN_(802.1ad) (0.1s)\n        \x16--- FAIL: TestC/VLAN_(802.1ad)/IPv6 (0.1s)\n    \x16--- PASS: TestC/veth (0.1s)\n"
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sh", "-c", prologue+`failed "$1"`, "sh", log).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if diff := cmp.Diff("^TestA$\n^TestC$/^VLAN_\\(802\\.1ad\\)$\n", string(out)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
