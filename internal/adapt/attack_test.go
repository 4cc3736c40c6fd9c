// SPDX-License-Identifier: Apache-2.0

package adapt

import (
	"math/rand/v2"
	"testing"
)

// TestUnreadBodies has clients that leave bodies which nobody reads, so that more looks unread than waits.
func TestUnreadBodies(t *testing.T) {
	for _, tt := range []struct {
		name    string
		server  func() *server
		rate    float64 // of bronze, in open loop
		clients int     // or in closed loop
		held    bool
	}{
		{"not overloaded", nodes(0.001, 1), 500, 0, false},
		{"waits for something else", sleeps(0.05, 0.001, 2), 1400, 0, false},
		{"cheap answers", nodes(22e-6, 1), 0, 64, false},
		{"overloaded", nodes(0.001, 1), 0, 64, true},
		{"overloaded, two cores", cpuBound(0.002, 2, 0.3), 0, 64, true},
		{"overloaded processes", processes(8, 0.002, 0.02, 1), 0, 64, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			run := func(fake int) (goodput, p99 float64, held int) {
				w := newWorld(tt.server(), 5)
				w.controller, w.fakes = New(Config{QueueSize: 4096, Cautious: true}), fake
				w.decided = trace(w)
				w.open(gold, func() float64 { return 20 })
				if tt.rate > 0 {
					w.open(bronze, func() float64 { return tt.rate })
				}
				w.loop(tt.clients)
				w.run(4)
				goodput, p99 = w.measure(20)
				return goodput, p99, w.held
			}
			honest, p99, _ := run(0)
			for _, fake := range []int{10, 300} {
				g, p, held := run(fake)
				t.Logf("%d unread: %.0f/s of %.0f/s, gold's p99 %.1f ms of %.1f ms, %d held", fake, g, honest, 1e3*p, 1e3*p99, held)
				if g < 0.97*honest || p > 1.3*p99+0.001 || (held > 0) != tt.held {
					t.Errorf("%d unread: %.0f/s of %.0f/s, gold's p99 %.1f ms of %.1f ms, %d held", fake, g, honest, 1e3*p, 1e3*p99, held)
				}
			}
		})
	}
}

// TestPlacesWithoutWork has clients that hold places without work, as many as they like, and leave them all at once:
// neither do they keep the others out for their time, nor does the limit stay where they have brought it.
func TestPlacesWithoutWork(t *testing.T) {
	for _, idlers := range []int{50, 300} {
		idle := false
		w := newWorld(&server{cores: 1, loop: true, request: func(r *rand.Rand) []stage {
			if idle {
				return []stage{{delay, 20}}
			}
			return []stage{{onCPU, lognormal(r, 0.001, 0.1)}}
		}}, 3)
		w.controller = New(Config{QueueSize: 4096, Cautious: true})
		var l limits
		l.watch(w)
		w.open(gold, func() float64 { return 20 })
		w.run(3)
		w.loop(64)
		w.run(6)
		_, before := w.measure(10)
		idle = true
		for i := range idlers {
			w.after(float64(i)*0.0005, func() { w.arrive(gold, -1) })
		}
		w.run(w.now + float64(idlers)*0.0005)
		idle = false
		w.run(w.now + 5)
		during := func() float64 { _, p := w.measure(10); return p }()
		limit := l.mean(w.now-10, w.now)
		w.run(w.now + 8) // until they have left
		_, after := w.measure(10)
		t.Logf("%d idlers: gold's p99 %.1f, then %.1f at a limit of %.0f, then %.1f ms at %.0f", idlers, 1e3*before, 1e3*during, limit, 1e3*after, l.mean(w.now-10, w.now))
		if during > 1 || after > 0.1 {
			t.Errorf("%d idlers: gold's p99 %.1f, then %.1f at a limit of %.0f, then %.1f ms at %.0f", idlers, 1e3*before, 1e3*during, limit, 1e3*after, l.mean(w.now-10, w.now))
		}
	}
}

// TestIdlersLookLikeAQueue has a server that keeps up, and clients that leave requests there on which nobody works. As
// many are in service as ever, as where clients queue that ask again at once. To see whether they do must cost
// nobody much.
func TestIdlersLookLikeAQueue(t *testing.T) {
	for _, idlers := range []int{10, 50, 300} {
		run := func(c *Controller) (goodput, p99 float64) {
			begun := 0
			w := newWorld(&server{cores: 2, request: func(r *rand.Rand) []stage {
				if begun++; begun <= idlers {
					return []stage{{delay, 1000}}
				}
				return []stage{{onCPU, 0.0005}, {delay, 0.05}}
			}}, 5)
			w.controller, w.decided = c, trace(w)
			w.loop(idlers)
			w.run(0.1)
			w.loop(idlers + 8)
			w.open(gold, func() float64 { return 20 })
			w.run(1 + float64(idlers)/200) // more than a server gets of which nothing is known are let in in steps
			return w.measure(30)
		}
		free, p99 := run(nil)
		got, p := run(New(Config{QueueSize: 4096, Cautious: true}))
		t.Logf("%d idlers: %.0f/s of %.0f/s, gold's p99 %.1f ms of %.1f ms", idlers, got, free, 1e3*p, 1e3*p99)
		if got < 0.95*free || p > p99+0.3 {
			t.Errorf("%d idlers: %.0f/s of %.0f/s, gold's p99 %.1f ms of %.1f ms", idlers, got, free, 1e3*p, 1e3*p99)
		}
	}
}
