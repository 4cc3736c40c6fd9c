// SPDX-License-Identifier: Apache-2.0

// Package baseline keeps how many instructions the kernel's verifier processed, to compare with.
package baseline

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Baseline says how many instructions the verifier processed, by kernel and program, when it was last
// written. A commit that makes a program dearer on purpose brings the baseline that says so.
type Baseline map[string]map[string]int

// debian begins the names of Debian's own kernels, which go by the series that `make kernels` knows them
// by. Others go by the beginning of their versions.
const debian = "debian-"

// Debian is what the kernel of a series of Debian's is called.
func Debian(series string) string { return debian + series }

// Accept is the command that writes what a kernel takes.
func Accept(kernel string) string {
	if series, ok := strings.CutPrefix(kernel, debian); ok {
		return "make kernels KERNELS=" + series + " UPDATE=1"
	}
	return "make verifier UPDATE=1"
}

// Parse reads what Write wrote.
func Parse(text []byte) (Baseline, error) {
	b := Baseline{}
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, fmt.Errorf("reading the baseline: %w", err)
	}
	return b, nil
}

// Read reads a file.
func Read(path string) (Baseline, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the baseline: %w", err)
	}
	return Parse(text)
}

// Write writes a file.
func (b Baseline) Write(path string) error {
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
