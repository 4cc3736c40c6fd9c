// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strconv"

	"narthex/internal/api"
)

var (
	poolLimit     = gauge("pool_concurrency_limit", "Requests that the members of a pool may have in service at once. Absent: no limit.", "pool")
	poolInService = gauge("pool_requests_in_service", "Requests of the members of a pool that the server works on.", "pool", "class")
	poolWaiting   = gauge("pool_requests_waiting", "Requests of the members of a pool that are held.", "pool", "class")
	poolServed    = counter("pool_requests_served_total", "Requests of the members of a pool that left service.", "pool", "class")
	poolService   = counter("pool_request_service_seconds_total", "How long those were in service, together.", "pool", "class")
	poolBytesIn   = counter("pool_request_bytes_total", "Bytes of requests to the members of a pool, as far as they were acknowledged.", "pool", "class")
	poolBytesOut  = counter("pool_answer_bytes_total", "Bytes that the members of a pool have sent, without those that were sent again.", "pool", "class")
	poolCPU       = counter("pool_cgroup_cpu_seconds_total", "Processor time of all cgroups that serve the members of a pool. Absent: none is known.", "pool")
	memberShare   = gauge("pool_member_share", "The share of a service or pool of the pool that it is in, beside those of the others. Absent: members have none.", "pool", "member")
	memberWanted  = gauge("pool_member_places_wanted", "Places that a member has use for: for those in service and waiting, at most its limit.", "pool", "member")
	memberDue     = gauge("pool_member_places_due", "Places that are a member's by its share, as far as it has use for them. Absent: members have no shares.", "pool", "member")
	memberWaiting = gauge("pool_member_requests_waiting", "Requests of a member that are held.", "pool", "member")
	memberUsed    = counter("pool_member_place_seconds_total", "Time in service of all requests of a member, together: per second, the places that it got.", "pool", "member")
)

// pools shows what services share.
func (s sink) pools(status api.Status) {
	for _, p := range status.Pools {
		if a := p.Adaptation; a != nil && a.Limit > 0 {
			s.put(poolLimit, float64(a.Limit), p.Name)
		} else if n, err := strconv.Atoi(p.Limit); err == nil {
			s.put(poolLimit, float64(n), p.Name)
		}
		if p.CPU != nil {
			s.put(poolCPU, *p.CPU, p.Name)
		}
		for _, m := range p.Members {
			if m.Due != nil {
				s.put(memberShare, float64(m.Share), p.Name, m.Name)
				s.put(memberDue, *m.Due, p.Name, m.Name)
			}
			s.put(memberWanted, float64(m.Wanted), p.Name, m.Name)
			s.put(memberWaiting, float64(m.Waiting), p.Name, m.Name)
			s.put(memberUsed, m.Used, p.Name, m.Name)
		}
		for _, c := range p.Classes {
			if c.Served > 0 || c.InService > 0 || c.Waiting > 0 || len(status.Pools)*len(p.Classes) <= manyClasses {
				s.put(poolInService, float64(c.InService), p.Name, c.Name)
				s.put(poolWaiting, float64(c.Waiting), p.Name, c.Name)
				s.put(poolServed, float64(c.Served), p.Name, c.Name)
				s.put(poolService, c.Service, p.Name, c.Name)
				s.put(poolBytesIn, float64(c.BytesIn), p.Name, c.Name)
				s.put(poolBytesOut, float64(c.BytesOut), p.Name, c.Name)
			}
		}
	}
}
