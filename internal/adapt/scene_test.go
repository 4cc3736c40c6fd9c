// SPDX-License-Identifier: Apache-2.0

package adapt

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// limits has the limit in force over time.
type limits struct{ at, limit []float64 }

func (l *limits) watch(w *world) {
	show := trace(w)
	w.decided = func(s *Sample, d Decision) {
		show(s, d)
		l.at, l.limit = append(l.at, w.now), append(l.limit, float64(d.Limit))
	}
}

// mean is the mean limit in a span of time.
func (l *limits) mean(from, to float64) float64 {
	sum, n := 0.0, 0.0
	for i, at := range l.at {
		if at > from && at <= to {
			sum, n = sum+l.limit[i], n+1
		}
	}
	return sum / n
}

func TestNotOverloaded(t *testing.T) {
	slowEndpoint := func() *server {
		return &server{cores: 2, request: func(r *rand.Rand) []stage {
			if r.Float64() < 0.1 {
				return []stage{{delay, 1}}
			}
			return []stage{{onCPU, 0.002}}
		}}
	}
	for _, tt := range []struct {
		name   string
		server func() *server
		rate   float64
		hide   bool
	}{
		{"CPU-bound at 30 %", cpuBound(0.002, 2, 0.5), 300, false},
		{"CPU-bound at 60 %", cpuBound(0.002, 2, 0.5), 600, false},
		{"static files at 50 %", cpuBound(0.0001, 1, 0.3), 5000, false},
		{"CGI at 50 %", cpuBound(0.05, 1, 0.3), 10, false},
		{"sleeps at 70 %", sleeps(0.05, 0.001, 2), 1400, false},
		{"pool at 60 %", pooled(0.05, 0.0005, 2, 20, 0.3), 240, false},
		{"a slow endpoint", slowEndpoint, 300, false},
		{"CPU-bound at 50 %, processors not seen", cpuBound(0.002, 2, 0.5), 500, true},
		{"sleeps at 50 %, processors not seen", sleeps(0.05, 0.001, 2), 1000, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			run := func(c *Controller, decided func(*Sample, Decision)) (w *world, goodput float64) {
				w = newWorld(tt.server(), 3)
				w.controller, w.hideBusy, w.decided = c, tt.hide, decided
				w.open(gold, func() float64 { return tt.rate / 10 })
				w.open(bronze, func() float64 { return tt.rate * 9 / 10 })
				w.run(0.5) // in which a server of which nothing is known has more from sample to sample
				w.held = 0
				goodput, _ = w.measure(30)
				return w, goodput
			}
			_, free := run(nil, nil)
			overloads := 0
			w, goodput := run(New(Config{QueueSize: 4096, Cautious: true}), func(_ *Sample, d Decision) {
				if d.Overload {
					overloads++
				}
			})
			if w.held > 0 || overloads > 0 {
				t.Errorf("%d requests held, overload in %d samples, want none", w.held, overloads)
			}
			if goodput < 0.98*free {
				t.Errorf("%.0f completions/s of %.0f/s", goodput, free)
			}
		})
	}
}

