// SPDX-License-Identifier: Apache-2.0

// Package docs executes the examples of the documentation and of every command's help. README.md
// says how blocks of a page are marked.
package docs

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binary is the command that the pages are about.
var binary string

// repository is the folder of the source.
var repository string

func TestMain(m *testing.M) {
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		_ = flag.Set("test.parallel", "3") // pages partly wait
	}
	dir, err := os.MkdirTemp("", "narthex-docs-")
	if err == nil {
		repository, err = filepath.Abs("../..")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "narthex")
	// As the Makefile does, so that a page's `make build` finds nearly all of it compiled.
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", binary, "narthex/cmd/narthex")
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	code := 1
	if err := build.Run(); err == nil {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}
