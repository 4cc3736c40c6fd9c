// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"narthex/internal/policy"
)

// Room is one reading of a service's waiting room.
type Room struct {
	InService int // requests that the server works on
	Waiting   int // requests that are held
	Gathering int // requests whose head is not complete, and whose turn has not come
	// Used is the time in service of all requests of a service in a pool together, as far as it has been in one.
	Used    time.Duration
	Classes []RoomClass // like Tables.Classes of the state in force
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
	Ahead     uint64 // of these, those of known sources, before others of the class
	GaveUp    uint64 // of those held, the ones whose client went away
	Rejected  [RejectLen]uint64
	Served    uint64    // requests that left service
	Lost      uint64    // of these, the ones whose end was not seen
	Paused    uint64    // times that a request left service because its body did not come
	BytesIn   uint64    // of requests, as far as the server has acknowledged them
	BytesOut  uint64    // that the server has sent, without those that it sent again
	Wait      Histogram // how long those that were released had waited
	Service   Histogram // how long requests were in service
}

// Reject is why a request was answered by Narthex and not by the server.
type Reject int

// RejectLen is how many reasons for a rejection there are.
const RejectLen = int(narthexRejectREJECT_LEN)

// rejectNames are the names of enum reject in bpf/abi/reasons.h.
var rejectNames = [RejectLen]string{
	"queue_full", // the queue was full, and nobody of a lower class waited
	"displaced",  // it made room for one of a higher class
	"max_wait",   // it had waited for max_wait
	"no_server",  // its listener or its connection was gone when its turn came
	"closed",     // the server closed the idle connection while it waited
	"no_slot",    // all slots of the instance were taken
	"no_flow",    // all flow entries of the instance were taken
	"too_large",  // its head is longer than a slot
	"malformed",  // servers could read its head in two ways, or it is no HTTP/1
	"h2c",        // it asks for HTTP/2 without TLS, which the service does not let pass
	"rule",       // a request rule says so
	"dropped",    // the same, by a reset
	"blocked",    // its client, behind a trusted proxy, is blocked by a rule
	"complex",    // more patterns match it at once than are followed
	"target",     // it had waited for the queue's target while overload lasted
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

// readRooms reads all waiting rooms, by slot.
func (o *objects) readRooms() ([]narthexRoom, error) {
	rooms := make([]narthexRoom, o.Rooms.MaxEntries())
	if err := readArray(o.Rooms, rooms); err != nil {
		return nil, err
	}
	return rooms, nil
}

// Rooms reads the waiting rooms, like Tables.Services of the state in force; behind them what services of
// pools have together, like Tables.Pools.
func (in *Instance) Rooms() ([]Room, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil || in.applied.Tables == nil {
		return nil, errors.New("no policy is in force")
	}
	t := in.applied.Tables
	list := make([]Room, len(t.Services)+len(t.Pools))
	var r narthexRoom
	for i := range t.Services {
		var one RoomReading
		if err := in.readRoom(t, t.Services[i].Name, &r, 0, &one); err != nil {
			return nil, err
		}
		list[i] = one.Room
	}
	for i := range t.Pools {
		for _, member := range t.ServicesOf(i) {
			list[len(t.Services)+i].add(&list[member])
		}
	}
	return list, nil
}

func roomClass(from *narthexClassRoom) RoomClass {
	c := RoomClass{
		InService: int(from.InService), Waiting: int(from.Waiting),
		Arrived: from.Arrived, Admitted: from.Admitted, Held: from.Held, WouldHold: from.WouldHold,
		Released: from.Released, Ahead: from.Ahead, GaveUp: from.GaveUp, Served: from.Served, Lost: from.Lost, Paused: from.Paused,
		BytesIn: from.BytesIn, BytesOut: from.BytesOut,
		Wait:    Histogram{from.Wait, time.Duration(from.WaitSum)},
		Service: Histogram{from.Service, time.Duration(from.ServiceSum)},
	}
	copy(c.Rejected[:], from.Rejected[:])
	b := &from.Brief
	c.InService += max(int(int64(b.Begun-b.Served)), 0) // read one after the other
	c.Arrived, c.Admitted, c.Served = c.Arrived+b.Begun, c.Admitted+b.Begun, c.Served+b.Served
	c.Service.add(&Histogram{b.Service, time.Duration(b.ServiceSum)})
	return c
}

// Pool reads how full the memory of the waiting rooms is.
func (in *Instance) Pool() (PoolUse, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil {
		return PoolUse{}, errors.New("instance is closed")
	}
	o := in.objects
	u := PoolUse{
		Slots: int(o.Slots.MaxEntries()) - 1, SlotSize: int(o.Slots.ValueSize()) - slotHeader,
		Flows: int(o.Flows.MaxEntries()),
	}
	u.FreeSlots = u.Slots
	if !o.hasGate() {
		return u, nil
	}
	run := ebpf.RunOptions{Data: make([]byte, 128), DataOut: make([]byte, 128)}
	if _, err := o.NarthexGateUse.Run(&run); err != nil {
		return PoolUse{}, fmt.Errorf("reading how much of the waiting rooms' memory is in use: %w", err)
	}
	u.FreeSlots -= int(binary.NativeEndian.Uint32(run.DataOut))
	u.UsedFlows = int(binary.NativeEndian.Uint32(run.DataOut[4:]))
	return u, nil
}

// eachEntry goes through the entries of a hash map.
func eachEntry[K, V any](m *ebpf.Map, visit func(*K, *V)) error {
	const batch = 512
	keys, values := make([]K, batch), make([]V, batch)
	var cursor ebpf.MapBatchCursor
	for {
		read, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range read {
			visit(&keys[i], &values[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the entries of map %s: %w", m, err)
		}
	}
}

// Tick does what falls due in the waiting rooms without a packet: it releases what there is
// room for and rejects what has waited for too long. The calling thread is in the network
// namespace of the targets. Nothing depends on it: the next packet does the same.
func (in *Instance) Tick() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil {
		return errors.New("instance is closed")
	}
	return in.tick()
}

// tick runs the tick on a frame of which the program makes others, on any gate, and ends what it finds to stall.
func (in *Instance) tick() error {
	if len(in.gates) == 0 {
		return nil
	}
	if err := runOn(in.objects.NarthexGateTick, skbContext{Ifindex: uint32(in.gates[0].index)}); err != nil {
		return err
	}
	if err := in.returnPlaces(); err != nil {
		return err
	}
	if err := in.returnOpenings(); err != nil {
		return err
	}
	return in.objects.destroyStalled()
}

// skbContext is the beginning of struct __sk_buff, of which a test run takes some fields.
type skbContext struct {
	Len, PktType, Mark, QueueMapping, Protocol, VLANPresent, VLANTCI, VLANProto, Priority, IngressIfindex, Ifindex, TCIndex uint32
	Cb                                                                                                                      [5]uint32
	_                                                                                                                       [27]uint32
}

// runOn runs a program on a frame of zeros.
func runOn(p *ebpf.Program, ctx skbContext) error {
	if _, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 128), Context: ctx}); err != nil {
		return fmt.Errorf("running %s: %w", p, err)
	}
	return nil
}

