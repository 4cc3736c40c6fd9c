// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/reexec"
)

// Part is a group of figures that are measured together.
type Part struct {
	Name    string
	Measure func(*Bench, context.Context) ([]Figure, error)
}

// PartOf is a part that is a method of what an experiment calls its suite.
func PartOf[S ~struct{ *Bench }](name string, measure func(S, context.Context) ([]Figure, error)) Part {
	return Part{Name: name, Measure: func(b *Bench, ctx context.Context) ([]Figure, error) {
		return measure(S{b}, ctx)
	}}
}

// Experiment is a program of its own.
type Experiment struct {
	Name  string
	Limit time.Duration // bounds the whole program
	Parts []Part
	Asked []Part // those that are measured only if they are named

	Polite bool // does not go before others on the machine: it measures no time but its own
}

// Main runs the experiment with the flags of the command line, to which the caller may have
// added, and ends the process: with status 1 if a figure is missed or could not be measured.
func (e Experiment) Main() {
	reexec.Main()
	program := flag.String("narthex", "", "program to measure (default: built from this module)")
	file := flag.String("json", "", "write all figures with their samples to this file")
	only := flag.String("only", "", "measure only these, separated by commas: "+e.partNames())
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, e.Limit)
	defer cancel()
	ok, err := e.run(ctx, *program, *file, *only)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", e.Name, err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func (e Experiment) partNames() string {
	var names []string
	for _, p := range slices.Concat(e.Parts, e.Asked) {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

// run measures and prints, and reports whether all figures hold.
func (e Experiment) run(ctx context.Context, program, file, only string) (ok bool, err error) {
	chosen, err := e.choose(only)
	if err != nil {
		return false, err
	}
	b, err := New(ctx, e.Name, program, e.Polite)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	figures, err := b.measure(ctx, chosen)
	if err != nil {
		return false, err
	}
	printTable(os.Stdout, figures)
	if file != "" {
		if err := writeJSON(file, figures); err != nil {
			return false, err
		}
	}
	return allHold(figures), nil
}

func (e Experiment) choose(only string) ([]Part, error) {
	if only == "" {
		return e.Parts, nil
	}
	all := slices.Concat(e.Parts, e.Asked)
	var chosen []Part
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(p Part) bool { return p.Name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("there is no figure %q: use some of %s", name, e.partNames())
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// measure goes through the parts. One that fails is a figure that is missed; only an
// interrupt ends it all.
func (b *Bench) measure(ctx context.Context, chosen []Part) ([]Figure, error) {
	var all []Figure
	for _, p := range chosen {
		b.Progress("%s", p.Name)
		start := time.Now()
		figures, err := p.Measure(b, ctx)
		if errors.Is(context.Cause(ctx), context.Canceled) {
			return nil, errors.Join(errors.New("interrupted"), err)
		}
		if err != nil {
			figures = append(figures, Figure{What: "could not be measured", Wanted: AtMost(0), Note: err.Error()})
		}
		for i := range figures {
			figures[i].Part = p.Name
		}
		all = append(all, figures...)
		b.Progress("%s took %v", p.Name, time.Since(start).Round(time.Second))
	}
	return all, nil
}

// report is the form of the JSON file.
type report struct {
	Time      time.Time `json:"time"`
	Kernel    string    `json:"kernel"`
	CPUs      []int     `json:"cpus"`
	Arguments []string  `json:"arguments"`
	Holds     bool      `json:"holds"`
	Figures   []Figure  `json:"figures"`
}

func writeJSON(path string, figures []Figure) error {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	cpus, err := lab.CPUs()
	if err != nil {
		return err
	}
	r := report{time.Now(), strings.TrimSpace(string(kernel)), cpus, os.Args[1:], allHold(figures), figures}
	out, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(out, '\n'), 0o644)
}
