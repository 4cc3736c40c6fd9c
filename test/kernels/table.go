// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// printTable prints what came of each kernel, a line per check.
func printTable(w io.Writer, results []*result) {
	tried := results[:0:0]
	for _, r := range results {
		if r != nil {
			tried = append(tried, r)
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	line := func(name string, cell func(r *result) string) {
		fmt.Fprint(t, name)
		for _, r := range tried {
			fmt.Fprintf(t, "\t%s", cell(r))
		}
		fmt.Fprintln(t)
	}
	line("", func(r *result) string { return strings.TrimSuffix(r.Kernel, "-amd64") })
	line("worst program", func(r *result) string { return r.worst().Name })
	line("its instructions", func(r *result) string { return fmt.Sprint(r.worst().Instructions) })
	line("all loaded in", func(r *result) string {
		sum := 0.0
		for _, p := range r.Programs {
			sum += p.LoadMS
		}
		return fmt.Sprintf("%.1f s", sum/1000)
	})
	for _, name := range checkNames() {
		line(name, func(r *result) string {
			how, _, _ := strings.Cut(r.Checks[name], ":")
			return how
		})
	}
}

// checkNames are the lines of the matrix in their order.
func checkNames() []string {
	names := []string{loads}
	for _, c := range checks {
		names = append(names, c.name)
	}
	return names
}
