// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/lab"
	"narthex/internal/lab/reexec"
	"narthex/test/nettest"
)

func TestMain(m *testing.M) {
	reexec.Main()
	os.Exit(m.Run())
}

// brief is a demo as short as it can be.
var brief = script{
	alone:  200 * time.Millisecond,
	settle: 200 * time.Millisecond,
	crowd:  200 * time.Millisecond,
	tick:   100 * time.Millisecond,
}

// fake stands in for narthex: it notes its commands and enforces nothing.
const fake = `#!/bin/sh
echo "$@" >>%[1]s/commands
case "$1" in
run)
	%[2]s
	sleep 60 &
	trap 'rm %[1]s/ready; kill $!; exit 0' TERM
	touch %[1]s/ready
	wait
	;;
status)
	[ -e %[1]s/ready ] || { echo "not enforcing" >&2; exit 1; }
	echo '{"services": [{"name": "web", "classes": [{"name": "gold", "held": 3000}, {"name": "bronze", "held": 14}]}]}'
	;;
esac
`

// newFake writes the fake; inRun is what it does first when it is to run.
func newFake(t *testing.T, inRun string) (executable, dir string) {
	t.Helper()
	nettest.Root(t)
	dir = t.TempDir()
	executable = filepath.Join(dir, "narthex")
	nettest.Check(t, os.WriteFile(executable, fmt.Appendf(nil, fake, dir, inRun), 0o700))
	return executable, dir
}

// commands returns the names of the commands that the fake was given.
func commands(t *testing.T, dir string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "commands"))
	nettest.Check(t, err)
	var names []string
	for line := range strings.Lines(string(b)) {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	return names
}

// checkNothingLeft looks for what a demo of this process could have left.
func checkNothingLeft(t *testing.T) {
	t.Helper()
	for _, pattern := range []string{
		filepath.Join(lab.Dir, fmt.Sprintf("narthex-demo-*-%d-*", os.Getpid())),
		filepath.Join(os.TempDir(), fmt.Sprintf("narthex-demo-%d-*", os.Getpid())),
		fmt.Sprintf("/sys/fs/bpf/narthex/demo-%d", os.Getpid()),
		fmt.Sprintf("/run/narthex/demo-%d*", os.Getpid()),
	} {
		left, err := filepath.Glob(pattern)
		nettest.Check(t, err)
		if len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	nettest.Check(t, err)
	if len(bytes.TrimSpace(children)) > 0 {
		t.Errorf("processes left behind: %s", children)
	}
}

func TestTellsTheStory(t *testing.T) {
	executable, dir := newFake(t, "")
	var out bytes.Buffer
	nettest.Check(t, run(t.Context(), &out, Options{Executable: executable}, brief))
	checkNothingLeft(t)

	// In this order.
	rest := out.String()
	for _, want := range []string{
		"server   10.77.0.1:80 on one core, 2.0 ms of CPU per request",
		"    version: 1\n", "concurrency: 2", "from: [10.77.1.0/24], class: gold",
		"have the server to themselves", "gold alone",
		"bronze clients join", "overload",
		"Narthex starts", "overload, Narthex",
		"Overloaded, the gold clients got",
		"With Narthex they got",
		"Narthex held 3,014 requests",
		"neither changed nor restarted",
	} {
		before, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Fatalf("%q is not in what follows: %s", want, rest)
		}
		_, rest = before, after
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("escape codes in what is not a terminal")
	}

	got := slices.Compact(commands(t, dir))
	first, last := slices.Index(got, "run"), len(got)-1
	if first < 0 || got[last] != "detach" || got[last-1] != "status" {
		t.Errorf("commands %q, want run, then status, then detach", got)
	}
	line, err := os.ReadFile(filepath.Join(dir, "commands"))
	nettest.Check(t, err)
	if want := fmt.Sprintf("--instance demo-%d --socket", os.Getpid()); !strings.Contains(string(line), want) {
		t.Errorf("commands %q, want %q in them", line, want)
	}
}

func TestJSON(t *testing.T) {
	executable, _ := newFake(t, "")
	var out bytes.Buffer
	nettest.Check(t, run(t.Context(), &out, Options{Executable: executable, JSON: true}, brief))
	checkNothingLeft(t)
	var sum Summary
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	nettest.Check(t, d.Decode(&sum))
	if sum.Held != 3014 {
		t.Errorf("%d requests held, want 3014", sum.Held)
	}
	if sum.Alone.Bronze != nil || sum.Without.Bronze == nil || sum.With.Bronze == nil {
		t.Errorf("the bronze clients' figures are in the wrong phases: %+v", sum)
	}
	if d.More() {
		t.Error("more than the summary was written")
	}
}

