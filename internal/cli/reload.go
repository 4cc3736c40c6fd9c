// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"narthex/internal/api"
	"narthex/internal/daemon"
)

// reloadOptions say how a policy comes in force, or is tried out.
type reloadOptions struct {
	confirm time.Duration // 0: it stays
	shadow  bool
	limit   time.Duration // of a trial to wait for; 0: none
}

func reloadCommand(env Env) *cobra.Command {
	var o reloadOptions
	cmd := &cobra.Command{
		Use:   "reload [FILE]",
		Short: "Replace the policy in force, or try another one out",
		Long: `Read the policy file again, or another one, and put it in force in place of the
old one. Each packet is decided by one of the two, never by parts of both. Token
buckets of rules that did not change keep their level; limits that were set by hand
end. On any error the old policy stays in force. "narthex diff FILE" says before what
would change.

With --confirm it is taken back after that time, with the limits that were set by
hand, unless "narthex confirm" comes before; also if the daemon is killed and started
again meanwhile. Until then a reload without --confirm is refused; one with --confirm
tries another policy, and gives it its time. What comes back is always the last
policy that was confirmed.

With --shadow nothing changes: the policy is tried out beside the one in force, on the
same traffic, and "narthex shadow" says what it would have done differently. Whether
requests would wait is not tried out. With --for the trial ends after that time, also if
the command does not live to see it; the command waits for that and prints the report.
Else the trial goes on until "narthex shadow --end", or until the policy in force changes.`,
		Example: `  narthex reload
  narthex reload /etc/narthex/strict.yaml --confirm 60s
  narthex reload --shadow /etc/narthex/strict.yaml --for 30s`,
		Args: between(0, 1, "name one policy file or none"),
	}
	t := addTarget(cmd, env)
	cmd.Flags().DurationVar(&o.confirm, "confirm", 0, "take the policy back after this time unless it is confirmed")
	cmd.Flags().BoolVar(&o.shadow, "shadow", false, "try the policy out beside the one in force")
	cmd.Flags().DurationVar(&o.limit, "for", 0, "with --shadow: wait so long, print the report and end the trial")
	prepare := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(cmd); err != nil {
			return err
		}
		return prepare(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, err := absolute(args)
		switch {
		case err != nil:
			return err
		case o.shadow:
			return tryOut(cmd.Context(), t, file, o.limit)
		}
		return reload(cmd.Context(), t, api.ReloadRequest{File: file, Confirm: o.confirm.Seconds()})
	}
	return cmd
}

// trialEnded is said of what ends a trial.
const trialEnded = "the trial of another policy has ended: `narthex shadow` shows what it has found"

func (o *reloadOptions) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	switch {
	case given("confirm") && (o.confirm < daemon.LeastConfirm || o.confirm > daemon.MostConfirm):
		return fmt.Errorf("--confirm %s: use a time from %s to %s, such as 60s", o.confirm, daemon.LeastConfirm, daemon.MostConfirm)
	case given("confirm") && o.shadow:
		return errors.New("--shadow puts nothing in force that could be confirmed: use one of the two")
	case given("for") && !o.shadow:
		return errors.New("--for says how long to try a policy out: use it with --shadow")
	case given("for") && o.limit <= 0:
		return fmt.Errorf("--for %s: use a time such as 30s, or leave it out", o.limit)
	}
	return nil
}

// absolute names the file that is in the arguments, if any, for a daemon in another folder.
func absolute(args []string) (string, error) {
	if len(args) == 0 {
		return "", nil
	}
	file, err := filepath.Abs(args[0])
	if err != nil {
		return "", fmt.Errorf("find policy %q: %w", args[0], err)
	}
	return file, nil
}

func reload(ctx context.Context, t *target, req api.ReloadRequest) error {
	env := t.env
	result, err := t.client().Reload(ctx, req)
	if err != nil {
		return t.explain(err)
	}
	for _, line := range append(result.Warnings, result.Notes...) {
		fmt.Fprintln(env.Stderr, line)
	}
	for _, o := range result.Ended {
		fmt.Fprintf(env.Stdout, "%s is no longer %s but as in the policy\n", o.Path, o.Value)
	}
	if result.Trial {
		fmt.Fprintln(env.Stdout, trialEnded)
	}
	until := ""
	if u := result.Policy.Unconfirmed; u != nil {
		until = " until " + u.Until.Local().Format(time.TimeOnly) + ", unless it is confirmed"
	}
	_, err = fmt.Fprintf(env.Stdout, "instance %s: %s is in force%s (%s)\n", t.instance, result.Policy.File, until, shortHash(result.Policy.Hash))
	if until != "" && env.Terminal {
		fmt.Fprintf(env.Stderr, "to keep it, type:          narthex confirm%s\nto take it back at once:   narthex confirm --revert%s\n", t.named(), t.named())
	}
	return err
}

// shortHash is as much of a hash as one compares by eye.
func shortHash(hash string) string { return hash[:min(len(hash), 12)] }
