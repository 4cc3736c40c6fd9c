// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"narthex/internal/api"
)

func listsCommand(env Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "lists",
		Short: "Show the lists of addresses and whether their files are in force",
		Long: `Show for each list of the policy how many entries it has, how long ago its file was
changed, how many SYNs and requests came from its addresses since the policy is in
force, and whether the file is in force as it is. A file that is missing or broken is
not: what was read before stays.

The exit code is 0 if all files are in force, and 1 otherwise.`,
		Example: `  narthex lists
  narthex lists --json | jq '.[] | select(.wrong)'`,
		Args: none,
	}
	t := addTarget(cmd, env)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		status, err := t.client().Status(cmd.Context())
		if err != nil {
			return t.explain(err)
		}
		if asJSON {
			err = printJSON(env, status.Lists)
		} else {
			_, err = fmt.Fprint(env.Stdout, listsText(status.Lists, time.Now()))
		}
		for _, l := range status.Lists {
			if err == nil && l.Wrong != "" {
				return exitError{exitFailure}
			}
		}
		return err
	}
	return cmd
}

// listsText is a table of the lists, and what is wrong with them.
func listsText(lists []api.ListStatus, now time.Time) string {
	if len(lists) == 0 {
		return "the policy has no lists\n"
	}
	var b strings.Builder
	rows := newTable("LIST", ">ENTRIES", ">AGE", ">MATCHES", "STATE", "FILE")
	for _, l := range lists {
		state := "in force"
		if l.Wrong != "" {
			state = "the last good one"
		}
		rows.add(l.Name, amount(uint64(l.Entries)), ageText(now.Sub(l.Modified)), amount(l.Matches), state, l.File)
	}
	rows.print(&b)
	for _, l := range lists {
		if l.Wrong != "" {
			fmt.Fprintf(&b, "%s: %s (for %s)\n", l.Name, l.Wrong, ageText(now.Sub(l.WrongSince)))
		}
	}
	return b.String()
}
