// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the real command in front of real servers, in namespaces of its own.
package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"narthex/internal/daemon/api"
	"narthex/internal/datapath"
	"narthex/internal/testnet"
	"narthex/internal/testnet/nettest"
	"narthex/internal/testnet/reexec"
)

// binary is the command under test.
var binary string

func TestMain(m *testing.M) {
	reexec.Main()
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		_ = flag.Set("test.parallel", "4") // tests mostly wait
	}
	dir, err := os.MkdirTemp("", "narthex-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "narthex")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "narthex/cmd/narthex")
	build.Stderr = os.Stderr
	code := 1
	if err := build.Run(); err == nil {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// patience bounds waits for what must happen soon; it is no figure.
const patience = 20 * time.Second

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if condition() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v still not: %s", patience, what)
		}
	}
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
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	var exit *exec.ExitError
	if e := cmd.Run(); e != nil && !errors.As(e, &exit) {
		t.Fatal(e)
	}
	return result{out.String(), err.String(), cmd.ProcessState.ExitCode()}
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

// newInstance prepares a daemon in a namespace. When the test ends, nothing of it may be
// left.
func newInstance(t *testing.T, ns *testnet.Namespace, text string, args ...string) *instance {
	t.Helper()
	nettest.Root(t)
	in := &instance{t: t, name: fmt.Sprintf("e2e-%d-%d", os.Getpid(), time.Now().UnixNano()%1e6), file: policyFile(t, text)}
	in.args = append([]string{"run", "--policy", in.file, "--instance", in.name, "--netns", ns.Name()}, args...)
	t.Cleanup(func() {
		had := in.programs()
		if in.cmd != nil {
			in.stop(syscall.SIGTERM)
		}
		must(t, "detach", "--instance", in.name)
		if t.Failed() && in.log != nil {
			t.Logf("log of the daemon:\n%s", in.log)
		}
		in.nothingLeft(had)
	})
	return in
}

// start runs a daemon in front of the namespace's servers and waits until it enforces.
func start(t *testing.T, ns *testnet.Namespace, text string, args ...string) *instance {
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
	eventually(in.t, "the daemon answers", func() bool {
		select {
		case <-done:
			in.t.Fatalf("the daemon ended:\n%s", in.log)
		default:
		}
		r := narthex(in.t, in.command("status", "--json")...)
		var s api.Status
		return r.code == 0 && json.Unmarshal([]byte(r.stdout), &s) == nil && s.PID == pid
	})
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
	if err := in.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		in.t.Fatal(err)
	}
	select {
	case <-in.done:
	case <-time.After(patience):
		_ = in.cmd.Process.Kill()
		in.t.Fatalf("the daemon did not end on %v:\n%s", s, in.log)
	}
	code := in.cmd.ProcessState.ExitCode()
	in.cmd = nil
	return code
}

func (in *instance) status() api.Status {
	in.t.Helper()
	var s api.Status
	if err := json.Unmarshal([]byte(must(in.t, in.command("status", "--json")...)), &s); err != nil {
		in.t.Fatal(err)
	}
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

// programs returns the identifiers of the instance's programs.
func (in *instance) programs() []ebpf.ProgramID {
	in.t.Helper()
	var ids []ebpf.ProgramID
	paths, _ := filepath.Glob(filepath.Join(datapath.Root, in.name, "programs", "*"))
	for _, path := range paths {
		p, err := ebpf.LoadPinnedProgram(path, nil)
		if err != nil {
			in.t.Fatal(err)
		}
		info, err := p.Info()
		if err != nil {
			in.t.Fatal(err)
		}
		id, _ := info.ID()
		ids = append(ids, id)
		p.Close()
	}
	return ids
}

// nothingLeft fails the test if the instance, which had these programs, has left
// anything.
func (in *instance) nothingLeft(had []ebpf.ProgramID) {
	in.t.Helper()
	for _, path := range []string{
		filepath.Join(datapath.Root, in.name), filepath.Join(datapath.Root, in.name+"~"),
		filepath.Join("/run/narthex", in.name+".sock"),
	} {
		if _, err := os.Lstat(path); err == nil {
			in.t.Errorf("%s is left", path)
		}
	}
	for _, id := range had {
		// The kernel frees programs after a grace period.
		eventually(in.t, "the programs are gone", func() bool {
			p, err := ebpf.NewProgramFromID(id)
			if err == nil {
				p.Close()
			}
			return errors.Is(err, os.ErrNotExist)
		})
	}
}

// sendSYNs sends one SYN from each of n sources below 198.18.0.0 or 2001:db8:18::.
func sendSYNs(t *testing.T, lab *testnet.Lab, raw *testnet.Raw, to netip.AddrPort, n int, change ...func(*testnet.SYN)) {
	t.Helper()
	for i := range n {
		syn, err := lab.NewSYN(netip.AddrPortFrom(madeUp(to.Addr().Is4(), i), 4000), to)
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
	end := time.Now().Add(patience)
	for got = in.rule(rule); got.Matched() < want.Matched() && time.Now().Before(end); got = in.rule(rule) {
		time.Sleep(20 * time.Millisecond)
	}
	if got != want {
		in.t.Errorf("rule %q counted %+v, want %+v", rule, got, want)
	}
}

// get fetches a path over a connection of its own from the client's namespace; the kernel
// chooses the source address unless one is given.
func get(ns *testnet.Namespace, to netip.AddrPort, path string, from netip.Addr, timeout time.Duration) (body []byte, err error) {
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
