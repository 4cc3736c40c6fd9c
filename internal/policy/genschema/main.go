// SPDX-License-Identifier: Apache-2.0

// Genschema writes the JSON Schema of a policy into a file.
package main

import (
	"fmt"
	"os"

	"narthex/internal/policy"
)

//go:generate go run . ../../../docs/policy.schema.json

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: genschema FILE")
		os.Exit(2)
	}
	text, err := policy.Schema()
	if err == nil {
		err = os.WriteFile(os.Args[1], text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "genschema:", err)
		os.Exit(1)
	}
}
