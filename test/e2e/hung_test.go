// SPDX-License-Identifier: Apache-2.0

package e2e

import (
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

	"narthex/internal/testnet"
	"narthex/internal/testnet/nettest"
)

// soon is when a command has to be done that cannot do what is asked of it. It promises two
// seconds; on a machine that does much else it gets more, and not the minute for which it
// would wait for a daemon that works.
const soon = 20 * time.Second

// askers are the command lines that need a daemon.
func askers(policy string) []string {
	return []string{
		"status", "status --json", "top --once", "top --json", "events", "events --for 1s --summary", "explain --from 192.0.2.1",
		"diff " + policy, "reload", "reload " + policy, "reload --shadow " + policy, "reload --confirm 60s " + policy,
		"confirm", "confirm --revert", "shadow", "shadow --watch", "shadow --end", "set connections.everyone.rate 9/s",
	}
}

// all runs commands at the same time.
func (in *instance) all(commands []string) map[string]result {
	var mu sync.Mutex
	var wg sync.WaitGroup
	results := map[string]result{}
	for _, command := range commands {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), soon)
			defer cancel()
			r, err := execute(exec.CommandContext(ctx, binary, in.command(strings.Fields(command)...)...))
			if err != nil || ctx.Err() != nil {
				r.code, r.stderr = -1, fmt.Sprintf("%v, %v: %s", ctx.Err(), err, r.stderr)
			}
			mu.Lock()
			defer mu.Unlock()
			results[command] = r
		})
	}
	wg.Wait()
	return results
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

// Whatever has become of the daemon, every command says so and what to do; and there is a way
// out without it.
func TestDaemonThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	lab := nettest.Lab(t, 1)
	_, err := lab.Server.StartPython(testnet.PythonConfig{Listen: []netip.AddrPort{netip.AddrPortFrom(lab.ServerV4, 80)}})
	nettest.Check(t, err)
	in := start(t, lab.Server, `
version: 1
services: [{name: web, listen: ["*:80"], concurrency: 4}]
connections: [{name: everyone, rate: 1000/s}]
`)
	process := in.cmd.Process
	ask := func() error {
		_, err := get(lab.Client, netip.AddrPortFrom(lab.ServerV4, 80), "/", netip.Addr{}, patience)
		return err
	}
	nettest.Check(t, process.Signal(syscall.SIGSTOP))
	eventually(t, "the daemon is stopped", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.Pid))
		return err == nil && strings.Contains(string(text), ") T ")
	})
	in.told("stopped", append(askers(in.file), "detach"), fmt.Sprintf("process %d, which is stopped, does not answer", process.Pid),
		"what is in force goes on", fmt.Sprintf("kill -CONT %d", process.Pid), "narthex detach --force --instance "+in.name)
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
	must(t, in.command("detach")...)
	in.told("absent", askers(in.file), "no daemon answers", "narthex run --policy FILE --instance "+in.name)
}
