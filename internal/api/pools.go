// SPDX-License-Identifier: Apache-2.0

package api

// ServicePool is what services share the places of.
type ServicePool struct {
	Name    string `json:"name"`
	Between string `json:"between"` // classes: the members are one queue; shares: each has its share
	Pool    string `json:"pool,omitempty"`
	Share   int    `json:"share,omitempty"` // of that pool
	Limit   string `json:"limit"`           // as of a service
	// Adaptation is absent where the limit does not set itself.
	Adaptation *AdaptationStatus `json:"adaptation,omitempty"`
	InService  int               `json:"in_service"`
	Waiting    int               `json:"waiting"`
	Members    []PoolMember      `json:"members"`
	Classes    []PoolClass       `json:"classes"` // of all members together
	// CPU is the processor time in seconds of all cgroups that serve its members; absent where none is known.
	CPU *float64 `json:"cpu_seconds,omitempty"`
}

// PoolMember is a service or a pool in a pool.
type PoolMember struct {
	Name      string  `json:"name"`
	Share     int     `json:"share"`
	InService int     `json:"in_service"`
	Waiting   int     `json:"waiting"`
	Served    uint64  `json:"served"`
	Used      float64 `json:"used_seconds"` // of places, since it is in a pool
	BytesIn   uint64  `json:"bytes_in"`     // as of RoomClassStatus, of all classes
	BytesOut  uint64  `json:"bytes_out"`
	// Wanted is how many places it has use for now: for those in service and waiting, at most its limit.
	Wanted int `json:"wanted"`
	// Due is how many of the places are its by its share now, where the others have use for theirs. Absent
	// where members have no shares.
	Due *float64 `json:"due,omitempty"`
}

// PoolClass is a class in a pool.
type PoolClass struct {
	Name      string  `json:"name"`
	InService int     `json:"in_service"`
	Waiting   int     `json:"waiting"`
	Served    uint64  `json:"served"`
	Service   float64 `json:"service_seconds"` // that those served were in service, together
	BytesIn   uint64  `json:"bytes_in"`        // as of RoomClassStatus
	BytesOut  uint64  `json:"bytes_out"`
}

// PoolDecision is what a pool has to say on whether a request of one of its members would wait.
type PoolDecision struct {
	Name    string `json:"name"`
	Between string `json:"between"`          // as of ServicePool
	Share   int    `json:"share,omitempty"`  // of the member, with shares
	Shares  int    `json:"shares,omitempty"` // of all members together
	Limit   int    `json:"limit,omitempty"`  // 0: no limit, or without a daemon one that sets itself
	Auto    bool   `json:"auto,omitempty"`
	// The rest is known with a daemon only.
	InService int  `json:"in_service"`
	Waiting   int  `json:"waiting"`
	Full      bool `json:"full"` // all of its places are taken
}

// PoolOf returns the pool that has a member of that name, nil if there is none.
func (s *Status) PoolOf(member string) *ServicePool {
	for i := range s.Pools {
		for j := range s.Pools[i].Members {
			if s.Pools[i].Members[j].Name == member {
				return &s.Pools[i]
			}
		}
	}
	return nil
}
