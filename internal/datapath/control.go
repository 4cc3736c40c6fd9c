// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"narthex/internal/policy"
)

// Control is what has been decided for a service, by what was seen of its server. It counts
// where the policy's limit adapts, but for Level and Keep, which count everywhere.
type Control struct {
	Limit int // requests in service at once; 0: unlimited
	// Provisional says that nothing is known of the server yet: the limit counts only while it is reached or
	// somebody waits, and before that what is no request passes, too.
	Provisional bool
	// GivenUp has nothing be held by what a class may have in service.
	GivenUp bool
	// Closes has the server be asked to close each connection behind its answer.
	Closes bool
	Safe   int           // the same from Grace on, if nothing newer has come by then
	Grace  time.Duration // for how long this holds
	Level  policy.When   // of overload: rules that ask for it or less are enforced
	Keep   []float64     // share of SYNs let in, 0 to 1, by index of their class in Tables.Classes; nil: all
	// Strangers is by how much less than 1 the same is of sources whose class only their requests tell.
	// Where no request rule gives one they are of the default class.
	Strangers float64
}

// keepAll is KEEP_ALL in bpf/abi/room.h.
const keepAll = 65536

// Steer puts a control in force for a service, by its index in Tables.Services of the state in
// force, or for a pool, by its index in Tables.Pools behind those. It goes before the daemon's tick, or the next packet, uses it.
func (in *Instance) Steer(service int, c Control) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	t, at, err := in.atService(service)
	if err != nil {
		return err
	}
	if pool := service - len(t.Services); pool >= 0 {
		err = in.steerPool(t, pool, c, at)
	} else {
		err = in.steer(t.Services[service].Name, newControl(c, at, t, service))
	}
	if err != nil {
		return fmt.Errorf("steering %q: %w", slotNames(t)[service], err)
	}
	return nil
}

// steerPool puts a control in force for a pool, and for its services, none of which is to have more.
func (in *Instance) steerPool(t *policy.Tables, pool int, c Control, at uint64) (err error) {
	for _, service := range t.ServicesOf(pool) {
		to := newControl(c, at, t, service)
		err = errors.Join(err, in.steer(t.Services[service].Name, to), in.steer(poolSlot(&t.Pools[pool]), to))
	}
	return err
}

// steer puts a control in force in the room of a slot. The lock is held.
func (in *Instance) steer(slot string, to narthexControl) error {
	if !in.objects.hasGate() {
		return nil // there is nothing to steer
	}
	opts := &ebpf.RunOptions{
		Data:    unsafe.Slice((*byte)(unsafe.Pointer(&to)), unsafe.Sizeof(to)),
		Context: skbContext{Cb: [5]uint32{in.slots.byName[slot]}},
	}
	verdict, err := in.objects.NarthexGateSteer.Run(opts)
	if err == nil && verdict != tcxNext {
		err = errors.New("the program refuses it")
	}
	return err
}

// atService returns the tables of the state in force, which has a service or pool with that index, and
// the kernel's time. The lock is held.
func (in *Instance) atService(service int) (t *policy.Tables, at uint64, err error) {
	if in.objects == nil || in.applied.Tables == nil {
		return nil, 0, errors.New("no policy is in force")
	}
	t = in.applied.Tables
	if service < 0 || service >= len(t.Services)+len(t.Pools) {
		return nil, 0, fmt.Errorf("there is no service %d", service)
	}
	at, err = now()
	return t, at, err
}

// tcxNext is TCX_NEXT.
const tcxNext = math.MaxUint32

func newControl(c Control, at uint64, t *policy.Tables, service int) narthexControl {
	to := narthexControl{
		Until: at + uint64(c.Grace), Limit: uint32(c.Limit), Safe: uint32(c.Safe), Level: uint32(whens[c.Level]),
	}
	for rank := range to.Keep {
		to.Keep[rank] = keepAll
		if rank < len(c.Keep) {
			to.Keep[rank] = uint32(min(max(c.Keep[rank], 0), 1) * keepAll)
		}
	}
	to.Strangers = to.Keep[t.Default]
	if t.Services[service].Room.Ruled {
		to.Strangers = uint32((1 - min(max(c.Strangers, 0), 1)) * keepAll)
	}
	if c.Provisional {
		to.Marks |= uint32(narthexControlMarkCONTROL_PROVISIONAL)
	}
	if c.GivenUp {
		to.Marks |= uint32(narthexControlMarkCONTROL_GIVEN_UP)
	}
	if c.Closes {
		to.Marks |= uint32(narthexControlMarkCONTROL_CLOSES)
	}
	if to.Strangers < keepAll || slices.ContainsFunc(c.Keep, func(share float64) bool { return share < 1 }) {
		to.Sheds = 1
	}
	return to
}
