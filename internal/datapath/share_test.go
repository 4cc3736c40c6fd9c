// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"math/rand/v2"
	"testing"

	"narthex/internal/policy"
)

// TestShares has services in a random order take slots as the programs do, each as many as it can: each gets
// its share whatever the others took before, and all that its queue holds if there are slots for all queues.
func TestShares(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		tables, s := randomTables(r)
		for i := range tables.Services {
			room := &tables.Services[i].Room
			room.Followed, room.Adaptive = r.IntN(5) > 0, r.IntN(3) == 0
			room.Queue.Size = r.IntN(1 << (1 + r.IntN(13)))
		}
		if r.IntN(3) == 0 {
			s.capacity = SlotsFor(Waiting(tables)) + r.IntN(3)
		}
		configs := roomConfigs(tables, s)
		enough := s.capacity >= SlotsFor(Waiting(tables))
		used := 0
		for _, i := range r.Perm(len(tables.Services)) {
			c, wants, has := &configs[s.byName[tables.Services[i].Name]], mostWaiting(tables, i), 0
			for has < wants && (has < int(c.Share) || used < int(c.Common)) {
				has, used = has+1, used+1
			}
			if enough && has != wants {
				t.Errorf("%d slots for %d that wait: %d of the %d of a service find one", s.capacity, Waiting(tables), has, wants)
			}
			if has < int(c.Share) || used > s.capacity-s.capacity/sparePart {
				t.Errorf("%d slots: a service has %d, its share is %d; %d are used", s.capacity, has, c.Share, used)
			}
			if !enough && wants > 0 && int(c.Share) < min(wants, s.capacity/sharedPart/len(tables.Services)) {
				t.Errorf("%d slots: the share of a service is %d, of %d that wait", s.capacity, c.Share, wants)
			}
		}
	}
}

// What the default holds is the default of a queue.
func TestDefaultSlots(t *testing.T) {
	one := &policy.Tables{Services: []policy.ServiceTable{{Room: policy.RoomTable{Followed: true, Limit: 1, Queue: policy.Queue{Size: 4096}}}}}
	if need := SlotsFor(Waiting(one)); need > DefaultSlots {
		t.Errorf("a service with the default queue needs %d slots, there are %d", need, DefaultSlots)
	}
}
