// SPDX-License-Identifier: Apache-2.0

package datapath

import "time"

// Room is one reading of a service's waiting room.
type Room struct {
	InService int         // requests that the server works on
	Waiting   int         // requests that are held
	Classes   []RoomClass // like Tables.Classes of the state in force
}

// RoomClass is what a waiting room has of one class. Counters are since the instance was
// loaded.
type RoomClass struct {
	InService int
	Waiting   int
	Arrived   uint64 // requests that came
	Admitted  uint64 // of these, at once
	Held      uint64 // of these, those that had to wait
	WouldHold uint64 // of those admitted at once, the ones that only shadow mode let in
	Released  uint64 // of those held, the ones that were let in
	GaveUp    uint64 // of those held, the ones whose client went away
	Rejected  [RejectLen]uint64
	Served    uint64    // requests that left service
	Lost      uint64    // of these, the ones whose end was not seen
	Wait      Histogram // how long those that were released had waited
	Service   Histogram // how long requests were in service
}

// Reject is why a request was answered by Narthex and not by the server.
type Reject int

// RejectLen is how many reasons for a rejection there are.
const RejectLen = 7

// rejectNames are the names of enum reject in bpf/types.h.
var rejectNames = [RejectLen]string{
	"queue_full", // the queue was full, and nobody of a lower class waited
	"displaced",  // it made room for one of a higher class
	"max_wait",   // it had waited for max_wait
	"no_server",  // its listener or its connection was gone when its turn came
	"closed",     // the server closed the idle connection while it waited
	"no_slot",    // all slots of the instance were taken
	"no_flow",    // all flow entries of the instance were taken
}

func (r Reject) String() string { return rejectNames[r] }

// Histogram counts durations. Bucket i holds those of at least 2^i µs and less than 2^(i+1)
// µs; bucket 0 also what is shorter, the last one also what is longer.
type Histogram struct {
	Buckets [32]uint64
	Sum     time.Duration
}

// Count returns how many durations there are.
func (h Histogram) Count() (n uint64) {
	for _, b := range h.Buckets {
		n += b
	}
	return n
}

// PoolUse says how much of the memory of the waiting rooms is in use.
type PoolUse struct {
	Slots     int // requests that can be held at once, in all services
	FreeSlots int
	SlotSize  int // bytes of a slot: the longest packet that can be held
	Flows     int // connections that can be followed at once
	UsedFlows int
}

// Rooms reads the waiting rooms, like Tables.Services of the state in force.
func (in *Instance) Rooms() ([]Room, error) { return nil, nil }

// Pool reads how full the memory of the waiting rooms is.
func (in *Instance) Pool() (PoolUse, error) { return PoolUse{}, nil }

// Tick does what falls due in the waiting rooms without a packet: it releases what there is
// room for and rejects what has waited for too long. The calling thread is in the network
// namespace of the targets. Nothing depends on it: the next packet does the same.
func (in *Instance) Tick() error { return nil }

// Clear empties the waiting rooms before the instance is removed: held requests are released
// as fast as the accept queues have room until the limit, then answered as rejected. New
// requests pass. The calling thread is in the network namespace of the targets.
func (in *Instance) Clear(limit time.Duration) error { return nil }
