// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"math"
	"slices"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/policy"
)

// pools says how the pools are. The rooms are those of services, then of pools; the services are as their status is.
func (e *engine) pools(rooms []datapath.Room, services []api.ServiceStatus) []api.ServicePool {
	t, p := e.current.tables, e.current.policy
	list := make([]api.ServicePool, len(t.Pools))
	for i := range t.Pools {
		own := nth(rooms, len(t.Services)+i)
		q := api.ServicePool{
			Name: t.Pools[i].Name, Between: string(p.Pools[i].Between), InService: own.InService, Waiting: own.Waiting,
			Adaptation: e.agent.adaptation(t.Pools[i].Name, t.Classes), Members: []api.PoolMember{}, Classes: []api.PoolClass{},
			CPU: cpuOf(t.ServicesOf(i), services),
		}
		if in := t.Pools[i].Pool; in > 0 {
			q.Pool, q.Share = t.Pools[in-1].Name, t.Pools[i].Share
		}
		q.Limit = limitText(p.Pools[i].Concurrency, q.Adaptation)
		for _, m := range t.Pools[i].Members {
			q.Members = append(q.Members, poolMember(p, m, rooms))
		}
		for k := range t.Classes {
			c := nth(own.Classes, k)
			q.Classes = append(q.Classes, api.PoolClass{
				Name: t.Classes[k].Name, InService: c.InService, Waiting: c.Waiting, Served: c.Served, Service: c.Service.Sum.Seconds(),
				BytesIn: c.BytesIn, BytesOut: c.BytesOut,
			})
		}
		list[i] = q
	}
	for i := range t.Pools {
		if t.Pools[i].Pool == 0 {
			divide(t, list, i, places(t.Pools[i].Limit, list[i].Adaptation))
		}
	}
	return list
}

// places is how many there are, by the policy or as they set themselves.
func places(limit int, a *api.AdaptationStatus) float64 {
	if a != nil {
		limit = a.Limit
	}
	if limit == 0 {
		return math.Inf(1)
	}
	return float64(limit)
}

func poolMember(p *policy.Policy, m policy.Member, rooms []datapath.Room) api.PoolMember {
	at := m.Index
	if m.Pool {
		at += len(p.Services)
	}
	room := nth(rooms, at)
	name, of, limit := memberOf(p, m)
	member := api.PoolMember{
		Name: name, Share: max(of.Share, 1), InService: room.InService, Waiting: room.Waiting, Used: room.Used.Seconds(),
		Wanted: atMost(room.InService+room.Waiting, limit),
	}
	for i := range room.Classes {
		member.Served += room.Classes[i].Served
		member.BytesIn += room.Classes[i].BytesIn
		member.BytesOut += room.Classes[i].BytesOut
	}
	return member
}

// memberOf says what the policy has of a member: its name, its share, and its limit.
func memberOf(p *policy.Policy, m policy.Member) (name string, of policy.Membership, limit int) {
	if m.Pool {
		q := &p.Pools[m.Index]
		return q.Name, q.Membership, q.Concurrency.Limit
	}
	s := &p.Services[m.Index]
	return s.Name, s.Membership, s.Concurrency.Limit
}

// divide says how many of the places of a pool are due to each of its members, and of those to theirs.
func divide(t *policy.Tables, list []api.ServicePool, pool int, places float64) {
	if !t.Pools[pool].Shares {
		return
	}
	members := list[pool].Members
	for i, due := range dues(members, places) {
		members[i].Due = &due
		if m := t.Pools[pool].Members[i]; m.Pool {
			divide(t, list, m.Index, due)
		}
	}
}

// atMost bounds a number by a limit; 0: none.
func atMost(n, limit int) int {
	if limit > 0 {
		return min(n, limit)
	}
	return n
}

// dues divides places by shares: nobody gets more than it wants, and what one does not want the others have.
func dues(members []api.PoolMember, places float64) []float64 {
	due := make([]float64, len(members))
	order, shares := make([]int, len(members)), 0
	for i := range members {
		order[i] = i
		shares += members[i].Share
	}
	perShare := func(i int) float64 { return float64(members[i].Wanted) / float64(members[i].Share) }
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(perShare(a), perShare(b)) })
	left := places
	for _, i := range order {
		due[i] = min(float64(members[i].Wanted), left*float64(members[i].Share)/float64(shares))
		left -= due[i]
		shares -= members[i].Share
	}
	return due
}

// poolsOf lists the pools that a service is in, the innermost first.
func (x Explainer) poolsOf(service int) (list []api.PoolDecision) {
	of := x.Policy.Services[service].Membership
	for at := of.Pool; at > 0; at = of.Pool {
		q, t := &x.Policy.Pools[at-1], &x.Tables.Pools[at-1]
		d := api.PoolDecision{Name: q.Name, Between: string(q.Between), Limit: t.Limit, Auto: t.Adaptive}
		if t.Shares {
			d.Share, d.Shares = max(of.Share, 1), x.shares(at-1)
		}
		if x.Adaptation != nil && t.Adaptive {
			if a := x.Adaptation(q.Name); a != nil {
				d.Limit = a.Limit
			}
		}
		list, of = append(list, d), q.Membership
	}
	return list
}

// shares adds up those of the members of a pool.
func (x Explainer) shares(pool int) (sum int) {
	for _, m := range x.Policy.Members(pool) {
		_, of, _ := memberOf(x.Policy, m)
		sum += max(of.Share, 1)
	}
	return sum
}

// askPools says whether a request of a class would wait for a place in a pool that the service is in.
func (x Explainer) askPools(d *api.RoomDecision, service, class int, rooms []datapath.Room) (waits bool) {
	at := x.Tables.Services[service].Room.Pool
	for i := range d.Pools {
		room, q := nth(rooms, len(x.Tables.Services)+at-1), &d.Pools[i]
		q.InService, q.Waiting = room.InService, room.Waiting
		q.Full = full(room.InService, q.Limit)
		waits = waits || q.Full || full(nth(room.Classes, class).InService, d.Max)
		if !x.Tables.Pools[at-1].Shares {
			waits = waits || x.behind(room, class)
		}
		at = x.Tables.Pools[at-1].Pool
	}
	return waits
}
