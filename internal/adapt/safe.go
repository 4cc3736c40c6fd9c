// SPDX-License-Identifier: Apache-2.0

package adapt

import "slices"

const (
	safeSpan   = 60 // seconds over which the safe limit looks back
	safeFactor = 2  // times the median of the limits within them
)

// safeLimit keeps the limits of the last minute, one a second. Twice their median is a limit
// under which a server that has not changed much stays near its best throughput, and which a
// short disturbance before the end of the daemon does not move. Seconds without a limit count as
// unlimited, so that a service that was not limited most of the time will not be.
type safeLimit struct {
	limits [safeSpan]int // 0: unlimited
	n, at  int
	left   float64 // seconds until the next
	safe   int
}

func (l *safeLimit) step(s *Sample, limit int) int {
	if l.left -= s.Span.Seconds(); l.left > 0 {
		return l.safe
	}
	l.left = 1
	if limit == 0 {
		limit = highestLimit
	}
	l.limits[l.at] = limit
	l.at = (l.at + 1) % safeSpan
	l.n = min(l.n+1, safeSpan)
	sorted := slices.Clone(l.limits[:l.n])
	slices.Sort(sorted)
	if l.safe = safeFactor * sorted[l.n/2]; l.safe >= highestLimit {
		l.safe = 0
	}
	return l.safe
}
