// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/api"
	"narthex/test/nettest"
)

// listener is `narthex events` in the background.
type listener struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr *bufio.Reader
	lines  chan string // closed when it writes no more
}

// events starts the command and waits until it listens.
func (in *instance) events(t *testing.T, args ...string) *listener {
	t.Helper()
	l := &listener{t: t, cmd: exec.Command(binary, in.command(append([]string{"events"}, args...)...)...), lines: make(chan string, 10_000)}
	stdout, err := l.cmd.StdoutPipe()
	nettest.Check(t, err)
	stderr, err := l.cmd.StderrPipe()
	nettest.Check(t, err)
	l.stderr = bufio.NewReader(stderr)
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	nettest.Check(t, l.cmd.Start())
	t.Cleanup(func() { _ = l.cmd.Process.Kill() })
	go func() {
		defer close(l.lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			l.lines <- s.Text()
		}
	}()
	if line, err := l.stderr.ReadString('\n'); err != nil || line != "listening to events of instance "+in.name+"\n" {
		t.Fatalf("narthex events %s: %q, %v", args, line, err)
	}
	return l
}

// line waits for one; there is none when the command has ended.
func (l *listener) line() (text string, more bool) {
	l.t.Helper()
	select {
	case text, more = <-l.lines:
	case <-time.After(patience):
		l.t.Fatal("no event comes")
	}
	return text, more
}

// event waits for one in JSON. Of its port and time nothing is known before, and its tokens are rounded.
func (l *listener) event() (e api.Event) {
	l.t.Helper()
	text, more := l.line()
	if err := json.Unmarshal([]byte(text), &e); !more || err != nil {
		l.t.Fatalf("no event: %q, %v", text, err)
	}
	if time.Since(e.Time).Abs() > time.Hour {
		l.t.Errorf("an event at %v", e.Time)
	}
	if e.Missed > 0 {
		l.t.Fatalf("%d events missed", e.Missed)
	}
	e.Time = time.Time{}
	e.Client = netip.MustParseAddrPort(e.Client).Addr().String()
	if e.Level != nil {
		e.Level.Tokens = math.Round(e.Level.Tokens)
	}
	return e
}

// ends waits for the command's end.
func (l *listener) ends(want int) {
	l.t.Helper()
	for {
		if _, more := l.line(); !more {
			break
		}
	}
	_ = l.cmd.Wait()
	if code := l.cmd.ProcessState.ExitCode(); code != want {
		l.t.Errorf("%s: exit code %d, want %d", l.cmd, code, want)
	}
}

const eventsPolicy = `
version: 1
services: [{name: go, listen: ["*:80"], concurrency: 8}]
classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]
connections: [{name: foe, from: [%s], action: drop}]
requests:
  - {name: login, path: /login, rate: 1/m, burst: 2, class: gold}
  - {name: banned, path: /banned, action: reject}
`

