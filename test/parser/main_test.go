// SPDX-License-Identifier: Apache-2.0

package parser

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestMain makes rapid try more than its usual 100 cases, for which a second is enough. A flag
// on the command line still counts.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "3000"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
