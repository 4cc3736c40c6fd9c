// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"narthex/internal/load"
	"narthex/test/nettest"
)

// TestReplay replays a trace to its end and compares what came with what was asked for.
func TestReplay(t *testing.T) {
	var mu sync.Mutex
	served := map[string]int{}
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		served[r.URL.Path]++
		mu.Unlock()
		n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil {
			w.WriteHeader(http.StatusNotFound)
			n = 100 // which must not count
		}
		w.Header().Set("Content-Length", strconv.Itoa(n))
		_, _ = w.Write(make([]byte, n))
	})
	var arrivals []load.Arrival
	var want uint64
	asked := map[string]int{"/none": 1}
	random := rand.New(rand.NewPCG(1, 1))
	for i := range 300 {
		size := random.IntN(100_000)
		path := "/" + strconv.Itoa(size)
		want += uint64(size)
		asked[path]++
		// In pairs that come at once.
		arrivals = append(arrivals, load.Arrival{At: time.Duration(i/2) * time.Minute, Path: path})
	}
	arrivals = append(arrivals, load.Arrival{At: 150 * time.Minute, Path: "/none"})
	const duration, length = load.MaxDuration, 10_000 * load.MaxDuration // 150 minutes last for 0.9 s
	report := replay(t, load.Trace{
		Client:   load.Client{Target: target, Duration: duration, Record: true},
		Arrivals: arrivals, Length: length, Connections: 4,
	})
	mu.Lock()
	defer mu.Unlock()
	checkSums(t, report)
	if report.Begun != 301 || report.Outcomes[load.OK] != 300 || report.Outcomes[load.OtherStatus] != 1 || report.Bytes != want {
		t.Errorf("%d bytes of %d requests, outcomes %v; want %d bytes of 300 and one that is not there", report.Bytes, report.Begun, report.Outcomes, want)
	}
	for path, n := range asked {
		if served[path] != n {
			t.Errorf("%d requests for %s, want %d", served[path], path, n)
		}
	}
	checkTimes(t, report.Events, arrivals, float64(duration)/float64(length))
}

// replay replays until nothing of the trace is under way.
func replay(t *testing.T, c load.Trace) *load.Report {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := c.Start(ctx)
	nettest.Check(t, err)
	for ended := 0; ended < len(c.Arrivals); time.Sleep(10 * time.Millisecond) {
		ended = 0
		for _, n := range r.Total().Outcomes {
			ended += int(n)
		}
	}
	cancel()
	report, err := r.Wait()
	nettest.Check(t, err)
	return report
}

// checkTimes holds that requests begin at their times.
func checkTimes(t *testing.T, events []load.Event, arrivals []load.Arrival, scale float64) {
	t.Helper()
	begun := map[time.Duration]int{}
	for _, a := range arrivals {
		begun[time.Duration(float64(a.At)*scale)]++
	}
	for _, e := range events {
		begun[e.Begun]--
	}
	for at, n := range begun {
		if n != 0 {
			t.Errorf("%d requests too few at %v", n, at)
		}
	}
}

// TestReplayWaitsForConnections holds that requests keep their times if nobody answers, and that
// there are no more connections than there may be.
func TestReplayWaitsForConnections(t *testing.T) {
	release := make(chan struct{})
	target := accept(t, func(*net.TCPConn) { <-release })
	t.Cleanup(func() { close(release) })
	var arrivals []load.Arrival
	for i := range 10 {
		arrivals = append(arrivals, load.Arrival{At: time.Duration(i), Path: "/"})
	}
	r := run(t, load.Trace{
		Client:   load.Client{Target: target, Duration: long, Timeout: 200 * time.Millisecond},
		Arrivals: arrivals, Length: load.MaxDuration, Connections: 2,
	}, load.NoAnswer)
	if r.Begun != 10 || r.Outcomes[load.NoAnswer]+r.Outcomes[load.Unfinished] != 10 || r.Connected < 2 || r.Connected > r.Outcomes[load.NoAnswer]+2 {
		t.Errorf("%d begun, %d connected, outcomes %v", r.Begun, r.Connected, r.Outcomes)
	}
}

func TestReplayRefuses(t *testing.T) {
	good := load.Trace{Client: load.Client{Target: serve(t, func(http.ResponseWriter, *http.Request) {}), Duration: long}}
	pointless, unordered := good, good
	unordered.Length, unordered.Arrivals = time.Second, []load.Arrival{{At: 1}, {At: 0}}
	for want, c := range map[string]starter{"more than nothing": pointless, "not in the order": unordered} {
		if _, err := c.Start(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}
