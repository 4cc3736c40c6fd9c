// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strconv"
	"time"

	"narthex/internal/api"
)

const (
	every   = 100 * time.Millisecond // the monitor looks
	stalled = time.Second            // without progress: a stall
	asleep  = 300 * time.Millisecond // the monitor itself was kept from looking: the machine had no time for anybody
)

// watched is what the monitor knows of a service.
type watched struct {
	progress uint64    // of the gate
	idle     time.Time // since when somebody waits and nobody is released though there is room; zero: that is not so
	told     time.Time // of a stall last
}

// monitor looks how things are until the context ends.
func (w *world) monitor(ctx context.Context) {
	state := map[string]*watched{}
	for _, s := range w.rig.services {
		state[s.name] = &watched{}
	}
	for last := time.Now(); sleep(ctx, every) == nil; last = time.Now() {
		if time.Since(last) > asleep {
			w.slept.Add(1)
			for _, s := range w.rig.services {
				s.pace.step()
				state[s.name].idle = time.Time{}
			}
		}
		status, err := w.narthexStatus(ctx)
		for i, s := range w.rig.services {
			at := state[s.name]
			if err != nil {
				at.idle = time.Time{} // a daemon that is not there says nothing
			} else if i < len(status.Services) && status.Services[i].RoomStatus != nil {
				w.look(s, at, &status.Services[i])
			}
			w.judge(s, at)
		}
		if err == nil {
			w.mu.Lock()
			w.status = status
			w.mu.Unlock()
		}
	}
}

// look takes note of what the gate says of a service.
func (w *world) look(s *service, at *watched, now *api.ServiceStatus) {
	progress := uint64(0)
	for _, c := range now.Classes {
		progress += c.Admitted + c.Released + c.Served + c.GaveUp
		for _, n := range c.Rejected {
			progress += n
		}
	}
	moved := progress != at.progress
	at.progress = progress
	if moved {
		s.pace.step()
	}
	if moved || !couldRelease(now) {
		at.idle = time.Time{}
	} else if at.idle.IsZero() {
		at.idle = time.Now()
	}
}

// couldRelease reports whether somebody waits and could be in service.
func couldRelease(s *api.ServiceStatus) bool {
	limit, err := strconv.Atoi(s.Limit)
	if err == nil && s.InService >= limit || s.Mode != "enforce" {
		return false
	}
	for _, c := range s.Classes {
		if c.Waiting > 0 && (c.Max == 0 || c.InService < c.Max) {
			return true
		}
	}
	return false
}

// judge looks for stalls of a service.
func (w *world) judge(s *service, at *watched) {
	still := s.pace.still()
	what := "ordinary clients wait, and nothing goes on"
	if at.idle != (time.Time{}) && time.Since(at.idle) > still {
		still, what = time.Since(at.idle), "requests wait, there is room, and none is released"
	}
	now := time.Now()
	if w.ledger.isExcused(s, now.Add(-still), now, false) {
		return
	}
	w.stillest.raise(still)
	if still < stalled || now.Sub(at.told) < 5*time.Second {
		return
	}
	at.told = now
	w.stalls.Add(1)
	w.ledger.fault("stall of %s: for %v %s; %s; at the moment: %s\n%s\n%s", s.name, still.Round(time.Millisecond), what, &s.pace, w.now.String(), w.describe(s.name), w.history.String())
}
