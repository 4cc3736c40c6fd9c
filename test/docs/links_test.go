// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"narthex/test/docs/blocks"
)

// link is one of Markdown to somewhere in the repository.
var link = regexp.MustCompile(`\]\(([^)\s:]+)\)`)

// TestLinks looks whether what pages point to is there: files, and headings in pages.
func TestLinks(t *testing.T) {
	for _, name := range append(pages(t), "test/docs/README.md") {
		text, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(prose(string(text)), -1) {
			if err := leads(name, m[1]); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// leads says whether a link of a page leads anywhere.
func leads(page, to string) error {
	file, heading, _ := strings.Cut(to, "#")
	path := filepath.Join(repository, page)
	if file != "" {
		path = filepath.Join(filepath.Dir(path), file)
	}
	if heading == "" {
		_, err := os.Stat(path)
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(prose(string(text))) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && line[0] == '#' && anchor(title) == heading {
			return nil
		}
	}
	return fmt.Errorf("no heading #%s in %s", heading, path)
}

// prose is a page without its fenced blocks.
func prose(text string) string {
	var b strings.Builder
	within := false
	for line := range strings.Lines(text) {
		if blocks.Fence.MatchString(strings.TrimRight(line, "\n")) {
			within = !within
		} else if !within {
			b.WriteString(line)
		}
	}
	return b.String()
}

var unspoken = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchor is what GitHub makes of a heading.
func anchor(title string) string {
	return strings.ReplaceAll(unspoken.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")
}
