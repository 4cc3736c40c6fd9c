// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"narthex/internal/datapath"
	"narthex/internal/policy"
)

const (
	// tickEvery is how often the waiting rooms are looked after while somebody waits: what
	// falls due without a packet, such as the end of max_wait, is late by so much at most.
	tickEvery = 20 * time.Millisecond
	// lookEvery is how often to look whether somebody waits, for that reads every room, and
	// how often to tick while nobody does: connections that may be silent are looked at then.
	lookEvery = 200 * time.Millisecond
	// roomsPerLook is how many rooms are read each time that it is looked whether somebody
	// waits; with more, it is looked so much less often.
	roomsPerLook = 50
	// mostFaults bounds what is logged of a pulse that fails, until the next change.
	mostFaults = 8
)

// pulse makes the waiting rooms do what falls due without a packet.
type pulse struct {
	log     *slog.Logger
	tick    func() error
	look    func(waited bool) (waiting bool, err error) // whether somebody waits, and did
	after   func(time.Duration) <-chan time.Time
	applied <-chan struct{} // what is enforced has changed
	told    []string        // faults that are in the log
}

// run beats until ctx is done.
func (p *pulse) run(ctx context.Context) {
	const beatsPerLook = int(lookEvery / tickEvery)
	waiting := false
	for beat := 1; ; beat++ {
		wait := lookEvery
		if waiting {
			wait = tickEvery
		}
		select {
		case <-ctx.Done():
			return
		case <-p.applied:
			// Somebody may wait whom the new policy would not hold, and the fault may be over.
			beat, waiting, p.told = 0, true, nil
		case <-p.after(wait):
		}
		p.report("look after the waiting rooms", p.tick())
		if waiting && beat%beatsPerLook != 0 {
			continue
		}
		now, err := p.look(waiting)
		p.report("read the waiting rooms", err)
		if err == nil {
			beat, waiting = 0, now
		}
	}
}

// report logs each fault once, lest a lasting one fills the log.
func (p *pulse) report(what string, err error) {
	if err == nil {
		return
	}
	fault := fmt.Sprintf("%s: %v", what, err)
	if len(p.told) >= mostFaults || slices.Contains(p.told, fault) {
		return
	}
	p.told = append(p.told, fault)
	p.log.Error("cannot "+what+"; packets go on doing it", "error", err)
}

// pulse returns the engine's, with the time of the machine.
func (e *engine) pulse() *pulse {
	return &pulse{log: e.log, tick: e.tick, look: e.anybodyWaits, after: nextMultiple, applied: e.applied}
}

// nextMultiple fires at the next moment that is a multiple of an interval. What is done at the same
// interval is done at the same moments, then: waking up costs more than most of it.
func nextMultiple(every time.Duration) <-chan time.Time {
	return time.After(untilMultiple(monotonic(), every))
}

// untilMultiple is how long it takes until the next multiple of an interval.
func untilMultiple(now, every time.Duration) time.Duration { return every - now%every }

// tick does what falls due. It does not wait for a change that is being prepared.
func (e *engine) tick() error {
	return e.net.Do(func() error {
		e.acting.Lock()
		defer e.acting.Unlock()
		return e.dp.Tick()
	})
}

// sweep forgets connections that ended unseen.
func (e *engine) sweep() error {
	return e.net.Do(func() error {
		e.acting.Lock()
		defer e.acting.Unlock()
		return e.dp.Sweep()
	})
}

// clear empties the waiting rooms, for nobody will release what is held there.
func (e *engine) clear(limit time.Duration) error {
	return e.net.Do(func() error {
		e.acting.Lock()
		defer e.acting.Unlock()
		return e.dp.Clear(limit)
	})
}

// anybodyWaits reads the waiting rooms, unless nobody waited and no limit makes anybody. While
// nobody waits many rooms are read less often: what falls due is then late by lookEvery.
func (e *engine) anybodyWaits(waited bool) (bool, error) {
	if !waited && !e.limited.Load() {
		return false, nil
	}
	if e.unread++; !waited && e.unread <= e.roomsRead/roomsPerLook {
		return false, nil
	}
	rooms, err := e.dp.Rooms()
	e.unread, e.roomsRead = 0, len(rooms)
	if err != nil {
		return waited, err
	}
	return slices.ContainsFunc(rooms, func(r datapath.Room) bool { return r.Waiting > 0 || r.Gathering > 0 }), nil
}

// limits reports whether a policy may make requests wait, be it for the rest of their head,
// by which rules decide.
func limits(t *policy.Tables) bool {
	for i := range t.Services {
		if t.HasRoom(i) || t.Services[i].Room.Ruled {
			return true
		}
	}
	return false
}
