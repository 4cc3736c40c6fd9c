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
	n := in.placesOf(placeTag(r, from, value, secret.Key))
	return Bucket{Known: n > 0 || r.PerSource == 0, Tokens: float64(r.Tolerance) - float64(n)}, nil
}

// Taken is how many places a client has of a limit of what there is at once.
type Taken struct {
	Request bool         // the limit is of a request rule; else of a connection rule
	Rule    int          // index into Tables.Requests.Rules, or Tables.Rules
	Limit   int          // of it
	Client  netip.Prefix // those that share the places; invalid: everybody
	Places  uint32
}

// Places lists which of some clients have places. Those who have some of requests are found without being named.
func (in *Instance) Places(clients []netip.Addr) ([]Taken, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	o := in.objects
	if o == nil || in.applied.Tables == nil || !o.hasGate() {
		return nil, nil
	}
	var secret narthexSecret
	if err := o.SourceSecret.Lookup(zero, &secret); err != nil {
		return nil, fmt.Errorf("reading the secret: %w", err)
	}
	if err := in.readPool(); err != nil {
		return nil, err
	}
	err := eachEntry(o.Flows, func(key *narthexFlowKey, f *narthexFlow) {
		if f.Places == 0 {
			return
		}
		clients = append(clients, address(key.Peer, key.V6))
		if f.Named&uint8(narthexFlowNamedNAMED_CLIENT|narthexFlowNamedNAMED_FORWARDED) != 0 {
			clients = append(clients, address(f.Client.Word, f.Client.V6))
		}
	})
	if err != nil {
		return nil, err
	}
	err = eachEntry(o.Openings, func(key *narthexFlowKey, _ *narthexOpening) { clients = append(clients, address(key.Peer, key.V6)) })
	var all []Taken
	for i := range in.applied.Tables.Rules {
		r := &in.applied.Tables.Rules[i]
		all = append(all, in.taken(Taken{Rule: i}, connectionKey(r), r.Limits, clients, secret.Key)...)
	}
	requests := in.applied.Tables.RequestRules()
	for i := range requests {
		r := &requests[i]
		all = append(all, in.taken(Taken{Rule: i, Request: true}, requestKey(r), r.Limits, clients, secret.Key)...)
	}
	return all, err
}

// taken lists who has places of the limits of a rule. The caller holds in.mu, and has read the pool.
func (in *Instance) taken(of Taken, rule ruleKey, limits []policy.LimitTable, clients []netip.Addr, key [2]uint64) (list []Taken) {
	for i := range limits {
		l := &limits[i]
		if l.AtOnce == 0 || l.Per.Key != (policy.PerKey{}) {
			continue // values are kept under hashes
		}
		cell := ruleCell(boundLimit(l), -1, in.slots, in.slots.byRule[rule.limit(i)])
		seen := map[netip.Prefix]bool{}
		for _, c := range clients {
			of.Limit, of.Client = i, sharers(l.Per, c)
			if seen[of.Client] {
				continue
			}
			seen[of.Client] = true
			if of.Places = in.placesOf(placeTag(cell, c, "", key)); of.Places > 0 {
				list = append(list, of)
			}
		}
	}
	return list
}

// sharers are who has one number of places with a client; invalid: everybody.
func sharers(per policy.Per, c netip.Addr) netip.Prefix {
	bits := per.V6
	if c.Is4() {
		bits = per.V4
	}
	if bits < 0 {
		return netip.Prefix{}
	}
	p, _ := c.Prefix(bits)
	return p
}

// placesOf is how many places are taken under a tag.
func (in *Instance) placesOf(tag uint64) uint32 {
	for _, way := range in.pool.Place[tag>>32%uint64(len(in.pool.Place))].Way {
		if n := way & placeUse; n > 0 && (way^tag)&^placeUse == 0 {
			return uint32(n)
		}
	}
	return 0
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
