// SPDX-License-Identifier: Apache-2.0

package api

// ServicePool is what services share the places of.
type ServicePool struct {
	Name    string `json:"name"`
	Between string `json:"between"` // classes: the members are one queue; shares: each has its share
	Pool    string `json:"pool,omitempty"`
	Limit   string `json:"limit"` // as of a service
	// Adaptation is absent where the limit does not set itself.
	Adaptation *AdaptationStatus `json:"adaptation,omitempty"`
	InService  int               `json:"in_service"`
	Waiting    int               `json:"waiting"`
	Members    []PoolMember      `json:"members"`
}

// PoolMember is a service or a pool in a pool.
type PoolMember struct {
	Name      string  `json:"name"`
	Share     int     `json:"share"`
	InService int     `json:"in_service"`
	Waiting   int     `json:"waiting"`
	Used      float64 `json:"used_seconds"` // of places, since it is in a pool
}
