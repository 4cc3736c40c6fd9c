// SPDX-License-Identifier: Apache-2.0

package adapt

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBounds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config Config
		want   int
		signal string
	}{
		{"floor", Config{Floor: 12}, 12, SignalFloor},
		{"ceiling", Config{Ceiling: 1}, 1, SignalCeiling},
		{"both the same", Config{Floor: 7, Ceiling: 7}, 7, SignalCeiling},
		{"ceiling below floor", Config{Floor: 9, Ceiling: 3}, 9, SignalCeiling},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(cpuBound(0.004, 4, 0.3)(), 1)
			tt.config.QueueSize = 4096
			w.controller = New(tt.config)
			w.open(gold, func() float64 { return 50 })
			var last Decision
			w.decided = func(_ *Sample, d Decision) {
				if d.Limit > 0 && d.Limit < tt.config.Floor || tt.config.Ceiling > 0 && d.Limit > max(tt.config.Ceiling, tt.config.Floor) {
					t.Errorf("limit %d with %+v at %.2f s", d.Limit, tt.config, w.now)
				}
				last = d
			}
			w.run(5)
			w.loop(50)
			w.run(15)
			if last.Limit != tt.want || last.Signal != tt.signal {
				t.Errorf("limit %d by %s, want %d by %s", last.Limit, last.Signal, tt.want, tt.signal)
			}
		})
	}
}

// TestIdle has a server that nobody asks, then somebody now and then.
func TestIdle(t *testing.T) {
	c := New(Config{Cautious: true})
	for i := range 1000 {
		s := Sample{At: time.Duration(i) * time.Second, Span: time.Second, Cores: 2, Busy: 0.02}
		if i%100 == 50 {
			s.Served, s.Arrived, s.Entered = 1, 1, 1
			s.Service.Add(100 * time.Microsecond)
		}
		want := Decision{Limit: 32, Provisional: true, Signal: SignalIdle, Target: waitLeast}
		if d := c.Step(s); !cmp.Equal(d, want) {
			t.Fatalf("second %d: %s", i, cmp.Diff(want, d))
		}
	}
}

// TestIdlers has requests in service that use nothing, of which there are more and more, beside
// load that a server can only just do.
func TestIdlers(t *testing.T) {
	w := newWorld(&server{cores: 2, request: func(r *rand.Rand) []stage {
		if r.Float64() < 0.02 {
			return []stage{{delay, 20}}
		}
		return []stage{{onCPU, lognormal(r, 0.002, 0.3)}}
	}}, 1)
	w.controller = New(Config{QueueSize: 4096, Cautious: true})
	var l limits
	l.watch(w)
	w.open(gold, func() float64 { return 50 })
	w.run(20)
	w.loop(300)
	w.run(60)
	// Of 300 clients most end up with a request that idles.
	goodput, _ := w.measure(30)
	idle := float64(w.server.inService - len(w.server.running))
	mean := l.mean(60, 90)
	t.Logf("%.0f/s at a limit of %.0f, %.0f idle", goodput, mean, idle)
	if goodput < 100 {
		t.Errorf("%.0f/s at a limit of %.0f: requests that idle keep the others out", goodput, mean)
	}
	if mean > 4096 {
		t.Errorf("limit %.0f", mean)
	}
}

func TestDeterministic(t *testing.T) {
	run := func() (all []Decision) {
		sc := scenes[5]
		w := sc.overloaded(0, New(Config{QueueSize: 100, Cautious: true}), 0)
		w.decided = func(_ *Sample, d Decision) { all = append(all, d) }
		w.run(w.now + 10)
		return all
	}
	if diff := cmp.Diff(run(), run()); diff != "" {
		t.Errorf("the same samples, other decisions: %s", diff)
	}
}

func TestReasons(t *testing.T) {
	w := newWorld(cpuBound(0.002, 2, 0.3)(), 1)
	w.controller = New(Config{QueueSize: 4096, Cautious: true})
	var reasons []string
	w.decided = func(_ *Sample, d Decision) {
		if d.Reason != "" {
			reasons = append(reasons, d.Reason)
		}
	}
	w.open(gold, func() float64 { return 100 })
	w.run(10)
	w.loop(50)
	w.run(30)
	w.closed = 0
	w.run(45)
	for _, want := range []string{" by model: ", "overload begins: ", "overload is over: "} {
		n := 0
		for _, r := range reasons {
			if strings.Contains(r, want) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d reasons with %q, want 1: %q", n, want, reasons)
		}
	}
	if len(reasons) > 8 {
		t.Errorf("%d reasons in 45 s: %q", len(reasons), reasons)
	}
}
