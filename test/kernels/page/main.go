// SPDX-License-Identifier: Apache-2.0

// Command page writes what works on which kernel into a page of documentation, from the results
// that `make kernels` left.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	results := flag.String("results", "build/kernels", "`folder` with the results of kernels")
	page := flag.String("page", "docs/install.md", "`file` to write the tables into, between their marks")
	flag.Parse()
	if err := run(*results, *page); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

// The tables stand between these lines.
const (
	begin = "<!-- kernels: written by go run ./test/kernels/page -->"
	end   = "<!-- end of kernels -->"
)

func run(folder, page string) error {
	kernels, err := read(folder)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), begin+"\n")
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s has no lines %q and %q to write between", page, begin, end)
	}
	return os.WriteFile(page, []byte(before+begin+"\n\n"+tables(kernels)+"\n"+end+after), 0o644)
}

// kernel is what was found of one.
type kernel struct {
	Kernel string            `json:"kernel"`
	Series string            `json:"series"`
	Checks map[string]string `json:"checks"`
}

// read returns the results of a folder, the oldest kernel first.
func read(folder string) ([]kernel, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []kernel
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		var k kernel
		if err := json.Unmarshal(text, &k); err != nil {
			return nil, fmt.Errorf("reading %s: %w", f, err)
		}
		all = append(all, k)
	}
	if len(all) == 0 {
		return nil, errors.New("there are no results in " + folder + ": run `make kernels`")
	}
	slices.SortFunc(all, func(a, b kernel) int { return slices.Compare(version(a.Kernel), version(b.Kernel)) })
	return all, nil
}

// version returns the numbers that a kernel's version begins with.
func version(s string) (numbers []int) {
	for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r < '0' || r > '9' }) {
		n, _ := strconv.Atoi(part)
		numbers = append(numbers, n)
	}
	return numbers[:min(3, len(numbers))]
}

// distributions are those that people ask for, with the series of their kernels, and whether those
// are the ones that are tried: Debian's own.
var distributions = []struct {
	name, series string
	tried        bool
}{
	{"Debian 12", "6.1", true},
	{"Debian 13", "6.12", true},
	{"Ubuntu 22.04, HWE kernel", "6.8", false},
	{"Ubuntu 24.04", "6.8", false},
	{"RHEL 9 and its likes", "5.14", false},
	{"RHEL 10 and its likes", "6.12", false},
	{"Amazon Linux 2023", "6.1", false},
}

func tables(kernels []kernel) string {
	var b strings.Builder
	notes := checkTable(&b, kernels)
	for i, n := range notes {
		fmt.Fprintf(&b, "\n(%d) %s.\n", i+1, n)
	}
	b.WriteString("\n| distribution | its kernel | tried |\n|---|---|---|\n")
	for _, d := range distributions {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", d.name, d.series, triedText(kernels, d.series, d.tried))
	}
	return b.String()
}

// checkTable writes a line per check and a column per kernel, and returns what is lacking where.
func checkTable(b *strings.Builder, kernels []kernel) (notes []string) {
	names := map[string]bool{}
	b.WriteString("| |")
	for _, k := range kernels {
		fmt.Fprintf(b, " %s |", strings.TrimSuffix(k.Kernel, "-amd64"))
		for name := range k.Checks {
			names[name] = true
		}
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(kernels)) + "\n")
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(b, "| %s |", name)
		for _, k := range kernels {
			fmt.Fprintf(b, " %s |", cell(k.Checks[name], &notes))
		}
		b.WriteString("\n")
	}
	return notes
}

// cell says in a word what came of a check, with the number of the note that says more.
func cell(said string, notes *[]string) string {
	how, why, _ := strings.Cut(said, ": ")
	switch how {
	case "ok":
		return "yes"
	case "missing", "fail":
		i := slices.Index(*notes, why)
		if i < 0 {
			i = len(*notes)
			*notes = append(*notes, why)
		}
		word := map[string]string{"missing": "no", "fail": "fails"}[how]
		return fmt.Sprintf("%s (%d)", word, i+1)
	}
	return "not tried"
}

// triedText says whether a distribution's kernel was tried, and with what result.
func triedText(kernels []kernel, series string, own bool) string {
	for _, k := range kernels {
		if !own || !slices.Equal(version(k.Kernel)[:2], version(series)) {
			continue
		}
		for _, said := range k.Checks {
			if said != "ok" {
				return "yes: see above what does not work"
			}
		}
		return "yes: all works"
	}
	return "no"
}
