// SPDX-License-Identifier: Apache-2.0

package adapt

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestHarm has servers whose workers stay with a connection for its next request: while that is held they do nothing,
// and others wait for them. They are asked to close connections, and who is of the better class does not wait then.
func TestHarm(t *testing.T) {
	for _, sc := range []struct {
		name     string
		workers  int
		sticks   float64 // seconds
		requests int     // of a connection
		stages   []stage
		clients  int
	}{
		{"threads, 0.2 s, 10 requests", 10, 0.2, 10, []stage{{onCPU, 0.002}, {delay, 0.01}}, 64},
		{"threads that wait, 0.2 s, 10 requests", 8, 0.2, 10, []stage{{onCPU, 0.001}, {delay, 0.02}}, 64},
		{"processes, 5 s, 100 requests", 16, 5, 100, []stage{{onCPU, 0.005}}, 64},
		{"processes, 5 s, 100 requests, 200 clients", 32, 5, 100, []stage{{onCPU, 0.002}}, 200},
		{"threads, 0.2 s, from the first moment more than they serve", 10, 0.2, 10, []stage{{onCPU, 0.002}, {delay, 0.01}}, 200},
	} {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			told := false
			serve := func(c *Controller, sticks float64) (done, gold99 float64) {
				w := newWorld(&server{cores: 1, workers: sc.workers, sticks: sticks, most: sc.requests, request: varied(sc.stages)}, 3)
				w.controller, w.keeps = c, true
				follow := trace(w)
				w.decided = func(s *Sample, d Decision) {
					told = told || d.Closes && strings.Contains(d.Reason, "asked to close")
					follow(s, d)
				}
				w.open(gold, func() float64 { return 10 })
				w.loop(sc.clients)
				w.run(5)
				return w.measure(60)
			}
			without, late := serve(nil, sc.sticks)
			for _, kind := range []struct {
				name   string
				config Config
			}{
				{"auto", Config{Closable: true, QueueSize: 4096, Cautious: true}},
				{"auto, at most as many as workers", Config{Closable: true, QueueSize: 4096, Cautious: true, Ceiling: sc.workers}},
				{"as many as workers", Config{Closable: true, QueueSize: 4096, Floor: sc.workers, Ceiling: sc.workers}},
				{"half as many again", Config{Closable: true, QueueSize: 4096, Floor: sc.workers * 3 / 2, Ceiling: sc.workers * 3 / 2}},
			} {
				could, _ := serve(New(kind.config), 0)
				told = false
				with, early := serve(New(kind.config), sc.sticks)
				t.Logf("%.0f/s without, gold's p99 %.3f s; with %s %.0f/s, %.3f s; %.0f/s if workers leave connections", without, late, kind.name, with, early, could)
				if want := 0.95 * min(could, without); with < want {
					t.Errorf("%s: %.0f completions/s, want at least %.0f", kind.name, with, want)
				}
				if !told {
					t.Errorf("%s: no reason says that the server is asked to close connections", kind.name)
				}
				if early > 0.1*late {
					t.Errorf("%s: 99 %% of gold's answers take up to %.3f s, want a tenth of the %.3f s without a limit", kind.name, early, late)
				}
			}
		})
	}
}

// varied returns stages of which each takes from half to one and a half times as long, lest workers go in step.
func varied(stages []stage) func(*rand.Rand) []stage {
	return func(r *rand.Rand) []stage {
		out := slices.Clone(stages)
		for i := range out {
			out[i].time *= 0.5 + r.Float64()
		}
		return out
	}
}

// TestAskingInVain has requests that do not ask for the close, as a client can send them that wants workers to stay with
// its connections. It is given up, and tried again later.
func TestAskingInVain(t *testing.T) {
	w := newWorld(&server{cores: 1, workers: 16, sticks: 5, most: 100, request: varied([]stage{{onCPU, 0.005}})}, 3)
	w.controller, w.keeps, w.deaf = New(Config{Closable: true, QueueSize: 4096, Cautious: true}), true, true
	asked := 0
	follow := trace(w)
	w.decided = func(s *Sample, d Decision) {
		if d.Closes {
			asked++
		}
		follow(s, d)
	}
	w.open(gold, func() float64 { return 10 })
	w.loop(64)
	w.run(60)
	before := asked
	w.run(300)
	if before == 0 || asked > before {
		t.Errorf("asked in %d samples of the first minute, and in %d of those after; want some, and none", before, asked-before)
	}
	w.deaf = false
	w.run(1200)
	if done, late := w.measure(30); done < 180 || late > 0.1 {
		t.Errorf("%.0f completions/s, and gold's p99 %.3f s, once asking is of use again; want 180, and 0.1 s", done, late)
	}
}

// TestSlowerIsNoHarm has a server become slower while most of what was let in is in its accept queue. To hold nothing
// does not help, so requests are held again.
func TestSlowerIsNoHarm(t *testing.T) {
	waits := 0.02
	w := newWorld(&server{cores: 1, workers: 8, request: func(*rand.Rand) []stage { return []stage{{onCPU, 0.002}, {delay, waits}} }}, 3)
	w.controller = New(Config{QueueSize: 4096})
	harmed := 0
	w.decided = func(_ *Sample, d Decision) {
		if d.Signal == SignalHarm {
			harmed++
		}
	}
	w.loop(400)
	for w.run(0.05); w.limit == 0 || w.limit > 20; w.run(w.now + 0.05) {
	}
	waits = 0.2
	w.run(w.now + 4)
	if harmed == 0 || w.limit == 0 || w.limit > 20 {
		t.Errorf("nothing was held in %d samples, the limit is %d afterwards; want some, and at most 20", harmed, w.limit)
	}
}
