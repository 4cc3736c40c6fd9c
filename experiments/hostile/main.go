// SPDX-License-Identifier: Apache-2.0

// Command hostile measures what attacks do to those whom the waiting room is for, with the real
// binary in network namespaces of its own, and says of each figure whether it holds:
//
//	cases   the throughput of ten gold clients beside each kind of attack, and without; how long one of them
//	        waited, how many requests were at the server at once; what is left after it, and how long the
//	        next request then takes
//	limit   how many requests are at the server at once, and how many pass a rule, beside attacks that try for more
//	tls     the same where everybody speaks TLS, beside idle connections
//	forged  what packets do that somebody else sends in a connection's name: a million of each kind, for
//	        connections whose request is held, in service, or that are idle, and for none
//	floods  whether twenty held requests are answered, in order, while connections are opened at
//	        100,000/s, without an end to their handshakes and with it
//
// It needs root and two cores: the server has the first, its clients and attackers the last.
// What the server receives is handled on its core by receive packet steering. Variants take turns
// within a run. A run in which others on the machine took the server's core, or it was not the
// bottleneck that it is meant to be, gives no figure, and is done again up to twice. The exit status is 1 if a figure is missed or could not be measured.
package main

import (
	"flag"
	"time"

	"narthex/experiments/internal/bench"
)

var (
	runs    = flag.Int("runs", 3, "how often each case is measured")
	seconds = flag.Float64("seconds", 2, "how long, each time")
	packets = flag.Uint64("packets", 1_000_000, "forged packets of each kind")
	foreign = flag.Float64("others", 0.05, "share of the server's core from which on, taken by others on the machine, a run is invalid")
	named   = flag.String("case", "", "measure only this case")
)

// suite is what all parts share.
type suite struct{ *bench.Bench }

func main() {
	bench.Experiment{Name: "hostile", Limit: 40 * time.Minute, Parts: []bench.Part{
		bench.PartOf("cases", suite.cases),
		bench.PartOf("limit", suite.limit),
		bench.PartOf("tls", suite.tls),
		bench.PartOf("forged", suite.forged),
		bench.PartOf("floods", suite.floods),
	}}.Main()
}

// length is that of a measurement.
func length() time.Duration { return time.Duration(*seconds * float64(time.Second)) }
