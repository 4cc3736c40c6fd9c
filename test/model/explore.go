// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// Report is what an exploration has found.
type Report struct {
	States int
	Fault  string // empty: nothing is wrong
	Trace  []Step // the shortest way to it
	Full   bool   // all states were visited
}

// explorer visits states breadth first. They are found again by an open hash table of their
// numbers, in which states themselves are compared.
type explorer struct {
	m     *Model
	seed  maphash.Seed
	state []State
	from  []int32
	table []int32
	done  int
}

// Explore visits all states that can be reached, up to so many.
func (m *Model) Explore(bound int) Report {
	e := &explorer{m: m, seed: maphash.MakeSeed(), table: make([]int32, 1<<16)}
	s := m.start()
	e.add(&s, -1)
	for ; e.done < len(e.state) && len(e.state) < bound; e.done++ {
		if fault := m.judge(&e.state[e.done]); fault != "" {
			return Report{States: len(e.state), Fault: fault, Trace: e.trace(e.done)}
		}
		s := e.state[e.done]
		m.each(&s, func(_ Step, n *State) { e.add(n, int32(e.done)) })
	}
	return Report{States: len(e.state), Full: e.done == len(e.state)}
}

// judge says what is wrong with a state, or with what can be reached from it.
func (m *Model) judge(s *State) string {
	if fault := m.check(s); fault != "" {
		return fault
	}
	if s.CPU[0].PC != idle {
		return "" // runs end: what holds where they have ended is enough
	}
	for _, fault := range []string{m.checkWakes(*s, true), m.checkWakes(*s, false), m.checkSilence(*s), m.checkDrain(*s)} {
		if fault != "" {
			return fault
		}
	}
	return ""
}

func (e *explorer) add(s *State, from int32) {
	mask := uint64(len(e.table) - 1)
	at := maphash.Comparable(e.seed, *s) & mask
	for ; e.table[at] != 0; at = (at + 1) & mask {
		if e.state[e.table[at]-1] == *s {
			return
		}
	}
	e.state = append(e.state, *s)
	e.from = append(e.from, from)
	e.table[at] = int32(len(e.state))
	if len(e.state)*2 > len(e.table) {
		e.grow()
	}
}

func (e *explorer) grow() {
	e.table = make([]int32, 2*len(e.table))
	mask := uint64(len(e.table) - 1)
	for i := range e.state {
		at := maphash.Comparable(e.seed, e.state[i]) & mask
		for e.table[at] != 0 {
			at = (at + 1) & mask
		}
		e.table[at] = int32(i) + 1
	}
}

// trace finds the steps again that led to a state.
func (e *explorer) trace(i int) []Step {
	var steps []Step
	for ; e.from[i] >= 0; i = int(e.from[i]) {
		var taken *Step
		e.m.each(&e.state[e.from[i]], func(step Step, n *State) {
			if taken == nil && *n == e.state[i] {
				taken = &step
			}
		})
		steps = append(steps, *taken)
	}
	slices.Reverse(steps)
	return steps
}

// String is the fault and the way to it, one step a line.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%d states)\n", r.Fault, r.States)
	for i, step := range r.Trace {
		fmt.Fprintf(&b, "%3d  %s\n", i+1, step)
	}
	return b.String()
}

// String names the step. Runs are told apart by their packets: which CPU it is says nothing.
func (s Step) String() string {
	of := ""
	if s.Key != 0 {
		of = fmt.Sprintf(" of connection %d, %d", s.Key, s.Seq)
	}
	switch {
	case s.CPU < 0:
		return s.What
	case s.Do == idle:
		return s.What + of + " arrives"
	}
	return fmt.Sprintf("run%s: %s (%s)", of, steps[s.Do].what, steps[s.Do].function)
}
