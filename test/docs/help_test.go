// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"narthex/internal/cli"
	"narthex/internal/daemon"
)

// environment is one in which commands say how to use them; they are not executed in it.
func environment(out *strings.Builder, args ...string) cli.Env {
	return cli.Env{
		Args: args, Stdout: out, Stderr: out, Stdin: strings.NewReader(""), Version: "test", RunDir: daemon.RunDir,
		PinnedInstances: func() []string { return nil },
		Demo:            func(context.Context, io.Writer, bool) error { return errors.New("not here") },
	}
}

// all returns a command and all below it.
func all(cmd *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		list = append(list, all(c)...)
	}
	return list
}

// TestHelp asks each command for help: it ends well, names each flag, and its examples are
// command lines that it takes.
func TestHelp(t *testing.T) {
	var out strings.Builder
	for _, cmd := range all(cli.Commands(environment(&out))) {
		path := strings.Fields(cmd.CommandPath())[1:]
		t.Run(strings.Join(append([]string{"narthex"}, path...), " "), func(t *testing.T) {
			var out strings.Builder
			if code := cli.Main(t.Context(), environment(&out, append(path, "--help")...)); code != 0 {
				t.Fatalf("exit code %d: %s", code, out.String())
			}
			help := out.String()
			if cmd.Short == "" || !strings.Contains(help, "Usage:") {
				t.Errorf("no usage or no short description in\n%s", help)
			}
			cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
				if !f.Hidden && !strings.Contains(help, "--"+f.Name) {
					t.Errorf("--%s is not in\n%s", f.Name, help)
				}
				if f.Usage == "" {
					t.Errorf("nothing is said of --%s", f.Name)
				}
			})
			testExamples(t, cmd)
		})
	}
}

// testExamples parses the examples of a command.
func testExamples(t *testing.T, cmd *cobra.Command) {
	if cmd.Example == "" {
		if cmd.Name() != "help" && !cmd.HasSubCommands() {
			t.Error("no example")
		}
		return
	}
	own := false
	for _, args := range invocations(t, cmd.Example) {
		about, err := takes(args)
		if err != nil {
			t.Errorf("narthex %s: %v", strings.Join(args, " "), err)
			continue
		}
		own = own || about == cmd.CommandPath() || !cmd.HasParent()
	}
	if !own {
		t.Errorf("no example is of this command:\n%s", cmd.Example)
	}
}

// invocations returns the arguments of each narthex in a script, also behind a pipe.
func invocations(t *testing.T, script string) (list [][]string) {
	t.Helper()
	file, err := syntax.NewParser().Parse(strings.NewReader(script), "")
	if err != nil {
		t.Fatalf("no shell reads\n%s\n%v", script, err)
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok {
			return true
		}
		var args []string
		for _, word := range call.Args {
			text, err := expand.Literal(nil, word)
			if err != nil {
				t.Fatalf("%s: %v", script, err)
			}
			args = append(args, text)
		}
		if len(args) > 0 && args[0] == "sudo" {
			args = args[1:]
		}
		if len(args) > 0 && args[0] == "narthex" {
			list = append(list, args[1:])
		}
		return true
	})
	return list
}

// takes returns the command that would get these arguments, or why it would refuse them.
func takes(args []string) (path string, err error) {
	var out strings.Builder
	env := environment(&out)
	root := cli.Commands(env)
	cmd, rest, err := root.Find(args)
	if err != nil {
		return "", err
	}
	if err := cmd.ParseFlags(rest); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return "", err
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return "", err
	}
	if cmd.Args != nil {
		if err := cmd.Args(cmd, cmd.Flags().Args()); err != nil {
			return "", err
		}
	}
	return cmd.CommandPath(), nil
}
