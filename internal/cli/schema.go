// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"narthex/internal/policy"
)

func schemaCommand(env Env) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of policies, for editors",
		Long: `Print the JSON Schema (draft 7) of the policy file. With it an editor completes keys,
shows what they mean and underlines what is wrong. This comment at the top of a
policy names the file for editors with the YAML language server:

  # yaml-language-server: $schema=policy.schema.json

The schema knows the form of each value. What depends on several, as a name that
nothing has, "narthex check" finds.`,
		Example: "  narthex schema >policy.schema.json",
		Args:    none,
		RunE: func(*cobra.Command, []string) error {
			text, err := policy.Schema()
			if err != nil {
				return err
			}
			_, err = env.Stdout.Write(text)
			return err
		},
	}
}
