// SPDX-License-Identifier: Apache-2.0

// Command soak has everything happen at once in front of the real binary, for as long as it is
// told, and looks whether all holds that must: ordinary clients of every kind, who check each
// byte that they are sent, with attackers among them, while an operator and the machine do what
// they do.
//
// In namespaces of its own there is a service of each kind: nginx, Apache with a process per
// connection, a Go server; one that speaks TLS, one over TCP that speaks first, one whose
// listener defers accept. What is done follows from the seed, when it is done does not.
//
// A stall is when for more than a second nothing goes on in a service although ordinary clients
// wait for it, or when requests wait there, could be released, and none is, while nothing is
// being done to the machine that would explain it. In the end nobody may be in service or
// waiting, all slots must be free, the next request must be answered, the counters must add up,
// and once the sockets are closed no flow may be left.
//
// It needs root, nginx and Apache. The exit status is 1 if anything did not hold.
package main

import (
	"context"
	"errors"
	"flag"
	"time"

	"narthex/experiments/internal/bench"
)

var (
	length  = flag.Duration("for", 2*time.Minute, "how long")
	seed    = flag.Uint64("seed", 1, "what all choices and bodies follow from")
	clients = flag.Int("clients", 60, "how many ordinary clients there are")
	capture = flag.String("capture", "", "write the beginnings of all packets at the server to this file, for tcpdump -r")
	without = flag.String("without", "", "leave these services, kinds of clients, attacks and operations out, to find out which one it is; separated by commas")
)

func main() {
	bench.Experiment{
		Name: "soak", Limit: 24 * time.Hour, Polite: true,
		Parts: []bench.Part{{Name: "soak", Measure: soak}},
	}.Main()
}

func soak(b *bench.Bench, ctx context.Context) (figures []bench.Figure, err error) {
	w, err := newWorld(ctx, b)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.rig.Close()) }()
	b.Progress("seed %d, for %v", *seed, *length)
	before, err := w.memory()
	if err != nil {
		return nil, err
	}
	if err := w.run(ctx, *length); err != nil {
		return w.figures(nil), err
	}
	b.Progress("  at the end: %s", w.summary())
	e, err := w.end(ctx)
	if err != nil {
		return w.figures(nil), err
	}
	e.before = before
	return w.figures(e), nil
}
