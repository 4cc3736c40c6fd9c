// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// enough is how many words the pages may have: what more must be said takes the place of
// something else.
const enough = 30_000

// TestWords counts the words of all pages but decisions and what contributors find at the root.
// A word has a letter or a digit; the bars of tables are none.
func TestWords(t *testing.T) {
	total := 0
	for _, name := range pages(t) {
		if name != "README.md" && filepath.Dir(name) != "docs" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, word := range strings.Fields(string(text)) {
			if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
				n++
			}
		}
		t.Logf("%6d %s", n, name)
		total += n
	}
	if total > enough {
		t.Errorf("%d words, at most %d", total, enough)
	}
}
