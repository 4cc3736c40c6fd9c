// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"narthex/test/verifier/baseline"
)

// dear is how large a part of its program a function takes to be listed.
const dear = 0.02

// print writes a table of the programs, one of the functions that matter, and what both do not say.
func (r report) print(to io.Writer, l limits) error {
	var b strings.Builder
	row := func(name, processed, baseline, change, stack, xlated, verified, loaded, remark string) {
		line := fmt.Sprintf("%-22s %12s %10s %8s %6s %7s %9s %9s  %s", name, processed, baseline, change, stack, xlated, verified, loaded, remark)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	row("program", "instructions", "baseline", "change", "stack", "xlated", "verified", "loaded", "")
	for _, p := range r.Programs {
		was, change := "-", "-"
		if p.Baseline > 0 {
			was, change = fmt.Sprint(p.Baseline), fmt.Sprintf("%+.1f %%", p.growth())
		}
		row(p.Name, fmt.Sprint(p.Processed), was, change, fmt.Sprint(p.Stack), fmt.Sprint(p.Xlated),
			fmt.Sprintf("%.0f ms", p.VerifyMS), fmt.Sprintf("%.0f ms", p.LoadMS), p.remark(l))
	}
	for _, p := range r.Programs {
		b.WriteString(p.table())
	}
	b.WriteString(r.notes())
	_, err := io.WriteString(to, b.String())
	return err
}

// table lists the functions that take much of a program.
func (p program) table() string {
	if len(p.Functions) < 2 {
		return ""
	}
	text := fmt.Sprintf("\n%-22s %12s %6s\n", p.Name, "instructions", "frame")
	for _, f := range p.Functions {
		if part := float64(f.Processed) / float64(p.Processed); part >= dear {
			text += fmt.Sprintf("  %-20s %12d %6d  %2.0f %%\n", f.Name, f.Processed, f.Stack, 100*part)
		}
	}
	return text
}

// remark says what is the matter with a program.
func (p program) remark(l limits) string {
	switch {
	case p.Error != "":
		return "does not load"
	case l.mark > 0 && p.Processed > l.mark:
		return fmt.Sprintf("over %d", l.mark)
	}
	return ""
}

// notes says what the tables do not.
func (r report) notes() string {
	notes := ""
	if !slices.ContainsFunc(r.Programs, func(p program) bool { return p.Baseline > 0 }) {
		notes += fmt.Sprintf("The baseline has no figures of kernel %q: nothing is compared until %s writes them.\n", r.Kernel, baseline.Accept(r.Kernel))
	}
	if !slices.ContainsFunc(r.Programs, func(p program) bool { return len(p.Functions) > 0 || p.Error != "" }) {
		notes += "This kernel does not say what each function takes: -functions (FUNCTIONS=1) counts.\n"
	}
	return notes
}
