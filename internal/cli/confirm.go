// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"narthex/internal/api"
)

func confirmCommand(env Env) *cobra.Command {
	var revert bool
	cmd := &cobra.Command{
		Use:   "confirm",
		Short: "Keep a policy that would be taken back, or take it back",
		Long: `Keep the policy that "narthex reload --confirm" has put in force, or with --revert
take it back at once. The one before comes back as it was, whatever its file holds now,
with the limits that had been set by hand.`,
		Example: `  narthex reload strict.yaml --confirm 60s
  narthex confirm
  narthex confirm --revert`,
		Args: none,
	}
	t := addTarget(cmd, env)
	cmd.Flags().BoolVar(&revert, "revert", false, "take the policy back")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		result, err := t.client().Confirm(cmd.Context(), api.ConfirmRequest{Revert: revert})
		if err != nil {
			return t.explain(err)
		}
		for _, line := range result.Notes {
			fmt.Fprintln(env.Stderr, line)
		}
		for _, o := range result.Ended {
			fmt.Fprintf(env.Stdout, "%s is no longer %s\n", o.Path, o.Value)
		}
		for _, o := range result.Restored {
			fmt.Fprintf(env.Stdout, "%s is %s again\n", o.Path, o.Value)
		}
		state := "stays in force"
		if revert {
			state = "is in force again"
		}
		_, err = fmt.Fprintf(env.Stdout, "instance %s: %s %s (%s)\n", t.instance, result.Policy.File, state, shortHash(result.Policy.Hash))
		return err
	}
	return cmd
}
