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

	"narthex/internal/api"
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
// table, then the name, then the limit. All paths of a large policy at once are of no use.
func settable(ctx context.Context, t *target, prefix string) ([]string, cobra.ShellCompDirective) {
	const mostNames = 100
	const goesOn = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	table, rest, found := strings.Cut(prefix, ".")
	if !found {
		return beginning(prefix, []string{"connections.", "requests.", "services.", "classes."}), goesOn
	}
	name, _, chosen := strings.Cut(rest, ".")
	if chosen {
		var limits []string
		for _, limit := range limitsOf[table] {
			limits = append(limits, table+"."+name+"."+limit)
		}
		return beginning(prefix, limits), cobra.ShellCompDirectiveNoFileComp
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
	var paths []string
	for _, name := range names(status, table) {
		paths = append(paths, table+"."+name+".")
	}
	paths = beginning(prefix, paths)
	return paths[:min(len(paths), mostNames)], goesOn
}

// limitsOf is what can be set in each table of a policy.
var limitsOf = map[string][]string{
	"connections": {"rate", "burst"},
	"requests":    {"rate", "burst", "over"},
	"services":    {"mode", "concurrency", "concurrency.min", "concurrency.max", "concurrency.target", "overload.after", "overload.calm", "overload.rejecting", "overload.flooded", "queue.size", "queue.max_wait", "queue.max_service", "queue.target"},
	"classes":     {"reserve", "max", "stall"},
}

// names lists the entries of a table that have a limit.
func names(s api.Status, table string) (names []string) {
	switch table {
	case "connections":
		for _, rule := range s.Rules {
			if rule.Rate != "" {
				names = append(names, rule.Name)
			}
		}
	case "requests":
		for _, rule := range s.Requests {
			if rule.Rate != "" {
				names = append(names, rule.Name)
			}
		}
	case "services":
		for _, service := range s.Services {
			names = append(names, service.Name)
		}
	case "classes":
		for _, class := range s.Classes {
			names = append(names, class.Name)
		}
	}
	return names
}

// beginning returns those of the words that begin with a prefix.
func beginning(prefix string, words []string) []string {
	return slices.DeleteFunc(words, func(w string) bool { return !strings.HasPrefix(w, prefix) })
}
