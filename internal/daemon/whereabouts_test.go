// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"narthex/internal/api"
	"narthex/internal/host"
	"narthex/internal/netif"
	"narthex/internal/policy"
)

// TestLocate finds this process behind a socket, and what it may use.
func TestLocate(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	at := server.Addr().(*net.TCPAddr).AddrPort()
	diag, err := netif.OpenDiag(&netif.Namespace{})
	if err != nil {
		t.Fatal(err)
	}
	defer diag.Close()
	l := &locator{listening: diag.Listening, finder: host.NewFinder("/proc")}
	services := []policy.ServiceTable{
		{Name: "here", Listen: []policy.Listen{{Port: at.Port()}}},
		{Name: "nowhere", Listen: []policy.Listen{{Addr: netip.MustParseAddr("127.0.0.1"), Port: 1}}},
	}
	for range 2 { // the second time what was found is asked whether it is there yet
		all, cgroups, err := l.locate(services, services)
		if err != nil {
			t.Fatal(err)
		}
		if w := all[0]; w.Place == nil || len(w.CPUs) == 0 || len(w.accept) != 1 || w.accept[0].at != at || w.accept[0].sockets != 1 {
			t.Fatalf("here: %+v", w)
		}
		if own := l.finder.Group([]int{os.Getpid()}); cgroups["here"] != own || cgroups["nowhere"] != "" {
			t.Errorf("cgroups %v, want %q for here alone", cgroups, own)
		}
		if w := all[1]; w.Place != nil || len(w.accept) != 0 {
			t.Fatalf("nowhere: %+v", w)
		}
	}
	holds := func(h host.Holder) bool { return h.PID == os.Getpid() }
	for inode, holders := range l.holders {
		if !slices.ContainsFunc(holders, holds) {
			t.Errorf("socket %d is held by %v", inode, holders)
		}
		if l.stale(map[uint32]bool{inode: true}) {
			t.Error("looks anew though nothing changed")
		}
	}
	server.Close()
	for inode := range l.holders {
		if !l.stale(map[uint32]bool{inode: true}) {
			t.Error("does not look anew after the process let go of the socket")
		}
	}
}

// TestBacklog asks as many times as sockets share an address, differently each time.
func TestBacklog(t *testing.T) {
	b := newBench(t)
	at := netip.MustParseAddrPort("127.0.0.1:80")
	w := &whereabouts{}
	for range 3 {
		w.add(&netif.Listening{At: at})
	}
	w.add(&netif.Listening{At: at, Device: 5})
	var asked []acceptQueue
	b.queue = func(q acceptQueue) (int, error) {
		asked = append(asked, q)
		return 2, nil
	}
	s := &steered{place: w}
	if got := b.backlog(s); got != 3*2+2 {
		t.Errorf("backlog %d, want 8", got)
	}
	b.backlog(s)
	picks := map[uint16]bool{}
	for _, q := range asked {
		if q.device == 0 {
			picks[q.pick] = true
		}
	}
	if len(asked) != 2*(3+1) || len(picks) != 2*3 {
		t.Errorf("asked %+v", asked)
	}
	if got := b.backlog(&steered{}); got != 0 {
		t.Errorf("backlog %d of a service whose servers are not known", got)
	}
}

// TestMove keeps the whereabouts that readings are of as long as they mean the same.
func TestMove(t *testing.T) {
	w := func(cpus ...int) *whereabouts { return &whereabouts{Place: &host.Place{CPUs: cpus}} }
	s := &steered{}
	first := w(0, 1)
	s.move(first)
	again := w(0, 1)
	again.accept = []acceptQueue{{sockets: 2}}
	if s.move(again); s.place != first || len(first.accept) != 1 {
		t.Errorf("at %+v, want what was there with the new sockets", s.place)
	}
	other := w(1)
	if s.move(other); s.place != other {
		t.Errorf("at %+v, want %+v", s.place, other)
	}
}

// TestProcessorTime counts a cgroup once for a pool, however many of its services it serves.
func TestProcessorTime(t *testing.T) {
	a := &agent{
		cgroups: map[string]string{"http": "/nginx", "https": "/nginx", "app": "/app", "gone": "/gone"},
		usage: func(group string) time.Duration {
			return map[string]time.Duration{"/nginx": 3 * time.Second, "/app": 500 * time.Millisecond, "/gone": host.Unknown}[group]
		},
	}
	var services []api.ServiceStatus
	for _, name := range []string{"http", "https", "app", "gone", "nowhere"} {
		services = append(services, api.ServiceStatus{Name: name, CPU: a.cpu(name)})
	}
	if c := services[1].CPU; c == nil || *c != (api.CPUStatus{Cgroup: "/nginx", Seconds: 3}) {
		t.Errorf("https: %+v", c)
	}
	if services[3].CPU != nil || services[4].CPU != nil {
		t.Errorf("gone %+v, nowhere %+v", services[3].CPU, services[4].CPU)
	}
	if sum := cpuOf([]int{0, 1, 2, 3}, services); sum == nil || *sum != 3.5 {
		t.Errorf("the pool: %v, want 3.5", sum)
	}
	if sum := cpuOf([]int{3, 4}, services); sum != nil {
		t.Errorf("a pool of which nothing is known: %v", *sum)
	}
}
