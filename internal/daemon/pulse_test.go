// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

// beating is a pulse whose clock is the test's.
type beating struct {
	t           *testing.T
	pulse       *pulse
	clock       chan time.Time
	waits       chan time.Duration // what the pulse asked the clock for
	ticks       atomic.Int32
	looks       atomic.Int32
	waiting     atomic.Bool
	tickErr     atomic.Pointer[error]
	lookErr     atomic.Pointer[error]
	log         bytes.Buffer
	end         context.CancelFunc
	ended       chan struct{}
	lastWaiting atomic.Bool // what the pulse told at the last look
	applied     chan struct{}
}

func newBeating(t *testing.T) *beating {
	b := &beating{t: t, clock: make(chan time.Time), waits: make(chan time.Duration), ended: make(chan struct{}), applied: make(chan struct{})}
	b.pulse = &pulse{
		log: slog.New(slog.NewTextHandler(&b.log, nil)),
		tick: func() error {
			b.ticks.Add(1)
			return faultIn(&b.tickErr)
		},
		look: func(waited bool) (bool, error) {
			b.looks.Add(1)
			b.lastWaiting.Store(waited)
			return b.waiting.Load(), faultIn(&b.lookErr)
		},
		after: func(d time.Duration) <-chan time.Time {
			b.waits <- d
			return b.clock
		},
		applied: b.applied,
	}
	ctx, cancel := context.WithCancel(t.Context())
	b.end = cancel
	go func() {
		b.pulse.run(ctx)
		close(b.ended)
	}()
	return b
}

func faultIn(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
		return *err
	}
	return nil
}

// want checks how long the pulse waits now, and how much it has done since the last call.
func (b *beating) want(when string, wait time.Duration, ticks, looks int32) {
	b.t.Helper()
	if got := <-b.waits; got != wait {
		b.t.Errorf("%s: it waits for %s, want %s", when, got, wait)
	}
	if t, l := b.ticks.Swap(0), b.looks.Swap(0); t != ticks || l != looks {
		b.t.Errorf("%s: %d ticks and %d looks, want %d and %d", when, t, l, ticks, looks)
	}
}

func (b *beating) pass() { b.clock <- time.Time{} }

func (b *beating) stop() {
	b.end()
	<-b.ended
}

func TestPulseIsQuickOnlyWhileSomebodyWaits(t *testing.T) {
	b := newBeating(t)
	b.want("at first", lookEvery, 0, 0)
	b.pass()
	b.want("idle", lookEvery, 1, 1)
	b.waiting.Store(true)
	b.pass()
	b.want("somebody has come", tickEvery, 1, 1)
	for range lookEvery/tickEvery - 1 {
		b.pass()
		b.want("between two looks", tickEvery, 1, 0)
	}
	b.pass()
	b.want("the next look", tickEvery, 1, 1)
	if !b.lastWaiting.Load() {
		t.Error("the look was not told that somebody had waited")
	}
	b.waiting.Store(false)
	for range lookEvery/tickEvery - 1 {
		b.pass()
		b.want("they have gone, unseen", tickEvery, 1, 0)
	}
	b.pass()
	b.want("and seen", lookEvery, 1, 1)
	b.pass()
	b.want("idle again", lookEvery, 1, 1)
	if b.lastWaiting.Load() {
		t.Error("the look was told that somebody had waited")
	}
	b.stop()
}

func TestPulseAtOnceAfterAChange(t *testing.T) {
	b := newBeating(t)
	b.want("at first", lookEvery, 0, 0)
	b.waiting.Store(true)
	b.applied <- struct{}{}
	b.want("after a change", tickEvery, 1, 1)
	if !b.lastWaiting.Load() {
		t.Error("after a change, somebody may wait whom no limit holds any more")
	}
	b.stop()
}

