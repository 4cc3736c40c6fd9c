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
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"narthex/internal/testnet"
	"narthex/internal/testnet/reexec"
)

// limit bounds the whole program.
const limit = 6 * time.Minute

// part is a group of figures that are measured together.
type part struct {
	name    string
	measure func(*bench, context.Context) ([]figure, error)
}

var parts = []part{
	{"accuracy", (*bench).accuracy},
	{"fairness", (*bench).fairness},
	{"lifecycle", (*bench).lifecycle},
	{"loss", (*bench).loss},
	{"overhead", (*bench).overhead},
	{"memory", (*bench).memory},
}

// options are the command line's.
type options struct {
	narthex, json, only string
	quick               bool
}

func main() {
	reexec.Main()
	var o options
	flag.StringVar(&o.narthex, "narthex", "", "program to measure (default: built from this module)")
	flag.StringVar(&o.json, "json", "", "write all figures with their samples to this file")
	flag.StringVar(&o.only, "only", "", "measure only this: "+partNames())
	flag.BoolVar(&o.quick, "quick", false, "fewer and shorter runs, for a first look")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ok, err := run(ctx, o)
	if err != nil {
		fmt.Fprintf(os.Stderr, "syn: %v\n", err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}

func partNames() string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// run measures and prints, and reports whether all figures hold.
func run(ctx context.Context, o options) (ok bool, err error) {
	chosen, err := choose(o.only)
	if err != nil {
		return false, err
	}
	b, err := newBench(ctx, o)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	figures, err := b.measure(ctx, chosen)
	if err != nil {
		return false, err
	}
	printTable(os.Stdout, figures)
	if o.json != "" {
		if err := writeJSON(o.json, o.quick, figures); err != nil {
			return false, err
		}
	}
	return allHold(figures), nil
}

func choose(only string) ([]part, error) {
	if only == "" {
		return parts, nil
	}
	for _, p := range parts {
		if p.name == only {
			return []part{p}, nil
		}
	}
	return nil, fmt.Errorf("there is no figure %q: use one of %s", only, partNames())
}

// measure goes through the parts. One that fails is a figure that is missed; only an
// interrupt ends it all.
func (b *bench) measure(ctx context.Context, chosen []part) ([]figure, error) {
	var all []figure
	for _, p := range chosen {
		b.progress("%s", p.name)
		start := time.Now()
		figures, err := p.measure(b, ctx)
		if errors.Is(context.Cause(ctx), context.Canceled) {
			return nil, errors.Join(errors.New("interrupted"), err)
		}
		if err != nil {
			figures = append(figures, figure{What: "could not be measured", Wanted: atMost(0), Note: err.Error()})
		}
		for i := range figures {
			figures[i].Part = p.name
		}
		all = append(all, figures...)
		b.progress("%s took %v", p.name, time.Since(start).Round(time.Second))
	}
	return all, nil
}

// report is the form of the JSON file.
type report struct {
	Time    time.Time `json:"time"`
	Kernel  string    `json:"kernel"`
	CPUs    []int     `json:"cpus"`
	Quick   bool      `json:"quick"`
	Holds   bool      `json:"holds"`
	Figures []figure  `json:"figures"`
}

func writeJSON(path string, quick bool, figures []figure) error {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	cpus, err := testnet.CPUs()
	if err != nil {
		return err
	}
	r := report{time.Now(), strings.TrimSpace(string(kernel)), cpus, quick, allHold(figures), figures}
	out, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(out, '\n'), 0o644)
}
