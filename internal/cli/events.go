// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"narthex/internal/api"
	"narthex/internal/daemon"
	"narthex/internal/datapath"
)

func eventsCommand(env Env) *cobra.Command {
	var filter api.EventFilter
	var count int
	var limit time.Duration
	var asJSON, summary bool
	var since string
	var from time.Time
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show who is turned away, and why, as it happens",
		Long: `Show decisions as they happen, a line for each, until Ctrl-C: connections whose SYN is
dropped, requests that are rejected or demoted, and one of ` + fmt.Sprint(datapath.EventSample) + ` requests that enter service,
wait or are released. A line has the time, what was decided, the client, the service,
the class, the rule, what is in the rule's bucket of how much, the reason and how long
the request had waited; where it was for want of room in service, or in overload, also
the limit and the signal that has set it. Where the service is in shadow mode it says
what would have been.

Of a flood part is shown: a line says how many events were missed, and --sample 10 asks
for one event in ten. With --summary no events are shown, but at the end who was turned
away most, by which rules and for which reasons.

With --since it shows what the daemon has kept of refusals, from then until now, and ends:
a sample of them, if it runs with --refusals, as the systemd unit has it. "narthex explain"
says what would become of a client, and with --at what did.`,
		Example: `  narthex events
  narthex events --from 192.0.2.0/24 --kind reject
  narthex events --rule login --count 10
  narthex events --since 2h --from 192.0.2.7
  narthex events --for 30s --summary
  narthex events --for 10s --json | jq -r 'select(.reason == "rule") | .client'`,
		Args: none,
	}
	t := addTarget(cmd, env)
	flags := cmd.Flags()
	flags.StringVar(&filter.From, "from", "", "only of this client: an address, or a prefix such as 192.0.2.0/24")
	flags.StringVar(&filter.Rule, "rule", "", "only by this connection or request rule")
	flags.StringVar(&filter.Class, "class", "", "only of this class")
	flags.StringVar(&filter.Service, "service", "", "only of this service")
	flags.StringVar(&filter.Reason, "reason", "", "only for this reason")
	flags.StringVar(&filter.Kind, "kind", "", "only of this kind: drop, reject, demote, hold, admit or release")
	flags.IntVar(&count, "count", 0, "end after so many events")
	flags.DurationVar(&limit, "for", 0, "end after so long, for example 10s")
	flags.IntVar(&filter.Sample, "sample", 0, "show one in so many events of those that fit (default all)")
	flags.StringVar(&since, "since", "", "show what was kept since "+momentText)
	flags.BoolVar(&summary, "summary", false, "show no events, but sum them up at the end")
	flags.BoolVar(&asJSON, "json", false, "print JSON, one object per line")
	completeEvents(cmd, t)
	prepare := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case flags.Changed("count") && count < 1:
			return fmt.Errorf("--count %d: use 1 or more, or leave it out", count)
		case flags.Changed("for") && limit <= 0:
			return fmt.Errorf("--for %s: use a time such as 10s, or leave it out", limit)
		case flags.Changed("sample") && filter.Sample < 1:
			return fmt.Errorf("--sample %d: use 10 for one event in ten, or leave it out", filter.Sample)
		}
		if since != "" {
			var err error
			if from, err = moment(since, time.Now()); err != nil {
				return fmt.Errorf("--since: %w", err)
			}
			if limit > 0 {
				return errors.New("--for is how long to listen, and --since what was before: use one of the two")
			}
		}
		if err := daemon.CheckEventFilter(filter); err != nil {
			return err
		}
		return prepare(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
		defer stop()
		source, begin := listening, time.Now()
		if since != "" {
			source, begin = keptSince(env, from), from
		}
		if !summary {
			return showEvents(ctx, t, filter, extent{count, limit}, source, eventPrinter(env, asJSON, since != ""))
		}
		sum := newEventSummary(begin)
		err := showEvents(ctx, t, filter, extent{count, limit}, source, sum.add)
		return errors.Join(sum.print(env, asJSON), err)
	}
	return cmd
}

// extent is when to end: after so many events, and so long after the beginning; 0: not.
type extent struct {
	count int
	limit time.Duration
}

// errEnough ends showing events as was asked for.
var errEnough = errors.New("enough")

// eventSource is where events come from.
type eventSource func(ctx context.Context, c *api.Client, f api.EventFilter, began func(), tell func(api.Event) error) error

func listening(ctx context.Context, c *api.Client, f api.EventFilter, began func(), tell func(api.Event) error) error {
	return c.Events(ctx, f, began, tell)
}

// keptSince tells what was kept of refusals, or says that nothing was.
func keptSince(env Env, from time.Time) eventSource {
	return func(ctx context.Context, c *api.Client, f api.EventFilter, _ func(), tell func(api.Event) error) error {
		found := false
		err := c.Refusals(ctx, f, from, time.Time{}, func(e api.Event) error { found = true; return tell(e) })
		if err == nil && !found {
			fmt.Fprintf(env.Stderr, "nothing of the kind is kept since %s: nobody was turned away so, or more were than are kept\n", from.Format(time.DateTime))
		}
		return err
	}
}

// showEvents prints what the daemon tells.
func showEvents(ctx context.Context, t *target, filter api.EventFilter, e extent, source eventSource, show func(api.Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := func() {
		fmt.Fprintf(t.env.Stderr, "listening to events of instance %s\n", t.instance)
		if e.limit > 0 {
			time.AfterFunc(e.limit, cancel)
		}
	}
	shown := 0
	err := source(ctx, t.client(), filter, began, func(event api.Event) error {
		if err := show(event); err != nil {
			return err
		}
		if event.Missed == 0 {
			shown++
		}
		if e.count > 0 && shown == e.count {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) || ctx.Err() != nil {
		return nil
	}
	return t.explain(err)
}

// eventPrinter returns what prints an event, and nothing but whole lines.
func eventPrinter(env Env, asJSON, dated bool) func(api.Event) error {
	if !asJSON {
		lines := eventLines{colours: env.Colours, dated: dated}
		return func(e api.Event) error { return lines.print(env.Stdout, e) }
	}
	out := json.NewEncoder(env.Stdout)
	out.SetEscapeHTML(false)
	return func(e api.Event) error { return out.Encode(e) }
}

// completeEvents offers the names of the policy in force.
func completeEvents(cmd *cobra.Command, t *target) {
	complete(cmd, "kind", func(string) []string { return daemon.EventKinds() })
	complete(cmd, "reason", func(string) []string { return daemon.EventReasons() })
	for flag, of := range map[string]func(api.Status) []string{
		"rule":    eventRules,
		"class":   func(s api.Status) []string { return names(s, "classes") },
		"service": func(s api.Status) []string { return names(s, "services") },
	} {
		complete(cmd, flag, func(prefix string) []string { return completed(cmd.Context(), t, prefix, of) })
	}
	for _, flag := range []string{"from", "count", "for", "sample", "since"} {
		complete(cmd, flag, func(string) []string { return nil })
	}
}

func eventRules(s api.Status) (names []string) {
	for _, rule := range s.Rules {
		names = append(names, rule.Name)
	}
	for _, rule := range s.Requests {
		names = append(names, rule.Name)
	}
	return names
}

// completed asks the daemon for names that begin so. All of a large policy are of no use.
func completed(ctx context.Context, t *target, prefix string, of func(api.Status) []string) []string {
	const mostNames = 100
	if t.resolve() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionLimit)
	defer cancel()
	status, err := t.client().Status(ctx)
	if err != nil {
		return nil
	}
	found := beginning(prefix, of(status))
	return found[:min(len(found), mostNames)]
}
