// SPDX-License-Identifier: Apache-2.0

// Command rules measures what request rules promise, with the real binary in network namespaces
// of its own, and says of each figure whether it holds:
//
//	limit     what a rate limit of a URL lets through of many times as much, and what the rest costs the server
//	overhead  what a rule costs that matches every request
//	builds    only if asked for: how long the programs of two builds run per request, one after the other
//	saturated only if asked for: what it costs where the server is as busy as can be, by wrk
//
// It needs root, nginx, wrk for saturated, and two cores: the server has the first, its clients the last. Narthex is attached by tcx, as in
// experiments/room. The exit status is 1 if a figure is missed or could not be measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
)

var (
	runs    = flag.Int("runs", 3, "how often the limit is measured")
	seconds = flag.Float64("seconds", 10, "how long, each time")
	pairs   = flag.Int("pairs", 30, "how often the server is measured with rules and without")
	limit   = flag.String("concurrency", "4096", "overhead, builds: the service's limit: a number that is never reached, auto or unlimited")
	foreign = flag.Float64("others", 0.2, "share of the server's core from which on, taken by others on the machine, a pair does not count")
)

// suite is what all parts share.
type suite struct{ *bench.Bench }

func main() {
	bench.Experiment{Name: "rules", Limit: 20 * time.Minute, Parts: []bench.Part{
		bench.PartOf("limit", suite.limit),
		bench.PartOf("overhead", suite.overhead),
	}, Asked: []bench.Part{bench.PartOf("builds", suite.builds), bench.PartOf("saturated", suite.saturated)}}.Main()
}

// stage is a lab with a server on one core and its clients on the other.
type stage struct {
	suite
	rig *lab.Lab
	bench.Meters
	begin func() error // what is measured, if not with the offer
}

func (b suite) stage(purpose string) (*stage, error) {
	rig, err := b.Lab("rules-"+purpose, 1)
	if err != nil {
		return nil, err
	}
	st := &stage{suite: b, rig: rig}
	if st.Core, err = bench.NewCore(st.ServerCPUs[0]); err != nil {
		return nil, errors.Join(err, rig.Close())
	}
	return st, nil
}

func (st *stage) close() error { return errors.Join(st.Meters.Close(), st.rig.Close()) }

// served is for how long the server's processes have run.
func (st *stage) served() (sum time.Duration, err error) {
	for _, pid := range st.Workers {
		t, err := lab.ProcessCPU(pid)
		if err != nil {
			return 0, err
		}
		sum += t
	}
	return sum, nil
}

// narthex starts Narthex with request rules before the server.
func (st *stage) narthex(ctx context.Context, rules string) (*bench.Narthex, error) {
	text := fmt.Sprintf(`version: 1
services:
  - {name: web, listen: ["%s"], xdp: off, concurrency: %s}
classes:
  - {name: gold, priority: 1}
  - {name: bronze, priority: 2}
requests:
%s`, bench.Web(st.rig), *limit, rules)
	return st.Enforce(ctx, st.rig.Server, text)
}