// resetRoom starts a room anew in which nobody is.
func (o *objects) resetRoom(slot uint32) error {
	if err := o.Rooms.Put(slot, &narthexRoom{}); err != nil {
		return fmt.Errorf("preparing a waiting room: %w", err)
	}
	return nil
}

// resetClass starts the counters of a class anew, in all rooms.
func (o *objects) resetClass(slot uint32) error {
	if !o.hasGate() {
		return nil // nobody has counted
	}
	for room := range o.Rooms.MaxEntries() {
		if err := runOn(o.NarthexGateReset, skbContext{Cb: [5]uint32{room, slot}}); err != nil {
			return err
		}
	}
	return nil
}

// gatePorts returns the bits of gate_ports.
func gatePorts(services []policy.ServiceTable) map[uint32]uint64 {
	bits := map[uint32]uint64{}
	for i := range services {
		if !NeedsGate(&services[i]) {
			continue
		}
		for _, l := range services[i].Listen {
			bits[uint32(l.Port)/64] |= 1 << (l.Port % 64)
		}
	}
	return bits
}

// addGatePorts has the programs look at the ports of services, besides those they look at.
func (o *objects) addGatePorts(services []policy.ServiceTable) error {
	for index, bits := range gatePorts(services) {
		var old uint64
		if err := o.GatePorts.Lookup(index, &old); err != nil {
			return fmt.Errorf("reading the ports that are looked at: %w", err)
		}
		if err := o.GatePorts.Put(index, old|bits); err != nil {
			return fmt.Errorf("adding ports to look at: %w", err)
		}
	}
	return nil
}

// trimGatePorts has the programs look at no others than those of the services and those that
// connections they follow still have.
func (o *objects) trimGatePorts(services []policy.ServiceTable, followed map[uint16]bool) error {
	all := make([]uint64, o.GatePorts.MaxEntries())
	for index, bits := range gatePorts(services) {
		all[index] = bits
	}
	for port := range followed {
		all[port/64] |= 1 << (port % 64)
	}
	return writeArray(o.GatePorts, all)
}
