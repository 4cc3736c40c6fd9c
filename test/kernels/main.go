// SPDX-License-Identifier: Apache-2.0

// Command kernels tries this source on stock Debian kernels, in virtual machines: it loads all
// programs, runs the tests of packets in the kernel, and each mechanism with real servers and
// clients. It prints a table, and leaves the results as JSON, a file per kernel.
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
	"sync"
	"syscall"
	"time"

	"narthex/test/verifier/baseline"
	"narthex/test/vm"
)

// required are the series without which a run fails: Debian's stable kernel, and the newest.
// Others come and go in the archive.
var required = map[string]bool{"6.12": true, vm.Newest: true}

func main() {
	series := flag.String("kernels", "6.12 newest", "`series` of kernels")
	dir := flag.String("out", "build/kernels", "`folder` for what is compiled, logs and results")
	quick := flag.Bool("quick", false, "run the few tests of each kind that CI runs")
	update := flag.String("update", "", "test nothing, and write what the verifier makes of the programs to this baseline `file`")
	machines := flag.Int("machines", 2, "how many virtual machines at once")
	memory := flag.Int("memory", 3072, "of each, in MiB")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	p := plan{dir: *dir, quick: *quick, update: *update, memory: *memory, series: strings.Fields(*series)}
	if err := p.run(ctx, *machines); err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(1)
	}
}

// plan says what is tried, and where.
type plan struct {
	dir    string
	quick  bool
	update string // file for what the verifier makes of the programs; nothing is tested then
	memory int
	series []string
	began  time.Time
	suites map[string][]compiled // by architecture
}

// run tries all kernels, some at once, and fails if anything did.
func (p *plan) run(ctx context.Context, machines int) error {
	p.began = time.Now()
	if os.Geteuid() != 0 {
		return errors.New("virtual machines read this machine's files as root: run it with sudo")
	}
	if err := p.compile(ctx); err != nil {
		return err
	}
	var (
		results = make([]*result, len(p.series))
		errs    = make([]error, len(p.series))
		free    = make(chan struct{}, machines)
		wg      sync.WaitGroup
	)
	for i, series := range p.series {
		wg.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			results[i], errs[i] = p.try(ctx, series)
		})
	}
	wg.Wait()
	failed := errors.Join(errs...)
	for _, r := range results {
		if r != nil {
			failed = errors.Join(failed, r.failure(), r.accept(p.update))
		}
	}
	printTable(os.Stdout, results)
	return failed
}

// try tries one kernel. The result is nil if there is no such kernel.
func (p *plan) try(ctx context.Context, series string) (*result, error) {
	kernel, err := vm.Find(series)
	if notThere := (*vm.NotPackagedError)(nil); errors.As(err, &notThere) && !required[series] {
		p.say(series, "%v", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p.say(series, "kernel %s", kernel.Version)
	r, err := p.boot(ctx, kernel)
	if err != nil {
		return nil, err
	}
	p.say(series, "done")
	if !slices.ContainsFunc(r.Programs, func(p program) bool { return p.Baseline > 0 }) && p.update == "" {
		p.say(series, "the baseline has no instructions to compare with; %s writes them", baseline.Accept(baseline.Debian(series)))
	}
	if p.update != "" {
		return r, nil // it says nothing of the tests
	}
	return r, r.write(p.dir)
}

// say prints how it goes.
func (p *plan) say(series, format string, args ...any) {
	fmt.Printf("%4.0fs %-6s %s\n", time.Since(p.began).Seconds(), series, fmt.Sprintf(format, args...))
}