func TestPulseLogsAFaultOnce(t *testing.T) {
	b := newBeating(t)
	b.waiting.Store(true)
	b.want("at first", lookEvery, 0, 0)
	fail := func(at *atomic.Pointer[error], text string) {
		err := errors.New(text)
		at.Store(&err)
	}
	fail(&b.tickErr, "no such program")
	for range 50 {
		b.pass()
		<-b.waits
	}
	fail(&b.lookErr, "no such map")
	for range 50 {
		b.pass()
		if wait := <-b.waits; wait != tickEvery {
			t.Fatalf("it waits for %s when it cannot look, want %s as before", wait, tickEvery)
		}
	}
	b.stop()
	lines := strings.Split(strings.TrimSpace(b.log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "no such program") || !strings.Contains(lines[1], "no such map") {
		t.Errorf("log:\n%s\nwant one line of each fault", &b.log)
	}
}

// Messages that differ each time must not fill the log either; after a change, faults are
// told anew.
func TestPulseLogsFewFaults(t *testing.T) {
	b := newBeating(t)
	b.waiting.Store(true)
	b.want("at first", lookEvery, 0, 0)
	for i := range 100 {
		err := errors.New(strings.Repeat("x", i+1))
		b.tickErr.Store(&err)
		b.pass()
		<-b.waits
	}
	b.applied <- struct{}{}
	<-b.waits
	b.stop()
	if n := strings.Count(b.log.String(), "\n"); n != mostFaults+1 {
		t.Errorf("%d lines, want %d and one after the change", n, mostFaults)
	}
}

func TestTickAfterEveryChange(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", onePolicy)))
	eventually(t, "a tick", func() bool { return m.kernel.Ticks() > 0 })
	m.kernel.SetRooms(datapath.Room{Waiting: 1})
	before := m.kernel.Ticks()
	if _, err := r.client.Set(t.Context(), api.SetRequest{Path: "connections.everyone.burst", Value: "9"}); err != nil {
		t.Fatal(err)
	}
	const some = 20 // far more in the time than without anybody who waits
	eventually(t, "many ticks", func() bool { return m.kernel.Ticks() > before+some })
	r.end()
}

// alone reports calls that meet another one.
type alone struct {
	Datapath
	inside atomic.Int32
	met    atomic.Bool
	ticks  atomic.Int32
}

func (a *alone) enter(do func() error) error {
	if a.inside.Add(1) > 1 {
		a.met.Store(true)
	}
	time.Sleep(time.Millisecond)
	defer a.inside.Add(-1)
	return do()
}

func (a *alone) Apply(s datapath.State) error {
	return a.enter(func() error { return a.Datapath.Apply(s) })
}

func (a *alone) Tick() error {
	a.ticks.Add(1)
	return a.enter(a.Datapath.Tick)
}

func (a *alone) Clear(limit time.Duration) error {
	return a.enter(func() error { return a.Datapath.Clear(limit) })
}

func TestTickAndApplyDoNotMeet(t *testing.T) {
	m := newMachine(t, "eth0")
	var dp *alone
	cfg := m.config(m.write("p.yaml", onePolicy))
	cfg.Kernel.Open = func(c datapath.Config, _ int) (Datapath, error) {
		dp = &alone{Datapath: m.kernel.Open(c)}
		return dp, nil
	}
	m.kernel.SetRooms(datapath.Room{Waiting: 1})
	r := m.start(cfg)
	for range 200 {
		if _, err := r.client.Set(t.Context(), api.SetRequest{Path: "connections.everyone.burst", Value: "9"}); err != nil {
			t.Fatal(err)
		}
	}
	r.end()
	if dp.met.Load() || dp.ticks.Load() < 10 {
		t.Errorf("calls met: %v, ticks: %d; want none and many", dp.met.Load(), dp.ticks.Load())
	}
}

// A large policy takes seconds to compile; who waits must not wait for that.
func TestTickGoesOnWhileTheEngineIsBusy(t *testing.T) {
	m := newMachine(t, "eth0")
	dp := m.kernel.Open(datapath.Config{Instance: "test"})
	e := &engine{dp: dp, net: m.network, log: slog.New(slog.DiscardHandler)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.tick(); err != nil || m.kernel.Ticks() != 1 {
		t.Errorf("error %v, %d ticks", err, m.kernel.Ticks())
	}
}

func TestLookReadsTheRoomsOnlyWhereSomebodyCanWait(t *testing.T) {
	m := newMachine(t, "eth0")
	e := &engine{dp: m.kernel.Open(datapath.Config{Instance: "test"}), net: m.network, log: slog.New(slog.DiscardHandler)}
	for _, tt := range []struct {
		room                  datapath.Room
		waited, limited, want bool
	}{
		{datapath.Room{Waiting: 3}, false, false, false},
		{datapath.Room{Waiting: 3}, true, false, true},
		{datapath.Room{Waiting: 3}, false, true, true},
		{datapath.Room{Gathering: 1}, false, true, true}, // its head may never be complete
		{datapath.Room{InService: 9}, true, true, false},
	} {
		m.kernel.SetRooms(datapath.Room{}, tt.room)
		e.limited.Store(tt.limited)
		if got, err := e.anybodyWaits(tt.waited); got != tt.want || err != nil {
			t.Errorf("%+v: %v, %v", tt, got, err)
		}
	}
}

// TestUntilMultiple has what is done at the same interval be due at the same moments.
func TestUntilMultiple(t *testing.T) {
	const every = 200 * time.Millisecond
	for now, want := range map[time.Duration]time.Duration{
		0:                      every,
		time.Millisecond:       199 * time.Millisecond,
		every - 1:              1,
		every:                  every,
		41*every + time.Second: every,
		41*every + 1:           every - 1,
	} {
		if got := untilMultiple(now, every); got != want {
			t.Errorf("at %v: %v, want %v", now, got, want)
		}
	}
}
