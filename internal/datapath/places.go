// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"narthex/internal/policy"
)

// placeUse are the bits of a way that count; the others say whose it is.
const placeUse = 1<<20 - 1

// places reads how many places a source has left under a limit, or a value, as if they were tokens.
func (in *Instance) places(r *narthexRule, from netip.Addr, value string) (Bucket, error) {
	o := in.objects
	if !o.hasGate() {
		return Bucket{Tokens: float64(r.Tolerance)}, nil
	}
	var secret narthexSecret
	if err := o.SourceSecret.Lookup(zero, &secret); err != nil {
		return Bucket{}, fmt.Errorf("reading the secret: %w", err)
	}
	if err := in.readPool(); err != nil {
		return Bucket{}, err
	}
	tag := placeTag(r, from, value, secret.Key)
	for _, way := range in.pool.Place[tag>>32%uint64(len(in.pool.Place))].Way {
		if n := way & placeUse; n > 0 && (way^tag)&^placeUse == 0 {
			return Bucket{Known: true, Tokens: float64(r.Tolerance) - float64(n)}, nil
		}
	}
	return Bucket{Known: r.PerSource == 0, Tokens: float64(r.Tolerance)}, nil
}

// placeTag is whose place take_at_once() of bpf/policy/limits.h takes.
func placeTag(r *narthexRule, from netip.Addr, value string, key [2]uint64) uint64 {
	if r.PerSource == 0 { // the rule's
		return siphash13(key, r.Id, 1, 1) | 1
	}
	return sourceTag(r, from, value, key)
}

// readPool reads the memory of the waiting rooms into in.pool. The caller holds in.mu.
func (in *Instance) readPool() error {
	if in.pool == nil {
		in.pool = new(narthexPool)
	}
	if err := in.objects.Pool.Lookup(zero, in.pool); err != nil {
		return fmt.Errorf("reading the memory of the waiting rooms: %w", err)
	}
	return nil
}

// returnEvery is how often it is looked for places to be given back.
const returnEvery = time.Second

// returnPlaces has requests give their places back that were in service for longer than max_service: nobody has
// seen their end. The caller holds in.mu.
func (in *Instance) returnPlaces() error {
	if in.applied.Tables == nil || !hasPlaces(in.applied.Tables) || time.Since(in.placesLooked) < returnEvery {
		return nil
	}
	in.placesLooked = time.Now()
	least := time.Hour
	for _, s := range in.applied.Tables.Services {
		least = min(least, s.Room.Queue.MaxService)
	}
	t, err := now()
	if err != nil {
		return err
	}
	var late []narthexFlowKey
	err = eachEntry(in.objects.Flows, func(key *narthexFlowKey, f *narthexFlow) {
		if f.Places != 0 && t > f.Since && t-f.Since >= uint64(least) {
			late = append(late, *key)
		}
	})
	if err != nil {
		return err
	}
	for i := range late {
		if err := in.objects.sweep(&late[i], uint32(in.gates[0].index)); err != nil {
			return err
		}
	}
	return nil
}

// openingAge is how long a connection has been there without a socket when it is asked whether it still is; as
// OPENING_AGE of bpf/room/connections.h.
const openingAge = 5 * time.Second

// returnOpenings has connections give their places back that came to nothing before there was a socket. The caller
// holds in.mu.
func (in *Instance) returnOpenings() error {
	if in.applied.Tables == nil || !slices.ContainsFunc(in.applied.Tables.Services, isBounded) || time.Since(in.openingsLooked) < returnEvery {
		return nil
	}
	in.openingsLooked = time.Now()
	return in.objects.sweepOpenings()
}

// sweepOpenings looks at the connections that have places and no socket.
func (o *objects) sweepOpenings() error {
	t, err := now()
	if err != nil {
		return err
	}
	old := map[narthexFlowKey]uint32{}
	err = eachEntry(o.Openings, func(key *narthexFlowKey, e *narthexOpening) {
		if t > e.Since && t-e.Since >= uint64(openingAge) {
			old[*key] = e.Ifindex
		}
	})
	if err != nil {
		return err
	}
	for key, on := range old {
		if err := o.sweep(&key, on); err != nil {
			return err
		}
	}
	return nil
}

// holdsPlaces reports whether somebody has a place of a limit. The caller holds in.mu.
func (in *Instance) holdsPlaces() (bool, error) {
	if err := in.readPool(); err != nil {
		return false, err
	}
	for i := range in.pool.Place {
		for _, way := range in.pool.Place[i].Way {
			if way&placeUse != 0 {
				return true, nil
			}
		}
	}
	return false, nil
}

// hasPlaces reports whether a limit of a request rule is of what there is at once.
func hasPlaces(t *policy.Tables) bool {
	is := func(l policy.LimitTable) bool { return l.AtOnce > 0 }
	return slices.ContainsFunc(t.RequestRules(), func(r policy.RequestRule) bool { return slices.ContainsFunc(r.Limits, is) })
}
