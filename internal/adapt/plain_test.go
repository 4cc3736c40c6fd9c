// SPDX-License-Identifier: Apache-2.0

package adapt

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// plain is a server that nothing was known of before the first request.
type plain struct {
	name    string
	server  func() *server
	gold    float64 // requests/s
	service float64 // seconds of one that does not queue
	limits  []int
	clients []int
	drain   float64 // seconds beyond 2 that it takes to serve what came in the first moment, before anybody could know
	hidden  bool    // only trials tell how much it takes: they cost some time, and where few clients were there from the first moment nothing tells
	total   float64 // of the best of no limit and the best fixed limit
	kept    bool    // clients use their connections again, but for gold
	starves bool    // without a limit gold hardly gets an answer: what holding costs has to be paid
}

// nodes is one thread that answers one request after another.
func nodes(mean, cores float64) func() *server {
	return func() *server {
		return &server{cores: cores, loop: true, request: func(r *rand.Rand) []stage {
			return []stage{{onCPU, lognormal(r, mean, 0.1)}}
		}}
	}
}

// processes is a pool of them.
func processes(n int, cpu, wait, cores float64) func() *server {
	return func() *server {
		return &server{cores: cores, workers: n, request: func(r *rand.Rand) []stage {
			return []stage{{onCPU, lognormal(r, cpu/2, 0.2)}, {delay, wait}, {onCPU, lognormal(r, cpu/2, 0.2)}}
		}}
	}
}

var plains = []plain{
	{"8 processes, 2 ms and 20 ms of waiting", processes(8, 0.002, 0.02, 1), 10, 0.022, []int{6, 7, 8, 9, 10, 12}, []int{16, 64, 200, 1000}, 0, false, 0.95, false, false},
	{"8 processes, 5 ms", processes(8, 0.005, 0, 2), 10, 0.005, []int{1, 2, 3, 4, 8, 9}, []int{16, 64, 200}, 0, false, 0.95, false, false},
	{"28 processes, 25 ms", processes(28, 0.025, 0, 1), 5, 0.025, []int{1, 2, 3}, []int{16, 64, 200}, 3, true, 0.95, false, false},
	{"one thread, 1 ms", nodes(0.001, 1), 10, 0.001, []int{1, 2, 3, 4}, []int{16, 64, 200, 1000}, 0, false, 0.95, false, false},
	{"one thread, every hundredth takes 20 ms, others 0.5", func() *server {
		n := 0
		return &server{cores: 1, loop: true, request: func(*rand.Rand) []stage {
			if n++; n%100 == 0 {
				return []stage{{onCPU, 0.02}}
			}
			return []stage{{onCPU, 0.0005}}
		}}
	}, 10, 0.001, []int{1, 2, 3}, []int{16, 64, 200, 1000}, 0, false, 0.93, false, false}, // with a limit of 1 it waits for each next one
	{"a loop that waits 50 ms", func() *server {
		return &server{cores: 1, loop: true, request: func(r *rand.Rand) []stage {
			return []stage{{onCPU, 0.0005}, {delay, 0.05}, {onCPU, lognormal(r, 0.0005, 0.5)}}
		}}
	}, 20, 0.051, []int{40, 50, 55, 60, 70, 80}, []int{64, 1000}, 0, false, 0.94, false, false},
	{"static files, 22 µs", func() *server {
		v := nodes(22e-6, 1)()
		v.holding = 10e-6
		return v
	}, 50, 22e-6, []int{1, 2, 8, 32, 200}, []int{64, 1000}, 0, false, 0.97, false, false},
	{"static files, 60 µs, a loop that accepts one connection a turn", func() *server {
		v := nodes(60e-6, 1)()
		v.holding, v.turns = 10e-6, 512
		return v
	}, 50, 60e-6, []int{1, 2, 8, 32}, []int{1000}, 0, false, 0.97, true, true},
	{"threads, and 5 connections to a database", func() *server {
		return &server{cores: 2, pool: 5, request: func(r *rand.Rand) []stage {
			return []stage{{onCPU, 0.001}, {inPool, lognormal(r, 0.02, 0.3)}, {onCPU, 0.001}}
		}}
	}, 10, 0.022, []int{4, 5, 6, 7, 8, 10, 12}, []int{16, 64, 200}, 0, true, 0.93, false, false},
	{"a front, and 8 processes behind it, 2 ms and 20 ms of waiting", fronted(8, 0.002, 0.02, 1), 10, 0.024, []int{7, 8, 9, 10, 12}, []int{16, 64, 200, 1000}, 0, false, 0.93, false, false},
	{"a front, and 3 processes behind it that wait 100 ms", fronted(3, 0.001, 0.1, 1), 5, 0.102, []int{2, 3, 4, 5}, []int{16, 64}, 4, true, 0.93, false, false},
	{"a front, and 40 processes behind it that wait 20 ms", fronted(40, 0.0003, 0.02, 1), 10, 0.022, []int{36, 40, 42, 44, 48}, []int{64, 200, 1000}, 0, false, 0.95, false, false},
}

