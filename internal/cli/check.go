// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"narthex/internal/daemon"
	"narthex/internal/datapath"
	"narthex/internal/lists"
	"narthex/internal/policy"
)

func checkCommand(env Env) *cobra.Command {
	var asJSON, strict bool
	cmd := &cobra.Command{
		Use:   "check FILE|-",
		Short: "Say what a policy means, or what is wrong in it",
		Long: `Read, check and compile a policy without touching the kernel, and say what it
means. A dash stands for the standard input. Warnings go to the standard error. What is wrong is said as
FILE:LINE:COL: with what would be right, and the exit code is 2; with --strict also where there are warnings.`,
		Example: `  narthex check policy.yaml
  narthex check --json policy.yaml | jq .connections
  narthex check --strict policy.yaml && systemctl reload narthex
  make-policy | narthex check -`,
		Args: exactly(1, "name the policy file"),
		RunE: func(_ *cobra.Command, args []string) error { return check(env, args[0], asJSON, strict) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 2 where there are warnings, too")
	return cmd
}

// checked is what `check --json` prints of a valid policy.
type checked struct {
	*policy.Meaning
	Slots    int       `json:"slots"` // enough for all that can wait at once
	Warnings []message `json:"warnings"`
}

// refused is what it prints of another one.
type refused struct {
	Errors   []message `json:"errors"`
	Warnings []message `json:"warnings"`
}

type message struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Col  int    `json:"col"`
	Msg  string `json:"message"`
}

func check(env Env, file string, asJSON, strict bool) error {
	p, tables, found, err := readPolicy(env, file)
	warnings := []message{}
	for _, w := range found {
		warnings = append(warnings, message(w))
		if !asJSON {
			fmt.Fprintf(env.Stderr, "%s (warning)\n", w)
		}
	}
	var wrong policy.Errors
	switch {
	case errors.As(err, &wrong):
		return refuse(env, wrong, warnings, asJSON)
	case err != nil:
		return daemon.AdviseOnPolicy(err)
	}
	if err := printMeaning(env, p, tables, warnings, asJSON); err != nil {
		return err
	}
	if strict && len(warnings) > 0 {
		return exitError{exitUsage}
	}
	return nil
}

// printMeaning says what a valid policy means.
func printMeaning(env Env, p *policy.Policy, tables *policy.Tables, warnings []message, asJSON bool) error {
	if asJSON {
		return printJSON(env, checked{p.Meaning(tables), datapath.SlotsFor(datapath.Waiting(tables)), warnings})
	}
	if err := policy.Describe(env.Stdout, p, tables); err != nil {
		return err
	}
	return describeSlots(env.Stdout, tables)
}

// describeSlots says what all queues together need, if that is more than there is without asking.
func describeSlots(w io.Writer, t *policy.Tables) error {
	waiting := datapath.Waiting(t)
	need := datapath.SlotsFor(waiting)
	if need <= datapath.DefaultSlots {
		return nil
	}
	how := fmt.Sprintf("use --slots %d (%d MiB) to hold all at once", need, need*datapath.DefaultSlotSize>>20)
	if need > datapath.MaxSlots {
		how = fmt.Sprintf("more than the %d that --slots can hold at once", datapath.MaxSlots)
	}
	_, err := fmt.Fprintf(w, `
slots
  up to %d wait in all queues together: %s
  with fewer (%d without the option) a quarter is divided among the services, which each is sure of
`, waiting, how, datapath.DefaultSlots)
	return err
}

// readPolicy reads a file, or for a dash the standard input, neither beyond what a policy
// may have.
func readPolicy(env Env, file string) (*policy.Policy, *policy.Tables, []policy.Warning, error) {
	if file != "-" {
		p, tables, warnings, err := policy.Read(file)
		if err != nil {
			return p, tables, warnings, err
		}
		_, err = lists.Open(p)
		return p, tables, warnings, err
	}
	text, err := io.ReadAll(io.LimitReader(env.Stdin, policy.MaxFileBytes+1))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read policy from the standard input: %w", err)
	}
	p, warnings, err := policy.Parse("<stdin>", text)
	if err != nil {
		return nil, nil, warnings, err
	}
	tables, more, err := policy.Compile(p)
	if err == nil {
		_, err = lists.Open(p)
	}
	return p, tables, append(warnings, more...), err
}

// refuse prints errors as compilers do, for editors to jump to.
func refuse(env Env, wrong policy.Errors, warnings []message, asJSON bool) error {
	if asJSON {
		told := refused{Warnings: warnings}
		for _, e := range wrong {
			told.Errors = append(told.Errors, message(*e))
		}
		if err := printJSON(env, told); err != nil {
			return err
		}
		return exitError{exitUsage}
	}
	fmt.Fprintln(env.Stderr, wrong)
	return exitError{exitUsage}
}
