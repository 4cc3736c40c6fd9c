// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"narthex/internal/api"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
)

// doors are services of one server, in a pool.
type doors struct {
	*room
	t *testing.T
}

// poolPolicy has services a, b, c and d at ports 80, 8081, 8082 and 8083 of one server; each fragment is of one.
func poolPolicy(pools string, services ...string) string {
	ports := []int{80, 8081, 8082, 8083}
	text := "version: 1\npools: [" + pools + "]\nservices:\n"
	for i, s := range services {
		text += fmt.Sprintf("  - {name: %c, listen: %q, queue: {max_wait: 20s}%s}\n", 'a'+i, fmt.Sprintf("*:%d", ports[i]), s)
	}
	return text + `
classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]
connections:
  - {name: gold, from: [10.77.2.0/24], class: gold}
  - {name: bronze, from: [10.77.3.0/24], class: bronze}
`
}

// pooled starts an origin behind all doors, and the daemon.
func pooled(t *testing.T, cfg origin.Config, policy string) *doors {
	t.Helper()
	s := newScene(t, plain, false)
	for _, port := range []uint16{80, 8081, 8082, 8083} {
		cfg.Listen = append(cfg.Listen, netip.AddrPortFrom(s.to.Addr(), port))
	}
	cfg.Control = []netip.AddrPort{s.tell}
	s.cfg = config(cfg)
	s.serve(origin.Start(s.server, cfg))
	return &doors{&room{scene: s, t: t, instance: s.enforces(t, policy)}, t}
}

// at has somebody connect to the door of a port, and ask for a path.
func (d *doors) at(w who, port uint16, path string) *visitor {
	d.t.Helper()
	s := *d.scene
	s.to = netip.AddrPortFrom(s.to.Addr(), port)
	v := s.visit(w)
	if path != "" {
		v.get(path)
	}
	return v
}

// pool returns the first pool's status.
func (d *doors) pool() api.ServicePool {
	d.t.Helper()
	s := d.status()
	if len(s.Pools) == 0 {
		d.t.Fatal("the status has no pool")
	}
	return s.Pools[0]
}

// awaits waits until so many are in service and wait in the first pool.
func (d *doors) awaits(inService, waiting int) {
	d.t.Helper()
	var p api.ServicePool
	if !within(patience, func() bool {
		p = d.pool()
		return p.InService == inService && p.Waiting == waiting
	}) {
		d.t.Fatalf("%d are in service and %d wait, want %d and %d: %+v", p.InService, p.Waiting, inService, waiting, p)
	}
}

// The services of a pool are one queue: gold at one goes before bronze at the other, and within a class who came first.
func TestPoolOrder(t *testing.T) {
	t.Parallel()
	d := pooled(t, origin.Config{}, poolPolicy("{name: one, concurrency: 1}", ", pool: one", ", pool: one"))
	first := d.at(bronze, 80, "/wait?for=first")
	d.awaits(1, 0)
	var queue []*visitor
	for i, q := range []struct {
		who  who
		port uint16
	}{{bronze, 80}, {bronze, 8081}, {bronze, 80}, {gold, 8081}, {gold, 80}} {
		queue = append(queue, d.at(q.who, q.port, fmt.Sprint("/", i)))
		d.awaits(1, i+1)
	}
	d.letGo("first")
	first.wants(http.StatusOK)
	for _, v := range queue {
		v.wants(http.StatusOK)
	}
	var got []string
	if !within(patience, func() bool { got = d.asked(); return len(got) == 6 }) || fmt.Sprint(got) != "[/wait?for=first /3 /4 /0 /1 /2]" {
		t.Errorf("the server was asked for %q", got)
	}
	d.awaits(0, 0)
}

// A service's own limit binds beside the pool's, and keeps nobody of another from a place.
func TestPoolOwnLimit(t *testing.T) {
	t.Parallel()
	d := pooled(t, origin.Config{}, poolPolicy("{name: one, concurrency: 2}", ", pool: one, concurrency: 1", ", pool: one"))
	a := d.at(gold, 80, "/wait?for=a")
	d.awaits(1, 0)
	behind := d.at(gold, 80, "/behind")
	d.awaits(1, 1)
	d.at(bronze, 8081, "/now").wants(http.StatusOK)
	d.awaits(1, 1)
	d.letGo("a")
	a.wants(http.StatusOK)
	behind.wants(http.StatusOK)
	d.awaits(0, 0)
}

// Who waits in a pool is rejected as its own service says, and a place that is lost with its client comes back.
func TestPoolEnds(t *testing.T) {
	t.Parallel()
	d := pooled(t, origin.Config{}, poolPolicy("{name: one, concurrency: 1}", ", pool: one", `, pool: one, reject: {status: 429}`))
	first := d.at(bronze, 80, "/wait?for=first")
	d.awaits(1, 0)
	gone := d.at(bronze, 8081, "/gone")
	d.awaits(1, 1)
	gone.reset()
	d.awaits(1, 0)
	must(t, d.command("set", "services.b.queue.max_wait", "100ms")...)
	d.at(bronze, 8081, "/late").wants(http.StatusTooManyRequests)
	waits := d.at(bronze, 8081, "/soon")
	first.conn.Close()
	d.letGo("first")
	waits.wants(http.StatusOK)
	d.awaits(0, 0)
}

