// SPDX-License-Identifier: Apache-2.0

// Genman writes the manual pages of all commands into a folder.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra/doc"

	"narthex/internal/cli"
	"narthex/internal/daemon"
)

//go:generate go run . ../man

// edition is the date on the pages. It is not today's: pages are in the repository, and
// change with the commands alone.
var edition = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: genman DIR")
		os.Exit(2)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "genman:", err)
		os.Exit(1)
	}
}

// noDemo stands in for the demo, which has a page and is not run.
func noDemo(context.Context, io.Writer, bool) error { return nil }

func generate(dir string) error {
	root := cli.Commands(cli.Env{Stdout: io.Discard, Stderr: io.Discard, RunDir: daemon.RunDir, Demo: noDemo})
	root.DisableAutoGenTag = true
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Narthex", Manual: "Narthex", Date: &edition}, dir)
}