func TestSaysWhyNarthexDoesNotStart(t *testing.T) {
	executable, dir := newFake(t, "echo 'needs a newer kernel' >&2; exit 1")
	err := run(t.Context(), &bytes.Buffer{}, Options{Executable: executable}, brief)
	if err == nil || !strings.Contains(err.Error(), "needs a newer kernel") {
		t.Errorf("got %v, want narthex's own words in it", err)
	}
	checkNothingLeft(t)
	if got := commands(t, dir); got[len(got)-1] != "detach" {
		t.Errorf("commands %q, want a detach at the end", got)
	}
}

func TestWithoutExecutable(t *testing.T) {
	nettest.Root(t)
	err := run(t.Context(), &bytes.Buffer{}, Options{Executable: "/nonexistent/narthex"}, brief)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that the file does not exist", err)
	}
	checkNothingLeft(t)
}

// cancelOn cancels a context when a text is written.
type cancelOn struct {
	text   string
	cancel context.CancelFunc
}

func (c cancelOn) Write(b []byte) (int, error) {
	if strings.Contains(string(b), c.text) {
		c.cancel()
	}
	return len(b), nil
}

func TestStopsOnSignals(t *testing.T) {
	executable, _ := newFake(t, "")
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
		send := func() { nettest.Check(t, unix.Kill(os.Getpid(), sig)) }
		err := Run(t.Context(), cancelOn{"themselves", send}, Options{Executable: executable})
		if err == nil || !strings.Contains(err.Error(), "demo stopped") {
			t.Errorf("after signal %v: %v, want that the demo was stopped", sig, err)
		}
		checkNothingLeft(t)
	}
}

func TestStopsWhenNobodyWatches(t *testing.T) {
	executable, _ := newFake(t, "")
	endless := brief
	endless.alone = 30 * time.Second
	if err := run(t.Context(), failing{}, Options{Executable: executable}, endless); !errors.Is(err, errFailing) {
		t.Errorf("got %v, want the writer's error", err)
	}
	checkNothingLeft(t)
}

func TestDetachesWhatKilledDemosLeft(t *testing.T) {
	executable, dir := newFake(t, "")
	child := exec.Command("true")
	nettest.Check(t, child.Run())
	root := t.TempDir()
	dead := fmt.Sprintf("demo-%d", child.Process.Pid)
	for _, instance := range []string{dead, fmt.Sprintf("demo-%d", os.Getpid()), "default", "demo-x"} {
		nettest.Check(t, os.Mkdir(filepath.Join(root, instance), 0o700))
	}
	n, err := newNarthex(executable, dir, "", nil)
	nettest.Check(t, err)
	nettest.Check(t, n.detachLeftovers(t.Context(), root))
	nettest.Check(t, n.detachLeftovers(t.Context(), filepath.Join(root, "nonexistent")))
	b, err := os.ReadFile(filepath.Join(dir, "commands"))
	nettest.Check(t, err)
	if want := fmt.Sprintf("detach --instance %s --socket %s\n", dead, n.socket); string(b) != want {
		t.Errorf("commands %q, want %q", b, want)
	}
}

// TestWithNarthex runs the demo with the real program. It is as short as it can be, and longer if that showed
// nothing: on a machine that has other things to do, all clients together may get nothing in half a second.
func TestWithNarthex(t *testing.T) {
	nettest.Root(t)
	executable := filepath.Join(t.TempDir(), "narthex")
	if out, err := exec.Command("go", "build", "-o", executable, "narthex/cmd/narthex").CombinedOutput(); err != nil {
		t.Fatalf("build narthex: %v: %s", err, out)
	}
	for _, longer := range []time.Duration{1, 3, 9} {
		settled := brief
		settled.settle, settled.crowd = longer*time.Second, longer*500*time.Millisecond // the server must have done what it took before
		var out bytes.Buffer
		nettest.Check(t, run(t.Context(), &out, Options{Executable: executable, JSON: true}, settled))
		checkNothingLeft(t)
		var sum Summary
		nettest.Check(t, json.Unmarshal(out.Bytes(), &sum))
		t.Logf("in %v: %s", settled.crowd, out.Bytes())
		if sum.Held > 0 && sum.With.Bronze.Rate > 0 && sum.With.Gold.Rate > 0 && sum.With.Gold.Median < sum.Without.Gold.Median {
			return
		}
	}
	t.Error("gold clients are not served sooner while requests are held")
}

func TestStopsAtOnce(t *testing.T) {
	executable, _ := newFake(t, "")
	endless := brief
	endless.alone, endless.crowd = 30*time.Second, 30*time.Second
	late := brief
	late.crowd = 30 * time.Second
	for _, c := range []struct {
		text   string
		script script
	}{
		{"version: 1", endless},
		{"themselves", endless},
		{"join", late},
		{"Narthex starts", brief},
		{"Narthex lets", brief},
	} {
		t.Run(c.text, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err := run(ctx, cancelOn{c.text, cancel}, Options{Executable: executable}, c.script)
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "demo stopped") {
				t.Errorf("got %v, want that the demo was stopped", err)
			}
			checkNothingLeft(t)
		})
	}
}
