// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// soon is when a command has to be done that cannot do what is asked of it. It promises two
// seconds; on a machine that does much else it gets more, and not the minute for which it
// would wait for a daemon that works.
const soon = 20 * time.Second

// askers are the command lines that need a daemon.
func askers(policy string) []string {
	return []string{
		"status", "status --json", "top --once", "top --json", "events", "events --for 1s --summary", "events --since 2h",
		"explain --from 192.0.2.1", "explain --from 192.0.2.1 --at 03:10", "lists", "lists --json",
		"table", "table blocked", "table list learned", "table clear blocked 192.0.2.1", "table add blocked 192.0.2.1 --for 10m",
		"diff " + policy, "reload", "reload " + policy, "reload --shadow " + policy, "reload --confirm 60s " + policy,
		"confirm", "confirm --revert", "shadow", "shadow --watch", "shadow --end",
		"set connections.everyone.rate 9/s", "set services.web.mode shadow --for 10m",
	}
}

// loners are the command lines that need none, with what they begin to print. The demonstration,
// which has a test of its own, is one of them, too.
func loners(policy string) map[string]string {
	return map[string]string{
		"check " + policy: policy, "diff " + policy + " --against " + policy: "nothing would change", "explain --from 192.0.2.1 --policy " + policy: "service web",
		"init -": "", "import nginx testdata/limits.conf": "#", "schema": "{", "completion bash": "# bash completion",
		"version": "narthex ", "help status": "Show the services", "": "Narthex decides",
	}
}

// TestEveryCommandIsAsked finds each command that `narthex --help` lists in the lists above.
func TestEveryCommandIsAsked(t *testing.T) {
	asked := map[string]bool{"run": true, "detach": true, "demo": true}
	for _, line := range askers("policy.yaml") {
		asked[strings.Fields(line)[0]] = true
	}
	for line := range loners("policy.yaml") {
		word, _, _ := strings.Cut(line, " ")
		asked[word] = true
	}
	_, list, _ := strings.Cut(must(t), "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for line := range strings.Lines(list) {
		if name := strings.Fields(line)[0]; !asked[name] {
			t.Errorf("narthex %s is asked of no daemon that is stopped, dead, busy or absent", name)
		}
	}
}

// all runs commands at the same time. Those that wait for a daemon are interrupted when they have said so.
func (in *instance) all(commands []string) map[string]result {
	var mu sync.Mutex
	var wg sync.WaitGroup
	results := map[string]result{}
	for _, command := range commands {
		wg.Go(func() {
			r := interrupted(in.command(strings.Fields(command)...), " is busy: waiting for it")
			mu.Lock()
			defer mu.Unlock()
			results[command] = r
		})
	}
	wg.Wait()
	return results
}

// interrupted runs a command to its end, or until it has said something on stderr. Its code is -1 if
// it says and does nothing.
func interrupted(args []string, said string) result {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	watched, w, err := os.Pipe()
	if err != nil {
		return result{code: -1, stderr: err.Error()}
	}
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, w
	if err = cmd.Start(); err == nil {
		w.Close()
		for lines := bufio.NewScanner(watched); lines.Scan(); {
			stderr.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), said) {
				_ = cmd.Process.Signal(syscall.SIGINT)
			}
		}
		_ = cmd.Wait()
	}
	if err != nil || ctx.Err() != nil {
		return result{stdout.String(), fmt.Sprintf("%v, %v: %s", ctx.Err(), err, &stderr), -1}
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// told checks that every command fails and says what it must.
func (in *instance) told(state string, commands []string, words ...string) {
	in.t.Helper()
	for command, r := range in.all(commands) {
		said := r.stdout + r.stderr
		if r.code <= 0 && (state != "dead" || !strings.HasPrefix(command, "status")) {
			in.t.Errorf("%s daemon: narthex %s: exit code %d", state, command, r.code)
		}
		for _, word := range words {
			if !strings.Contains(said, word) {
				in.t.Errorf("%s daemon: narthex %s does not say %q: %s", state, command, word, said)
			}
		}
	}
}

// alone runs what needs no daemon: whatever has become of it, that is done.
func (in *instance) alone(state string) {
	in.t.Helper()
	for command, begin := range loners(in.file) {
		r := interrupted(strings.Fields(command), "busy")
		if r.code != 0 || !strings.HasPrefix(r.stdout, begin) {
			in.t.Errorf("%s daemon: narthex %s: exit code %d: %.200s%s", state, command, r.code, r.stdout, r.stderr)
		}
	}
}

// refused checks that no second daemon starts.
func (in *instance) refused(state string, words ...string) {
	in.t.Helper()
	r := interrupted(in.args, "in force")
	for _, word := range append(words, "stop that one or name another with --instance") {
		if r.code != 1 || !strings.Contains(r.stderr, word) {
			in.t.Errorf("%s daemon: a second run ends with exit code %d and does not say %q: %s", state, r.code, word, r.stderr)
		}
	}
}

// Whatever has become of the daemon, every command says so and what to do; and there is a way
// out without it.
func TestDaemonThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	_, err := rig.Server.StartPython(lab.PythonConfig{Listen: []netip.AddrPort{netip.AddrPortFrom(rig.ServerV4, 80)}})
	nettest.Check(t, err)
	in := start(t, rig.Server, `
version: 1
services: [{name: web, listen: ["*:80"], concurrency: 4}]
connections: [{name: everyone, rate: 1000/s}]
`)
	process := in.cmd.Process
	ask := func() error {
		_, err := get(rig.Client, netip.AddrPortFrom(rig.ServerV4, 80), "/", netip.Addr{}, patience)
		return err
	}
	nettest.Check(t, process.Signal(syscall.SIGSTOP))
	eventually(t, "the daemon is stopped", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.Pid))
		return err == nil && strings.Contains(string(text), ") T ")
	})
	in.told("stopped", append(askers(in.file), "detach"), fmt.Sprintf("process %d, which is stopped, does not answer", process.Pid),
		"what is in force goes on", fmt.Sprintf("kill -CONT %d", process.Pid), "narthex detach --force --instance "+in.name)
	in.refused("stopped", fmt.Sprintf("process %d", process.Pid))
	in.alone("stopped")
	nettest.Check(t, ask()) // enforcement goes on
	r := in.all([]string{"detach --force"})["detach --force"]
	if r.code != 0 || r.stdout != "instance "+in.name+": detached\n" {
		t.Fatalf("detach --force: %+v", r)
	}
	nettest.Check(t, in.left(nil)) // the programs are gone when the process that hangs is
	nettest.Check(t, ask())
	next := *in
	next.start() // takes the name while the other still hangs
	nettest.Check(t, process.Signal(syscall.SIGCONT))
	<-in.done
	if code := in.cmd.ProcessState.ExitCode(); code != 4 || !strings.Contains(in.log.String(), "was taken out of force") {
		t.Errorf("the daemon that went on ended with exit code %d:\n%s", code, in.log)
	}
	if s := next.status(); !s.Enforcing || s.PID != next.cmd.Process.Pid {
		t.Errorf("the other's end has hurt the next: %+v", s)
	}
	in.cmd = nil
	_, err = next.stopped(syscall.SIGKILL)
	nettest.Check(t, err)
	in.told("dead", askers(in.file), "enforcing without a daemon", "narthex detach --instance "+in.name)
	in.alone("dead")
	must(t, in.command("detach")...)
	in.told("absent", askers(in.file), "no daemon answers", "narthex run --policy FILE --instance "+in.name)
	in.alone("absent")
}
