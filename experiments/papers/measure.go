// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"narthex/experiments/internal/bench"
)

// Shares of time that make a run invalid.
const (
	saturated = 0.97 // more than this of the clients' core: the generator is the bottleneck
	foreign   = 0.08 // more than this of the server's, taken by others than its workers and its packets
)

// once starts clients, measures them as long as this run asks for, and ends them.
func (st *stage) once(ctx context.Context, clients ...bench.Starter) (*bench.Sample, error) {
	return st.Once(ctx, st.settle, st.length, clients...)
}

// check is what a run has to be free of, besides clients that ran out of ports or connections.
type check struct {
	overflows bool // of the listener, which nothing protects in some variants: that is what they show
	generator bool // the clients' core has to have time left
	machine   bool // nobody else works on the server's core; not where short-lived processes do, such as CGI programs
}

// invalid says why a sample gives no figure, or nothing.
func (c check) invalid(s *bench.Sample) string {
	why := s.RanOut()
	if c.overflows && s.Overflows > 0 {
		why = append(why, fmt.Sprintf("the listener's queues overflowed %d times", s.Overflows))
	}
	if c.generator && s.ClientBusy > saturated {
		why = append(why, fmt.Sprintf("the clients' core was busy for %.0f %% of the time, the server's for %.0f %%", 100*s.ClientBusy, 100*s.ServerBusy))
	}
	if s.Received == 0 && s.Answered() > 0 {
		why = append(why, "what the server received was not done on its core")
	}
	if c.machine && s.Others > foreign {
		why = append(why, fmt.Sprintf("others took %.0f %% of the server's core", 100*s.Others))
	}
	return strings.Join(why, ", ")
}

// joined are the reasons that there are.
func joined(reasons ...string) string {
	return strings.Join(slices.DeleteFunc(reasons, func(why string) bool { return why == "" }), ", ")
}
