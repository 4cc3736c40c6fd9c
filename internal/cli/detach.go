// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"narthex/internal/daemon"
)

func detachCommand(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "detach",
		Short: "Remove everything of an instance, also after a crash",
		Long: `Take an instance out of force: ask its daemon to stop and wait for that, or
remove what a daemon left that was killed or ran with --keep. Afterwards nothing is
attached. If there was nothing, that is said and is no failure.`,
		Example: `  narthex detach
  narthex detach --instance test`,
		Args: none,
	}
	t := addTarget(cmd, env)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found, err := daemon.Detach(cmd.Context(), env.Kernel, env.RunDir, t.instance, t.socket)
		if err != nil {
			return err
		}
		said := "nothing to detach"
		if found {
			said = "detached"
		}
		_, err = fmt.Fprintf(env.Stdout, "instance %s: %s\n", t.instance, said)
		return err
	}
	return cmd
}