func TestEvents(t *testing.T) {
	t.Parallel()
	for _, v6 := range []bool{false, true} {
		r := newRuled(t, map[string]uint16{"go": 80}, "go")
		s := r.at(t, "go", v6)
		r.enforce(fmt.Sprintf(eventsPolicy, s.addr(free)))
		curl := func(w who, path, want string) {
			t.Helper()
			out, err := s.client.Command("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "20",
				"--interface", s.addr(w).String(), "http://"+s.to.String()+path).CombinedOutput()
			if string(out) != want {
				t.Errorf("curl %s: %q, %v; want %s", path, out, err, want)
			}
		}
		all := r.events(t, "--json", "--kind", "reject")
		login := r.events(t, "--json", "--kind", "reject", "--rule", "login", "--count", "1")
		bronzes := r.events(t, "--json", "--from", s.addr(bronze).String(), "--kind", "reject", "--count", "1")
		drops := r.events(t, "--json", "--kind", "drop")
		shown := r.events(t, "--reason", "rule", "--kind", "reject", "--service", "go", "--count", "2")
		curl(gold, "/banned", "503")
		curl(gold, "/login", "200")
		curl(bronze, "/login", "200")
		curl(bronze, "/login", "429")
		if s.connects(free) {
			t.Error("the foe is connected")
		}
		banned := api.Event{
			Kind: "reject", Client: s.addr(gold).String(), Server: s.to.String(), Service: "go", Class: "bronze",
			Rule: "banned", RuleKind: "request", Reason: "rule", Answer: "503",
		}
		limited := banned
		limited.Answer = "429"
		limited.Client, limited.Class, limited.Rule, limited.Level = s.addr(bronze).String(), "gold", "login", &api.Level{Burst: 2}
		foe := banned
		foe.Kind, foe.Client, foe.Class, foe.Rule, foe.RuleKind = "drop", s.addr(free).String(), "", "foe", "connection"
		foe.Answer = ""
		for _, c := range []struct {
			l    *listener
			want []api.Event
		}{{all, []api.Event{banned, limited}}, {login, []api.Event{limited}}, {bronzes, []api.Event{limited}}, {drops, []api.Event{foe}}} {
			for _, want := range c.want {
				if diff := cmp.Diff(want, c.l.event()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", c.l.cmd, diff)
				}
			}
		}
		login.ends(0)
		bronzes.ends(0)
		head, _ := shown.line()
		first, _ := shown.line()
		second, _ := shown.line()
		if f := strings.Fields(second); !strings.HasPrefix(head, "TIME ") || !strings.Contains(first, " banned ") ||
			len(f) != 11 || !cmp.Equal(f[3:6], []string{"go", "gold", "login"}) || !strings.HasSuffix(f[6], "/2") {
			t.Errorf("shown:\n%s\n%s\n%s", head, first, second)
		}
		shown.ends(0)
		nettest.Check(t, all.cmd.Process.Signal(syscall.SIGINT))
		all.ends(0)
		r.stop(syscall.SIGTERM)
		drops.ends(1)
	}
}

// While the rules outgrow the instance, whose objects are replaced, every rejection is told.
func TestEventsThroughReloads(t *testing.T) {
	t.Parallel()
	r := newRuled(t, map[string]uint16{"go": 80}, "go")
	s := r.at(t, "go", false)
	policy := func(rules int) string {
		var b bytes.Buffer
		fmt.Fprintf(&b, eventsPolicy, s.addr(free))
		for i := range rules {
			fmt.Fprintf(&b, "  - {name: rule-%d, path: /rule/%d, action: reject}\n", i, i)
		}
		return b.String()
	}
	r.enforce(policy(0))
	l := r.events(t, "--json", "--rule", "banned")
	var wait sync.WaitGroup
	stop, rejected := make(chan struct{}), atomic.Int64{}
	wait.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			v, err := s.tryVisit(gold, 0)
			if err != nil {
				t.Error(err)
				return
			}
			if got := v.meets(v.tries(to("/banned"))); got != turned {
				t.Errorf("met %s", got)
			}
			v.conn.Close()
			rejected.Add(1)
		}
	})
	for _, n := range []int{2000, 5000} {
		r.reload(policy(n))
		late := r.events(t, "--json", "--count", "1", "--rule", fmt.Sprintf("rule-%d", n-1))
		s.visit(bronze).asks(fmt.Sprintf("/rule/%d", n-1), turned)
		if e := late.event(); e.Rule != fmt.Sprintf("rule-%d", n-1) || e.Reason != "rule" || e.Class != "bronze" {
			t.Errorf("after a reload: %+v", e)
		}
		late.ends(0)
	}
	close(stop)
	wait.Wait()
	for range rejected.Load() {
		if e := l.event(); e.Rule != "banned" {
			t.Fatalf("an event %+v", e)
		}
	}
	if rejected.Load() == 0 {
		t.Error("nothing was rejected meanwhile")
	}
	nettest.Check(t, l.cmd.Process.Signal(syscall.SIGINT))
	l.ends(0)
}
