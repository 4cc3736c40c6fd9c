// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// subprogram is a function of a program, in the verifier's numbering. A global one is verified once by
// itself, a static one again at each call.
type subprogram struct {
	name   string
	start  int // its first instruction
	frame  int // bytes of stack
	global bool
	calls  []int // what it calls, by number
	self   int   // instructions processed within it
}

// subprograms returns the functions of a program; the first is its entry.
func subprograms(all asm.Instructions) []subprogram {
	var subs []subprogram
	numbers := map[string]int{}
	at := 0
	for i := range all {
		if f := btf.FuncMetadata(&all[i]); f != nil {
			numbers[f.Name] = len(subs)
			subs = append(subs, subprogram{name: f.Name, start: at, global: len(subs) == 0 || f.Linkage == btf.GlobalFunc})
		}
		at += int(all[i].Size() / asm.InstructionSize)
	}
	current := -1
	for i := range all {
		if btf.FuncMetadata(&all[i]) != nil {
			current++
		}
		// Calls, and callbacks of loops.
		if to, ok := numbers[all[i].Reference()]; ok && all[i].IsFunctionReference() && current >= 0 {
			subs[current].calls = append(subs[current].calls, to)
		}
	}
	for i := range subs {
		slices.Sort(subs[i].calls)
		subs[i].calls = slices.Compact(subs[i].calls)
	}
	return subs
}

// set gives functions their figures by name: those that the verifier finds unreachable are gone.
func set(subs []subprogram, names []string, figures []int, field func(*subprogram) *int) {
	if len(names) != len(figures) {
		return
	}
	for i, name := range names {
		if at := slices.IndexFunc(subs, func(s subprogram) bool { return s.name == name }); at >= 0 {
			*field(&subs[at]) = figures[i]
		}
	}
}

// deepest returns how many bytes of stack a function and all that it calls take at most. The
// kernel rounds each frame up, as newer ones do, to 16 bytes.
func deepest(subs []subprogram, at int) int {
	below := 0
	for _, to := range subs[at].calls {
		below = max(below, deepest(subs, to))
	}
	return (max(subs[at].frame, 1)+15)/16*16 + below
}

// counted returns the functions with what they took themselves, the dearest first.
func counted(subs []subprogram) []function {
	var all []function
	for _, s := range subs {
		all = append(all, function{Name: s.name, Processed: s.self, Stack: s.frame, Static: !s.global})
	}
	slices.SortStableFunc(all, func(a, b function) int { return cmp.Compare(b.Processed, a.Processed) })
	return all
}

// stats are the statistics at the end of a verifier's log.
type stats struct {
	processed int
	verifyMS  float64
	frames    []int // bytes of stack by subprogram
	// Only newer kernels say these, by subprogram as well.
	names []string
	self  []int // instructions processed
}

var (
	processedLine = regexp.MustCompile(`(?m)^\s*processed (\d+) insns`)
	timeLine      = regexp.MustCompile(`(?m)^verification time (\d+) usec`)
	stackLine     = regexp.MustCompile(`(?m)^stack depth (\d+(?:\+\d+)*)`)
	subprogLine   = regexp.MustCompile(`(?m)^subprog \d+ \((.*)\) .*\binsns_self (\d+) .*\bstack (\d+)`)
	statistics    = regexp.MustCompile(`^(processed|verification time|stack depth|subprog) `)
)

func parseStats(log string) (s stats) {
	if m := processedLine.FindStringSubmatch(log); m != nil {
		s.processed, _ = strconv.Atoi(m[1])
	}
	if m := timeLine.FindStringSubmatch(log); m != nil {
		us, _ := strconv.ParseFloat(m[1], 64)
		s.verifyMS = us / 1000
	}
	subs := subprogLine.FindAllStringSubmatch(log, -1)
	for _, m := range subs {
		self, _ := strconv.Atoi(m[2])
		frame, _ := strconv.Atoi(m[3])
		s.names, s.self, s.frames = append(s.names, m[1]), append(s.self, self), append(s.frames, frame)
	}
	if m := stackLine.FindStringSubmatch(log); m != nil && len(subs) == 0 {
		for frame := range strings.SplitSeq(m[1], "+") {
			n, _ := strconv.Atoi(frame)
			s.frames = append(s.frames, n)
		}
	}
	return s
}

// step matches a line of the detailed log that is written for an instruction: as it is processed, or as
// a state is found to be one that is known to be safe.
var step = regexp.MustCompile(`^(?:from \d+ to )?(\d+)(?: \(speculative execution\))?: (?:\([0-9a-f]{2}\) |safe)`)

// countSteps counts the instructions that the detailed log lists by the subprogram that they are in.
func countSteps(log string, subs []subprogram) {
	for line := range strings.SplitSeq(log, "\n") {
		m := step.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		at, _ := strconv.Atoi(m[1])
		i := sort.Search(len(subs), func(i int) bool { return subs[i].start > at }) - 1
		subs[i].self++
	}
}
