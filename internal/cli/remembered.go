// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"narthex/internal/api"
)

// tableCommand is about what is remembered of clients.
func tableCommand(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "table [blocked|learned|buckets] [ADDRESS|PREFIX]",
		Short: "Show and change who is blocked and learned, and what is in buckets",
		Long: `Show what is remembered: who is blocked, who is learned in a class, and the tokens in
buckets. "narthex table clear" forgets, for instance to let somebody in again, and
"narthex table add" has clients remembered. No policy is edited: what rules do from
then on they do as before.

A client is an IPv4 address, or an IPv6 /64.

The exit code is 0 if something was found, 1 if nothing was, and 2 in trouble.`,
		Example: `  narthex table
  narthex table list blocked 203.0.113.0/24
  narthex table clear blocked 203.0.113.9
  narthex table add blocked 203.0.113.9 --for 10m`,
	}
	list := tableList(env)
	cmd.AddCommand(list, tableClear(env), tableAdd(env))
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.PreRunE, cmd.Args, cmd.ValidArgsFunction = list.PreRunE, list.Args, list.ValidArgsFunction
	cmd.RunE = list.RunE
	for _, sub := range cmd.Commands() {
		markFailures(sub)
	}
	return cmd
}

// trouble is an error of a command whose exit code for it is 2, because 1 means something else.
func trouble(err error) error {
	var told *api.Error
	if err == nil || errors.As(err, &told) && told.Usage {
		return err
	}
	return &api.Error{Message: err.Error(), Usage: true}
}

// kindsFirst completes the kind of what is remembered.
func kindsFirst(kinds ...string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return kinds, cobra.ShellCompDirectiveNoFileComp
	}
}

func tableList(env Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list [blocked|learned|buckets|at_once] [ADDRESS|PREFIX]",
		Short: "Show what is remembered",
		Long: `Show what is remembered, of a kind or of all, and of an address or a prefix or of all.

Buckets are those of rules. With an address they are those that this source has under
rules with a bucket for each; these cannot be listed without it, for they are kept
under a hash. at_once are the clients that have places of limits with at_once, the
most first.`,
		Example: `  narthex table list
  narthex table list buckets 203.0.113.9
  narthex table list blocked --json | jq -r '.blocked[].client'`,
		Args:              between(0, 2, "name a kind and an address, one of them, or none"),
		ValidArgsFunction: kindsFirst(api.TableKinds...),
	}
	t := addTarget(cmd, env)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var kind, from string
		if len(args) > 0 && (len(args) == 2 || slices.Contains(api.TableKinds, args[0])) {
			kind, args = args[0], args[1:]
		}
		if len(args) > 0 {
			from = args[0]
		}
		table, err := t.client().Table(cmd.Context(), kind, from)
		if err != nil {
			return trouble(t.explain(err))
		}
		if asJSON {
			err = printJSON(env, table)
		} else {
			_, err = fmt.Fprint(env.Stdout, tableText(table))
		}
		if err == nil && table.Len() == 0 {
			return exitError{exitFailure}
		}
		return trouble(err)
	}
	return cmd
}

// tableText shows what is remembered.
func tableText(t api.Table) string {
	var b strings.Builder
	clients := func(title string, list []api.TableClient, class bool) {
		if len(list) == 0 {
			return
		}
		fmt.Fprintf(&b, "%s\n", title)
		heads := []string{"client", ">left"}
		if class {
			heads = append(heads, "class")
		}
		rows := newTable(heads...)
		for _, c := range list {
			cells := []string{c.Client, secondsText(c.Left)}
			if class {
				cells = append(cells, c.Class)
			}
			rows.add(cells...)
		}
		rows.printIndented(&b)
	}
	clients(api.TableBlocked, t.Blocked, false)
	clients(api.TableLearned, t.Learned, true)
	if len(t.Buckets) > 0 {
		fmt.Fprintf(&b, "%s\n", api.TableBuckets)
		rows := newTable("rule", "of", ">tokens", ">burst", ">full in")
		for _, k := range t.Buckets {
			if k.AtOnce > 0 {
				rows.add(k.Rule, k.Of, fmt.Sprintf("%.0f left", k.Tokens), fmt.Sprintf("%d at once", k.AtOnce), "-")
				continue
			}
			rows.add(k.Rule, k.Of, fmt.Sprintf("%.1f", k.Tokens), fmt.Sprint(k.Burst), secondsText(k.FullIn))
		}
		rows.printIndented(&b)
	}
	if len(t.AtOnce) > 0 {
		fmt.Fprintf(&b, "%s\n", api.TableAtOnce)
		rows := newTable("client", ">taken", ">at once", "rule", "of")
		for _, p := range t.AtOnce {
			rows.add(cmp.Or(p.Client, "all"), fmt.Sprint(p.Taken), fmt.Sprint(p.AtOnce), p.Rule, p.Of)
		}
		rows.printIndented(&b)
	}
	return b.String()
}

