// SPDX-License-Identifier: Apache-2.0

// Command verifier loads the programs as they are committed and says what the kernel's verifier makes of
// each: how many instructions it processed, which is bounded, how deep the stack gets, how long it took;
// and how many instructions each function took. It compares the instructions with those of the baseline,
// a file in this folder, and fails where a program takes much more.
package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/cilium/ebpf/rlimit"
)

// committed is the baseline that this command was built with, so that it runs without the source too.
//
//go:embed baseline.json
var committed []byte

// options are what the flags say.
type options struct {
	kernel    string
	only      string
	functions bool
	json      bool
	limits    limits
	update    string
	baseline  string
}

func main() {
	var o options
	flag.StringVar(&o.kernel, "kernel", "", "`name` of this kernel in the baseline (default: the beginning of its version)")
	flag.StringVar(&o.only, "only", "", "look at this `program` alone")
	flag.BoolVar(&o.functions, "functions", false, "count each function's instructions on kernels that do not say them (seconds, and a gigabyte of memory)")
	flag.BoolVar(&o.json, "json", false, "print JSON")
	flag.IntVar(&o.limits.mark, "limit", 300_000, "mark programs that take more `instructions`")
	flag.IntVar(&o.limits.fail, "fail", 400_000, "fail if a program takes more `instructions`; 0: never")
	flag.Float64Var(&o.limits.growth, "growth", 5, "fail if a program takes so many `percent` more than the baseline says")
	flag.StringVar(&o.baseline, "baseline", "", "compare with this `file` (default: the one that was committed)")
	flag.StringVar(&o.update, "update", "", "write what this kernel takes to this baseline `file`")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "verifier: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "verifier:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("loading programs: %w; run as root", err)
	}
	base, err := readBaseline(o.baseline)
	if err != nil {
		return err
	}
	r, err := measure(o.only, o.functions)
	if err != nil {
		return err
	}
	if o.kernel != "" {
		r.Kernel = o.kernel
	}
	was := base[r.Kernel]
	for i := range r.Programs {
		r.Programs[i].Baseline = was[r.Programs[i].Name]
	}
	if o.json {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(r)
	} else {
		err = r.print(os.Stdout, o.limits)
	}
	if err != nil {
		return err
	}
	if o.update != "" {
		err = r.update(base, o.update)
		o.limits.growth = 0 // what is written is what is allowed
	}
	return errors.Join(err, r.judge(o.limits))
}
