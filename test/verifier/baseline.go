// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
)

// baseline says how many instructions the verifier processed, by kernel and program, when it was last
// written. A commit that makes a program dearer on purpose brings the baseline that says so.
type baseline map[string]map[string]int

// readBaseline reads a file, or what was committed.
func readBaseline(path string) (baseline, error) {
	text := committed
	if path != "" {
		var err error
		if text, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("reading the baseline: %w", err)
		}
	}
	b := baseline{}
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, fmt.Errorf("reading the baseline %q: %w", path, err)
	}
	return b, nil
}

// update writes what a kernel takes; what others take stays. A program that was not looked at keeps
// its figure unless it no longer exists, which only a look at all of them tells.
func (b baseline) update(path string, r report) error {
	mine := maps.Clone(b[r.Kernel])
	if mine == nil || len(r.Programs) > 1 {
		mine = map[string]int{}
	}
	for _, p := range r.Programs {
		if p.Error != "" {
			return fmt.Errorf("program %q does not load: the baseline stays as it is", p.Name)
		}
		mine[p.Name] = p.Processed
	}
	b[r.Kernel] = mine
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

var releasePattern = regexp.MustCompile(`^\d+\.\d+`)

// kernelName returns what a release is called in the baseline: without the numbers of its patches and
// builds, which change the figures little.
func kernelName(release string) string {
	if name := releasePattern.FindString(release); name != "" {
		return name
	}
	return release
}

// limits are what a program may take.
type limits struct {
	mark, fail int     // instructions processed; 0: no limit
	growth     float64 // percent more than the baseline says; 0: no limit
}

// judge says which programs take too much.
func (r report) judge(l limits) error {
	var all error
	for _, p := range r.Programs {
		switch grown := p.growth(); {
		case p.Error != "":
			all = errors.Join(all, fmt.Errorf("program %q does not load on %s: %s", p.Name, r.Release, p.Error))
		case l.fail > 0 && p.Processed > l.fail:
			all = errors.Join(all, fmt.Errorf("program %q takes %d instructions of the verifier's on %s, more than %d", p.Name, p.Processed, r.Release, l.fail))
		case l.growth > 0 && grown > l.growth:
			all = errors.Join(all, fmt.Errorf(
				"program %q takes %.1f %% more instructions of the verifier's on %s than the baseline says; if it is to, commit what make verifier UPDATE=1 writes",
				p.Name, grown, r.Release))
		}
	}
	return all
}

// growth returns how many percent more a program takes than the baseline says, 0 if it does not.
func (p program) growth() float64 {
	if p.Baseline == 0 {
		return 0
	}
	return 100 * float64(p.Processed-p.Baseline) / float64(p.Baseline)
}
