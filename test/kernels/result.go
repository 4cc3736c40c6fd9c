// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"narthex/test/verifier/baseline"
	"narthex/test/vm"
)

// program is what the verifier says of a program.
type program struct {
	Name         string  `json:"name"`
	Instructions int     `json:"instructions"`
	Stack        int     `json:"stack"`
	LoadMS       float64 `json:"load_ms"`
	Baseline     int     `json:"baseline,omitempty"` // instructions that were committed, if any were
}

// result is what came of a kernel. A check is "ok", "missing: " with what the kernel lacks, or
// "fail: " with what failed.
type result struct {
	Kernel   string            `json:"kernel"`
	Series   string            `json:"series"`
	Arch     string            `json:"arch"`
	Programs []program         `json:"programs"`
	Checks   map[string]string `json:"checks"`

	why      string // what failed tests printed
	unloaded bool   // some programs do not load
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
	r := &result{Kernel: kernel.Version, Series: kernel.Series, Arch: kernel.Arch, Checks: map[string]string{}}
	r.Checks[loads] = r.readPrograms(share)
	for _, s := range p.suites[kernel.Arch] {
		outcomes, err := readLogs(filepath.Join(share, s.name()+".log"), filepath.Join(share, s.name()+".again.log"))
		if err != nil {
			return nil, err
		}
		for _, c := range checks {
			wants := c.wants(p.quick)
			if c.pkg != s.pkg || len(wants) == 0 {
				continue
			}
			said, why := verdict(outcomes, taken(wants, s.names))
			r.Checks[c.name] = said
			r.why += why
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
		r.unloaded = r.unloaded || p.Error != ""
	}
	complaints, err := os.ReadFile(filepath.Join(share, loads+".log"))
	if err != nil || len(complaints) > 0 {
		return fail + strings.ReplaceAll(strings.TrimSpace(string(complaints)), "\n", "; ")
	}
	return ok
}

// accept writes what the verifier made of the programs to a baseline, if there is one to write.
func (r *result) accept(path string) error {
	if path == "" {
		return nil
	}
	if r.unloaded || len(r.Programs) == 0 {
		return fmt.Errorf("not all programs load on %s: the baseline stays as it is", r.Kernel)
	}
	b, err := baseline.Read(path)
	if err != nil {
		return err
	}
	mine := map[string]int{}
	for _, p := range r.Programs {
		mine[p.Name] = p.Instructions
	}
	b[baseline.Debian(r.Series)] = mine
	return b.Write(path)
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

// lacking are series that lack what newer kernels have: test runs of 6.16 and 6.17, which nobody maintains any more, that
// cut frames. On others a test that skips has failed.
var lacking = map[string]bool{"6.1": true, "6.16": true, "6.17": true}

// failure is what a run fails for.
func (r *result) failure() (err error) {
	for _, name := range slices.Sorted(maps.Keys(r.Checks)) {
		v := r.Checks[name]
		if strings.HasPrefix(v, fail) || strings.HasPrefix(v, missing) && !lacking[r.Series] {
			err = errors.Join(err, fmt.Errorf("kernel %s: %s: %s", r.Kernel, name, v))
		}
	}
	if err != nil && r.why != "" {
		err = errors.Join(err, errors.New(r.why))
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
