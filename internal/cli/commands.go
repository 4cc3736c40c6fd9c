// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"narthex/internal/daemon"
)

// Commands returns the tree of all commands.
func Commands(env Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "narthex",
		Short: "Keep a web server useful when more work arrives than it can do",
		Long: `Narthex decides in the kernel, by eBPF, which connections reach a web server.
The server is neither changed nor restarted, and there is no proxy in the path.

A policy file says which services there are, how much each may have to do at once,
and who goes first, waits or is turned away. "narthex run" puts it in force.`,
		Example: `  sudo narthex init                    # write a policy to start from
  narthex check policy.yaml            # what would this policy do?
  narthex run --policy policy.yaml     # put it in force until Ctrl-C
  narthex status                       # what has it done?`,
		Version:            env.Version,
		SilenceErrors:      true,
		SilenceUsage:       true,
		CompletionOptions:  cobra.CompletionOptions{DisableDefaultCmd: true},
		DisableSuggestions: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return noCommand(env, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("narthex {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: see `%s --help`", err, cmd.CommandPath())
	})
	root.AddCommand(
		initCommand(env), importCommand(env), runCommand(env), checkCommand(env), schemaCommand(env), diffCommand(env), reloadCommand(env), confirmCommand(env), shadowCommand(env), statusCommand(env), listsCommand(env), setCommand(env), tableCommand(env),
		explainCommand(env), eventsCommand(env), topCommand(env), detachCommand(env), versionCommand(env), completionCommand(env),
	)
	if env.Demo != nil {
		root.AddCommand(demoCommand(env))
	}
	for _, cmd := range root.Commands() {
		markFailures(cmd)
	}
	root.SetHelpCommand(helpCommand(env))
	return root
}

// otherNames are what people call commands that have another name here.
var otherNames = map[string]string{
	"stats": "status", "stat": "status", "show": "status", "ps": "status", "list": "status", "ls": "status",
	"start": "run", "serve": "run", "stop": "detach", "unload": "detach", "remove": "detach",
	"validate": "check", "test": "check", "lint": "check", "log": "events", "logs": "events", "watch": "top",
	"why": "explain", "apply": "reload", "update": "reload", "convert": "import", "override": "set",
}

// noCommand says which command may be meant by one that there is not.
func noCommand(env Env, name string) error {
	guess := otherNames[name]
	if guess == "" {
		root := Commands(env)
		root.DisableSuggestions, root.SuggestionsMinimumDistance = false, 2
		if all := root.SuggestionsFor(name); len(all) > 0 {
			guess = all[0]
		}
	}
	if guess == "" {
		return fmt.Errorf("there is no command %q: see `narthex --help`", name)
	}
	return fmt.Errorf("there is no command %q; did you mean `narthex %s`? See `narthex --help`", name, guess)
}

// helpCommand is cobra's, but that it is an error to ask for help on what there is not.
func helpCommand(env Env) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Say how to use a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return noCommand(env, strings.Join(args, " "))
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		},
	}
}

// markFailures tells errors of the command's work from those of the command line, which
// cobra finds before.
func markFailures(cmd *cobra.Command) {
	run, check, prepare := cmd.RunE, cmd.Args, cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := refuseEmpty(cmd); err != nil || prepare == nil {
			return err
		}
		return prepare(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := run(cmd, args); err != nil {
			return failure{err}
		}
		return nil
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fmt.Errorf("%w: see `%s --help`", err, cmd.CommandPath())
		}
		return nil
	}
}

// none refuses arguments.
var none = exactly(0, "this command takes options only")

// exactly checks for n arguments, which says what is needed.
func exactly(n int, needed string) cobra.PositionalArgs { return between(n, n, needed) }

func between(least, most int, needed string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("%s, not %s", needed, count(len(args), "argument"))
		}
		return nil
	}
}

// count returns "1 thing" or "3 things".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// refuseEmpty refuses an option with an empty value, as a shell makes it of a variable that
// is not set: it does not mean the default.
func refuseEmpty(cmd *cobra.Command) error {
	for _, name := range []string{"instance", "socket", "policy", "netns", "metrics", "since", "at", "refusals", "from", "to", "url", "method", "sni", "ja4", "against", "rule", "class", "service", "reason", "kind", "output", "root"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return fmt.Errorf("--%s is empty: give it a value or leave it out", name)
		}
	}
	return nil
}

// target is the instance that a command is about.
type target struct {
	env      Env
	instance string
	socket   string
}

// addTarget adds the flags that name an instance.
func addTarget(cmd *cobra.Command, env Env) *target {
	t := &target{env: env}
	cmd.Flags().StringVar(&t.instance, "instance", daemon.DefaultInstance, "name of the instance")
	cmd.Flags().StringVar(&t.socket, "socket", "", "path of the control socket (default "+daemon.SocketPath(env.RunDir, "INSTANCE")+")")
	complete(cmd, "instance", func(string) []string { return instances(env) })
	cmd.PreRunE = func(*cobra.Command, []string) error { return t.resolve() }
	return t
}

func (t *target) resolve() error {
	if err := daemon.CheckInstance(t.instance); err != nil {
		return err
	}
	if t.socket == "" {
		t.socket = daemon.SocketPath(t.env.RunDir, t.instance)
	}
	return nil
}

// named is the instance's flag as one has to write it in another command.
func (t *target) named() string {
	if t.instance == daemon.DefaultInstance {
		return ""
	}
	return " --instance " + t.instance
}

func printJSON(env Env, v any) error {
	out := json.NewEncoder(env.Stdout)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(v)
}

func versionCommand(env Env) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version, as does `narthex --version`.",
		Example: "  narthex version",
		Args:    none,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(env.Stdout, "narthex", env.Version)
			return err
		},
	}
}
