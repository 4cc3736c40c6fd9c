// SPDX-License-Identifier: Apache-2.0

// Command adapt measures what limits that set themselves (concurrency: auto) are worth, with the
// real binary in network namespaces of its own, and says of each figure whether it holds:
//
//	go, cgi, nginx, sleep, thrash, python
//	         throughput and gold's response times with auto, with the best fixed limit, found by a
//	         sweep before, and with no limit, each before the server of that name: a Go program
//	         that works for 2 ms; Apache (prefork) with a CGI script; nginx with a file of 8 KB; a
//	         Go program that waits 50 ms for something else; Apache with a CGI script of which
//	         only a few fit into memory; Python's own web server. The last one played no part
//	         when the controller was tuned
//	pool, thread, kept, puma, stay
//	         8 gunicorn processes, one thread of Node, nginx with connections that are used again, Puma and
//	         Apache, whose workers stay with a connection, each with several numbers of clients from
//	         the first moment: auto from 2 s on, beside fixed limits and none. The controller was tuned on these
//	database, pauses, bimodal, two-cores, php, collector, open, loop, threads, script, stops, mixed, front, new
//	         the same for servers that played no part when it was tuned: threads that share 5
//	         connections to a database, much garbage, 1 of 100 that takes 100 times as long, one
//	         thread on two cores, nginx with PHP-FPM behind it, Go's collector, clients that ask at a rate,
//	         one thread of Node that shares 5 connections to a database, processes with threads, a CGI
//	         script, a thread that stops 50 ms each second, processes of which 1 request of 100 takes
//	         100 times as long, nginx with gunicorn behind it, and nginx with new connections
//	own      only if asked for: the same for a server that -command starts, with -path, -limits, -crowds, -target and -kept
//	calm     servers that are not overloaded: how many requests are held, and the throughput
//	step     ten times the load from one moment to the next
//	slower   a server that becomes ten times slower, and then fast again
//	rates    rates that set themselves (rate: auto) in place of numbers, in the scenes of two figures
//	         of the paper, while the server becomes half as fast, and then fast again
//	drift    what becomes of the limit in a long overload
//	daemon   the daemon's own CPU time
//
// The best fixed limit is the one with the shortest p99 of gold clients among those whose
// throughput is within 3 % of the highest. Gold clients are an open loop at a tenth of what
// the server can do; everybody else is a closed loop of more clients than any limit. A gold
// request that comes to no good end counts as one that took the client's whole patience.
//
// A limit that is far too low settles at once and never drifts. So what the server does then is
// compared with what it does with a fixed limit that suits it.
//
// It needs root, Apache, nginx, Perl, Python, gunicorn, Node and PHP-FPM, and two cores: the server has the first, its
// clients and the daemon the last. What the server receives is handled on its core by receive
// packet steering. No meter soaks up idle time, as in the other experiments: the controller
// reads how busy the core is. Variants take turns within a run. A run during which others on the
// machine took too much time gives no figure, and is done again up to twice. The exit status is
// 1 if a figure is missed or could not be measured.
package main

import (
	"context"
	"flag"
	"time"

	"narthex/experiments/internal/bench"
)

var (
	runs    = flag.Int("runs", 3, "how often each variant is measured")
	seconds = flag.Float64("seconds", 4, "how long, each time, at least")
	foreign = flag.Float64("others", 0.1, "cores from which on, taken by others on the machine, a run is invalid")
	quick   = flag.Bool("quick", false, "one short run of everything, whatever others do: shows that it works, not how well")
	drifts  = flag.Duration("drift", 30*time.Minute, "how long the part drift lasts; 40s with -quick")
	only    = flag.Int("clients", 0, "only so many clients beside a server, of those that are tried; 0: all")
	traces  = flag.String("trace", "", "write the daemon's status and the controller's samples over time into this folder, two files of JSON lines for each measurement")
)

// suite is what all parts share.
type suite struct{ *bench.Bench }

func main() {
	var parts []bench.Part
	for _, s := range servers {
		parts = append(parts, bench.PartOf(s.name, func(b suite, ctx context.Context) ([]bench.Figure, error) { return b.sweep(ctx, s) }))
	}
	for _, k := range append(tuning, heldOut...) {
		parts = append(parts, bench.PartOf(k.name, func(b suite, ctx context.Context) ([]bench.Figure, error) { return b.judge(ctx, k) }))
	}
	bench.Experiment{Name: "adapt", Limit: 3 * time.Hour, Parts: append(parts,
		bench.PartOf("calm", suite.calm),
		bench.PartOf("step", suite.step),
		bench.PartOf("slower", suite.slower),
		bench.PartOf("rates", suite.rates),
		bench.PartOf("drift", suite.drift),
		bench.PartOf("daemon", suite.daemon),
	), Asked: []bench.Part{bench.PartOf("own", suite.judgeOwn)}}.Main()
}

// pick is the first value, or the second with -quick.
func pick[T any](full, brief T) T {
	if *quick {
		return brief
	}
	return full
}

// rounds is how often each variant is measured.
func rounds() int { return pick(*runs, 1) }

// length is that of a measurement, if nothing asks for a longer one.
func length() time.Duration {
	return pick(time.Duration(*seconds*float64(time.Second)), 1500*time.Millisecond)
}

// settle is what clients and the limit get before they are measured. When they begin there is no
// limit that sets itself yet, and then the server has first to do what was let in.
func settle() time.Duration { return pick(3*time.Second, 1500*time.Millisecond) }