// fronted has all requests taken by a server in front of n processes, which nobody sees: each works and waits.
func fronted(n int, cpu, wait, cores float64) func() *server {
	return func() *server {
		return &server{cores: cores, pool: n, request: func(r *rand.Rand) []stage {
			return []stage{{onCPU, cpu / 10}, {inPool, wait + lognormal(r, cpu, 0.2)}}
		}}
	}
}

// TestPlain starts each server under load that it cannot do, and judges from two seconds on.
func TestPlain(t *testing.T) {
	for _, sc := range plains {
		for _, clients := range sc.clients {
			for _, calm := range []float64{0, 5} {
				if sc.hidden && calm == 0 && clients < 64 {
					continue
				}
				for seed := range uint64(2) {
					t.Run(fmt.Sprintf("%s/%d clients/after %.0f s/seed %d", sc.name, clients, calm, seed), func(t *testing.T) {
						t.Parallel()
						sc.judge(t, clients, calm, seed)
					})
				}
			}
		}
	}
}

func (sc plain) judge(t *testing.T, clients int, calm float64, seed uint64) {
	var l limits
	run := func(limit int, c *Controller) (goodput, p50, p99 float64) {
		w := newWorld(sc.server(), seed)
		w.limit, w.controller, w.keeps = limit, c, sc.kept
		if c != nil {
			l.watch(w)
		}
		w.open(gold, func() float64 { return sc.gold })
		if calm > 0 {
			w.run(calm)
		}
		w.loop(clients)
		w.run(w.now + 2 + sc.drain)
		goodput, p99 = w.measure(max(5, 100/sc.gold))
		return goodput, percentile(w.latencies, 0.5), p99
	}
	most := 0.0
	best, best50, best99 := 0, math.Inf(1), math.Inf(1)
	type result struct{ goodput, p50, p99 float64 }
	all := map[int]result{}
	if !sc.starves {
		sc.limits = append(sc.limits, 0)
	}
	for _, n := range sc.limits {
		g, p50, p99 := run(n, nil)
		all[n] = result{g, p50, p99}
		most = max(most, g)
	}
	for n, r := range all {
		if r.goodput >= 0.97*most && r.p99 < best99 {
			best, best50, best99 = n, r.p50, r.p99
		}
	}
	g, p50, p99 := run(0, New(Config{QueueSize: 4096, Cautious: true}))
	target := max(sc.service, 0.001)
	t.Logf("best %d: %.0f/s, %.1f and %.1f ms; auto %.1f: %.3f, %.2f and %.2f times", best, most, 1e3*best50, 1e3*best99, l.mean(calm+2, calm+30), g/most, p50/best50, p99/best99)
	if g < sc.total*most {
		t.Errorf("%.0f/s of %.0f/s", g, most)
	}
	if sc.hidden {
		target *= 4
	}
	if p50 > max(1.3*best50, best50+target) || p99 > max(1.3*best99, best99+target) {
		t.Errorf("gold %.1f and %.1f ms, with limit %d %.1f and %.1f ms", 1e3*p50, 1e3*p99, best, 1e3*best50, 1e3*best99)
	}
}

// TestTarget holds nothing as long as what waits inside the server takes no longer than it may, and lets go when there
// is clearly less.
func TestTarget(t *testing.T) {
	for _, tt := range []struct {
		name    string
		config  Config
		server  func() *server
		clients int
		kept    bool
		held    bool
	}{
		{"16 ms of 50", Config{Target: 50 * time.Millisecond}, nodes(0.001, 1), 16, false, false},
		{"200 ms of 50", Config{Target: 50 * time.Millisecond}, nodes(0.001, 1), 200, false, true},
		{"none said", Config{}, nodes(0.001, 1), 16, false, true},
		{"cheap, 22 ms of 100", Config{}, nodes(22e-6, 1), 1000, false, false},
		{"cheap, 22 ms of 5", Config{Target: 5 * time.Millisecond}, nodes(22e-6, 1), 1000, false, true},
		{"cheap, 220 ms", Config{}, nodes(22e-6, 1), 10000, false, true},
		{"cheap, and nobody to let go first", Config{Alike: true}, nodes(22e-6, 1), 10000, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(tt.server(), 3)
			tt.config.QueueSize = 1 << 20
			w.controller = New(tt.config)
			w.open(gold, func() float64 { return 20 })
			w.run(5)
			w.loop(tt.clients)
			w.run(11)
			w.held = 0
			w.run(13)
			if held := w.held > 0; held != tt.held {
				t.Errorf("%d requests held at a limit of %d", w.held, w.limit)
			}
			if tt.held {
				w.closed = tt.clients / 20
				w.run(21)
				w.held = 0
				w.run(23)
				if tt.config.Target > 0 && w.held > 0 {
					t.Errorf("%d requests held of few clients, at a limit of %d", w.held, w.limit)
				}
			}
		})
	}
}
