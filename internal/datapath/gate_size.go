// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"narthex/internal/policy"
)

// roomMaps are the maps of the waiting rooms, which refer to each other.
var roomMaps = []string{
	narthexMapRooms, narthexMapPool, narthexMapSlots, narthexMapFlows, narthexMapClassSlots, narthexMapServiceSlots,
	narthexMapGhosts, narthexMapWatches, narthexMapBriefFlows, narthexMapSeats, narthexMapParkedSockets,
	narthexMapOpenings, narthexMapSocketPlaces,
}

// minServices is how many services a new instance has room for at least.
const minServices = 64

// leastSeats is how many seats are looked at at once.
const leastSeats = 8

// slotHeader is what a slot has beside the frame, bytes.
const slotHeader = int(unsafe.Sizeof(narthexSlot{}))

// keyGateMark is where the journal has the mark of our own packets: a new program must know
// those that the old one has sent.
const keyGateMark = "gate.mark"

// roomCapacity returns how many services there can be. It does not shrink.
func (in *Instance) roomCapacity(existing map[string]*ebpf.Map) uint32 {
	n := max(minServices, ceilPowerOfTwo(in.services))
	if m := existing[narthexMapRooms]; m != nil {
		n = max(n, m.MaxEntries())
	}
	return min(n, policy.MaxServices)
}

// setGate sizes the maps of the waiting rooms, sets what their programs go by, and returns the
// mark of their packets.
func (in *Instance) setGate(spec *ebpf.CollectionSpec, existing map[string]*ebpf.Map) (mark uint32, err error) {
	slots, size, flows := in.memory.Slots, in.memory.SlotSize, in.memory.Flows
	if m := existing[narthexMapSlots]; m != nil {
		slots = orElse(slots, int(m.MaxEntries())-1)
		size = orElse(size, int(m.ValueSize())-slotHeader)
	}
	if m := existing[narthexMapFlows]; m != nil {
		flows = orElse(flows, int(m.MaxEntries()))
	}
	slots, size = min(orElse(slots, DefaultSlots), MaxSlots, mostSlots), min(max(orElse(size, DefaultSlotSize), MinSlotSize), MaxSlotSize)
	spec.Maps[narthexMapSlots].MaxEntries = uint32(slots) + 1 // slot 0 is none
	spec.Maps[narthexMapSlots].ValueSize = uint32(slotHeader + size)
	flows = max(orElse(flows, DefaultFlows), slots)
	spec.Maps[narthexMapFlows].MaxEntries = uint32(flows)
	spec.Maps[narthexMapBriefFlows].MaxEntries = uint32(flows)
	seats := max(leastSeats, ceilPowerOfTwo(2*flows))
	spec.Maps[narthexMapSeats].MaxEntries = seats
	if mark, err = gateMark(existing[narthexMapJournal]); err != nil {
		return 0, err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return 0, err
	}
	cookie, err := netCookie()
	if err != nil {
		return 0, err
	}
	for name, value := range map[string]any{
		narthexVarSlotCount: uint32(slots), narthexVarSlotSize: uint32(size), narthexVarSeatMask: seats - 1, narthexVarGateMark: mark, narthexVarNetCookie: cookie,
		narthexVarCpuCount: uint32(cpus), narthexVarFlowCount: uint32(flows),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return 0, fmt.Errorf("setting %q: %w", name, err)
		}
	}
	return mark, nil
}

func orElse(n, other int) int {
	if n == 0 {
		return other
	}
	return n
}

// gateMark returns the mark in the journal, or a random one.
func gateMark(journal *ebpf.Map) (uint32, error) {
	if n, err := strconv.ParseUint(recorded(journal, keyGateMark), 10, 32); err == nil {
		return uint32(n), nil
	}
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint32(b[:])&^0xfff | 0x1000, nil
}

// netCookie returns the cookie of the calling thread's network namespace.
func netCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("reading the cookie of the network namespace: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("reading the cookie of the network namespace: %w", err)
	}
	return cookie, nil
}