// A reload that takes services out of a pool, and puts them into it, loses no place.
func TestPoolReload(t *testing.T) {
	t.Parallel()
	in := poolPolicy("{name: one, concurrency: 1}", ", pool: one", ", pool: one")
	d := pooled(t, origin.Config{}, in)
	first := d.at(bronze, 80, "/wait?for=first")
	d.awaits(1, 0)
	second := d.at(bronze, 8081, "/second")
	d.awaits(1, 1)
	d.reload(poolPolicy("", ", concurrency: 1", ", concurrency: 1"))
	second.wants(http.StatusOK)
	d.reload(in)
	d.awaits(1, 0)
	third := d.at(bronze, 8081, "/third")
	d.awaits(1, 1)
	d.letGo("first")
	first.wants(http.StatusOK)
	third.wants(http.StatusOK)
	d.awaits(0, 0)
	d.at(gold, 80, "/last").wants(http.StatusOK)
	d.awaits(0, 0)
}

// busyAt keeps so many clients asking at a door until the end.
func (d *doors) busyAt(w who, port uint16, clients int, running *sync.WaitGroup, end *atomic.Bool) {
	d.t.Helper()
	for range clients {
		v := d.at(w, port, "")
		running.Go(func() {
			for !end.Load() {
				v.get("/")
				if resp, _, err := v.answer(); err != nil || resp.StatusCode != http.StatusOK {
					d.t.Errorf("port %d: %v, %v", port, resp, err)
					return
				}
			}
		})
	}
}

// used returns the place-seconds of the members of a pool.
func (d *doors) used(pool string) map[string]float64 {
	d.t.Helper()
	used := map[string]float64{}
	for _, p := range d.status().Pools {
		if p.Name == pool {
			for _, m := range p.Members {
				used[m.Name] = m.Used
			}
		}
	}
	return used
}

// during is how much more of a pool's place-seconds each member had of that of all, in a time.
func (d *doors) during(pool string, span time.Duration) map[string]float64 {
	d.t.Helper()
	before := d.used(pool)
	time.Sleep(span)
	after, sum := d.used(pool), 0.0
	for name := range after {
		after[name] -= before[name]
		sum += after[name]
	}
	for name := range after {
		after[name] /= sum
	}
	return after
}

// Each service has its share of the places, whatever the number of its clients; what one does not use the
// others have.
func TestPoolShares(t *testing.T) {
	t.Parallel()
	d := pooled(t, origin.Config{Sleep: 5 * time.Millisecond}, poolPolicy("{name: tenants, concurrency: 4, between: shares}",
		", pool: tenants, share: 3", ", pool: tenants"))
	var running sync.WaitGroup
	var few, many atomic.Bool
	d.busyAt(bronze, 80, 8, &running, &few)
	d.busyAt(gold, 8081, 24, &running, &many)
	d.shares("tenants", map[string]float64{"a": 0.75, "b": 0.25})
	few.Store(true)
	eventually(t, "b has it all", func() bool { return d.during("tenants", 200*time.Millisecond)["b"] > 0.99 })
	many.Store(true)
	running.Wait()
	d.awaits(0, 0)
}

// shares waits until the members of a pool have had these shares for two seconds.
func (d *doors) shares(pool string, want map[string]float64) {
	d.t.Helper()
	var got map[string]float64
	if !within(3*patience, func() bool {
		got = d.during(pool, 2*time.Second)
		for name, share := range want {
			if math.Abs(got[name]-share) > 0.05 {
				return false
			}
		}
		return true
	}) {
		d.t.Errorf("pool %s: shares %v, want %v", pool, got, want)
	}
}

// A pool in a pool has its share, and divides it among its own.
func TestPoolInPool(t *testing.T) {
	t.Parallel()
	d := pooled(t, origin.Config{Sleep: 5 * time.Millisecond}, poolPolicy(
		"{name: all, concurrency: 8, between: shares}, {name: left, pool: all, share: 2, between: shares}, {name: right, pool: all}",
		", pool: left, share: 3", ", pool: left", ", pool: right", ", pool: right"))
	var running sync.WaitGroup
	var end atomic.Bool
	for i, port := range []uint16{80, 8081, 8082, 8083} {
		d.busyAt(bronze, port, 8+4*i, &running, &end)
	}
	d.shares("all", map[string]float64{"left": 2. / 3, "right": 1. / 3})
	d.shares("left", map[string]float64{"a": 0.75, "b": 0.25})
	end.Store(true)
	running.Wait()
	d.awaits(0, 0)
}

// Clients that read nothing of their answers are reset while somebody waits at another door of the pool.
func TestPoolStall(t *testing.T) {
	t.Parallel()
	const places = 4
	s := newScene(t, plain, false)
	at := []netip.AddrPort{s.to, netip.AddrPortFrom(s.to.Addr(), 8081)}
	s.serve(s.server.StartNginx(lab.NginxConfig{Listen: at}))
	policy := poolPolicy(fmt.Sprintf("{name: one, concurrency: %d}", places), ", pool: one, service_ends: last_byte", ", pool: one")
	policy = strings.Replace(policy, "priority: 2}", "priority: 2, stall: 500ms}", 1)
	d := &doors{&room{scene: s, t: t, instance: s.enforces(t, policy)}, t}
	for _, v := range d.unread(places) {
		defer v.conn.Close()
	}
	d.awaits(places, 0)
	g := d.at(gold, 8081, lab.File)
	g.wants(http.StatusOK)
}
