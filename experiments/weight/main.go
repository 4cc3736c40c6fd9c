// SPDX-License-Identifier: Apache-2.0

// Command weight measures what CPUs cost each other where they share a waiting room, by one thread and by two: a
// request's turns at its room's lock, and the counters that all connections share. It says by a queueing model what that
// comes to with more CPUs than there are.
//
// It needs root and two cores. docs/scaling.md says how to read it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"narthex/experiments/internal/bench"
	"narthex/internal/datapath"
	"narthex/test/packet/benchprog"
)

var (
	runs   = flag.Int("runs", 15, "how often each is measured, in turns")
	repeat = flag.Int("repeat", 1_000_000, "test runs of a program, each time")
	work   = flag.Float64("work", 20, "model: µs that a core works per request, the server, the kernel and the programs")
)

func main() {
	bench.Experiment{Name: "weight", Limit: 10 * time.Minute, Parts: []bench.Part{bench.PartOf("shared", suite.shared)}}.Main()
}

type suite struct{ *bench.Bench }

const policy = `version: 1
services:
  - {name: one, listen: ["%[1]s:80"], xdp: off, concurrency: 4096}
  - {name: two, listen: ["%[1]s:81"], xdp: off, concurrency: 4096}
`

// subject is a program by one thread or by two, for one room or two.
type subject struct {
	what, program  string
	threads, rooms int
}

var subjects = []subject{
	{"a run without either, one thread", "bench_scene", 1, 1},
	{"two turns at a room's lock, one thread", "bench_room", 1, 1},
	{"the same, two threads, a room for each", "bench_room", 2, 2},
	{"the same, two threads, one room", "bench_room", 2, 1},
	{"a flow counted twice, one thread", "bench_counts", 1, 1},
	{"the same, two threads", "bench_counts", 2, 1},
}

// shared measures the programs in turns, and feeds the model with what they take.
func (b suite) shared(ctx context.Context) (figures []bench.Figure, err error) {
	rig, err := b.Lab("weight", 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rig.Close()) }()
	n, err := b.Enforce(ctx, rig.Server, fmt.Sprintf(policy, rig.ServerV4))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	programs, err := benchprog.Load(filepath.Join(datapath.Root, n.Instance))
	if err != nil {
		return nil, err
	}
	defer programs.Close()
	for _, s := range subjects {
		figures = append(figures, bench.Figure{What: s.what, Unit: "ns"})
	}
	for range *runs {
		for i, s := range subjects {
			took, err := s.run(programs)
			if err != nil {
				return nil, err
			}
			figures[i].Samples = append(figures[i].Samples, took)
		}
	}
	return append(figures, predictions(figures)...), nil
}

// run returns what one run takes, ns, of the slower thread.
func (s subject) run(programs *benchprog.Programs) (float64, error) {
	type result struct {
		took time.Duration
		err  error
	}
	results := make(chan result, s.threads)
	for i := range s.threads {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with its affinity
			var cpus unix.CPUSet
			cpus.Set(i)
			if err := unix.SchedSetaffinity(0, &cpus); err != nil {
				results <- result{err: err}
				return
			}
			frame := make([]byte, 64+i%s.rooms) // its length says which room
			took, err := programs.Time(s.program, frame, *repeat, tcxNext)
			results <- result{took, err}
		}()
	}
	var slowest time.Duration
	for range s.threads {
		r := <-results
		if r.err != nil {
			return 0, r.err
		}
		slowest = max(slowest, r.took)
	}
	return float64(slowest.Nanoseconds()), nil
}

// tcxNext is the programs' verdict.
const tcxNext = 0xffffffff
