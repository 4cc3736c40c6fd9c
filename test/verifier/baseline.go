// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"

	"narthex/test/verifier/baseline"
)

// readBaseline reads a file, or what was committed.
func readBaseline(path string) (baseline.Baseline, error) {
	if path == "" {
		return baseline.Parse(committed)
	}
	return baseline.Read(path)
}

// update writes what a kernel takes; what others take stays. A program that was not looked at keeps
// its figure unless it no longer exists, which only a look at all of them tells.
func (r report) update(b baseline.Baseline, path string) error {
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
	return b.Write(path)
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
				"program %q takes %.1f %% more instructions of the verifier's on %s than the baseline says; if it is to, commit what %s writes",
				p.Name, grown, r.Release, baseline.Accept(r.Kernel)))
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
