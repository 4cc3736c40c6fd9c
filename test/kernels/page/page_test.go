// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The tables replace those that stand between the marks, and nothing else.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"newest.json": `{"kernel": "7.3.4+deb13-amd64", "series": "newest", "checks": {"a": "ok", "b": "fail: TestB"}}`,
		"6.12.json":   `{"kernel": "6.12.117+deb13-amd64", "series": "6.12", "checks": {"a": "ok", "b": "ok"}}`,
		"6.1.json":    `{"kernel": "6.1.0-50-amd64", "series": "6.1", "checks": {"a": "missing: no tcx"}}`,
		"page.md":     "before\n" + begin + "\nold\n" + end + "\nafter\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	page := filepath.Join(dir, "page.md")
	if err := run(dir, page); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	want := []string{
		"before", begin, "",
		"| | 6.1.0-50 | 6.12.117+deb13 | 7.3.4+deb13 |",
		"|---|---|---|---|",
		"| a | no (1) | yes | yes |",
		"| b | not tried | yes | fails (2) |",
		"", "(1) no tcx.", "", "(2) TestB.", "",
		"| distribution | its kernel | tried |",
		"|---|---|---|",
		"| Debian 12 | 6.1 | yes: see above what does not work |",
		"| Debian 13 | 6.12 | yes: all works |",
	}
	if diff := cmp.Diff(want, lines[:len(want)]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if rest := strings.Join(lines[len(want):], "\n"); !strings.HasSuffix(rest, "\n"+end+"\nafter\n") || strings.Count(rest, "| no |") != 5 {
		t.Errorf("behind it:\n%s", rest)
	}
}

// Without results the page stays as it is.
func TestNoResults(t *testing.T) {
	if err := run(t.TempDir(), "none"); err == nil || !strings.Contains(err.Error(), "make kernels") {
		t.Errorf("error %v", err)
	}
}
