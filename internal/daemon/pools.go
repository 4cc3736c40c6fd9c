// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"narthex/internal/daemon/api"
	"narthex/internal/datapath"
	"narthex/internal/policy"
)

// pools says how the pools are. The rooms are those of services, then of pools.
func (e *engine) pools(rooms []datapath.Room) []api.ServicePool {
	t, p := e.current.tables, e.current.policy
	list := make([]api.ServicePool, len(t.Pools))
	for i := range t.Pools {
		own := nth(rooms, len(t.Services)+i)
		q := api.ServicePool{
			Name: t.Pools[i].Name, Between: string(p.Pools[i].Between), InService: own.InService, Waiting: own.Waiting,
			Adaptation: e.agent.adaptation(t.Pools[i].Name, t.Classes), Members: []api.PoolMember{},
		}
		if in := t.Pools[i].Pool; in > 0 {
			q.Pool = t.Pools[in-1].Name
		}
		q.Limit = limitText(p.Pools[i].Concurrency, q.Adaptation)
		for _, m := range t.Pools[i].Members {
			q.Members = append(q.Members, poolMember(t, m, rooms))
		}
		list[i] = q
	}
	return list
}

func poolMember(t *policy.Tables, m policy.Member, rooms []datapath.Room) api.PoolMember {
	at := m.Index
	if m.Pool {
		at += len(t.Services)
	}
	of := nth(rooms, at)
	member := api.PoolMember{InService: of.InService, Waiting: of.Waiting, Used: of.Used.Seconds()}
	if m.Pool {
		member.Name, member.Share = t.Pools[m.Index].Name, t.Pools[m.Index].Share
	} else {
		member.Name, member.Share = t.Services[m.Index].Name, t.Services[m.Index].Room.Share
	}
	return member
}
