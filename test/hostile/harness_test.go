// SPDX-License-Identifier: Apache-2.0

// Package hostile tests the real command against hostile clients, in front of real servers,
// while ordinary clients work. Each case runs in front of each server, and as often as
// needed that it meets each address family, wire and setting of offloads. NARTHEX_HOSTILE=full
// runs every case in every scene.
package hostile

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/reexec"
	"narthex/test/nettest"
)

// The command under test, and the same as another version.
var binary, upgrade string

func TestMain(m *testing.M) {
	reexec.Main()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		_ = flag.Set("test.parallel", "4") // scenes mostly wait
	}
	dir, err := os.MkdirTemp("", "narthex-hostile-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary, upgrade = filepath.Join(dir, "narthex"), filepath.Join(dir, "narthex-next")
	for path, version := range map[string]string{binary: "now", upgrade: "next"} {
		build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-X main.version="+version, "-o", path, "narthex/cmd/narthex")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return 1
		}
	}
	return m.Run()
}

// full is whether every case runs in every scene, and meets every event.
func full() bool { return os.Getenv("NARTHEX_HOSTILE") == "full" }

// patience bounds waits for what must happen soon; it is no figure. What max_service finds
// again comes too late for it.
const patience = 30 * time.Second

// startPatience bounds waits for the verifier, which several starts may share two cores for.
const startPatience = time.Minute

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	if !within(patience, condition) {
		t.Fatalf("after %v still not: %s", patience, what)
	}
}

// within waits until a condition holds, and returns false if that takes too long. It looks less
// often with time: to read a status takes the daemon as long as to serve many requests.
func within(d time.Duration, condition func() bool) bool {
	pause := 5 * time.Millisecond
	for end := time.Now().Add(d); !condition(); pause = min(2*pause, 80*time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// instance is a daemon under test.
type instance struct {
	t    *testing.T
	name string
	file string // of the policy
	args []string
	cmd  *exec.Cmd
	log  *bytes.Buffer
	done chan struct{}
}

var instances atomic.Int64

// newInstance prepares a daemon in a namespace.
func newInstance(t *testing.T, ns *lab.Namespace, policy string) *instance {
	t.Helper()
	in := &instance{
		t: t, name: fmt.Sprintf("hostile-%d-%d", os.Getpid(), instances.Add(1)),
		file: filepath.Join(t.TempDir(), "policy.yaml"), log: &bytes.Buffer{},
	}
	in.write(policy)
	in.args = []string{"run", "--policy", in.file, "--instance", in.name, "--netns", ns.Name(), "--slots", "8192", "--keep"}
	t.Cleanup(func() {
		if in.cmd != nil {
			in.stop(syscall.SIGTERM)
		}
		in.must("detach")
		if t.Failed() {
			t.Logf("log of the daemon:\n%s", in.log)
		}
	})
	return in
}

// start runs a binary as the daemon and waits until it enforces.
func (in *instance) start(program string) {
	in.t.Helper()
	in.cmd, in.done = exec.Command(program, in.args...), make(chan struct{})
	in.cmd.Stderr = in.log
	in.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	nettest.Check(in.t, in.cmd.Start())
	cmd, done := in.cmd, in.done
	go func() { _ = cmd.Wait(); close(done) }()
	answers := within(startPatience, func() bool {
		select {
		case <-done:
			in.t.Fatalf("the daemon ended:\n%s", in.log)
		default:
		}
		s, err := in.tryRead()
		return err == nil && s.PID == cmd.Process.Pid
	})
	if !answers {
		in.t.Fatalf("the daemon does not answer after %v", startPatience)
	}
}

// stop sends a signal and waits for the daemon's end.
func (in *instance) stop(s syscall.Signal) {
	in.t.Helper()
	if err := in.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		in.t.Fatal(err)
	}
	select {
	case <-in.done:
	case <-time.After(patience):
		_ = in.cmd.Process.Kill()
		in.t.Fatalf("the daemon did not end on %v:\n%s", s, in.log)
	}
	in.cmd = nil
}

// command runs a command to the instance to its end.
func (in *instance) command(args ...string) (string, error) {
	var out, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append(args, "--instance", in.name)...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("narthex %s: %w: %s", strings.Join(args, " "), err, &stderr)
	}
	return out.String(), nil
}

// must runs a command that has to succeed.
func (in *instance) must(args ...string) string {
	in.t.Helper()
	out, err := in.command(args...)
	nettest.Check(in.t, err)
	return out
}

// write replaces the policy file.
func (in *instance) write(text string) {
	in.t.Helper()
	nettest.Check(in.t, os.WriteFile(in.file, []byte(text), 0o600))
}

func (in *instance) reload(text string) {
	in.t.Helper()
	in.write(text)
	in.must("reload")
}
