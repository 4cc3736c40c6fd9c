// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"
)

func demoCommand(env Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a server with and without Narthex under a greedy client",
		Long: `Make network namespaces with a server, a preferred and a greedy client in them,
and show what each client gets with and without Narthex. Nothing outside of the
namespaces is touched, and nothing is left.`,
		Example: `  narthex demo
  narthex demo --json`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return env.Demo(cmd.Context(), env.Stdout, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the results as JSON at the end")
	return cmd
}
