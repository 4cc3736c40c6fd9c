// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"narthex/experiments/internal/evidence"
)

// root is the module's folder, seen from this package's.
const root = "../.."

// The mistake: who takes a token from a bucket does not pay for it.
const (
	mistaken = "bpf/policy/bucket.h"
	right    = "(seen > now ? seen : now) + r->interval) == seen)"
	wrong    = "(seen > now ? seen : now)) == seen)"
)

// TestMistake plants a mistake in the data path. The experiments then say no, and yes without it.
func TestMistake(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces and loads eBPF programs: run it as root, for example with make test")
	}
	dir := t.TempDir()
	command := build(t, dir, "papers", "./experiments/papers")
	for _, c := range []struct {
		name, program string
		verdict       evidence.Verdict
		status        int
	}{
		{"none", build(t, dir, "narthex", "./cmd/narthex"), evidence.Holds, 0},
		{"planted", build(t, dir, "mistaken", "-overlay", plant(t, dir), "./cmd/narthex"), evidence.Fails, 1},
	} {
		out := filepath.Join(dir, c.name)
		cmd := exec.Command(command, "-only", "check", "-quick", "-narthex", c.program, "-out", out)
		cmd.Dir = root
		said, _ := cmd.CombinedOutput() // its exit status is looked at
		if got := cmd.ProcessState.ExitCode(); got != c.status {
			t.Errorf("mistake %s: exit status %d, want %d: %s", c.name, got, c.status, said)
		}
		r, err := evidence.Load(out, "check")
		if err != nil {
			t.Errorf("mistake %s: %v: %s", c.name, err, said)
		} else if got := r.Verdict(); got != c.verdict {
			t.Errorf("mistake %s: %q, want %q: %s", c.name, got, c.verdict, said)
		}
	}
}

// build builds a program of the module into a folder. The last of the arguments is its package.
func build(t *testing.T, dir, name string, args ...string) (program string) {
	t.Helper()
	program = filepath.Join(dir, name)
	run(t, root, "go", append([]string{"build", "-buildvcs=false", "-o", program}, args...)...)
	return program
}

// plant compiles the data path with the mistake, as go generate compiles it without, and returns
// an overlay of go build that has it in place of the right one.
func plant(t *testing.T, dir string) (overlay string) {
	t.Helper()
	source, object := filepath.Join(dir, "bpf"), filepath.Join(dir, "object")
	if err := os.CopyFS(source, os.DirFS(filepath.Join(root, "bpf"))); err != nil {
		t.Fatal(err)
	}
	replace(t, filepath.Join(dir, mistaken), right, wrong)
	directive, err := os.ReadFile(filepath.Join(root, "internal/datapath/generate.go"))
	if err != nil {
		t.Fatal(err)
	}
	compile := regexp.MustCompile(`(?m)^//go:generate go (tool bpf2go .*)$`).FindSubmatch(directive)
	if compile == nil {
		t.Fatal("internal/datapath does not say how the data path is compiled")
	}
	if err := os.Mkdir(object, 0o700); err != nil {
		t.Fatal(err)
	}
	args := strings.Fields(strings.ReplaceAll(string(compile[1]), "../../bpf", source))
	run(t, root, "go", append([]string{args[0], args[1], "-output-dir", object}, args[2:]...)...)
	embedded, err := filepath.Abs(filepath.Join(root, "internal/datapath/narthex_bpfel.o"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {embedded: filepath.Join(object, "narthex_bpfel.o")}})
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// replace replaces a text that a file must have once.
func replace(t *testing.T, file, before, after string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), before); n != 1 {
		t.Fatalf("%s has %q %d times: plant another mistake", file, before, n)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), before, after, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", program, strings.Join(args, " "), err, out)
	}
}
