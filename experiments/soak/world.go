// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/api"
)

// world is all that there is.
type world struct {
	*bench.Bench
	rig        *rig
	ledger     *ledger
	live       live
	hostiles   []hostile
	operations []operation
	narthex    *bench.Narthex
	policy     string // the file

	now, attacks, done counts // what goes on, and attacks and operations that have ended
	history            history
	stalls, slept      atomic.Int64
	stillest           longest

	mu     sync.Mutex
	status api.Status // the latest
}

// longest is a duration that only grows.
type longest struct{ atomic.Int64 }

func (l *longest) raise(d time.Duration) {
	for {
		old := l.Load()
		if int64(d) <= old || l.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// newWorld makes the lab and starts the daemon.
func newWorld(ctx context.Context, b *bench.Bench) (w *world, err error) {
	left := func(name string) bool { return slices.Contains(strings.Split(*without, ","), name) }
	var all []*service
	for _, s := range services() {
		s.hasKinds = slices.DeleteFunc(slices.Clone(s.hasKinds), func(k kind) bool { return left(k.name) })
		if !left(s.name) && len(s.hasKinds) > 0 {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no service is left; name fewer with -without")
	}
	w = &world{Bench: b, ledger: newLedger()}
	w.hostiles = slices.DeleteFunc(slices.Clone(hostiles), func(h hostile) bool { return left(h.name) })
	w.operations = slices.DeleteFunc(slices.Clone(operations), func(o operation) bool { return left(o.name) })
	if w.rig, err = newRig(*seed, all); err != nil {
		return nil, err
	}
	w.policy = w.policyFile()
	if err = w.writePolicy(w.firstPolicy()); err == nil {
		w.narthex, err = b.Start(ctx, w.rig.Server, w.policy)
	}
	if err != nil {
		return nil, errors.Join(err, w.rig.Close())
	}
	return w, nil
}

// begin takes note that something begins to be done; the function, that it has ended.
func (w *world) begin(name string) (end func()) {
	w.now.add(name)
	w.history.note("%s begins", name)
	return func() {
		w.now.change(name, -1)
		w.history.note("%s has ended", name)
	}
}

// narthexStatus asks the daemon.
func (w *world) narthexStatus(ctx context.Context) (api.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return w.narthex.Status(ctx)
}

// describe shows what the gate said of a service last.
func (w *world) describe(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.status.Services {
		if s.Name == name && s.RoomStatus != nil {
			room := *s.RoomStatus
			room.Classes = slices.Clone(room.Classes)
			for i := range room.Classes {
				room.Classes[i].Wait, room.Classes[i].Service = api.Durations{}, api.Durations{}
			}
			text, _ := json.Marshal(room)
			pool, _ := json.Marshal(w.status.WaitingRoom)
			return fmt.Sprintf("limit %s; %s; %s", s.Limit, text, pool)
		}
	}
	return "nothing is known of " + name
}

// live makes everything happen for a time, and ends it.
func (w *world) run(ctx context.Context, length time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin, endBegin := context.WithTimeout(ctx, length)
	defer endBegin()

	var visitors, others sync.WaitGroup
	for i := range *clients {
		c := w.newClient(i)
		visitors.Go(func() { c.run(ctx, begin) })
	}
	watching, endWatching := context.WithCancel(ctx)
	defer endWatching()
	others.Go(func() { w.monitor(watching) })
	others.Go(func() { w.tell(watching, length) })

	var failed atomic.Pointer[error]
	var hostile sync.WaitGroup
	also := func(number uint64, do func(context.Context, *rand.Rand) error) {
		hostile.Go(func() {
			if err := do(begin, rand.New(rand.NewPCG(*seed, 1_000_000+number))); err != nil {
				failed.CompareAndSwap(nil, &err)
				endBegin()
			}
		})
	}
	also(1, w.operate)
	if len(w.hostiles) > 0 {
		also(2, w.attack)
		also(3, w.attack)
	}
	if !slices.Contains(strings.Split(*without, ","), "odd heads") {
		also(4, w.odd)
	}
	hostile.Wait()
	visitors.Wait()
	endWatching()
	others.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return ctx.Err()
}

// tell says every ten seconds how far it is.
func (w *world) tell(ctx context.Context, length time.Duration) {
	for begun := time.Now(); sleep(ctx, 10*time.Second) == nil; {
		w.Progress("  %v of %v: %s", time.Since(begun).Round(time.Second), length, w.summary())
	}
}

// summary is a line.
func (w *world) summary() string {
	w.ledger.mu.Lock()
	var parts []string
	for o, n := range w.ledger.visits {
		parts = append(parts, fmt.Sprintf("%d %s", n, outcome(o)))
	}
	w.ledger.mu.Unlock()
	w.mu.Lock()
	var rooms []string
	for _, s := range w.status.Services {
		if s.RoomStatus != nil {
			rooms = append(rooms, fmt.Sprintf("%s %d+%d", s.Name, s.InService, s.Waiting))
		}
	}
	w.mu.Unlock()
	return fmt.Sprintf("visits: %s; in service + waiting: %s; %d attacks, %d operations; longest without progress %v; now %s", strings.Join(parts, ", "),
		strings.Join(rooms, ", "), w.attacks.sum(), w.done.sum(), time.Duration(w.stillest.Load()).Round(time.Millisecond), w.now.String())
}
