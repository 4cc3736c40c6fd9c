// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"narthex/experiments/internal/bench"
)

// warmUp is what clients get before they are measured, unless a part gives them more.
const warmUp = time.Second

// Shares of time that make a run invalid.
const (
	saturated = 0.95 // less than this of the server's core, which then is not the bottleneck if
	exhausted = 0.97 // more than this of its clients' is taken
)

// invalid says why a sample gives no figure, or nothing. Bottleneck is whether the server's
// core is meant to be what everything waits for.
func invalid(s *bench.Sample, bottleneck bool) string {
	why := broken(s)
	if bottleneck && s.ServerBusy < saturated && s.ClientBusy > exhausted {
		why = append(why, fmt.Sprintf("the server was busy for %.0f %% of the time, its clients for %.0f %%", 100*s.ServerBusy, 100*s.ClientBusy))
	}
	if s.Others > *foreign {
		why = append(why, fmt.Sprintf("others took %.0f %% of the server's core", 100*s.Others))
	}
	return strings.Join(why, ", ")
}

// broken says what went wrong with the clients' connections.
func broken(s *bench.Sample) (why []string) {
	if s.Overflows > 0 {
		why = append(why, fmt.Sprintf("the accept queue overflowed %d times", s.Overflows))
	}
	return append(why, s.RanOut()...)
}
