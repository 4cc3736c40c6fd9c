// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"narthex/internal/daemon/api"
)

func reloadCommand(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload [FILE]",
		Short: "Replace the policy in force",
		Long: `Read the policy file again, or another one, and put it in force in place of the
old one. Each packet is decided by one of the two, never by parts of both. Token
buckets of rules that did not change keep their level; limits that were set by hand
end. On any error the old policy stays in force.`,
		Example: `  narthex reload
  narthex reload /etc/narthex/strict.yaml`,
		Args: between(0, 1, "name one policy file or none"),
	}
	t := addTarget(cmd, env)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var req api.ReloadRequest
		if len(args) == 1 {
			file, err := filepath.Abs(args[0]) // the daemon is in another folder
			if err != nil {
				return fmt.Errorf("find policy %q: %w", args[0], err)
			}
			req.File = file
		}
		result, err := t.client().Reload(cmd.Context(), req)
		if err != nil {
			return t.explain(err)
		}
		for _, line := range append(result.Warnings, result.Notes...) {
			fmt.Fprintln(env.Stderr, line)
		}
		for _, o := range result.Ended {
			fmt.Fprintf(env.Stdout, "%s is no longer %s but as in the policy\n", o.Path, o.Value)
		}
		_, err = fmt.Fprintf(env.Stdout, "instance %s: %s is in force (%s)\n", t.instance, result.Policy.File, shortHash(result.Policy.Hash))
		return err
	}
	return cmd
}

// shortHash is as much of a hash as one compares by eye.
func shortHash(hash string) string { return hash[:min(len(hash), 12)] }
