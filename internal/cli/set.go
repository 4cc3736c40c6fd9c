// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"narthex/internal/api"
)

func setCommand(env Env) *cobra.Command {
	var back bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "set PATH VALUE [PATH VALUE]... | set PATH --policy",
		Short: "Change limits now",
		Long: `Change a limit at once, without the policy file, or several, all or none:

  connections.RULE.rate, connections.RULE.burst
  requests.RULE.rate, .burst and .over (reject, drop or demote)
  services.NAME.mode, shadow or enforce: shadow is the pause switch
  services.NAME.concurrency, a number of requests (of connections, unless http),
    unlimited, or auto to let the limit set itself
  services.NAME.concurrency.min, .concurrency.max and .concurrency.target, of auto
  services.NAME.overload.after, .overload.calm, .overload.rejecting and .overload.flooded
  services.NAME.queue.size, .queue.max_wait, .queue.max_service and .queue.target
  classes.NAME.reserve and classes.NAME.max

The change outlives the daemon. It ends with the next reload, or with
"narthex set PATH --policy". With --for it ends after that time, also if the daemon was
started again meanwhile. "narthex status" lists what is changed.

A rule's own bucket keeps its tokens. Buckets per source keep their level when the
rate is lowered or only the burst changes, and start full when the rate is raised.`,
		Example: `  narthex set connections.everyone.rate 50/s
  narthex set requests.cgi.rate 10/s connections.everyone.rate 40/s    # both or none
  narthex set services.shop.concurrency 8       # take over
  narthex set services.shop.concurrency auto    # hand back
  narthex set services.shop.mode shadow --for 10m    # hold and drop nothing for ten minutes
  narthex set connections.everyone.rate --policy`,
	}
	t := addTarget(cmd, env)
	cmd.Flags().BoolVar(&back, "policy", false, "go back to the value in the policy")
	cmd.Flags().DurationVar(&limit, "for", 0, "go back to the value in the policy after this time")
	complete(cmd, "for", func(string) []string { return nil })
	prepare := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case cmd.Flags().Changed("for") && limit <= 0:
			return fmt.Errorf("--for %s: use a time such as 10m, or leave it out", limit)
		case back && limit > 0:
			return errors.New("--policy goes back at once: use one of --policy and --for")
		}
		return prepare(cmd, args)
	}
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case back && len(args) != 1:
			return errors.New("--policy takes a path and no value")
		case !back && (len(args) == 0 || len(args)%2 != 0):
			return errors.New("a path and a value are needed")
		}
		return nil
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args)%2 != 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return settable(cmd.Context(), t, prefix)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req := setRequest(args, back)
		req.For = limit.Seconds()
		result, err := t.client().Set(cmd.Context(), req)
		if err != nil {
			return t.explain(err)
		}
		if result.Trial {
			fmt.Fprintln(env.Stdout, trialEnded)
		}
		for _, o := range req.All() {
			fmt.Fprintf(env.Stdout, "%s is %s\n", o.Path, setText(o.Value, req, result))
		}
		return nil
	}
	return cmd
}

func setRequest(args []string, back bool) (req api.SetRequest) {
	if len(args) <= 2 {
		req = api.SetRequest{Path: args[0], Policy: back}
		if !back {
			req.Value = args[1]
		}
		return req
	}
	for ; len(args) > 1; args = args[2:] {
		req.Values = append(req.Values, api.Override{Path: args[0], Value: args[1]})
	}
	return req
}

func setText(value string, req api.SetRequest, result api.SetResult) string {
	text := value + " until the next reload"
	if req.For > 0 {
		text = fmt.Sprintf("%s for %s, then as in the policy", value, given(req.For))
	}
	switch {
	case !result.Changed:
		return "as in the policy: it was not overridden"
	case req.Policy:
		text = "as in the policy"
	}
	if result.Buckets != "" {
		text += "; " + result.Buckets
	}
	return text
}
