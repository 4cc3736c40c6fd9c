// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"narthex/internal/api"
)

// watchEvery is how often a report is shown again.
const watchEvery = 2 * time.Second

func shadowCommand(env Env) *cobra.Command {
	var asJSON, watch, end bool
	cmd := &cobra.Command{
		Use:   "shadow",
		Short: "Show what a policy that is tried out would do differently",
		Long: `Show what the policy that "narthex reload --shadow FILE" tries out would have done
differently from the one in force, on the same traffic: which SYNs and requests, with
examples, and for each rule and class what both make of it. Both are worked out alike;
beside them stands what the kernel has really done.

Buckets begin full, and nothing is remembered of clients, when the trial begins. What
the policy in force does not let in says nothing more: its requests are not seen.
Whether requests would wait is not tried out; classes show how many would arrive in each.

A trial ends with --end, which shows its report once more and forgets it, when the time
is over that "reload --shadow FILE" has set with --for, with another trial, or when the
policy in force changes. What has ended otherwise can be shown until the next one begins.`,
		Example: `  narthex reload --shadow strict.yaml
  narthex shadow --watch
  narthex shadow --json | jq '.pairs[] | {count, live, candidate}'
  narthex shadow --end`,
		Args: none,
	}
	t := addTarget(cmd, env)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON; with --watch an object in each line")
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again every two seconds until Ctrl-C or the end of the trial")
	cmd.Flags().BoolVar(&end, "end", false, "end the trial, show what it has found, and forget it")
	prepare := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if watch && end {
			return errors.New("--end leaves nothing to watch: use one of the two")
		}
		return prepare(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if watch {
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			return watchTrial(ctx, t, asJSON)
		}
		ask := t.client().ShadowReport
		if end {
			ask = t.client().EndShadow
		}
		report, err := ask(cmd.Context(), "")
		switch {
		case err != nil:
			return t.explain(err)
		case asJSON:
			return printJSON(env, report)
		}
		return printReport(env.Stdout, report)
	}
	return cmd
}

// watchTrial shows a report again and again, on a terminal in one place.
func watchTrial(ctx context.Context, t *target, asJSON bool) error {
	const clear = "\x1b[H\x1b[2J"
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		report, err := t.client().ShadowReport(ctx, "")
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return t.explain(err)
		}
		if asJSON {
			err = json.NewEncoder(t.env.Stdout).Encode(report)
		} else {
			if t.env.Colours {
				_, _ = io.WriteString(t.env.Stdout, clear)
			}
			err = printReport(t.env.Stdout, report)
		}
		if err != nil || report.Ended != "" {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// tryOut begins a trial. If it is to last for a time, it waits for it and shows what was found.
func tryOut(ctx context.Context, t *target, file string, limit time.Duration) error {
	env := t.env
	started, err := t.client().Shadow(ctx, api.ShadowRequest{File: file, For: limit.Seconds()})
	if err != nil {
		return t.explain(err)
	}
	for _, line := range started.Warnings {
		fmt.Fprintln(env.Stderr, line)
	}
	if started.Replaced {
		fmt.Fprintln(env.Stderr, "the trial before has ended")
	}
	about := fmt.Sprintf("instance %s: %s is tried out beside %s (%s, %s); nothing else changes\n", t.instance,
		started.Candidate.File, started.Live.File, shortHash(started.Candidate.Hash), shortHash(started.Live.Hash))
	if limit == 0 {
		_, err := fmt.Fprintf(env.Stdout, "%s`narthex shadow%s` shows what it would do differently, `narthex shadow --end%s` ends the trial\n", about, t.named(), t.named())
		return err
	}
	fmt.Fprint(env.Stderr, about)
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := awaitTrial(ctx, t, started.ID, limit); err != nil {
		return t.explain(err)
	}
	report, err := t.client().EndShadow(context.WithoutCancel(ctx), started.ID)
	if err != nil {
		return t.explain(err)
	}
	return printReport(env.Stdout, report)
}

// awaitTrial waits for the end of the trial, which the daemon ends when its time is over, or of the
// user's patience, and says how it goes.
func awaitTrial(ctx context.Context, t *target, id string, limit time.Duration) error {
	end := time.After(limit)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for began := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-end:
		case <-tick.C:
		}
		report, err := t.client().ShadowReport(ctx, id)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil || report.Ended != "" {
			return err
		}
		if t.env.Terminal {
			left := max(limit-time.Since(began), 0).Round(time.Second)
			fmt.Fprintf(t.env.Stderr, "%s left: %d SYNs, %d requests, %d would be decided otherwise\n", left, report.SYNs, report.Requests, report.Different)
		}
	}
}

// mostPairs is how many differences fit a screen.
const mostPairs = 12

func printReport(w io.Writer, r api.ShadowReport) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s) tried out beside %s (%s), for %s, begun by %s\n", r.Candidate.File, shortHash(r.Candidate.Hash),
		r.Live.File, shortHash(r.Live.Hash), time.Duration(r.Seconds*float64(time.Second)).Round(time.Second), r.By)
	if r.Ended != "" {
		fmt.Fprintf(&b, "ended: %s\n", r.Ended)
	}
	fmt.Fprintf(&b, "%d SYNs and %d requests: %d would be decided as now, %d otherwise\n", r.SYNs, r.Requests, r.Same, r.Different)
	if r.SYNs+r.Requests > 0 {
		fmt.Fprintf(&b, "the kernel has done in %.1f%% of them what is worked out here for the policy in force\n", 100*r.Agreement)
	}
	printPairs(&b, r)
	printTrialRules(&b, r)
	printTrialClasses(&b, r)
	b.WriteString("\n")
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
