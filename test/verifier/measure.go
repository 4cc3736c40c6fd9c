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
	loaded, err := loadLog(spec, name, reused, ebpf.LogLevelStats, statsRoom)
	p.LoadMS = float64(time.Since(start).Microseconds()) / 1000
	if err != nil {
		p.Error = lastLine(err)
		p.Processed = parseStats(fmt.Sprintf("%+v", err)).processed
		return p
	}
	s := parseStats(loaded.log)
	p.Processed, p.VerifyMS, p.Xlated = s.processed, s.verifyMS, loaded.xlated
	if s.names == nil {
		s.names = loaded.functions
	}
	set(subs, s.names, s.frames, func(s *subprogram) *int { return &s.frame })
	p.Stack = deepest(subs, 0)
	switch {
	case s.self != nil:
		set(subs, s.names, s.self, func(s *subprogram) *int { return &s.self })
	case functions:
		steps, err := loadLog(spec, name, reused, ebpf.LogLevelStats|ebpf.LogLevelBranch|ebpf.LogLevelInstruction, stepsRoom)
		if err != nil {
			p.Error = lastLine(err)
			return p
		}
		countSteps(steps.log, subs)
	default:
		return p
	}
	p.Functions = counted(subs)
	return p
}

// result is what the kernel says of a program that it has loaded.
type result struct {
	log       string
	xlated    int      // instructions
	functions []string // in their order
}

func loadLog(spec *ebpf.CollectionSpec, name string, reused map[string]*ebpf.Map, level ebpf.LogLevel, room uint32) (result, error) {
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: reused,
		Programs:        ebpf.ProgramOptions{LogLevel: level, LogSizeStart: room},
	})
	if err != nil {
		return result{}, err
	}
	defer c.Close()
	r := result{log: c.Programs[name].VerifierLog}
	info, err := c.Programs[name].Info()
	if err != nil {
		return r, fmt.Errorf("asking the kernel about program %q: %w", name, err)
	}
	bytes, err := info.TranslatedSize()
	if err != nil {
		return r, err
	}
	functions, err := info.FuncInfos()
	if err != nil {
		return r, err
	}
	r.xlated = bytes / 8
	for _, f := range functions {
		r.functions = append(r.functions, f.Func.Name)
	}
	return r, nil
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
