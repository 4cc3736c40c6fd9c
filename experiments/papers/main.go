// SPDX-License-Identifier: Apache-2.0

// Command papers does the experiments of two papers and three of our own again, with the real
// binary in network namespaces of its own, beside what a user would run instead, and writes a report:
//
//	Voigt, Tewari, Freimuth, Mehra: Kernel Mechanisms for Service Differentiation in Overloaded
//	Web Servers, USENIX ATC 2001 (fig5 … fig13, tab3 … tab6)
//	Banga, Druschel, Mogul: Resource Containers, OSDI 1999 (banga11)
//
// It needs root and two cores: the server has the first, its clients the last. The exit status is 1
// if a claim does not hold or could not be judged.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/evidence"
	"narthex/internal/lab/reexec"
)

const timeLimit = 150 * time.Minute // of the whole

// suite is what all experiments share.
type suite struct {
	*bench.Bench
	runs           int           // rounds
	quick          bool          // fewer loads and rounds, shorter runs
	settle, length time.Duration // of one run
}

// experiment is one of those that the report has.
type experiment struct {
	id  string
	run func(*suite, context.Context) (*evidence.Result, error)
}

// order is that of the report.
var order = []string{
	"fig5", "fig6", "fig7", "fig8", "tab3", "fig9", "fig10", "high-fixed", "tab4", "fig11", "tab5", "tab6", "fig12", "fig13",
	"banga11", "banga11-static", "flood", "collapse", "scale",
}

// experiments are those of the report, in its order: the lists of this package's files.
var experiments = inOrder(policingExperiments, priorityExperiments, overloadExperiments, traceExperiments, costExperiments)

// inOrder joins lists. What is not in the order comes last.
func inOrder(lists ...[]experiment) []experiment {
	all := slices.Concat(lists...)
	place := func(e experiment) int {
		if i := slices.Index(order, e.id); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(all, func(a, b experiment) int { return place(a) - place(b) })
	return all
}

// choose finds experiments by their names, separated by commas; all of them without, but for those
// that are done only by name.
func choose(all []experiment, only string) ([]experiment, error) {
	if only == "" {
		return all, nil
	}
	all = slices.Concat(all, byName)
	wanted := strings.Split(strings.ReplaceAll(only, " ", ""), ",")
	var chosen []experiment
	for _, e := range all {
		if slices.Contains(wanted, e.id) {
			chosen = append(chosen, e)
			wanted = slices.DeleteFunc(wanted, func(id string) bool { return id == e.id })
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("there is no experiment %q: use some of %s", wanted[0], ids(all, ", "))
	}
	return chosen, nil
}

func ids(all []experiment, separator string) string {
	var list []string
	for _, e := range all {
		list = append(list, e.id)
	}
	return strings.Join(list, separator)
}

// thin leaves out loads in quick runs: every other one, but not the first and the last.
func (s *suite) thin(xs ...float64) []float64 {
	if !s.quick {
		return xs
	}
	var some []float64
	for i, x := range xs {
		if i%2 == 0 || i == len(xs)-1 {
			some = append(some, x)
		}
	}
	return some
}

func main() {
	reexec.Main()
	o, list := flags()
	if list {
		fmt.Println(ids(experiments, "\n"))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	ok, err := o.measure(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "papers: %v\n", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// flags reads the command line.
func flags() (o options, list bool) {
	flag.StringVar(&o.program, "narthex", "", "program to measure (default: built from this module)")
	flag.StringVar(&o.only, "only", "", "do only these, separated by commas; the report keeps what it has of others")
	flag.StringVar(&o.out, "out", "", "folder of the report (default experiments/report, or experiments/report-quick)")
	flag.IntVar(&o.runs, "runs", 0, "rounds in which each variant is measured at each load (default 3, or 1)")
	flag.Float64Var(&o.seconds, "seconds", 1.2, "how long each run is measured")
	flag.BoolVar(&o.quick, "quick", false, "one round of half the loads, in two thirds of the time each: to see whether it works, no evidence")
	flag.BoolVar(&list, "list", false, "list the experiments and end")
	flag.Parse()
	if o.out == "" {
		o.out = "experiments/report"
		if o.quick {
			o.out += "-quick"
		}
	}
	if o.runs <= 0 {
		o.runs = 3
		if o.quick {
			o.runs = 1
		}
	}
	return o, list
}

// measure does what the options say and reports whether all of it holds.
func (o options) measure(ctx context.Context) (ok bool, err error) {
	chosen, err := choose(experiments, o.only)
	if err != nil {
		return false, err
	}
	machine, err := evidence.Here(ctx)
	if err != nil {
		return false, err
	}
	machine.Command = o.command()
	b, err := bench.New(ctx, "papers", o.program, false)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	s := &suite{
		Bench: b, runs: o.runs, quick: o.quick,
		settle: 500 * time.Millisecond, length: time.Duration(o.seconds * float64(time.Second)),
	}
	if o.quick {
		s.length = s.length * 2 / 3
	}
	return s.doAll(ctx, chosen, &paper{options: o, machine: machine, begun: time.Now()})
}
