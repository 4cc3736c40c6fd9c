// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
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
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT)
			defer stop()
			err := env.Demo(ctx, env.Stdout, asJSON)
			if err != nil && ctx.Err() != nil {
				fmt.Fprintf(env.Stderr, "narthex: %s\n", sentence(err))
				return exitError{exitInterrupted}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the results as JSON at the end")
	return cmd
}
