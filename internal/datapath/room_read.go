// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"sync"

	"narthex/internal/policy"
)

// RoomReading is one reading of a waiting room by who steers it.
type RoomReading struct {
	Room
	Limit int         // requests in service at once that the control allows now; 0: unlimited
	Safe  int         // the same from when nobody steers any more
	Level policy.When // of overload, if the control holds
}

// roomBuffers are for reading rooms, which are large.
var roomBuffers = sync.Pool{New: func() any { return new(narthexRoom) }}

// ReadRoom reads the waiting room of one service, by its index in Tables.Services of the
// state in force, into memory that it uses again.
func (in *Instance) ReadRoom(service int, into *RoomReading) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	t, at, err := in.atService(service)
	if err != nil {
		return err
	}
	r := roomBuffers.Get().(*narthexRoom)
	defer roomBuffers.Put(r)
	if err := in.objects.Rooms.Lookup(in.slots.byName[t.Services[service].Name], r); err != nil {
		return fmt.Errorf("reading the waiting room of service %q: %w", t.Services[service].Name, err)
	}
	classes := into.Classes[:0]
	*into = RoomReading{Room: Room{InService: int(r.InService), Waiting: int(r.Waiting), Gathering: int(r.Gathering)}}
	for i := range t.Classes {
		classes = append(classes, roomClass(&r.Class[in.slots.byClass[t.Classes[i].Name]]))
	}
	into.Classes = classes
	into.Limit, into.Safe = int(r.Control.Safe), int(r.Control.Safe)
	if int64(r.Control.Until-at) > 0 {
		into.Limit, into.Level = int(r.Control.Limit), policy.When(r.Control.Level)
	}
	return nil
}
