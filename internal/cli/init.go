// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"narthex/internal/policy"
	"narthex/internal/starter"
)

// defaultPolicy is the file that init writes unless it is told another.
const defaultPolicy = "policy.yaml"

func initCommand(env Env) *cobra.Command {
	var netns string
	var force, asJSON bool
	cmd := &cobra.Command{
		Use:   "init [FILE|-]",
		Short: "Write a policy to start from, by what listens on this machine",
		Long: `Look at the listening sockets of this machine and the programs that have them, and
write a policy to start from: a service in shadow mode for each web server, what is
left out and why, and rules to choose from as comments. Nothing is sent to any
server. What a port speaks is guessed from its number and its program: check it.

The file is policy.yaml unless another is named; a dash stands for the standard
output. A file that is there is not overwritten. Only root sees the programs of
other users.`,
		Example: `  sudo narthex init
  sudo narthex init - | narthex check -
  narthex init --json | jq .services`,
		Args: between(0, 1, "name one file, or none for "+defaultPolicy),
		RunE: func(_ *cobra.Command, args []string) error {
			o := starter.Options{File: defaultPolicy, Schema: env.SchemaFile, NetNS: netns}
			toStdout := len(args) > 0 && args[0] == "-"
			if len(args) > 0 && !toStdout {
				o.File = args[0]
			}
			if asJSON && len(args) > 0 && !toStdout {
				return usage("--json says what was found and writes no file: leave FILE out")
			}
			found, err := env.Listeners(netns)
			if err != nil {
				return err
			}
			plan := starter.Make(found)
			if asJSON {
				return printJSON(env, plan)
			}
			return writePolicy(env, plan, o, toStdout, force)
		},
	}
	cmd.Flags().StringVar(&netns, "netns", "", "network namespace to look at, by its name or the path of its file")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite the file if it is there")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what was found as JSON, and write nothing")
	return cmd
}

// writePolicy writes the policy and says what to do next. What was noticed goes to the standard
// error.
func writePolicy(env Env, plan *starter.Plan, o starter.Options, toStdout, force bool) error {
	text := plan.Text(o)
	p, _, err := policy.Parse(o.File, []byte(text))
	if err == nil {
		_, _, err = policy.Compile(p)
	}
	if err != nil {
		return fmt.Errorf("what listens here makes no valid policy (%w): write one by hand, as docs/policy.md says", err)
	}
	defer func() {
		for _, note := range plan.Notes {
			fmt.Fprintf(env.Stderr, "note: %s\n", note)
		}
	}()
	if toStdout {
		_, err := io.WriteString(env.Stdout, text)
		return err
	}
	if err := create(o.File, text, force); err != nil {
		return err
	}
	fmt.Fprintf(env.Stdout, "wrote %s: %s in shadow mode, %d left out\n", o.File, count(len(plan.Services), "service"), len(plan.LeftOut))
	for _, s := range plan.Services {
		fmt.Fprintf(env.Stdout, "  %s\n", s.Summary())
	}
	fmt.Fprintln(env.Stdout, "next:")
	for _, step := range o.NextSteps() {
		fmt.Fprintf(env.Stdout, "  %s\n      %s\n", step[0], step[1])
	}
	return nil
}

// create writes a file that must not be there yet, unless that is forced.
func create(path, text string, force bool) error {
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if force {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	file, err := os.OpenFile(path, flags, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%q is there already: name another file, or overwrite it with --force", path)
	}
	if err != nil {
		return fmt.Errorf("write policy: %w", err)
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write policy: %w", err)
	}
	return nil
}
