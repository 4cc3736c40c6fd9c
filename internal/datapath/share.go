// SPDX-License-Identifier: Apache-2.0

package datapath

import "narthex/internal/policy"

const (
	// sparePart is which part of the slots is for requests that displace others, which have theirs a
	// moment longer.
	sparePart = 32
	// sharedPart is which part is divided among the services if their queues do not all fit.
	sharedPart = 4
	// leastQueue is how many heads may come in pieces where nobody waits.
	leastQueue = 16
)

// SlotsFor is how many slots are enough for so many requests that wait at once.
func SlotsFor(waiting int) int { return waiting + (waiting+sparePart-2)/(sparePart-1) }

// Waiting is how many requests wait at most in all services of a policy together.
func Waiting(t *policy.Tables) (n int) {
	for i := range t.Services {
		n += mostWaiting(t, i)
	}
	return n
}

// mostWaiting is how many requests of a service wait at most; 0 if none ever does.
func mostWaiting(t *policy.Tables, service int) int {
	s := &t.Services[service]
	if !HasGate(s) || s.Shadow || !(isStrict(t, service) || s.Room.Adaptive) {
		return 0
	}
	return max(s.Room.Queue.Size, leastQueue)
}

// setShares says of how many slots each service can be sure, and how many are in use in all when it
// gets no more than those, and the same of flows. If all queues fit, a share is a queue's size. Else, and
// of flows, a quarter is divided evenly, so that no service can take all that there is.
func setShares(configs []narthexRoomConfig, t *policy.Tables, s *slots) {
	most := s.capacity - s.capacity/sparePart
	fits := Waiting(t) <= most
	all, allFlows := 0, 0
	for i := range t.Services {
		share := mostWaiting(t, i)
		if !fits {
			share = min(share, s.capacity/sharedPart/len(t.Services))
		}
		c := &configs[s.byName[t.Services[i].Name]]
		c.Share = uint32(share)
		all += share
		if HasGate(&t.Services[i]) {
			c.FlowShare = uint32(s.flows / sharedPart / len(t.Services))
			allFlows += int(c.FlowShare)
		}
	}
	for i := range configs {
		c := &configs[i]
		c.Common = uint32(most - (all - int(c.Share)))
		c.FlowCommon = uint32(s.flows - s.flows/sparePart - (allFlows - int(c.FlowShare)))
	}
}
