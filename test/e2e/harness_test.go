// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the real command in front of real servers, in namespaces of its own.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
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

// without are features that the kernel is taken not to have in all tests.
var without = flag.String("without", "", "`features` that the kernel is taken not to have, such as tcx,casts,memory-keys")

func TestMain(m *testing.M) {
	reexec.Main()
	flag.StringVar(&binary, "narthex", "", "`path` of the command to test; compiled if empty")
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		_ = flag.Set("test.parallel", "4") // tests mostly wait
	}
	os.Exit(runTests(m))
}

// runTests runs the tests with the command, and returns the exit code.
func runTests(m *testing.M) int {
	if binary == "" {
		dir, err := os.MkdirTemp("", "narthex-e2e-")
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
	code := m.Run()
	if err := closePlaces(); err != nil {
		fmt.Fprintf(os.Stderr, "after the last test: %v\n", err)
		code = 1
	}
	return code
}

// patience bounds waits for what must happen soon; it is no figure.
const patience = time.Minute

// startPatience bounds waits for the verifier, which several starts may share two cores for, or a
// virtual machine that emulates its processor.
const startPatience = 5 * time.Minute

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

// result is what a command printed and how it ended.
type result struct {
	stdout, stderr string
	code           int
}

// narthex runs the command to its end.
func narthex(t *testing.T, args ...string) result {
	t.Helper()
	return finish(t, exec.Command(binary, args...))
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	r, err := execute(cmd)
	nettest.Check(t, err)
	return r
}

func execute(cmd *exec.Cmd) (result, error) {
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Start(); err != nil {
		return result{}, err
	}
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return result{}, err
	}
	return result{out.String(), stderr.String(), cmd.ProcessState.ExitCode()}, nil
}

