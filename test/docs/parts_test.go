// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"strings"
	"testing"
)

func TestBlocks(t *testing.T) {
	page := "text\n```console needs=nginx,daemon numbers\n$ a\nb\n```\n\n- list\n  ```yaml file=p.yaml skip=\"no network\"\n  x: 1\n  ```\n"
	found, err := blocks(page)
	if err != nil || len(found) != 2 {
		t.Fatalf("got %v, %v; want two blocks", found, err)
	}
	first, second := found[0], found[1]
	if first.line != 2 || first.lang != "console" || first.words["needs"] != "nginx,daemon" || !first.has("numbers") || first.text() != "$ a\nb\n" {
		t.Errorf("got %+v", first)
	}
	if second.lang != "yaml" || second.words["skip"] != "no network" || second.text() != "x: 1\n" {
		t.Errorf("got %+v", second)
	}
	for _, wrong := range []string{"```sh\na\n", "```sh skip\n```\n", "```sh skipped=\"x\"\n```\n", "```sh needs=\"a b\n```\n"} {
		if _, err := blocks(wrong); err == nil {
			t.Errorf("%q: no error", wrong)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		shown, output string
		numbers, want bool
	}{
		{"a  b", "a b\n", false, true},
		{"a b", "a c\n", false, false},
		{"a", "a\nb\n", false, false},
		{"a\n...", "a\nb\nc\n", false, true},
		{"...\nc", "a\nb\nc\n", false, true},
		{"...\nd", "a\nb\nc\n", false, false},
		{"policy ... since ...", "policy x since now\n", false, true},
		{"in service 8", "in service 3\n", false, false},
		{"in service 8", "in service 3\n", true, true},
		{"in service 8", "in service none\n", true, false},
		{"1.2ms / 8.1ms", "870µs / 1.1s\n", true, true},
		{"1.2ms / 8.1ms", "- / -\n", true, true},
		{"a.c", "abc\n", false, false},
		{"a", "note: /sys/fs/bpf/narthex is mounted for this process alone: ...\na\n", false, true},
	} {
		if got := matches(strings.Split(tt.shown, "\n"), tt.output, tt.numbers); got != tt.want {
			t.Errorf("shown %q, output %q, numbers %v: %v", tt.shown, tt.output, tt.numbers, got)
		}
	}
	if !begins([]string{"a"}, "a\nb\n", false) || begins([]string{"b"}, "a\nb\n", false) {
		t.Error("begins")
	}
}

func TestCommands(t *testing.T) {
	b := block{lang: "console", body: strings.Split("$ a \\\n> b\nshown\n\n$ c\n^C", "\n")}
	got, err := commands(&b)
	if err != nil || len(got) != 3 || got[0].text != "a \\\nb" || strings.Join(got[0].shown, "|") != "shown|" || got[1].text != "c" || got[2].text != interrupt {
		t.Errorf("got %+v, %v", got, err)
	}
	b = block{lang: "sh", body: strings.Split("# why\na | b   # c\nfor i in 1 2; do\n  d\ndone\ncat <<E\nx\nE\n", "\n")}
	got, err = commands(&b)
	if err != nil || len(got) != 3 || got[0].text != "a | b" || got[2].text != "cat <<E\nx\nE" {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := commands(&block{lang: "console", body: []string{"shown"}}); err == nil {
		t.Error("output before a command: no error")
	}
}