// secondsText is a time that is left, no finer than it matters.
func secondsText(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func tableClear(env Env) *cobra.Command {
	var req api.TableClearRequest
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "clear blocked|learned|buckets [ADDRESS|PREFIX]... [--rule RULE] [--all]",
		Short: "Forget what is remembered",
		Long: `Forget who is blocked or learned: those with these addresses, or all. To clear a bucket
fills it: that of a rule, or those that sources have under rules with a bucket for each.`,
		Example: `  narthex table clear blocked 203.0.113.9
  narthex table clear learned 2001:db8::/32
  narthex table clear buckets 203.0.113.9 --rule login
  narthex table clear blocked --all`,
		ValidArgsFunction: kindsFirst(api.TableCleared...),
	}
	t := addTarget(cmd, env)
	cmd.Flags().StringVar(&req.Rule, "rule", "", "buckets of this rule alone")
	cmd.Flags().BoolVar(&req.All, "all", false, "all of the kind")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("name what to clear: %s", strings.Join(api.TableCleared, ", "))
		case len(args) == 1 && !req.All && req.Rule == "":
			return errors.New("name addresses or prefixes, or say --all")
		case req.All && (len(args) > 1 || req.Rule != ""):
			return errors.New("--all goes with no address and no rule")
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req.Kind, req.From = args[0], args[1:]
		result, err := t.client().TableClear(cmd.Context(), req)
		switch {
		case err != nil:
			return trouble(t.explain(err))
		case asJSON:
			err = printJSON(env, result)
		default:
			for _, what := range result.Cleared {
				fmt.Fprintf(env.Stdout, "%s: cleared\n", what)
			}
		}
		if err == nil && len(result.Cleared) == 0 {
			fmt.Fprintln(env.Stderr, "narthex: nothing was found to clear")
			return exitError{exitFailure}
		}
		return trouble(err)
	}
	return cmd
}

func tableAdd(env Env) *cobra.Command {
	var req api.TableAddRequest
	var long time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "add blocked|learned ADDRESS... --for DURATION [--class CLASS]",
		Short: "Have clients remembered",
		Long: `Block clients, whose connections are refused from then on, or have them be of a class as
if a rule had learned them.`,
		Example: `  narthex table add blocked 203.0.113.9 198.51.100.7 --for 10m
  narthex table add learned 2001:db8:1:2::1 --class gold --for 24h`,
		ValidArgsFunction: kindsFirst(api.TableBlocked, api.TableLearned),
	}
	t := addTarget(cmd, env)
	cmd.Flags().DurationVar(&long, "for", 0, "for how long, from 1s to 720h")
	cmd.Flags().StringVar(&req.Class, "class", "", "class in which clients are learned")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < 2:
			return errors.New("name blocked or learned, and addresses")
		case long == 0:
			return errors.New("say for how long, as --for 10m")
		case args[0] == api.TableLearned && req.Class == "":
			return errors.New("say in which class, as --class gold")
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req.Kind, req.From, req.For = args[0], args[1:], long.Seconds()
		result, err := t.client().TableAdd(cmd.Context(), req)
		switch {
		case err != nil:
			return trouble(t.explain(err))
		case asJSON:
			return trouble(printJSON(env, result))
		}
		for _, c := range result.Added {
			fmt.Fprintf(env.Stdout, "%s is %s for %s\n", c, req.Kind, long)
		}
		return nil
	}
	return cmd
}
