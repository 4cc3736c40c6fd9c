// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"narthex/internal/datapath"
)

// report is what one kernel's verifier makes of the programs.
type report struct {
	Kernel   string    `json:"kernel"`  // as the baseline calls it
	Release  string    `json:"release"` // as it calls itself
	Programs []program `json:"programs"`
}

// program is what the verifier makes of one program.
type program struct {
	Name      string     `json:"name"`
	Processed int        `json:"processed"`          // instructions that the verifier went through
	Baseline  int        `json:"baseline,omitempty"` // those that it went through before
	Stack     int        `json:"stack"`              // bytes, of the deepest chain of calls
	Xlated    int        `json:"xlated"`             // instructions of the loaded program
	VerifyMS  float64    `json:"verify_ms"`          // what the verifier says it took
	LoadMS    float64    `json:"load_ms"`            // with relocations and the compiler
	Error     string     `json:"error,omitempty"`
	Functions []function `json:"functions,omitempty"` // the dearest first; empty if unknown
}

// function is the program's entry, or a function that it calls; what is inlined is part of its callers.
type function struct {
	Name      string `json:"name"`
	Processed int    `json:"processed"`
	Stack     int    `json:"stack"`            // bytes of its own frame
	Static    bool   `json:"static,omitempty"` // verified again at each call
}

// statsRoom is enough for the statistics of a program; with every step a program of a million
// instructions takes most of a gigabyte.
const (
	statsRoom = 1 << 20
	stepsRoom = 1 << 28
)

// measure loads the programs, one after the other.
func measure(only string, functions bool) (report, error) {
	spec, err := datapath.Spec()
	if err != nil {
		return report{}, err
	}
	names := slices.Sorted(maps.Keys(spec.Programs))
	if only != "" {
		if spec.Programs[only] == nil {
			return report{}, fmt.Errorf("there is no program %q, but %q", only, names)
		}
		names = []string{only}
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return report{}, fmt.Errorf("reading the kernel's version: %w", err)
	}
	release := unix.ByteSliceToString(uts.Release[:])
	r := report{Kernel: kernelName(release), Release: release}
	memory := spec.Copy()
	memory.Programs = nil
	shared, err := ebpf.NewCollection(memory)
	if err != nil {
		return report{}, fmt.Errorf("creating the programs' maps: %w", err)
	}
	defer shared.Close()
	for _, name := range names {
		one := spec.Copy()
		one.Programs = map[string]*ebpf.ProgramSpec{name: one.Programs[name]}
		r.Programs = append(r.Programs, load(one, name, shared.Maps, functions))
	}
	return r, nil
}

// load loads one program and reads the verifier's log. Loading it once more for each step that the
// verifier takes is for kernels whose statistics do not say the functions'.
func load(spec *ebpf.CollectionSpec, name string, reused map[string]*ebpf.Map, functions bool) program {
	p := program{Name: name}
	subs := subprograms(spec.Programs[name].Instructions)
	start := time.Now()
	log, xlated, err := loadLog(spec, name, reused, ebpf.LogLevelStats, statsRoom)
	p.LoadMS = float64(time.Since(start).Microseconds()) / 1000
	if err != nil {
		p.Error = lastLine(err)
		p.Processed = parseStats(fmt.Sprintf("%+v", err)).processed
		return p
	}
	s := parseStats(log)
	p.Processed, p.VerifyMS, p.Xlated = s.processed, s.verifyMS, xlated
	if len(s.frames) == len(subs) {
		for i := range subs {
			subs[i].frame = s.frames[i]
		}
		p.Stack = deepest(subs, 0)
	}
	switch {
	case len(s.self) == len(subs):
		setCounts(subs, s.self)
	case functions:
		steps, _, err := loadLog(spec, name, reused, ebpf.LogLevelStats|ebpf.LogLevelBranch|ebpf.LogLevelInstruction, stepsRoom)
		if err != nil {
			p.Error = lastLine(err)
			return p
		}
		setCounts(subs, countSteps(steps, subs))
	default:
		return p
	}
	p.Functions = counted(subs)
	return p
}

func setCounts(subs []subprogram, self []int) {
	for i := range subs {
		subs[i].self = self[i]
	}
}

// loadLog returns what the verifier says of a program, and how many instructions it has in the end.
func loadLog(spec *ebpf.CollectionSpec, name string, reused map[string]*ebpf.Map, level ebpf.LogLevel, room uint32) (log string, xlated int, err error) {
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: reused,
		Programs:        ebpf.ProgramOptions{LogLevel: level, LogSizeStart: room},
	})
	if err != nil {
		return "", 0, err
	}
	defer c.Close()
	info, err := c.Programs[name].Info()
	if err != nil {
		return "", 0, fmt.Errorf("asking the kernel about program %q: %w", name, err)
	}
	bytes, err := info.TranslatedSize()
	return c.Programs[name].VerifierLog, bytes / 8, err
}

// lastLine returns the verifier's last words, or the error.
func lastLine(err error) string {
	var ve *ebpf.VerifierError
	if !errors.As(err, &ve) || len(ve.Log) == 0 {
		return err.Error()
	}
	for _, line := range slices.Backward(ve.Log) {
		if !statistics.MatchString(line) {
			return fmt.Sprintf("%v: %s", ve.Cause, line)
		}
	}
	return ve.Error()
}
