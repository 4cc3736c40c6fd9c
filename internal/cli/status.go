// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

func statusCommand(env Env) *cobra.Command {
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what is enforced and what it has done",
		Long: `Show the services and where they are policed, the rules with what they let through
and what they dropped, and what is not as one might expect. Of many rules those that
matched are shown, the ones that dropped most first.

It says which policy is in force, by its hash, since when, what the last change was, how
long ago and by whom, whether the policy is yet to be confirmed ("narthex confirm"), and
whether another one is tried out ("narthex shadow").

Of a limit that sets itself it shows what has set it, whether the service is
overloaded, and the last changes with their reasons.

The exit code is 0 while a policy is enforced, also without a daemon, and 1 otherwise.
Without a daemon there are no counters to show, only that the policy is enforced.`,
		Example: `  narthex status
  narthex status --json | jq '.rules[] | select(.dropped > 0)'`,
		Args: none,
	}
	t := addTarget(cmd, env)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print everything as JSON")
	cmd.Flags().BoolVar(&all, "all", false, "show all rules")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		status, err := readStatus(cmd.Context(), t)
		if err != nil {
			return err
		}
		if asJSON {
			err = printJSON(env, status)
		} else {
			err = printStatus(env.Stdout, status, all)
		}
		if err == nil && !status.Enforcing {
			return exitError{exitFailure}
		}
		return err
	}
	return cmd
}

// readStatus asks the daemon, or says that the instance is in force without one.
func readStatus(ctx context.Context, t *target) (api.Status, error) {
	status, err := t.client().Status(ctx)
	if !errors.Is(err, api.ErrNoDaemon) {
		return status, t.explain(err)
	}
	absence := t.absence()
	switch {
	case absence.enforced:
	case absence.holder != 0:
		return api.Status{}, errors.New(absence.sentence())
	default:
		return api.Status{}, fmt.Errorf("nothing is enforced: %s", absence.sentence())
	}
	return api.Status{
		Instance:  t.instance,
		Enforcing: true,
		Services:  []api.ServiceStatus{},
		Lists:     []api.ListStatus{},
		Classes:   []api.ClassStatus{},
		Rules:     []api.RuleStatus{},
		Requests:  []api.RequestRuleStatus{},
		Missing:   []datapath.Missing{},
		Overrides: []api.Override{},
		Warnings:  []string{},

		Capabilities: []string{},
		Reasons:      map[string]datapath.Counts{},
		Notes:        []string{absence.sentence()},
	}, nil
}
