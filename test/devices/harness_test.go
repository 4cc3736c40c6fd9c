// SPDX-License-Identifier: Apache-2.0

//go:build vm

package devices

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/lab"
	"narthex/internal/lab/reexec"
	"narthex/test/nettest"
)

// binary is the command under test: what -narthex names, or what TestMain compiles.
var binary string

func TestMain(m *testing.M) {
	reexec.Main()
	flag.StringVar(&binary, "narthex", "", "`path` of the command to test; compiled if empty")
	flag.Parse()
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	if binary == "" {
		dir, err := os.MkdirTemp("", "narthex-devices-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "narthex")
		build := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "narthex/cmd/narthex")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintf(os.Stderr, "compile the command: %v\n", err)
			return 1
		}
	}
	return m.Run()
}

// patience bounds waits for what must happen soon, in a machine that is slow; it is no figure.
const patience = time.Minute

// startPatience is for the verifier, which several starts may share two cores for.
const startPatience = 3 * time.Minute

// within waits until a condition holds, and returns false if that takes too long.
func within(d time.Duration, condition func() bool) bool {
	for end := time.Now().Add(d); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// instance is a daemon under test.
type instance struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	log  bytes.Buffer
	done chan struct{}
	ids  []ebpf.ProgramID // of its programs
}

// file is one beside a policy.
type file struct {
	name    string
	content []byte
}

// start runs a daemon in a namespace and waits until it enforces. It ends with the test.
func start(t *testing.T, ns *lab.Namespace, policy string, beside ...file) *instance {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.yaml")
	for _, f := range append(beside, file{"policy.yaml", []byte(policy)}) {
		nettest.Check(t, os.WriteFile(filepath.Join(dir, f.name), f.content, 0o600))
	}
	in := &instance{t: t, name: "devices-" + ns.Name(), done: make(chan struct{})}
	in.cmd = exec.Command(binary, "run", "--policy", path, "--instance", in.name, "--netns", ns.Name())
	in.cmd.Stderr = &in.log
	in.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	nettest.Check(t, in.cmd.Start())
	go func() { _ = in.cmd.Wait(); close(in.done) }()
	t.Cleanup(func() {
		in.stop()
		if t.Failed() {
			t.Logf("log of the daemon:\n%s", &in.log)
		}
	})
	if !within(startPatience, func() bool {
		_, err := in.ask()
		return err == nil || in.ended()
	}) || in.ended() {
		t.Fatalf("the daemon does not enforce:\n%s", &in.log)
	}
	in.ids = in.programs()
	return in
}

func (in *instance) ended() bool {
	select {
	case <-in.done:
		return true
	default:
		return false
	}
}

func (in *instance) ask() (api.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return api.NewClient(filepath.Join("/run/narthex", in.name+".sock")).Status(ctx)
}

// set changes a setting of the policy in force.
func (in *instance) set(path, value string) {
	in.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := api.NewClient(filepath.Join("/run/narthex", in.name+".sock")).Set(ctx, api.SetRequest{Path: path, Value: value})
	nettest.Check(in.t, err)
}

func (in *instance) status() api.Status {
	in.t.Helper()
	s, err := in.ask()
	nettest.Check(in.t, err)
	return s
}

// modes returns how each interface is policed.
func (in *instance) modes() map[string]datapath.Mode {
	in.t.Helper()
	modes := map[string]datapath.Mode{}
	for _, i := range in.status().Services[0].Interfaces {
		modes[i.Name] = i.Mode
	}
	return modes
}

// rule returns the counters of a connection rule.
func (in *instance) rule(name string) datapath.Counts {
	in.t.Helper()
	for _, r := range in.status().Rules {
		if r.Name == name {
			return r.Counts.Counts
		}
	}
	in.t.Fatalf("no rule %q in the status", name)
	return datapath.Counts{}
}

// counted waits until a rule has counted so many SYNs, and for some time in which a second decision
// on one of them would be counted.
func (in *instance) counted(rule string, want datapath.Counts) {
	in.t.Helper()
	within(patience, func() bool { return in.rule(rule).Matched() >= want.Matched() })
	time.Sleep(100 * time.Millisecond)
	if got := in.rule(rule); got != want {
		in.t.Errorf("rule %q counted %+v, want %+v", rule, got, want)
	}
}

func (in *instance) programs() (ids []ebpf.ProgramID) {
	in.t.Helper()
	paths, err := filepath.Glob(filepath.Join(datapath.Root, in.name, "programs", "*"))
	nettest.Check(in.t, err)
	for _, path := range paths {
		p, err := ebpf.LoadPinnedProgram(path, nil)
		nettest.Check(in.t, err)
		info, err := p.Info()
		nettest.Check(in.t, errors.Join(err, p.Close()))
		id, _ := info.ID()
		ids = append(ids, id)
	}
	return ids
}

// stop ends the daemon, which detaches, and looks whether something is left.
func (in *instance) stop() {
	in.t.Helper()
	if in.cmd == nil {
		return
	}
	if status, err := in.ask(); in.t.Failed() && err == nil {
		in.t.Logf("packets by reason at the end: %+v; notes: %q", status.Reasons, status.Notes)
	}
	cmd := in.cmd
	in.cmd = nil
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-in.done:
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		in.t.Errorf("the daemon does not end:\n%s", &in.log)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		in.t.Errorf("the daemon ended with %d:\n%s", code, &in.log)
	}
	if _, err := os.Stat(filepath.Join(datapath.Root, in.name)); !errors.Is(err, os.ErrNotExist) {
		in.t.Errorf("pins are left: %v", err)
		_ = exec.Command(binary, "detach", "--instance", in.name).Run()
	}
	// An attached program has its identifier for as long as it is attached.
	for _, id := range in.ids {
		if !within(patience, func() bool {
			p, err := ebpf.NewProgramFromID(id)
			if err == nil {
				p.Close()
			}
			return errors.Is(err, os.ErrNotExist)
		}) {
			in.t.Errorf("program %d is left", id)
		}
	}
}
