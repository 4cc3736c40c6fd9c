// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"narthex/internal/daemon/api"
)

func setCommand(env Env) *cobra.Command {
	var back bool
	cmd := &cobra.Command{
		Use:   "set PATH VALUE | set PATH --policy",
		Short: "Change one limit now",
		Long: `Change one limit at once, without the policy file:

  connections.RULE.rate, connections.RULE.burst
  requests.RULE.rate, .burst and .over (reject, drop or demote)
  services.NAME.concurrency, a number of requests (of connections, unless http),
    unlimited, or auto to let the limit set itself
  services.NAME.concurrency.min, .concurrency.max and .concurrency.target, of auto
  services.NAME.queue.size, .queue.max_wait and .queue.max_service
  classes.NAME.reserve and classes.NAME.max

The change outlives the daemon. It ends with the next reload, or with
"narthex set PATH --policy". "narthex status" lists what is changed.

A rule's own bucket keeps its tokens. Buckets per source keep their level when the
rate is lowered or only the burst changes, and start full when the rate is raised.`,
		Example: `  narthex set connections.everyone.rate 50/s
  narthex set requests.cgi.rate 10/s
  narthex set services.shop.concurrency 8       # take over
  narthex set services.shop.concurrency auto    # hand back
  narthex set connections.everyone.rate --policy`,
	}
	t := addTarget(cmd, env)
	cmd.Flags().BoolVar(&back, "policy", false, "go back to the value in the policy")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case back && len(args) != 1:
			return errors.New("--policy takes a path and no value")
		case !back && len(args) != 2:
			return errors.New("a path and a value are needed")
		}
		return nil
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return settable(cmd.Context(), t, prefix)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req := api.SetRequest{Path: args[0], Policy: back}
		if !back {
			req.Value = args[1]
		}
		result, err := t.client().Set(cmd.Context(), req)
		if err != nil {
			return t.explain(err)
		}
		if result.Trial {
			fmt.Fprintln(env.Stdout, trialEnded)
		}
		_, err = fmt.Fprintf(env.Stdout, "%s is %s\n", req.Path, setText(req, result))
		return err
	}
	return cmd
}

func setText(req api.SetRequest, result api.SetResult) string {
	text := req.Value + " until the next reload"
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
