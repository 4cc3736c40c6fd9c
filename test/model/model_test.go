// SPDX-License-Identifier: Apache-2.0

package model

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// largeVariable asks for all scenarios and more states.
const largeVariable = "NARTHEX_MODEL"

// bounds on states, for memory: 250 bytes each.
const (
	mostStates      = 2_000_000
	mostLargeStates = 15_000_000
)

func isLarge() bool { return os.Getenv(largeVariable) == "large" }

// TestScenarios visits all states of each scenario.
func TestScenarios(t *testing.T) {
	for _, sc := range scenarios {
		if sc.large && !isLarge() {
			continue
		}
		t.Run(sc.name, func(t *testing.T) {
			bound := mostStates
			if sc.large {
				bound = mostLargeStates
			}
			r := (&Model{Config: sc.Config}).Explore(bound)
			if r.Fault != "" {
				t.Fatal(r)
			}
			if !r.Full {
				t.Fatalf("more than %d states", bound)
			}
			t.Logf("%d states", r.States)
		})
	}
}

// TestMistakes proves that faults are found: one for each deliberate mistake.
func TestMistakes(t *testing.T) {
	for _, x := range mistakes {
		sc := find(t, x.scenario)
		if sc.large && !isLarge() {
			continue
		}
		t.Run(x.what, func(t *testing.T) {
			m := Model{Config: sc.Config, Mistake: x.mistake}
			r := m.Explore(mostLargeStates)
			if r.Fault == "" {
				t.Fatalf("nothing is wrong in %d states of %q", r.States, x.scenario)
			}
			t.Log(r)
		})
	}
}

// TestMistakesAreAll compares the table with the mistakes that there are.
func TestMistakesAreAll(t *testing.T) {
	var all mistake
	for _, x := range mistakes {
		if all&x.mistake != 0 {
			t.Errorf("%q is in the table twice", x.what)
		}
		all |= x.mistake
	}
	if want := giveUpCounted<<1 - 1; all != want {
		t.Errorf("mistakes %#x in the table, want %#x", all, want)
	}
}

func find(t *testing.T, name string) scenario {
	t.Helper()
	for _, sc := range scenarios {
		if sc.name == name {
			return sc
		}
	}
	t.Fatalf("no scenario %q", name)
	return scenario{}
}

// TestStepsAreOfTheCode looks for the functions that steps say they stand for.
func TestStepsAreOfTheCode(t *testing.T) {
	code := readCode(t, "../../bpf")
	for at := inLookup; at < pcCount; at++ {
		name := steps[at].function
		definition := regexp.MustCompile(`(?m)^(__noinline|static __always_inline) .*\b` + name + `\(`)
		if name == "" || !definition.Match(code) {
			t.Errorf("%q: no function %q in bpf/", steps[at].what, name)
		}
	}
}

func readCode(t *testing.T, folder string) []byte {
	t.Helper()
	var code []byte
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".h" {
			return err
		}
		text, err := os.ReadFile(path)
		code = append(code, text...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// TestTraceIsAWay follows the steps to a fault, each of which must be one of the model's.
func TestTraceIsAWay(t *testing.T) {
	m := Model{Config: find(t, "turns").Config, Mistake: noLimit}
	r := m.Explore(mostStates)
	s := m.start()
	for i, step := range r.Trace {
		var after *State
		m.each(&s, func(x Step, n *State) {
			if after == nil && x == step {
				after = &State{}
				*after = *n
			}
		})
		if after == nil {
			t.Fatalf("step %d, %s, does not follow", i+1, step)
		}
		s = *after
	}
	if got := m.judge(&s); got != r.Fault {
		t.Errorf("the way leads to %q, want %q", got, r.Fault)
	}
}