func TestStep(t *testing.T) {
	for _, tt := range []struct {
		name     string
		server   func() *server
		capacity float64
		cheap    bool
	}{
		{"CPU-bound", cpuBound(0.002, 2, 0.3), 1000, false},
		{"static files", cpuBound(0.0001, 1, 0.3), 10000, true},
		{"sleeps", sleeps(0.05, 0.001, 2), 2000, false},
		{"thrashes", thrashes(0.01, 2, 16, 2, true), 200, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(tt.server(), 5)
			w.controller = New(Config{QueueSize: 4096, Cautious: true})
			var l limits
			l.watch(w)
			load := 0.2
			w.open(gold, func() float64 { return tt.capacity / 10 })
			w.open(bronze, func() float64 { return load * tt.capacity })
			w.run(20)
			load *= 10
			_, during := w.measure(10)
			w.run(40)
			goodput, steady := w.measure(10)
			first, last := l.mean(21, 23), l.mean(40, 50)
			t.Logf("%s: limit %.1f after a second, %.1f later; gold p99 %.1f ms, %.1f ms; goodput %.0f/s", tt.name, first, last, 1e3*during, 1e3*steady, goodput)
			if math.Abs(first-last) > 0.25*last+0.5 {
				t.Errorf("limit %.1f from the second second on, %.1f later", first, last)
			}
			if most := 3 * steady; during > most && !(tt.cheap && during < cheapQueue) {
				t.Errorf("gold p99 %.1f ms during the step, %.1f ms later", 1e3*during, 1e3*steady)
			}
			if goodput < 0.93*tt.capacity {
				t.Errorf("goodput %.0f/s of %.0f/s", goodput, tt.capacity)
			}
		})
	}
}

func TestServerChanges(t *testing.T) {
	for _, tt := range []struct {
		name     string
		server   func() *server
		capacity float64
		clients  int
		soon     float64 // share of the capacity to be had from two seconds on
		later    float64 // and from twenty on
	}{
		{"CPU-bound", cpuBound(0.002, 2, 0.3), 1000, 200, 0.95, 0.95},
		{"sleeps", sleeps(0.05, 0.001, 2), 2000, 3000, 0.88, 0.88},
		{"pool", pooled(0.05, 0.0005, 2, 20, 0.3), 400, 300, 0.6, 0.9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(tt.server(), 9)
			w.controller = New(Config{QueueSize: 4096, Cautious: true})
			var l limits
			l.watch(w)
			w.open(gold, func() float64 { return tt.capacity / 100 })
			w.run(10)
			w.loop(tt.clients)
			w.run(30)
			for _, slow := range []float64{10, 1} {
				w.server.slow = slow
				at := w.now
				w.run(at + 2)
				goodput, p99 := w.measure(4)
				first := l.mean(at+2, at+6)
				w.run(at + 20)
				later, p99later := w.measure(20)
				last := l.mean(at+20, at+30)
				t.Logf("%s, times x %.0f: after 2 s %.0f/s at limit %.0f, p99 %.1f ms, later %.0f/s at limit %.0f, p99 %.1f ms", tt.name, slow, goodput, first, 1e3*p99, later, last, 1e3*p99later)
				capacity := tt.capacity / slow
				if goodput < tt.soon*capacity || later < tt.later*capacity {
					t.Errorf("goodput %.1f/s from 2 s on, %.1f/s later, of %.1f/s", goodput, later, capacity)
				}
				if first > 2*last+1 {
					t.Errorf("limit %.1f from 2 s on, %.1f later", first, last)
				}
			}
		})
	}
}

// TestDrift has half an hour of overload.
func TestDrift(t *testing.T) {
	for _, tt := range []struct {
		name   string
		server func() *server
		hide   bool
		want   float64 // about; what is asked is that it stays
	}{
		{"CPU-bound, 40 ms", cpuBound(0.04, 4, 0.5), false, 4},
		{"pool of 20, 50 ms", pooled(0.05, 0.0005, 2, 20, 0.3), false, 20},
		{"half on a disk, processors not seen", func() *server {
			return &server{cores: 2, pool: 1, request: func(r *rand.Rand) []stage {
				return []stage{{onCPU, exponential(r, 0.004)}, {inPool, exponential(r, 0.001)}}
			}}
		}, true, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(tt.server(), 11)
			w.controller, w.hideBusy = New(Config{QueueSize: 4096, Cautious: true}), tt.hide
			var l limits
			l.watch(w)
			w.open(gold, func() float64 { return 5 })
			w.run(10)
			w.loop(100)
			w.run(60)
			w.run(1800)
			first, last := l.mean(60, 240), l.mean(1620, 1800)
			t.Logf("%s: limit %.2f in the first minutes, %.2f in the last", tt.name, first, last)
			if math.Abs(first-last) > 0.2*first {
				t.Errorf("limit %.2f in the first minutes, %.2f in the last", first, last)
			}
			if first < tt.want/1.6 || first > 1.6*tt.want {
				t.Errorf("limit %.2f, want about %.0f", first, tt.want)
			}
		})
	}
}

