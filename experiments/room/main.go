// SPDX-License-Identifier: Apache-2.0

// Command room measures what the waiting room promises, with the real binary in network
// namespaces of its own, and says of each figure whether it holds:
//
//	priority   what gold clients get of a server that bronze clients overload
//	haproxy    the same beside HAProxy as a proxy with priorities
//	keepalive  the same on connections that are used again
//	reserve    the share of the admissions that bronze clients are left, and their order
//	crowd      how long one gold client waits beside 10, 100 and 1,000 bronze ones
//	overhead   what it costs when nobody has to wait
//	holdall    what it costs when everybody has to
//	flat       what a hold and a release cost while 10, 1,000 and 20,000 others wait
//	reject     what a rejection costs, beside nginx's limit_req
//	memory     what the slots take
//
// It needs root, nginx and HAProxy, and two cores: the server has the first, its clients the
// last. What the server receives is handled on its core by receive packet steering; Narthex is
// attached by tcx, behind that, for XDP on a veth is not what it is on a network card (see
// experiments/syn). Variants take turns within a run. A run in which the clients ran out of
// ports, the accept queue overflowed, others on the machine took the server's core or it was not
// the bottleneck that it is meant to be gives no figure, and is done again up to twice. The exit status is 1 if a figure is missed or could not be measured.
package main

import (
	"flag"
	"time"

	"narthex/experiments/internal/bench"
)

var (
	runs    = flag.Int("runs", 3, "how often each variant is measured")
	seconds = flag.Float64("seconds", 3, "how long, each time")
	foreign = flag.Float64("others", 0.05, "share of the server's core from which on, taken by others on the machine, a run is invalid")
)

// suite is what all parts share.
type suite struct{ *bench.Bench }

func main() {
	bench.Experiment{Name: "room", Limit: 20 * time.Minute, Parts: []bench.Part{
		bench.PartOf("priority", suite.priority),
		bench.PartOf("haproxy", suite.haproxy),
		bench.PartOf("keepalive", suite.keepAlive),
		bench.PartOf("reserve", suite.reserve),
		bench.PartOf("crowd", suite.crowd),
		bench.PartOf("overhead", suite.overhead),
		bench.PartOf("holdall", suite.holdAll),
		bench.PartOf("flat", suite.flat),
		bench.PartOf("reject", suite.reject),
		bench.PartOf("memory", suite.memory),
	}}.Main()
}

// length is that of a measurement.
func length() time.Duration { return time.Duration(*seconds * float64(time.Second)) }
