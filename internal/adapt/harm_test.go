// SPDX-License-Identifier: Apache-2.0

package adapt

import (
	"math/rand/v2"
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
			serve := func(c *Controller) (done, gold99 float64) {
				w := newWorld(&server{cores: 1, workers: sc.workers, sticks: sc.sticks, most: sc.requests, request: func(*rand.Rand) []stage { return sc.stages }}, 3)
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
			without, late := serve(nil)
			with, early := serve(New(Config{QueueSize: 4096, Cautious: true}))
			t.Logf("%.0f/s without, gold's p99 %.3f s; %.0f/s with, %.3f s", without, late, with, early)
			if with < 0.95*without {
				t.Errorf("%.0f completions/s, want at least 0.95 of the %.0f/s of the server alone", with, without)
			}
			if !told {
				t.Error("no reason says that the server is asked to close connections")
			}
			if early > 0.1*late {
				t.Errorf("99 %% of gold's answers take up to %.3f s, want a tenth of the %.3f s without a limit", early, late)
			}
		})
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
