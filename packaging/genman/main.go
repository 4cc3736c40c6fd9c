// SPDX-License-Identifier: Apache-2.0

// Genman writes the manual pages into a folder: of all commands, of the service, of the policy file.
package main

import (
	"context"
	_ "embed" // of the page of the service
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra/doc"

	"narthex/internal/cli"
	"narthex/internal/daemon"
	"narthex/internal/policy"
)

//go:generate go run . ../man

//go:embed narthex.8.md
var service string

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
	schema, err := policy.Schema()
	if err != nil {
		return err
	}
	policyText, err := policyPage(schema)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"narthex.8": service, "narthex-policy.5": policyText} {
		title, section, _ := strings.Cut(name, ".")
		head := fmt.Sprintf("%% %q %q %q %q %q\n", strings.ToUpper(title), section, edition.Format("Jan 2006"), "Narthex", "Narthex")
		if err := os.WriteFile(filepath.Join(dir, name), md2man.Render([]byte(head+text)), 0o644); err != nil {
			return err
		}
	}
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Narthex", Manual: "Narthex", Date: &edition}, dir)
}
