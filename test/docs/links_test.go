// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"os/exec"
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
		followLinks(t, filepath.Join(repository, name))
	}
}

// TestInstalledLinks follows every link of the pages that make install copies: what is in the source alone is not
// linked to there.
func TestInstalledLinks(t *testing.T) {
	dest := t.TempDir()
	cmd := exec.Command("make", "--no-print-directory", "install-docs", "DESTDIR="+dest, "PREFIX=/usr")
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	count := 0
	err := filepath.WalkDir(filepath.Join(dest, "usr/share/doc/narthex"), func(path string, _ os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			count += followLinks(t, path)
		}
		return err
	})
	if err != nil || count < 100 {
		t.Errorf("%d links, %v", count, err)
	}
}

// followLinks looks whether the links of a page lead anywhere, and returns how many it has.
func followLinks(t *testing.T, page string) int {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	links := link.FindAllStringSubmatch(prose(string(text)), -1)
	for _, m := range links {
		if err := leads(page, m[1]); err != nil {
			t.Errorf("%s: %v", page, err)
		}
	}
	return len(links)
}

// leads says whether a link of a page leads anywhere.
func leads(page, to string) error {
	file, heading, _ := strings.Cut(to, "#")
	path := page
	if file != "" {
		path = filepath.Join(filepath.Dir(page), file)
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
