// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"narthex/test/vm"
)

// program is what the verifier says of a program.
type program struct {
	Name         string  `json:"name"`
	Instructions int     `json:"instructions"`
	Stack        int     `json:"stack"`
	LoadMS       float64 `json:"load_ms"`
}

// result is what came of a kernel. A check is "ok", "missing: " with what the kernel lacks, or
// "fail: " with what failed.
type result struct {
	Kernel   string            `json:"kernel"`
	Series   string            `json:"series"`
	Programs []program         `json:"programs"`
	Checks   map[string]string `json:"checks"`
}

const (
	ok      = "ok"
	missing = "missing: "
	fail    = "fail: "
)

// loads is the check of the programs themselves.
const loads = "programs"

// read makes a result of what a machine left.
func (p *plan) read(kernel vm.Kernel, share string) (*result, error) {
	r := &result{Kernel: kernel.Version, Series: kernel.Series, Checks: map[string]string{}}
	r.Checks[loads] = r.readPrograms(share)
	for _, s := range p.suites {
		log, err := os.ReadFile(filepath.Join(share, s.name()+".log"))
		if err != nil {
			return nil, err
		}
		outcomes := readLog(string(log))
		for _, c := range checks {
			if c.pkg != s.pkg {
				continue
			}
			if taken := c.takes(p.quick, s.tests); len(taken) > 0 {
				r.Checks[c.name] = verdict(outcomes, taken)
			}
		}
	}
	return r, nil
}

// readPrograms reads the table of programs, and returns what is to be said of them.
func (r *result) readPrograms(share string) string {
	var table struct {
		Programs []struct {
			program
			Processed int    `json:"processed"`
			Error     string `json:"error"`
		} `json:"programs"`
	}
	text, err := os.ReadFile(filepath.Join(share, "programs.json"))
	if err == nil {
		err = json.Unmarshal(text, &table)
	}
	if err != nil {
		return fail + err.Error()
	}
	for _, p := range table.Programs {
		p.Instructions = p.Processed
		r.Programs = append(r.Programs, p.program)
	}
	complaints, err := os.ReadFile(filepath.Join(share, loads+".log"))
	if err != nil || len(complaints) > 0 {
		return fail + strings.ReplaceAll(strings.TrimSpace(string(complaints)), "\n", "; ")
	}
	return ok
}

// worst is the program of which the verifier looked at most.
func (r *result) worst() (worst program) {
	for _, p := range r.Programs {
		if p.Instructions > worst.Instructions {
			worst = p
		}
	}
	return worst
}

// outcome is how a test ended.
type outcome struct {
	how    string // PASS, FAIL or SKIP
	reason string // of a test that was skipped
}

var (
	ended   = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+) \(`)
	skipped = regexp.MustCompile(`(?m)\A[^\n]*\n\s+\S+\.go:\d+: (.*)$`)
)

// readLog finds how each test ended.
func readLog(log string) map[string]outcome {
	outcomes := map[string]outcome{}
	for _, m := range ended.FindAllStringSubmatchIndex(log, -1) {
		o := outcome{how: log[m[2]:m[3]]}
		if why := skipped.FindStringSubmatch(log[m[0]:]); why != nil && o.how == "SKIP" {
			o.reason = why[1]
		}
		outcomes[log[m[4]:m[5]]] = o
	}
	return outcomes
}

// verdict is what is to be said of a check that took these tests.
func verdict(outcomes map[string]outcome, taken []string) string {
	var failed, lacks []string
	for _, t := range taken {
		switch o := outcomes[t]; o.how {
		case "PASS":
		case "SKIP":
			lacks = append(lacks, o.reason)
		case "FAIL":
			failed = append(failed, t)
		default:
			failed = append(failed, t+" (did not end)")
		}
	}
	switch {
	case len(failed) > 0:
		return fail + strings.Join(failed, ", ")
	case len(lacks) > 0:
		return missing + lacks[0]
	}
	return ok
}

// lacking are series that lack what newer kernels have. On others a test that skips has failed.
var lacking = map[string]bool{"6.1": true}

// failure is what a run fails for.
func (r *result) failure() (err error) {
	for name, v := range r.Checks {
		if strings.HasPrefix(v, fail) || strings.HasPrefix(v, missing) && !lacking[r.Series] {
			err = errors.Join(err, fmt.Errorf("%s: %s: %s", r.Kernel, name, v))
		}
	}
	return err
}

// write leaves the result as JSON.
func (r *result) write(dir string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.Series+".json"), append(text, '\n'), 0o644)
}
