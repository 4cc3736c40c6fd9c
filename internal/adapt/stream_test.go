// SPDX-License-Identifier: Apache-2.0

package adapt

import (
	"math/rand/v2"
	"testing"
)

// answers writes slow answers that share a device, which does so many at once as quickly as one.
func answers(seconds, atOnce float64) *server {
	return &server{cores: atOnce, request: func(r *rand.Rand) []stage { return []stage{{onCPU, seconds * (0.5 + r.Float64())}} }}
}

// judgedByBytes is auto at a service that ends with the last byte.
func judgedByBytes() *Controller {
	return New(Config{QueueSize: 4096, Cautious: true, Streams: true})
}

// streaming is a server with clients that have been there for some seconds.
func streaming(v *server, limit int, c *Controller, clients int, goldRate, warm float64) *world {
	w := newWorld(v, 5)
	w.limit, w.controller, w.device, w.sends, w.maxWait = limit, c, true, 500, 300
	w.decided = trace(w)
	w.open(gold, func() float64 { return goldRate })
	w.loop(clients)
	w.run(3 + warm)
	return w
}

func TestStreams(t *testing.T) {
	for _, sc := range []struct {
		name            string
		seconds, atOnce float64
		clients         int
	}{
		{"1 s, 8 at once, 64 clients", 1, 8, 64},
		{"1 s, 8 at once, 16 clients", 1, 8, 16},
		{"0.1 s, 8 at once, 64 clients", 0.1, 8, 64},
		{"4 s, 4 at once, 32 clients", 4, 4, 32},
		{"2 s, 32 at once, 200 clients", 2, 32, 200},
	} {
		t.Run(sc.name, func(t *testing.T) {
			run := func(limit int, c *Controller) *world {
				capacity := sc.atOnce / sc.seconds
				return streaming(answers(sc.seconds, sc.atOnce), limit, c, sc.clients, 0.15*capacity, 20+2*float64(sc.clients)/capacity)
			}
			good, best := run(int(sc.atOnce), nil).measure(200)
			w := run(0, judgedByBytes())
			got, p99 := w.measure(200)
			t.Logf("limit %.0f: %.2f/s, p99 %.1f s; auto %d: %.2f/s, p99 %.1f s", sc.atOnce, good, best, w.limit, got, p99)
			if got < 0.95*good {
				t.Errorf("%.2f/s, want at least 0.95 of %.2f/s", got, good)
			}
			if p99 > 1.5*best {
				t.Errorf("gold's p99 %.1f s, want at most 1.5 times %.1f s", p99, best)
			}
		})
	}
}

// TestStreamsOfTheirOwn has answers that share nothing.
func TestStreamsOfTheirOwn(t *testing.T) {
	v := func() *server {
		return &server{cores: 1, pool: -1, request: func(r *rand.Rand) []stage { return []stage{{delay, 4 + 2*r.Float64()}} }}
	}
	good, best := streaming(v(), 0, nil, 64, 1, 20).measure(200)
	got, p99 := streaming(v(), 0, judgedByBytes(), 64, 1, 20).measure(200)
	t.Logf("no limit: %.2f/s, p99 %.1f s; auto: %.2f/s, p99 %.1f s", good, best, got, p99)
	if got < 0.97*good || p99 > 1.3*best {
		t.Errorf("%.2f/s and %.1f s, want at least 0.97 of %.2f/s, and at most 1.3 times %.1f s", got, p99, good, best)
	}
}

// TestStreamsOccupied has clients that take nothing of what they ask for. They do not keep the others out, a few at a
// time or many times the limit at once.
func TestStreamsOccupied(t *testing.T) {
	for _, come := range [][]int{{4, 9, 20}, {100}} {
		occupied(t, come)
	}
}

func occupied(t *testing.T, come []int) {
	v, hanging := answers(1, 8), 0
	others := v.request
	v.request = func(r *rand.Rand) []stage {
		if hanging--; hanging >= 0 {
			return []stage{{delay, 1e6}}
		}
		return others(r)
	}
	w := streaming(v, 0, judgedByBytes(), 64, 1, 30)
	for _, n := range come {
		for hanging = n; hanging > 0; {
			w.arrive(bronze, -1)
		}
		w.run(w.now + 20)
		got, _ := w.measure(30)
		t.Logf("%d more: %.2f/s, limit %d", n, got, w.limit)
		if got < 7 {
			t.Errorf("%d more that take nothing: %.2f/s, want at least 7/s", n, got)
		}
	}
}

// TestStreamsComeAgain has the clients go for a while. The limit is still there when they come again.
func TestStreamsComeAgain(t *testing.T) {
	w := streaming(answers(1, 8), 0, judgedByBytes(), 64, 1, 30)
	w.loop(0)
	w.run(w.now + 60)
	w.loop(64)
	w.run(w.now + 2)
	got, p99 := w.measure(60)
	t.Logf("%.2f/s, p99 %.1f s, limit %d", got, p99, w.limit)
	if got < 7.6 || p99 > 3 {
		t.Errorf("%.2f/s and %.1f s, want at least 7.6/s, and at most 3 s", got, p99)
	}
}
