// SPDX-License-Identifier: Apache-2.0

package adapt

import (
	"math"
	"math/bits"
	"time"
)

// Sample is what happened in one service between two readings of its counters.
type Sample struct {
	At        time.Duration `json:"at"`       // when it was read, monotonic, since any moment before the first sample
	Span      time.Duration `json:"span"`     // length of the interval that ends at At
	Limit     int           `json:"limit"`    // that was in force during it; 0: unlimited
	Arrived   uint64        `json:"arrived"`  // requests that came
	Entered   uint64        `json:"entered"`  // requests that entered service, at once or after they had waited
	Held      uint64        `json:"held"`     // requests that had to wait
	Served    uint64        `json:"served"`   // requests that left service
	Rejected  uint64        `json:"rejected"` // requests that were refused for want of room: queue_full, displaced, max_wait, target
	Lost      uint64        `json:"lost"`     // requests that left service without their end being seen; part of Served
	Sent      uint64        `json:"sent"`     // bytes of answers
	InService int           `json:"in_service"`
	// MeanInService is the mean over time of requests in service, where it is known. If it is
	// 0 or less, the mean of InService here and in the sample before takes its place.
	MeanInService float64       `json:"mean_in_service"`
	Waiting       int           `json:"waiting"` // at the end of the interval
	Service       Histogram     `json:"service"` // time in service of those that left it
	Classes       []ClassSample `json:"classes,omitempty"`
	Backlog       int           `json:"backlog"` // connections in the accept queues of its listeners, at the end
	// Unread is of how many connections that the server has accepted it has not read what came;
	// negative: nobody has looked. A client can make it look like more, by a body that nobody reads.
	Unread int `json:"unread"`
	// QueuedFor is for how many seconds those in accept queues have waited, their mean, when Unread was
	// looked for.
	QueuedFor   float64  `json:"queued_for"`
	Busy        float64  `json:"busy"`         // how many of the cores it may run on were busy, on average, whoever used them
	Wanted      float64  `json:"wanted"`       // how many of them the server's own threads used or waited for; 0: not known
	Runnable    float64  `json:"runnable"`     // how many of the server's threads were on a processor or waited for one; 0: not known
	Rested      float64  `json:"rested"`       // how many of them the server's own threads neither used nor waited for; 0: none, or not known
	Cores       float64  `json:"cores"`        // how many cores it may run on; 0: Busy is not known
	Pressure    Pressure `json:"pressure"`     // that tasks felt
	MajorFaults float64  `json:"major_faults"` // per second
}

// use is how many cores were busy for the server, at most.
func (s *Sample) use() float64 {
	if s.Wanted > 0 {
		return min(s.Wanted, s.Busy) // others on the same processors may be what keeps them busy
	}
	return s.Busy
}

// stirs is how many cores were busy for the server, at most, where others may do all its work or keep them busy with theirs.
func (s *Sample) stirs() float64 {
	if s.Rested > 0 {
		return min(s.Cores-s.Rested, s.use())
	}
	return s.use()
}

// ClassSample is what a Sample has of one class. Classes are in the order of their rank, the
// most important first.
type ClassSample struct {
	Arrived  uint64 `json:"arrived"`
	Held     uint64 `json:"held"`
	Rejected uint64 `json:"rejected"`
	Waiting  int    `json:"waiting"`
}

// Pressure is the share of an interval, 0 to 1, in which at least one task waited for a
// resource ("some" of the kernel's pressure stall information); negative: not known.
type Pressure struct {
	CPU    float64 `json:"cpu"`
	Memory float64 `json:"memory"`
	IO     float64 `json:"io"`
}

// Histogram counts durations. Bucket i holds those of at least 2^i µs and less than 2^(i+1)
// µs; bucket 0 also what is shorter, the last one also what is longer.
type Histogram struct {
	Buckets [32]uint64    `json:"buckets"`
	Sum     time.Duration `json:"sum"`
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	i := bits.Len64(uint64(max(d.Microseconds(), 1))) - 1
	h.Buckets[min(i, len(h.Buckets)-1)]++
	h.Sum += d
}

// Count returns how many durations there are.
func (h *Histogram) Count() (n uint64) {
	for _, b := range h.Buckets {
		n += b
	}
	return n
}

// within returns the sum of all durations, in seconds, of which each counts for so many at the most.
func (h *Histogram) within(most float64) (sum float64) {
	for i, b := range h.Buckets {
		sum += float64(b) * min(math.Ldexp(1.5, i)/1e6, most)
	}
	return sum
}
