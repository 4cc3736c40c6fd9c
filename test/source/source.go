// SPDX-License-Identifier: Apache-2.0

// Package source is imported by packages that compile C from bpf/ for this machine. The go command
// does not see that such a package depends on files outside of its folder, and would go on with what
// it compiled before. It sees that this package has changed, which has the sum of all those files.
//
// Where the sum is not that of the files, what was compiled may be of old ones: the program ends.
package source

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"narthex/test/source/sum"
)

//go:generate go run ./gensum ../../bpf sum_generated.go

func init() {
	if err := Check(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Check returns an error if the source is no longer what was compiled. A test of each of these packages
// calls it again, for of files that are read during a test the go command knows that its result, if it
// has one, depends on them.
func Check() error {
	_, here, _, _ := runtime.Caller(0)
	return check(filepath.Join(filepath.Dir(here), "../../bpf"), compiled)
}

// check compares the sum of a folder with one. A program that runs where there is no source has
// nothing to compare.
func check(folder, want string) error {
	if _, err := os.Stat(folder); err != nil {
		return nil
	}
	switch got, err := sum.Of(os.DirFS(folder)); {
	case err != nil:
		return fmt.Errorf("reading the source that this was compiled from: %w", err)
	case got != want:
		return fmt.Errorf("%s has changed: run make generate, or go generate ./test/source, so that tests are of what is there", folder)
	}
	return nil
}
