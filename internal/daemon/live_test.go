// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/live"
	"narthex/test/daemontest"
)

// viewer is a client that watches.
type viewer struct {
	t      *testing.T
	cancel context.CancelFunc
	views  chan live.View
	ended  chan error
}

// view watches, and returns when the daemon answers.
func (r *running) view() *viewer {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.t.Cleanup(cancel)
	w := &viewer{r.t, cancel, make(chan live.View, 100), make(chan error, 1)}
	began := make(chan struct{})
	go func() {
		w.ended <- live.Watch(ctx, r.client, func() { close(began) }, func(v live.View) error {
			w.views <- v
			return nil
		})
	}()
	select {
	case <-began:
	case err := <-w.ended:
		r.t.Fatal(err)
	}
	return w
}

func (w *viewer) next() live.View {
	w.t.Helper()
	select {
	case v := <-w.views:
		return v
	case err := <-w.ended:
		w.t.Fatalf("ended: %v", err)
	case <-time.After(30 * time.Second):
		w.t.Fatal("no view comes")
	}
	return live.View{}
}

func TestLiveViewsReachWhoWatches(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", ruledServices)))
	if times, _ := m.kernel.Listened(); times != 0 {
		t.Error("the daemon reads events that nobody asked for")
	}
	w := r.view()
	first := w.next()
	if first.Interval != 0 || first.Time.IsZero() {
		t.Errorf("the first view is of %v s before %v", first.Interval, first.Time)
	}
	status, err := r.client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for what, pair := range map[string][2]any{
		"rules": {status.Rules, first.Status.Rules}, "requests": {status.Requests, first.Status.Requests}, "policy": {status.Policy, first.Status.Policy},
	} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Errorf("%s of status and view differ (-status +view):\n%s", what, diff)
		}
	}
	eventually(t, "events are read", func() bool { _, now := m.kernel.Listened(); return now })
	m.kernel.Tell(rejection())
	for {
		v := w.next()
		if v.Interval <= 0 {
			t.Errorf("a later view is of %v s", v.Interval)
		}
		if len(v.Sources) > 0 {
			if s := v.Sources[0]; s.Client != "192.0.2.7" || s.Rule != "cgi" || s.Turned <= 0 {
				t.Errorf("source: %+v", s)
			}
			break
		}
	}
	if one, err := live.Once(t.Context(), r.client); err != nil || one.Interval <= 0 || len(one.Services) != len(status.Services) {
		t.Errorf("one view: %v, %v s", err, one.Interval)
	}
	w.cancel()
	eventually(t, "nobody reads events", func() bool { _, now := m.kernel.Listened(); return !now })

	w = r.view()
	if v := w.next(); v.Interval != 0 {
		t.Errorf("the first view of who comes later has rates of %v s", v.Interval)
	}
	r.end() // within a deadline, although somebody watches
	if err := <-w.ended; !errors.Is(err, api.ErrEventsEnded) {
		t.Errorf("watching ends with %v", err)
	}
}

func TestLiveRefusesWhatItDoesNotKnow(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", onePolicy)))
	for query, want := range map[string]string{
		"twice=1": `there is no parameter "twice": use once=1`, "once=yes": "once=yes: use once=1, or leave it out",
	} {
		err := api.Follow(t.Context(), r.client, api.PathLive+"?"+query, func() {}, func(live.View) error { return nil })
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", query, err, want)
		}
	}
}

// hub returns a hub that looks all the time, and how often it has read the status.
func hub(t *testing.T, fail *atomic.Bool) (*liveHub, *atomic.Int64, *strings.Builder) {
	t.Helper()
	var log strings.Builder
	var reads atomic.Int64
	logger := slog.New(slog.NewTextHandler(&log, nil))
	noEvents := newEventHub(func() (datapath.EventReader, error) { return nil, errors.New("no events here") }, logger)
	h := newLiveHub(func() (api.Status, error) {
		n := reads.Add(1)
		if fail.Load() {
			return api.Status{}, errors.New("the maps are gone")
		}
		return api.Status{PID: int(n)}, nil
	}, noEvents, logger)
	h.every = time.Millisecond
	t.Cleanup(h.stop)
	return h, &reads, &log
}

func TestASlowWatcherHoldsUpNobody(t *testing.T) {
	h, _, _ := hub(t, new(atomic.Bool))
	slow, err := h.watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fast, err := h.watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for range 20 {
		v := <-fast
		if v.Status.PID <= last {
			t.Fatalf("reading %d comes after reading %d: there is more than one sampler", v.Status.PID, last)
		}
		last = v.Status.PID
	}
	if v := <-slow; v.Status.PID < last-1 {
		t.Errorf("who was slow gets reading %d after %d", v.Status.PID, last)
	}
}

func TestALaterWatcherGetsTheLastViewAtOnce(t *testing.T) {
	h, _, _ := hub(t, new(atomic.Bool))
	h.every = time.Hour
	first, err := h.watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-first
	later, err := h.watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v := <-later; v.Status.PID != 1 {
		t.Errorf("reading %d", v.Status.PID)
	}
}

func TestNothingIsReadWhenNobodyWatches(t *testing.T) {
	h, reads, _ := hub(t, new(atomic.Bool))
	if n := reads.Load(); n != 0 {
		t.Errorf("%d readings before anybody watches", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	views, err := h.watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	<-views
	cancel()
	for range views { // until it is closed
	}
	h.mu.Lock()
	resting := h.cancel == nil
	h.mu.Unlock()
	if !resting {
		t.Error("the sampler goes on when all have left")
	}
	h.stop()
	if _, err := h.watch(t.Context()); err == nil {
		t.Error("one can watch a daemon that is ending")
	}
}

func TestWatchingOutlivesTrouble(t *testing.T) {
	var fail atomic.Bool
	fail.Store(true)
	h, reads, log := hub(t, &fail)
	views, err := h.watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it tries again", func() bool { return reads.Load() > 5 })
	fail.Store(false)
	<-views
	h.stop()
	for range views {
	}
	h.mu.Lock() // the sampler logs no more
	defer h.mu.Unlock()
	if n := strings.Count(log.String(), "the maps are gone"); n != 1 {
		t.Errorf("the trouble is logged %d times:\n%s", n, log)
	}
	if !strings.Contains(log.String(), "no events here") {
		t.Errorf("that there are no events is not logged:\n%s", log)
	}
}

func TestSourcesComeBackAfterTrouble(t *testing.T) {
	kernel := daemontest.NewKernel()
	log := slog.New(slog.DiscardHandler)
	h := newLiveHub(func() (api.Status, error) { return api.Status{}, nil }, newEventHub(kernel.Open(datapath.Config{}).Events, log), log)
	h.every = time.Millisecond
	t.Cleanup(h.stop)
	views, err := h.watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	listens := func(times int) {
		t.Helper()
		eventually(t, "events are read", func() bool { n, now := kernel.Listened(); return now && n == times })
	}
	listens(1)
	kernel.Break(errors.New("no more"))
	listens(2)
	kernel.Tell(rejection())
	eventually(t, "there are sources", func() bool { return len((<-views).Sources) > 0 })
}
