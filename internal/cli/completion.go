// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"narthex/internal/daemon"
)

// completionLimit is how long a shell waits for the daemon when one presses the key.
const completionLimit = time.Second

func completionCommand(env Env) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print the script that completes commands in a shell",
		Long: `Print the script that makes a shell complete the commands, options, instances
and the paths of "narthex set".`,
		Example: `  narthex completion bash >/etc/bash_completion.d/narthex
  narthex completion zsh >"${fpath[1]}/_narthex"
  narthex completion fish >~/.config/fish/completions/narthex.fish`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(shells, args[0]) {
				return errors.New("name a shell: bash, zsh or fish")
			}
			return nil
		},
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "zsh":
				return cmd.Root().GenZshCompletion(env.Stdout)
			case "fish":
				return cmd.Root().GenFishCompletion(env.Stdout, true)
			}
			return cmd.Root().GenBashCompletionV2(env.Stdout, true)
		},
	}
}

// complete offers values for an option.
func complete(cmd *cobra.Command, flag string, values func(prefix string) []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return values(prefix), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the option does not exist: an error of this program
	}
}

// instances lists what runs and what is in force without a daemon.
func instances(env Env) []string {
	found := env.PinnedInstances()
	sockets, _ := filepath.Glob(daemon.SocketPath(env.RunDir, "*"))
	for _, path := range sockets {
		found = append(found, strings.TrimSuffix(filepath.Base(path), ".sock"))
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// settable completes the next part of a path that can be set in a running instance: the
// table, then the rule, then the limit. All paths of a large policy at once are of no use.
func settable(ctx context.Context, t *target, prefix string) ([]string, cobra.ShellCompDirective) {
	const table, mostNames = "connections.", 100
	const goesOn = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	name, found := strings.CutPrefix(prefix, table)
	if !found {
		return []string{table}, goesOn
	}
	if rule, _, chosen := strings.Cut(name, "."); chosen {
		return []string{table + rule + ".rate", table + rule + ".burst"}, cobra.ShellCompDirectiveNoFileComp
	}
	if t.resolve() != nil {
		return nil, goesOn
	}
	ctx, cancel := context.WithTimeout(ctx, completionLimit)
	defer cancel()
	status, err := t.client().Status(ctx)
	if err != nil {
		return nil, goesOn
	}
	var names []string
	for _, rule := range status.Rules {
		if rule.Rate != "" && strings.HasPrefix(rule.Name, name) && len(names) < mostNames {
			names = append(names, table+rule.Name+".")
		}
	}
	return names, goesOn
}
