// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"narthex/internal/importer"
	"narthex/internal/importer/draft"
)

func importCommand(env Env) *cobra.Command {
	c := importing{env: env}
	cmd := &cobra.Command{
		Use:   "import [nginx|haproxy|nftables|iptables] FILE|-",
		Short: "Make a policy of limits that another program has",
		Long: `Read a configuration of nginx (limit_req), HAProxy (set-priority-class, stick
tables, maxconn), nftables or iptables (limits of new connections, sets of
addresses), and print a policy that does the same, in shadow mode. What it is
made for is guessed unless it is said. A dash stands for the standard input.

What cannot be carried over is listed on the standard error and at the end of
the policy: where it is, why, and what to do instead. It is not guessed.`,
		Example: `  narthex import /etc/nginx/nginx.conf >policy.yaml
  narthex import haproxy --output policy.yaml /etc/haproxy/haproxy.cfg
  nft list ruleset | narthex import nftables -
  narthex import --root backup /etc/nginx/nginx.conf`,
		Args:      between(1, 2, "name the file, and before it what it is for if that is not to be guessed"),
		ValidArgs: []string{"nginx", "haproxy", "nftables", "iptables"},
		RunE:      func(_ *cobra.Command, args []string) error { return c.run(args) },
	}
	flags := cmd.Flags()
	flags.StringVar(&c.output, "output", "", "write the policy to this file, which must not exist yet")
	flags.StringVar(&c.root, "root", "", "look for the configuration and what it includes below this folder, as if it were /")
	flags.StringSliceVar(&c.listen, "listen", nil, `where the server listens, as "*:80", if the configuration does not say it`)
	flags.BoolVar(&c.asJSON, "json", false, "print JSON: the policy and what was not carried over")
	flags.BoolVar(&c.strict, "strict", false, "exit with 1 if something was not carried over")
	return cmd
}

// importing is one run of the command.
type importing struct {
	env            Env
	output, root   string
	listen         []string
	asJSON, strict bool
}

// imported is what `import --json` prints.
type imported struct {
	Kind   importer.Kind `json:"kind"`
	Policy string        `json:"policy"`
	Left   []draft.Left  `json:"not_carried_over"`
}

func (c *importing) run(args []string) error {
	options := importer.Options{Listen: c.listen, Env: os.LookupEnv, Made: "narthex import " + strings.Join(args, " ")}
	file := args[len(args)-1]
	if len(args) == 2 {
		kind, err := importer.ParseKind(args[0])
		if err != nil {
			return usage(err.Error())
		}
		options.Kind = kind
	}
	text, err := c.read(file, &options)
	if err != nil {
		return err
	}
	name := file
	if file == "-" {
		name = "<stdin>"
	}
	result, err := importer.Import(name, text, options)
	var syntax *draft.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return usage(err.Error())
	case errors.Is(err, importer.ErrUnknown):
		return usage(fmt.Sprintf("%s: %v; say what it is: narthex import nginx %s", name, err, file))
	case errors.Is(err, draft.ErrNoService):
		if err := c.tell(result); err != nil {
			return err
		}
		return fmt.Errorf(`%s: %w, so that there is nothing to protect; say where the server listens: --listen "*:80"`, name, err)
	case err != nil:
		return fmt.Errorf("import %s: %w", name, err)
	}
	return c.show(result)
}

// read reads the configuration, and says where to look for what it includes.
func (c *importing) read(file string, options *importer.Options) ([]byte, error) {
	options.Files.Root = c.root
	if file == "-" {
		options.Files.Base = c.root
		text, err := draft.ReadAll(c.env.Stdin)
		if err != nil {
			return nil, fmt.Errorf("read the standard input: %w", err)
		}
		return text, nil
	}
	if c.root != "" {
		file = filepath.Join(c.root, file)
	}
	options.Files.Base = filepath.Dir(file)
	text, err := options.Files.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		if _, known := importer.ParseKind(file); known == nil {
			return nil, usage(fmt.Sprintf("name the file: narthex import %s FILE", file))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return text, nil
}

func (c *importing) show(result *importer.Result) error {
	if c.output != "" {
		if err := writeNew(c.output, result.Policy); err != nil {
			return err
		}
	}
	if c.output == "" && !c.asJSON {
		if _, err := c.env.Stdout.Write(result.Policy); err != nil {
			return err
		}
	}
	if err := c.tell(result); err != nil {
		return err
	}
	left := len(result.Left)
	if left > 0 && !c.asJSON {
		fmt.Fprintf(c.env.Stderr, "%s not carried over, or not as it was: see above, and the end of the policy\n", count(left, "thing"))
	}
	if c.strict && left > 0 {
		return exitError{exitFailure}
	}
	return nil
}

// tell lists what was not carried over; as JSON, beside the policy, which may be none.
func (c *importing) tell(result *importer.Result) error {
	if c.asJSON {
		left := append([]draft.Left{}, result.Left...) // never null
		return printJSON(c.env, imported{result.Kind, string(result.Policy), left})
	}
	for _, l := range result.Left {
		fmt.Fprintln(c.env.Stderr, l)
	}
	return nil
}

// writeNew writes a file that is not there yet: a policy in force is not to be overwritten.
func writeNew(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write the policy: %s exists; name another file, or remove it", path)
	}
	if err != nil {
		return fmt.Errorf("write the policy: %w", err)
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the policy: %w", err)
	}
	return nil
}