// must runs the command, which must succeed, and returns what it printed.
func must(t *testing.T, args ...string) string {
	t.Helper()
	r := narthex(t, args...)
	if r.code != 0 {
		t.Fatalf("narthex %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// instance is a daemon under test.
type instance struct {
	t      *testing.T
	name   string
	file   string // of the policy
	args   []string
	socket string // empty: the instance's own
	cmd    *exec.Cmd
	log    *bytes.Buffer
	done   chan struct{}
}

// policyFile writes a policy to a file.
func policyFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var instances atomic.Int64

// newInstance prepares a daemon in a namespace. When the test ends, nothing of it may be
// left.
func newInstance(t *testing.T, ns *lab.Namespace, text string, args ...string) *instance {
	t.Helper()
	nettest.Root(t)
	in := instanceOf(ns, policyFile(t, text), args...)
	in.t = t
	t.Cleanup(in.endsWith)
	return in
}

func instanceOf(ns *lab.Namespace, file string, args ...string) *instance {
	in := &instance{name: fmt.Sprintf("e2e-%d-%d", os.Getpid(), instances.Add(1)), file: file}
	in.args = append([]string{"run", "--policy", file, "--instance", in.name, "--netns", ns.Name()}, args...)
	if *without != "" {
		in.args = append(in.args, "--without", *without)
	}
	return in
}

// endsWith ends the instance with its test, which fails if something is left.
func (in *instance) endsWith() {
	nettest.Check(in.t, in.end())
	if in.t.Failed() && in.log != nil {
		in.t.Logf("log of the daemon:\n%s", in.log)
	}
}

// end stops the daemon if there is one, detaches, and looks what is left.
func (in *instance) end() error {
	had, err := in.pinned()
	if in.cmd != nil {
		_, stopErr := in.stopped(syscall.SIGTERM)
		err = errors.Join(err, stopErr)
	}
	r, detachErr := execute(exec.Command(binary, "detach", "--instance", in.name))
	if detachErr == nil && r.code != 0 && !strings.Contains(r.stderr, "there is no instance") {
		detachErr = fmt.Errorf("narthex detach: exit code %d: %s", r.code, r.stderr)
	}
	return errors.Join(err, detachErr, in.left(had))
}

// start runs a daemon in front of the namespace's servers and waits until it enforces.
func start(t *testing.T, ns *lab.Namespace, text string, args ...string) *instance {
	t.Helper()
	in := newInstance(t, ns, text, args...)
	in.start()
	return in
}

func (in *instance) start() {
	in.t.Helper()
	in.cmd, in.log, in.done = exec.Command(binary, in.args...), &bytes.Buffer{}, make(chan struct{})
	in.cmd.Stderr = in.log
	in.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := in.cmd.Start(); err != nil {
		in.t.Fatal(err)
	}
	cmd, done := in.cmd, in.done
	go func() { _ = cmd.Wait(); close(done) }()
	pid := in.cmd.Process.Pid
	answers := within(startPatience, func() bool {
		select {
		case <-done:
			in.t.Fatalf("the daemon ended:\n%s", in.log)
		default:
		}
		s, err := in.ask()
		return err == nil && s.PID == pid
	})
	if !answers {
		in.t.Fatalf("the daemon does not answer after %v", startPatience)
	}
	var s api.Status // as the command says it
	if err := json.Unmarshal([]byte(must(in.t, in.command("status", "--json")...)), &s); err != nil || s.PID != pid {
		in.t.Fatalf("narthex status --json says process %d, error %v; want %d", s.PID, err, pid)
	}
}

// command is the command line of a command to the instance.
func (in *instance) command(args ...string) []string {
	args = append(args, "--instance", in.name)
	if in.socket != "" {
		args = append(args, "--socket", in.socket)
	}
	return args
}

// stop sends a signal and waits for the daemon's end. It returns the exit code, -1 if a
// signal ended it.
func (in *instance) stop(s syscall.Signal) int {
	in.t.Helper()
	code, err := in.stopped(s)
	nettest.Check(in.t, err)
	return code
}

func (in *instance) stopped(s syscall.Signal) (code int, err error) {
	if err := in.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return 0, err
	}
	select {
	case <-in.done:
	case <-time.After(patience):
		_ = in.cmd.Process.Kill()
		return 0, fmt.Errorf("the daemon did not end on %v:\n%s", s, in.log)
	}
	code = in.cmd.ProcessState.ExitCode()
	in.cmd = nil
	return code, nil
}

// ask asks the daemon how things are. Tests do so often, and the command takes much longer.
func (in *instance) ask() (api.Status, error) {
	socket := in.socket
	if socket == "" {
		socket = in.defaultSocket()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return api.NewClient(socket).Status(ctx)
}

func (in *instance) defaultSocket() string { return filepath.Join("/run/narthex", in.name+".sock") }

func (in *instance) status() api.Status {
	in.t.Helper()
	s, err := in.ask()
	nettest.Check(in.t, err)
	return s
}

// write replaces the policy file.
func (in *instance) write(text string) {
	in.t.Helper()
	if err := os.WriteFile(in.file, []byte(text), 0o600); err != nil {
		in.t.Fatal(err)
	}
}

func (in *instance) reload(text string) {
	in.t.Helper()
	in.write(text)
	must(in.t, "reload", "--instance", in.name)
}

// rule returns the counters of a rule.
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

// modes returns how each interface is policed.
func (in *instance) modes() map[string]datapath.Mode {
	in.t.Helper()
	modes := map[string]datapath.Mode{}
	for _, s := range in.status().Services {
		for _, i := range s.Interfaces {
			modes[i.Name] = i.Mode
		}
	}
	return modes
}

// traffic returns how programs are attached to traffic control here.
func (in *instance) traffic() datapath.Mode {
	in.t.Helper()
	if in.lacks(datapath.FeatureTCX) {
		return datapath.ModeTC
	}
	return datapath.ModeTCX
}

// lacks reports whether the kernel is said to lack a feature.
func (in *instance) lacks(f datapath.Feature) bool {
	in.t.Helper()
	return slices.ContainsFunc(in.status().Missing, func(m datapath.Missing) bool { return m.Feature == f })
}

// programs returns the identifiers of the instance's programs.
func (in *instance) programs() []ebpf.ProgramID {
	in.t.Helper()
	ids, err := in.pinned()
	nettest.Check(in.t, err)
	return ids
}

func (in *instance) pinned() (ids []ebpf.ProgramID, err error) {
	paths, _ := filepath.Glob(filepath.Join(datapath.Root, in.name, "programs", "*"))
	for _, path := range paths {
		p, err := ebpf.LoadPinnedProgram(path, nil)
		if err != nil {
			return nil, err
		}
		info, err := p.Info()
		p.Close()
		if err != nil {
			return nil, err
		}
		id, _ := info.ID()
		ids = append(ids, id)
	}
	return ids, nil
}

// nothingLeft fails the test if the instance, which had these programs, has left
// anything.
func (in *instance) nothingLeft(had []ebpf.ProgramID) {
	in.t.Helper()
	if err := in.left(had); err != nil {
		in.t.Error(err)
	}
}

// left says what is left of an instance that had these programs.
func (in *instance) left(had []ebpf.ProgramID) (err error) {
	for _, path := range []string{
		filepath.Join(datapath.Root, in.name), filepath.Join(datapath.Root, in.name+"~"), in.defaultSocket(),
	} {
		if _, statErr := os.Lstat(path); statErr == nil {
			err = errors.Join(err, fmt.Errorf("%s is left", path))
		}
	}
	for _, id := range had {
		// The kernel frees programs after a grace period.
		gone := within(patience, func() bool {
			p, err := ebpf.NewProgramFromID(id)
			if err == nil {
				p.Close()
			}
			return errors.Is(err, os.ErrNotExist)
		})
		if !gone {
			err = errors.Join(err, fmt.Errorf("program %d is left", id))
		}
	}
	return err
}

// sendSYNs sends one SYN from each of n sources below 198.18.0.0 or 2001:db8:18::.
func sendSYNs(t *testing.T, rig *lab.Lab, raw *lab.Raw, to netip.AddrPort, n int, change ...func(*lab.SYN)) {
	t.Helper()
	for i := range n {
		syn, err := rig.NewSYN(netip.AddrPortFrom(madeUp(to.Addr().Is4(), i), 4000), to)
		nettest.Check(t, err)
		for _, c := range change {
			c(&syn)
		}
		frame, err := syn.Frame()
		nettest.Check(t, err)
		nettest.Check(t, raw.Send(frame))
	}
}

func madeUp(v4 bool, i int) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
	}
	return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 0x18, byte(i >> 8), byte(i), 15: 1})
}

// counted waits until so many SYNs have been counted by a rule, and fails on more.
func (in *instance) counted(rule string, want datapath.Counts) {
	in.t.Helper()
	var got datapath.Counts
	within(patience, func() bool {
		got = in.rule(rule)
		return got.Matched() >= want.Matched()
	})
	if got != want {
		in.t.Errorf("rule %q counted %+v, want %+v", rule, got, want)
	}
}

// get fetches a path over a connection of its own from the client's namespace; the kernel
// chooses the source address unless one is given.
func get(ns *lab.Namespace, to netip.AddrPort, path string, from netip.Addr, timeout time.Duration) (body []byte, err error) {
	err = ns.Do(func() error {
		conn, err := dial(from, to, timeout)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		req, err := http.NewRequest(http.MethodGet, "http://"+to.String()+path, nil)
		if err != nil {
			return err
		}
		req.Close = true
		if err := req.Write(conn); err != nil {
			return err
		}
		body, err = readBody(conn, req)
		return err
	})
	return body, err
}
