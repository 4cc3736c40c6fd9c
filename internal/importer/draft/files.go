// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Files reads what a configuration includes.
type Files struct {
	Root string // absolute paths are looked up below it; empty: as they are
	Base string // relative paths are looked up below it
	None bool   // there are none
}

// MaxBytes bounds one file that is read.
const MaxBytes = 16 << 20

// maxIncluded bounds the files that one pattern names.
const maxIncluded = 4096

// Glob returns the files that a pattern names, in order. Without stars and the like it is
// the one file, be it there or not.
func (f Files) Glob(pattern string) ([]string, error) {
	if f.None {
		return nil, errors.New("included files are not read here")
	}
	at := filepath.Join(f.Base, pattern)
	if filepath.IsAbs(pattern) {
		at = filepath.Join(f.Root, pattern)
	}
	if !hasMeta(pattern) {
		return []string{at}, nil
	}
	found, err := filepath.Glob(at)
	if len(found) > maxIncluded {
		return nil, fmt.Errorf("it names %d files", len(found))
	}
	return found, err
}

func hasMeta(pattern string) bool {
	for _, c := range pattern {
		if c == '*' || c == '?' || c == '[' {
			return true
		}
	}
	return false
}

// Read returns a file that Glob has named.
func (f Files) Read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return nil, err
	}
	return ReadAll(file)
}

// ReadAll reads at most MaxBytes, and fails if there is more.
func ReadAll(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err == nil && len(text) > MaxBytes {
		err = fmt.Errorf("there are more than %d MiB", MaxBytes>>20)
	}
	return text, err
}
