// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/test/attack"
	"narthex/test/nettest"
)

// hostile is a case.
type hostile struct {
	name string
	// begin begins the attack, or makes it; what it leaves running ends with the case.
	begin func(r *round)
	// inexact says that what a server has read is not what was let in: clients leave what they
	// have asked for, or what is let in are connections.
	inexact bool
	// without are events that are an end to what the case is about.
	without []event
	// crowded says that the attackers fill the service by right. Ordinary clients work after them.
	crowded bool
}

// hostiles are all cases.
var hostiles = slices.Concat(forgeries, floods, queues, slow, requests)

// event is what happens in the middle of a case.
type event struct {
	name  string
	cause func(s *scene)
}

// What happens in the middle of cases. At their end all is as it was.
var (
	linkDown = event{"the attackers' interface goes down and up", func(s *scene) {
		nettest.Check(s.t, s.ns.SetDown(s.devs[s.attackers]))
		time.Sleep(200 * time.Millisecond)
		nettest.Check(s.t, s.ns.SetUp(s.devs[s.attackers]))
		s.acquaint() // which it forgets with the interface
	}}
	limits = event{"reload with other limits", func(s *scene) {
		s.reload(strings.NewReplacer("concurrency: 4, queue: {size: 64", "concurrency: 2, queue: {size: 20").Replace(policy))
		time.Sleep(100 * time.Millisecond)
		s.reload(policy)
	}}
	far = event{"reload with a limit that is far away, and back", func(s *scene) {
		s.reload(plain)
		time.Sleep(100 * time.Millisecond)
		s.reload(policy)
	}}
	classes = event{"reload with a class less and another name", func(s *scene) {
		s.reload(strings.NewReplacer("  - {name: mob, priority: 3, max: 3}\n", "", "name: bronze, priority", "name: brass, priority", "class: bronze", "class: brass").Replace(policy))
		time.Sleep(100 * time.Millisecond)
		s.reload(policy)
	}}
	service = event{"reload without the service", func(s *scene) {
		s.reload(strings.Replace(policy, "*:80", "*:81", 1))
		time.Sleep(100 * time.Millisecond)
		s.reload(strings.ReplaceAll(policy, "name: web", "name: other"))
		s.reload(policy)
	}}
	kill = event{"kill and adopt", func(s *scene) {
		s.stop(syscall.SIGKILL)
		time.Sleep(100 * time.Millisecond)
		s.start(binary)
	}}
	upgraded = event{"upgrade", func(s *scene) {
		s.stop(syscall.SIGTERM)
		s.start(upgrade)
	}}
)

// events returns what happens in the middle of a case's nth run.
func events(c, n int) []event {
	switch {
	case full():
		return []event{linkDown, limits, far, classes, kill, upgraded, service}
	case n == 0:
		return []event{linkDown, limits}
	case n == 1:
		return []event{far, classes}
	case c%2 == 0:
		return []event{kill}
	}
	return []event{upgraded}
}

// meets leaves out events that are an end to what the case is about.
func (h hostile) meets(all []event) []event {
	return slices.DeleteFunc(all, func(e event) bool {
		return slices.ContainsFunc(h.without, func(w event) bool { return w.name == e.name })
	})
}

// TestHostile has each case meet each server, and each value of the other settings.
func TestHostile(t *testing.T) {
	nettest.Root(t)
	for i, server := range servers {
		for j, row := range rows {
			row.server = server
			t.Run(row.String(), func(t *testing.T) {
				t.Parallel()
				s := newScene(t, row)
				for c, h := range hostiles {
					// A case leaves out another row with each server.
					if full() || (c+i)%len(rows) == j {
						s.run(t, h, h.meets(events(c, i)))
					}
				}
			})
		}
	}
}

// capture writes what the server sends and receives to a file below the folder that
// NARTHEX_PCAP names, if it does, for looking at a failure with tcpdump -r.
func (s *scene) capture() {
	s.t.Helper()
	dir := os.Getenv("NARTHEX_PCAP")
	if dir == "" {
		return
	}
	name := strings.NewReplacer("/", "-", " ", "-").Replace(s.t.Name())
	for end, ns := range map[string]*lab.Namespace{"server": s.ns, "near": s.clients[0], "far": s.clients[1]} {
		cmd := ns.Command("tcpdump", "-Z", "root", "-i", "any", "-n", "-U", "--immediate-mode", "-w", filepath.Join(dir, name+"-"+end+".pcap"))
		nettest.Check(s.t, cmd.Start())
		s.t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGINT)
			_ = cmd.Wait()
		})
	}
	time.Sleep(300 * time.Millisecond) // until they listen
}

