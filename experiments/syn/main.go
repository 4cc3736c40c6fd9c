// SPDX-License-Identifier: Apache-2.0

// Command syn measures what SYN policing promises, with the real binary in network
// namespaces of its own, and says of each figure whether it holds:
//
//	accuracy   how many connections a rule lets in, of many more that are offered
//	fairness   what a client gets while another one is policed
//	lifecycle  how long 10,000 rules take to check, load and reload
//	loss       whether reloads lose connections
//	overhead   what it costs to be attached without limiting anybody
//	memory     what 10,000 rules and 250,000 sources take
//
// What a decision costs is measured by `make bench`. It needs root and nginx, and two
// cores: the server has the first, its clients the last. The exit status is 1 if a figure
// is missed or could not be measured.
package main

import (
	"flag"
	"net/netip"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/load"
)

// suite is what all parts share.
type suite struct{ *bench.Bench }

var quick = flag.Bool("quick", false, "fewer and shorter runs, for a first look")

func main() {
	bench.Experiment{Name: "syn", Limit: 6 * time.Minute, Parts: []bench.Part{
		bench.PartOf("accuracy", suite.accuracy),
		bench.PartOf("fairness", suite.fairness),
		bench.PartOf("lifecycle", suite.lifecycle),
		bench.PartOf("loss", suite.loss),
		bench.PartOf("overhead", suite.overhead),
		bench.PartOf("memory", suite.memory),
	}}.Main()
}

// pick returns the first value, or in a quick run the second.
func pick[T any](normal, quickly T) T {
	if *quick {
		return quickly
	}
	return normal
}

// client is one of the lab's clients.
func (b suite) client(rig *lab.Lab, n int, duration time.Duration) load.Client {
	return b.Client(rig, []netip.Addr{rig.ClientsV4[n]}, duration)
}
