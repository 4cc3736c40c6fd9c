// SPDX-License-Identifier: Apache-2.0

// Command uploads measures requests with bodies, with the real binary in network namespaces of its own, and
// says of each figure whether it holds:
//
//	bodies   uploads of several sizes, plain and chunked, by 20 and 200 clients at once, of whom four at a time
//	         may be served: those that are completed, of what are completed without, through HAProxy, and by as few
//	         clients alone as may be served
//	beside   the small requests of gold clients beside such uploads
//	loss     uploads over a line that loses packets, while nobody waits
//
// It needs root and two cores: the server has the first, its clients the last. Variants take turns within a run.
// The server says of each body how long it was and its checksum: a wrong one ends the run.
package main

import (
	"flag"
	"time"

	"narthex/experiments/internal/bench"
)

var (
	runs    = flag.Int("runs", 3, "how often each variant is measured")
	seconds = flag.Float64("seconds", 3, "how long, each time")
	named   = flag.String("case", "", "measure only cases whose name has this in it")
)

// suite is what all parts share.
type suite struct{ *bench.Bench }

func main() {
	bench.Experiment{Name: "uploads", Limit: 30 * time.Minute, Parts: []bench.Part{
		bench.PartOf("bodies", suite.bodies),
		bench.PartOf("beside", suite.beside),
		bench.PartOf("loss", suite.loss),
	}}.Main()
}

// length is that of a measurement.
func length() time.Duration { return time.Duration(*seconds * float64(time.Second)) }