// round is one run of a case.
type round struct {
	*scene
	name    string // of what it asks for
	before  reading
	workers *workers
	ends    []func() // in the reverse order
}

// run runs a case, and checks that nothing of it is left.
func (s *scene) run(t *testing.T, h hostile, events []event) {
	t.Run(h.name, func(t *testing.T) {
		home := s.t
		s.t, s.instance.t = t, t
		defer func() { s.t, s.instance.t = home, home }()
		s.capture()
		t.Cleanup(func() {
			if got, err := s.tryRead(); t.Failed() {
				t.Logf("status at the end, error %v:\n%s", err, got)
			}
		})
		s.runs++
		r := &round{scene: s, name: fmt.Sprintf("run%d", s.runs)}
		s.ask("/forget")
		r.before = s.read()
		if !h.crowded {
			r.workers = s.work()
			s.reload(plain)
			r.workers.goOn()
			s.reload(policy)
		}
		h.begin(r)
		for _, e := range events {
			t.Log(e.name)
			e.cause(s)
			if r.workers != nil {
				r.workers.goOn()
			}
		}
		for _, end := range slices.Backward(r.ends) {
			end()
		}
		if r.workers != nil {
			r.workers.stop()
		}
		s.isCalm()
		uncounted := slices.ContainsFunc(events, func(e event) bool { return e.name == service.name })
		s.wasAskedOnce(r.before, h.inexact || uncounted)
		nettest.Check(t, whole(s.visit(s.attackers, gold, 80).fetch(lab.File)))
	})
	if t.Failed() {
		t.FailNow() // what is left would disturb the next case
	}
}

// atEnd has fn called at the end of the round, before ordinary clients stop.
func (r *round) atEnd(fn func()) { r.ends = append(r.ends, fn) }

// attack starts an attack that goes on to the end of the round.
func (r *round) attack(a interface {
	Start(context.Context) (*attack.Run, error)
}) *attack.Run {
	r.t.Helper()
	run, err := a.Start(r.t.Context())
	nettest.Check(r.t, err)
	r.t.Cleanup(func() { _ = run.Stop() })
	r.atEnd(func() { nettest.Check(r.t, run.Stop()) })
	return run
}

// crowd is a crowd of clients of the mob.
func (r *round) crowd(clients int) attack.Crowd {
	return attack.Crowd{
		NS: r.clients[r.attackers], From: []netip.Addr{r.addr(r.attackers, mob, 1)}, To: r.to(r.attackers, 80), Clients: clients, Seed: uint64(r.runs),
	}
}

// isCalm waits until nothing is under way and nothing of it is left, and checks the counters.
func (s *scene) isCalm() {
	s.t.Helper()
	var got reading
	calm := within(patience, func() bool {
		got = s.read()
		return got.calm()
	})
	if !calm {
		s.t.Fatalf("after %v something is left:\n%s", patience, got)
	}
	if err := got.addsUp(); err != nil {
		s.t.Errorf("%v\n%s", err, got)
	}
}

// wasAskedOnce checks that the server has read what was let in, and each request once.
func (s *scene) wasAskedOnce(before reading, inexact bool) {
	s.t.Helper()
	asked := s.asked()
	times := map[string]int{}
	for _, uri := range asked {
		times[uri]++
		if strings.Contains(uri, "forged") {
			s.t.Errorf("the server was asked for %q", uri)
		}
		if strings.Contains(uri, "run=") && times[uri] == 2 {
			s.t.Errorf("the server was asked for %q twice", uri)
		}
	}
	was, pausedBefore := before.entered()
	now, paused := s.read().entered()
	if inexact || s.server != "go" || paused != pausedBefore {
		return
	}
	if n := uint64(len(asked)); n != now-was {
		s.t.Errorf("the server was asked for %d, but %d were let in:\n%q", n, now-was, asked)
	}
}
