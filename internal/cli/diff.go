// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"narthex/internal/api"
	"narthex/internal/daemon"
	"narthex/internal/policy"
)

func diffCommand(env Env) *cobra.Command {
	var asJSON bool
	var against string
	cmd := &cobra.Command{
		Use:   "diff [FILE]",
		Short: "Say what a policy would change",
		Long: `Say in words what would change if a policy file came in force: services, classes and
their order, rules and their places, limits. Of rules that are moved it says whether
that makes a difference; of rates, what becomes of the buckets; of limits that were
set by hand, that they end; and what would happen to requests that wait now. Nothing
is changed. Without FILE it is the file in force, as it is now.

It is compared with what the daemon has in force, or with --against with another file,
without a daemon.

The exit code is that of diff(1): 0 if nothing would change, 1 if something would, and 2
with a sentence on the standard error if it cannot be told.`,
		Example: `  narthex diff /etc/narthex/policy.yaml
  narthex diff new.yaml --against old.yaml
  narthex diff --json | jq '.changes[] | select(.kind == "moved")'`,
		Args: between(0, 1, "name one policy file or none"),
	}
	t := addTarget(cmd, env)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&against, "against", "", "policy file to compare with, in place of what is in force")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		result, err := diff(cmd.Context(), t, args, against)
		switch {
		case err != nil:
			return trouble(err)
		case asJSON:
			err = printJSON(env, result)
		default:
			for _, w := range result.Warnings {
				fmt.Fprintf(env.Stderr, "%s (warning)\n", w)
			}
			err = printDiff(env.Stdout, result)
		}
		if err == nil && !result.Same() {
			return exitError{exitFailure}
		}
		return err
	}
	return cmd
}

func diff(ctx context.Context, t *target, args []string, against string) (api.DiffResult, error) {
	if against == "" {
		file, err := absolute(args)
		if err != nil {
			return api.DiffResult{}, err
		}
		result, err := t.client().Diff(ctx, api.DiffRequest{File: file})
		if err != nil {
			return result, t.explain(err)
		}
		return result, nil
	}
	if len(args) == 0 {
		return api.DiffResult{}, usage("--against compares two files: name the other one, too")
	}
	return daemon.OfflineDiff(against, args[0])
}

func printDiff(w io.Writer, d api.DiffResult) error {
	var b strings.Builder
	if d.Same() {
		what := "is what is compared with"
		if d.From.Hash != d.To.Hash {
			what = "means the same in other words"
		}
		fmt.Fprintf(&b, "nothing would change: %s %s (%s)\n", d.To.File, what, shortHash(d.To.Hash))
		_, err := io.WriteString(w, b.String())
		return err
	}
	fmt.Fprintf(&b, "from %s (%s)\nto   %s (%s)\n", d.From.File, shortHash(d.From.Hash), d.To.File, shortHash(d.To.Hash))
	titles := map[string]string{"services": "services", "classes": "classes", "connections": "connection rules", "requests": "request rules"}
	for _, table := range []string{"services", "classes", "connections", "requests"} {
		printChanges(&b, titles[table], table, d.Changes)
	}
	if d.Kept > 0 {
		fmt.Fprintf(&b, "\nbuckets that would keep their level: those of %s\n", count(d.Kept, "rule"))
	}
	for _, o := range d.Ended {
		fmt.Fprintf(&b, "set by hand, and would end: %s is %s\n", o.Path, o.Value)
	}
	for _, line := range d.Waiting {
		fmt.Fprintln(&b, line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// mostChanges is how many changes of a table are shown.
const mostChanges = 100

func printChanges(b *strings.Builder, title, table string, changes []policy.Change) {
	n := 0
	for _, c := range changes {
		if c.Table != table {
			continue
		}
		if n++; n == 1 {
			fmt.Fprintf(b, "\n%s\n", title)
		}
		if n <= mostChanges {
			fmt.Fprintf(b, "  %s\n", c)
		}
	}
	if n > mostChanges {
		fmt.Fprintf(b, "  and %d more (use --json)\n", n-mostChanges)
	}
}
