// SPDX-License-Identifier: Apache-2.0

// Package live makes what is seen of an instance as it happens: two snapshots of its status
// become rates, and its events become a list of those who are turned away most. Nothing in
// it asks the kernel for anything.
package live

import (
	"time"

	"narthex/internal/api"
)

// View is an instance at a moment, and how it went in the time before.
type View struct {
	Time time.Time `json:"time"`
	// Interval is the time before Time, in seconds, of which rates are. It is 0 in the first
	// view after the daemon began to look, which has no rates.
	Interval float64 `json:"interval_seconds"`
	// Status is the snapshot of Time. Of more than 200 rules it has those that matched in the
	// last minute and those that matched most.
	Status   api.Status `json:"status"`
	Services []Service  `json:"services"` // in the order of Status.Services
	Pools    []Pool     `json:"pools"`    // in the order of Status.Pools
	Rules    []Rule     `json:"rules"`    // most matches per second first, at most 50
	Sources  []Source   `json:"sources"`  // most turned away first, at most 20
	// DroppedBy is SYNs that were dropped without a rule, per second by reason, as in
	// Status.Reasons; of those above 0.
	DroppedBy map[string]float64 `json:"dropped_by"`
}

// Service is how a service went. Rates are per second.
type Service struct {
	Name        string  `json:"name"`
	SYNs        float64 `json:"syns_per_second"`         // SYNs that a rule or reason decided on
	SYNsDropped float64 `json:"syns_dropped_per_second"` // of these, those that were dropped
	// SYNsWouldDrop are those that only shadow mode let in.
	SYNsWouldDrop float64 `json:"syns_would_drop_per_second"`
	// What follows is of requests, or of connections where the protocol is not http, as in
	// api.RoomClassStatus.
	Arrived    float64            `json:"arrived_per_second"`
	Served     float64            `json:"served_per_second"`
	Held       float64            `json:"held_per_second"`
	Rejected   float64            `json:"rejected_per_second"`
	BytesIn    float64            `json:"bytes_in_per_second"` // as in api.RoomClassStatus
	BytesOut   float64            `json:"bytes_out_per_second"`
	RejectedBy map[string]float64 `json:"rejected_by"` // by reason; of those above 0
	Classes    []Class            `json:"classes"`     // in the order of RoomStatus.Classes
}

// Pool is how what services share went.
type Pool struct {
	Name    string       `json:"name"`
	Members []PoolMember `json:"members"` // in the order of ServicePool.Members
}

// PoolMember is how a service or a pool in a pool went.
type PoolMember struct {
	Name   string  `json:"name"`
	Served float64 `json:"served_per_second"`
	Got    float64 `json:"places"` // that it had, on average
}

// Class is how a class of a service went. Rates are per second.
type Class struct {
	Name      string    `json:"name"`
	InService int       `json:"in_service"` // at Time
	Waiting   int       `json:"waiting"`    // at Time
	Arrived   float64   `json:"arrived_per_second"`
	Served    float64   `json:"served_per_second"`
	Held      float64   `json:"held_per_second"`
	Rejected  float64   `json:"rejected_per_second"`
	BytesIn   float64   `json:"bytes_in_per_second"` // as in api.RoomClassStatus
	BytesOut  float64   `json:"bytes_out_per_second"`
	Wait      Quantiles `json:"wait"`    // how long those that were released had waited
	Service   Quantiles `json:"service"` // how long requests were in service
}

// Quantiles are of durations of the interval, or of the last ten seconds where the interval
// had too few to tell.
type Quantiles struct {
	Count uint64  `json:"count"`
	P50   float64 `json:"p50_seconds"` // 0 if Count is 0
	P99   float64 `json:"p99_seconds"` // 0 if Count is 0
}

// Rule is what a rule did per second.
type Rule struct {
	Name    string  `json:"name"`
	Kind    string  `json:"kind"` // connection or request
	Matched float64 `json:"matched_per_second"`
	Dropped float64 `json:"dropped_per_second"` // of these, those that it dropped or rejected; in shadow mode, would have
	Demoted float64 `json:"demoted_per_second"` // of these, those that it put into the lowest class
}

// Source is a client, as events tell of it. Events are sampled: its rates are at least so
// high.
type Source struct {
	Client string  `json:"client"`                 // address
	Turned float64 `json:"turned_away_per_second"` // dropped and rejected
	Seen   float64 `json:"seen_per_second"`        // events of any kind
	Rule   string  `json:"rule"`                   // that turned it away most; empty if it was no rule
	Reason string  `json:"reason"`                 // for which it was turned away most
}
