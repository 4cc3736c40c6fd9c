// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	"narthex/internal/datapath"
)

// Programs are those of an instance.
type Programs map[string]*ebpf.Program

// OpenPrograms opens the programs of an instance. The kernel counts their time while
// ebpf.EnableStats has it do so.
func OpenPrograms(instance string) (all Programs, err error) {
	files, err := filepath.Glob(filepath.Join(datapath.Root, instance, "programs", "*"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("find the programs of %q: %v", instance, err)
	}
	all = Programs{}
	for _, f := range files {
		p, err := ebpf.LoadPinnedProgram(f, nil)
		if err != nil {
			all.Close()
			return nil, fmt.Errorf("open pinned program %q: %w", f, err)
		}
		all[filepath.Base(f)] = p
	}
	return all, nil
}

// Spent is what the runs of a program have taken. A program that runs within another counts twice.
type Spent struct{ Runs, Microseconds float64 }

// Spent is how long all of them have run.
func (all Programs) Spent() (sum time.Duration, err error) {
	each, err := all.Each()
	for _, s := range each {
		sum += time.Duration(s.Microseconds * 1e3)
	}
	return sum, err
}

// Each is what each program has taken, by its name.
func (all Programs) Each() (map[string]Spent, error) {
	by := map[string]Spent{}
	for name, p := range all {
		s, err := p.Stats()
		if err != nil {
			return nil, err
		}
		by[name] = Spent{float64(s.RunCount), s.Runtime.Seconds() * 1e6}
	}
	return by, nil
}

// Since is what has been taken since then, per one of so many requests.
func Since(now, then map[string]Spent, requests float64) map[string]Spent {
	by := map[string]Spent{}
	for name, s := range now {
		by[name] = Spent{(s.Runs - then[name].Runs) / requests, (s.Microseconds - then[name].Microseconds) / requests}
	}
	return by
}

// Close closes them.
func (all Programs) Close() {
	for _, p := range all {
		p.Close()
	}
}
