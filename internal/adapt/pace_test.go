// SPDX-License-Identifier: Apache-2.0

package adapt

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// prefork has a pool of processes that compute, each for one request.
func prefork(mean float64, workers int) func() *server {
	return func() *server {
		v := cpuBound(mean, 1, 0.3)()
		v.workers = workers
		return v
	}
}

func workers(mean, cpu float64, workers int) func() *server {
	return func() *server {
		v := sleeps(mean, cpu, 1)()
		v.workers = workers
		return v
	}
}

// Rates keep a service at its target that nothing is held before, and leave it its throughput, whatever its
// capacity becomes. So they do before a waiting room that finds its own limit.
func TestPace(t *testing.T) {
	for _, tt := range []struct {
		name     string
		server   func() *server
		capacity float64
		gold     float64 // of the capacity
		clients  int
		retry    float64
		room     bool
		hide     bool
	}{
		{"a pool of processes, SYNs", prefork(0.002, 50), 500, 0.2, 250, 1, false, false},
		{"the same, processors not seen", prefork(0.002, 50), 500, 0.2, 250, 1, false, true},
		{"8 workers that wait, SYNs", workers(0.02, 0.002, 8), 333, 0.2, 200, 1, false, false},
		{"threads, SYNs", cpuBound(0.005, 2, 0.5), 400, 0.2, 200, 1, false, false},
		{"an event loop", func() *server { v := cpuBound(0.001, 1, 0.5)(); v.loop = true; return v }, 1000, 0.2, 200, 0.1, false, false},
		{"CGI", cpuBound(0.05, 1, 0.3), 20, 0.2, 100, 0.1, false, false},
		{"a pool of processes, with a room", prefork(0.002, 50), 500, 0.2, 250, 1, true, false},
		{"8 workers that wait, with a room", workers(0.02, 0.002, 8), 333, 0.2, 200, 0.1, true, false},
		{"CGI, with a room", cpuBound(0.05, 1, 0.3), 20, 0.2, 100, 0.1, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(tt.server(), 5)
			w.controller = New(Config{QueueSize: 4096, Unlimited: !tt.room})
			w.pacer, w.retry, w.hideBusy = NewPacer([]Paced{{Rank: 1, Min: 1, Max: 1e6, From: LevelOverload}}), tt.retry, tt.hide
			w.paced[bronze].rule = true
			if os.Getenv("ADAPT_TRACE") != "" {
				w.decided = func(s *Sample, d Decision) {
					fmt.Printf("%7.2f %-9s n %3d/%-3d wait %4d untaken %3d served %3d busy %.2f wait %6.1f of %5.1f ms among %.0f rate %.0f limit %d\n", w.now, d.Level, s.InService, s.Limit, s.Waiting, s.Backlog, s.Served, s.Busy/max(s.Cores, 1), 1e3*d.Wait, 1e3*d.Target, w.pacer.among, w.paced[bronze].rate, d.Limit)
				}
			}
			w.open(gold, func() float64 { return tt.gold * tt.capacity })
			w.run(5)
			w.loop(tt.clients) // all at once: what they ask for first is let in
			w.run(w.now + 2*float64(tt.clients)/tt.capacity)
			for _, slow := range []float64{1, 2, 1, 0.5} {
				w.server.slow = slow
				w.run(w.now + 5)
				goodput, p99 := w.measure(10)
				mean := 0.0
				for _, l := range w.latencies {
					mean += l / float64(len(w.latencies))
				}
				capacity := tt.capacity / slow
				asked := min(capacity, tt.gold*tt.capacity+float64(tt.clients)/tt.retry)
				target := w.controller.wait.target
				t.Logf("%s, times x %.1f: %.0f/s of %.0f/s, gold %.0f ms, p99 %.0f ms, target %.0f ms", tt.name, slow, goodput, capacity, 1e3*mean, 1e3*p99, 1e3*target)
				if goodput < 0.9*asked {
					t.Errorf("times x %.1f: %.0f/s of %.0f/s", slow, goodput, capacity)
				}
				if most := 4 * target; mean > most {
					t.Errorf("times x %.1f: gold takes %.0f ms, want at most %.0f ms", slow, 1e3*mean, 1e3*most)
				}
			}
		})
	}
}

// The lowest class gives way first, rules of one class share, and each keeps its least.
func TestPaceShares(t *testing.T) {
	p := NewPacer([]Paced{{1, 5, 1e6, LevelOverload}, {0, 1, 1e6, LevelOverload}, {0, 1, 30, LevelOverload}, {2, 2, 1e6, LevelRejecting}})
	counts := []PacedCount{{10, 10}, {4, 0}, {2, 8}, {10, 0}}
	step := func(n int, d Decision) (rates []float64) {
		for range n {
			rates = p.Step(&Sample{Span: 100 * time.Millisecond}, &d, counts)
		}
		return rates
	}
	for _, rate := range step(50, Decision{}) {
		if rate != 0 {
			t.Errorf("a rate of %g/s while calm", rate)
		}
	}
	rates := step(50, Decision{Level: LevelOverload, Wait: 1, Target: 1})
	// 160/s get in; of the highest class one asks for 40/s, the other may have 30/s at most.
	if near := func(a, b float64) bool { return a > 0.97*b-1 && a < 1.03*b+2 }; !near(rates[1], 80) || rates[2] != 30 || !near(rates[0], 91) {
		t.Errorf("rates %.1f, want those of the highest class first", rates)
	}
	if rates[3] != 0 {
		t.Errorf("a rate of %g/s below the level of its rule", rates[3])
	}
	rates = step(100, Decision{Level: LevelRejecting, Wait: 10, Target: 0.01})
	if rates[3] < 2 || rates[0] < 5 {
		t.Errorf("rates %.1f, want no less than the least", rates)
	}
}
