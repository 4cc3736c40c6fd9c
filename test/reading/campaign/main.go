// SPDX-License-Identifier: Apache-2.0

// Command campaign has six real servers read so many heads, and compares what they say with how the data path's
// source, compiled natively, reads them. It needs root, for a network namespace.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"narthex/internal/lab"
	"narthex/test/reading"
)

func main() {
	n := flag.Int("n", 100_000, "heads")
	seed := flag.Uint64("seed", 1, "of the random numbers")
	first := flag.Uint64("first", 0, "number of the first head")
	only := flag.String("servers", "", "names, separated by commas; all six if empty")
	show := flag.Int("show", 5, "differences of a kind that are shown")
	flag.Parse()
	if err := run(*n, *seed, *first, *only, *show); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(n int, seed, first uint64, only string, show int) (err error) {
	ns, err := lab.NewNamespace("reading")
	if err != nil {
		return err
	}
	defer ns.Close()
	cfg := reading.Config{Seed: seed, First: first, Heads: n, Workers: 4}
	names := strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
	if err := reading.Start(ns, &cfg, names...); err != nil {
		return err
	}
	start := time.Now()
	out, err := reading.Run(cfg)
	if err != nil {
		return err
	}
	fmt.Println(out, time.Since(start).Round(time.Second))
	shown := map[string]int{}
	for _, d := range out.Differences {
		kind, _, _ := strings.Cut(d.What, ":")
		kind = d.Server + " " + kind
		if shown[kind]++; shown[kind] <= show {
			fmt.Print(d.String())
		}
	}
	fmt.Println(shown)
	for i, number := range out.Strict {
		if i < show {
			fmt.Printf("refused, head %d: %.1500q\n", number, reading.Stream(seed, number))
		}
	}
	if len(out.Differences) > 0 {
		return fmt.Errorf("%d differences", len(out.Differences))
	}
	return nil
}
