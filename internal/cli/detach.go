// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"narthex/internal/daemon"
)

func detachCommand(env Env) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "detach",
		Short: "Remove everything of an instance, also after a crash",
		Long: `Take an instance out of force: ask its daemon to stop and wait for that, or
remove what a daemon left that was killed or ran with --keep. Afterwards nothing is
attached.

With --force it does not wait for a daemon that hangs, and needs none. A daemon that goes
on afterwards sees that its instance was taken, says so, and ends with exit code 4. Requests
that wait in such an instance are lost; their clients send them again.

If there was nothing, that is said. It is no failure for the instance "default"; for
another name it is, for that may be mistyped.`,
		Example: `  narthex detach
  narthex detach --instance test
  narthex detach --force`,
		Args: none,
	}
	t := addTarget(cmd, env)
	cmd.Flags().BoolVar(&force, "force", false, "do without a daemon that does not answer or end")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found, err := daemon.Detach(cmd.Context(), env.Kernel, daemon.Detachment{
			Instance: t.instance, RunDir: env.RunDir, Socket: t.socket, Client: t.client(), Force: force,
			Waiting: func(pid int) {
				fmt.Fprintf(env.Stderr, "process %d was asked to stop: waiting for it (Ctrl-C gives up; `narthex detach --force%s` does not wait)\n", pid, t.named())
			},
		})
		switch {
		case err != nil:
			return t.explain(err)
		case found:
			_, err = fmt.Fprintf(env.Stdout, "instance %s: detached\n", t.instance)
			return err
		case t.instance == daemon.DefaultInstance:
			_, err = fmt.Fprintf(env.Stdout, "instance %s: nothing to detach\n", t.instance)
			return err
		}
		return fmt.Errorf("there is no instance %q: %s", t.instance, t.known())
	}
	return cmd
}

// known says which instances there are.
func (t *target) known() string {
	found := instances(t.env)
	if len(found) == 0 {
		return "none runs and nothing is in force"
	}
	return "there is " + strings.Join(found, ", ")
}
