// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"narthex/internal/datapath"
)

// reasonRow is a line of the tables of reasons in docs/operations.md.
var reasonRow = regexp.MustCompile("(?m)^\\| (\\d+) \\| `(\\w+)` \\| (?:passed|dropped) \\|")

// TestReasons compares what operations.md says of reasons with those of the program.
func TestReasons(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "docs/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]string{}
	for _, m := range reasonRow.FindAllStringSubmatch(string(text), -1) {
		told[m[1]] = m[2]
	}
	names := datapath.ReasonNames()
	for number, name := range names {
		if got := told[strconv.Itoa(number)]; got != name {
			t.Errorf("reason %d is %q in the table, want %q", number, got, name)
		}
	}
	if len(told) != len(names) {
		t.Errorf("%d reasons in the tables, want %d", len(told), len(names))
	}
}
