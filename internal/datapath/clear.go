// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"narthex/internal/policy"
)

// clearStep is how often the rooms are looked at while they are being emptied.
const clearStep = 5 * time.Millisecond

// Clear empties the waiting rooms before the instance is removed: held requests are released
// as fast as the accept queues have room until the limit, then answered as rejected. New
// requests pass. The calling thread is in the network namespace of the targets.
func (in *Instance) Clear(limit time.Duration) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil || in.applied.Tables == nil {
		return nil
	}
	if err := in.publishOpen(time.Hour); err != nil {
		return err
	}
	err := in.clearUntil(limit, all)
	if errors.Is(err, errWaiting) {
		if err := in.publishOpen(0); err != nil {
			return err
		}
		err = in.clearUntil(limit, all)
	}
	return err
}

func all(int) bool { return true }

// isEmpty reports whether nobody is in the room but requests in service.
func (r *narthexRoom) isEmpty() bool { return r.Waiting == 0 && r.Gathering == 0 && r.DueHead == 0 }

// clearLeft empties the rooms of services that no gate sees any more, before the gates go: what
// they have acknowledged nobody sends again.
func (in *Instance) clearLeft(s *State) error {
	if !slices.ContainsFunc(in.gates, func(g gate) bool { return !g.wanted(s) }) {
		return nil
	}
	followed := map[int]bool{}
	for i := range s.Tables.Services {
		if HasGate(&s.Tables.Services[i]) {
			followed[int(in.slots.byName[s.Tables.Services[i].Name])] = true
		}
	}
	return in.clearUntil(leftoverWait, func(slot int) bool { return !followed[slot] })
}

// errWaiting says that a room is not empty yet.
var errWaiting = errors.New("requests still wait")

// clearUntil has who waits in some of the rooms released or rejected.
func (in *Instance) clearUntil(limit time.Duration, which func(slot int) bool) error {
	for end := time.Now().Add(limit); ; time.Sleep(clearStep) {
		if err := in.tick(); err != nil {
			return err
		}
		rooms, err := in.objects.readRooms()
		if err != nil {
			return err
		}
		empty := true
		for slot := range rooms {
			empty = empty && (rooms[slot].isEmpty() || !which(slot))
		}
		if empty {
			return nil
		}
		if time.Now().After(end) {
			return errWaiting
		}
	}
}

// opened returns a policy without limits and request rules: nobody has to wait any more, and who waits is released,
// or rejected after maxWait. Who comes while others still wait has to wait behind them, so the queue has its size.
func opened(from *policy.Tables, maxWait time.Duration) policy.Tables {
	t := *from
	t.Services, t.Classes, t.Requests, t.Pools = slices.Clone(t.Services), slices.Clone(t.Classes), nil, nil
	for i := range t.Services {
		room := &t.Services[i].Room
		room.Limit, room.Ruled, room.Pool = 0, false, 0
		room.Queue.MaxWait, room.Queue.Target = maxWait, 0
	}
	for i := range t.Classes {
		t.Classes[i].Max = 0
	}
	return t
}

// publishOpen puts that in force.
func (in *Instance) publishOpen(maxWait time.Duration) error {
	t := opened(in.applied.Tables, maxWait)
	groups, err := groupServices(t.Services)
	if err != nil {
		return err
	}
	locals := append(slices.Clone(in.applied.Locals), alwaysLocal...)
	listens, err := policy.CompileListens(t.Services, locals)
	if err != nil {
		return err
	}
	// The generation stays, and with it the interfaces' groups.
	im := buildImage(&t, in.applied.Targets, listens, in.slots, groupBits(groups, in.imageGen), in.imageGen, in.answersAt, in.listsAt)
	m, err := im.newMap()
	if err != nil {
		return err
	}
	defer closeMap(m)
	if err := in.objects.PolicyImage.Put(zero, m); err != nil {
		return fmt.Errorf("lifting the limits: %w", err)
	}
	return nil
}