// TestNeighbour has others compute on the server's processors all the time: that they are busy
// says nothing of the server then.
func TestNeighbour(t *testing.T) {
	for _, tt := range []struct {
		name string
		calm float64 // seconds before overload
	}{
		{"known before", 10},
		{"overloaded from the first moment", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			run := func(limit int, c *Controller) float64 {
				v := sleeps(0.05, 0.001, 1)()
				v.others = 1
				w := newWorld(v, 13)
				w.limit, w.controller, w.decided = limit, c, trace(w)
				w.open(gold, func() float64 { return 20 })
				w.run(tt.calm)
				w.loop(300)
				w.run(w.now + 10)
				goodput, _ := w.measure(30)
				return goodput
			}
			good := run(60, nil)
			if got := run(0, New(Config{QueueSize: 4096, Cautious: true})); got < 0.6*good {
				t.Errorf("%.0f/s, %.0f/s with a limit of 60", got, good)
			}
		})
	}
}

// neighbour has somebody compute on the server's processors, or not, with short pauses.
func (w *world) neighbour(n int) {
	w.server.others = n
	w.after(exponential(w.rand, 0.02+0.2*float64(n)), func() { w.neighbour(1 - n) })
}

// TestBusyNeighbour has others compute on the processors of a server of which most requests wait for something else:
// that all is busy must not lower the limit to what would be enough if it were them, nor keep it from being lowered.
func TestBusyNeighbour(t *testing.T) {
	loop := func() *server {
		return &server{cores: 1, loop: true, pool: 5, request: func(r *rand.Rand) []stage {
			return []stage{{onCPU, lognormal(r, 0.001, 0.1)}, {inPool, 0.02}}
		}}
	}
	for _, tt := range []struct {
		name    string
		server  func() *server
		noTasks bool
		limit   int
	}{
		{"processes that a front hides", fronted(8, 0.0002, 0.02, 1), true, 9},
		{"a loop, and 5 connections to a database", loop, false, 6},
	} {
		for i, clients := range []int{16, 64, 200, 1000, 16, 64, 200, 1000} {
			after := 0.3 * float64(i/4) // when some times in service are known already, of requests that queued
			t.Run(fmt.Sprintf("%s/%d clients/after %.1f s", tt.name, clients, after), func(t *testing.T) {
				t.Parallel()
				run := func(limit int, c *Controller) (goodput, p50 float64) {
					w := newWorld(tt.server(), 17)
					w.limit, w.controller, w.decided, w.noTasks = limit, c, trace(w), tt.noTasks
					w.after(after, func() { w.neighbour(1) })
					w.open(gold, func() float64 { return 10 })
					w.loop(clients)
					w.run(2 + float64(clients)*0.005)
					goodput, _ = w.measure(10)
					return goodput, percentile(w.latencies, 0.5)
				}
				most, slow := run(0, nil)
				_, quick := run(tt.limit, nil)
				got, p50 := run(0, New(Config{QueueSize: 4096, Cautious: true}))
				t.Logf("%.0f/s of %.0f/s, gold's median %.1f ms, of %.1f ms at a limit of %d and %.1f ms at none", got, most, 1e3*p50, 1e3*quick, tt.limit, 1e3*slow)
				if got < 0.95*most || p50 > 1.5*quick {
					t.Errorf("%.0f/s of %.0f/s, gold's median %.1f ms, of %.1f ms at a limit of %d", got, most, 1e3*p50, 1e3*quick, tt.limit)
				}
			})
		}
	}
}
