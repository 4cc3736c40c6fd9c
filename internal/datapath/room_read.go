// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"sync"
	"time"

	"narthex/internal/policy"
)

// RoomReading is one reading of a waiting room by who steers it.
type RoomReading struct {
	Room
	Limit       int         // requests in service at once that the control allows now; 0: unlimited
	Closes      bool        // the server is asked to close connections
	Provisional bool        // nothing was known of the server when it was set
	Safe        int         // the same from when nobody steers any more
	Level       policy.When // of overload, if the control holds
}

// roomBuffers are for reading rooms, which are large.
var roomBuffers = sync.Pool{New: func() any { return new(narthexRoom) }}

// ReadRoom reads the waiting room of one service, by its index in Tables.Services of the
// state in force, into memory that it uses again; or the rooms of a pool's services as one, by the pool's
// index in Tables.Pools behind those.
func (in *Instance) ReadRoom(service int, into *RoomReading) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	t, at, err := in.atService(service)
	if err != nil {
		return err
	}
	*into = RoomReading{Room: Room{Classes: into.Classes[:0]}}
	r := roomBuffers.Get().(*narthexRoom)
	defer roomBuffers.Put(r)
	pool := service - len(t.Services)
	if pool < 0 {
		return in.readRoom(t, t.Services[service].Name, r, at, into)
	}
	var one RoomReading
	for _, member := range t.ServicesOf(pool) {
		one = RoomReading{Room: Room{Classes: one.Classes[:0]}}
		if err := in.readRoom(t, t.Services[member].Name, r, at, &one); err != nil {
			return err
		}
		into.add(&one.Room)
		into.Limit, into.Provisional, into.Closes, into.Safe, into.Level = one.Limit, one.Provisional, one.Closes, one.Safe, one.Level
	}
	return nil
}

// readRoom reads the room of a slot by way of a buffer.
func (in *Instance) readRoom(t *policy.Tables, slot string, r *narthexRoom, at uint64, into *RoomReading) error {
	if err := in.objects.Rooms.Lookup(in.slots.byName[slot], r); err != nil {
		return fmt.Errorf("reading the waiting room of %q: %w", slot, err)
	}
	into.InService, into.Waiting, into.Gathering, into.Used = int(r.InService+r.Brief), int(r.Waiting), int(r.Gathering), time.Duration(r.Used)
	for i := range t.Classes {
		into.Classes = append(into.Classes, roomClass(&r.Class[in.slots.byClass[t.Classes[i].Name]]))
	}
	into.Limit, into.Safe = int(r.Control.Safe), int(r.Control.Safe)
	if int64(r.Control.Until-at) > 0 {
		into.Limit, into.Level = int(r.Control.Limit), policy.When(r.Control.Level)
		into.Closes = r.Control.Marks&uint32(narthexControlMarkCONTROL_CLOSES) != 0
		into.Provisional = r.Control.Marks&uint32(narthexControlMarkCONTROL_PROVISIONAL) != 0
	}
	return nil
}

// add adds what another room has.
func (r *Room) add(o *Room) {
	r.InService, r.Waiting, r.Gathering, r.Used = r.InService+o.InService, r.Waiting+o.Waiting, r.Gathering+o.Gathering, r.Used+o.Used
	for i := range o.Classes {
		if i == len(r.Classes) {
			r.Classes = append(r.Classes, RoomClass{})
		}
		r.Classes[i].add(&o.Classes[i])
	}
}

func (c *RoomClass) add(o *RoomClass) {
	c.InService, c.Waiting = c.InService+o.InService, c.Waiting+o.Waiting
	for _, of := range []struct {
		to   *uint64
		more uint64
	}{
		{&c.Arrived, o.Arrived}, {&c.Admitted, o.Admitted}, {&c.Held, o.Held}, {&c.WouldHold, o.WouldHold}, {&c.Released, o.Released}, {&c.Ahead, o.Ahead},
		{&c.GaveUp, o.GaveUp}, {&c.Served, o.Served}, {&c.Lost, o.Lost}, {&c.Paused, o.Paused},
		{&c.BytesIn, o.BytesIn}, {&c.BytesOut, o.BytesOut},
	} {
		*of.to += of.more
	}
	for i := range c.Rejected {
		c.Rejected[i] += o.Rejected[i]
	}
	c.Wait.add(&o.Wait)
	c.Service.add(&o.Service)
}

func (h *Histogram) add(o *Histogram) {
	h.Sum += o.Sum
	for i := range h.Buckets {
		h.Buckets[i] += o.Buckets[i]
	}
}
