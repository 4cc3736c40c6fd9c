// SPDX-License-Identifier: Apache-2.0

// Command fair measures the order inside a class, with the real binary in network namespaces of its own, and
// says of each figure whether it holds:
//
//	beside   a source with 32 connections beside one with 3,200: what it gets of its max-min share
//	lone     a client with one connection beside one with 100: requests and latency, of those alone
//	costs    sources with quick requests beside sources with slow ones: shares of time in service
//	many     a source with 4 connections beside 250 others with 4 each, all in their own prefixes
//	known    visitors who come back beside 100,000 addresses that ask once: pages that are complete
//	target   twice and ten times what the server can do, with a target for waiting and without: who is served waits for how long
//	https    http and https of one nginx in a pool with eight places: requests, beside one of them alone, and how many are in service
//
// The first four have two variants beside each other: fair by prefix, and in order of arrival (fair: none). Requests take their time
// asleep, so that places are what is scarce. It needs root and two cores: the server has the first, its clients the last.
package main

import (
	"flag"
	"time"

	"narthex/experiments/internal/bench"
)

var (
	runs    = flag.Int("runs", 5, "how often each variant is measured")
	seconds = flag.Float64("seconds", 2, "how long, each time")
)

// suite is what all parts share.
type suite struct{ *bench.Bench }

func main() {
	bench.Experiment{Name: "fair", Limit: 20 * time.Minute, Parts: []bench.Part{
		bench.PartOf("beside", suite.beside),
		bench.PartOf("lone", suite.lone),
		bench.PartOf("costs", suite.costs),
		bench.PartOf("many", suite.many),
		bench.PartOf("known", suite.known),
		bench.PartOf("target", suite.target),
		bench.PartOf("https", suite.https),
	}}.Main()
}

// length is that of a measurement.
func length() time.Duration { return time.Duration(*seconds * float64(time.Second)) }
