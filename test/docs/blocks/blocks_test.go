// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"strings"
	"testing"
)

func TestBlocks(t *testing.T) {
	page := "text\n```console needs=nginx,daemon numbers\n$ a\nb\n```\n\n- list\n  ```yaml file=p.yaml skip=\"no network\"\n  x: 1\n  ```\n"
	found, err := Read(page)
	if err != nil || len(found) != 2 {
		t.Fatalf("got %v, %v; want two blocks", found, err)
	}
	first, second := found[0], found[1]
	if first.Line != 2 || first.Lang != "console" || first.Words["needs"] != "nginx,daemon" || !first.Has("numbers") || first.Text() != "$ a\nb\n" {
		t.Errorf("got %+v", first)
	}
	if second.Lang != "yaml" || second.Words["skip"] != "no network" || second.Text() != "x: 1\n" {
		t.Errorf("got %+v", second)
	}
	for _, wrong := range []string{"```sh\na\n", "```sh skip\n```\n", "```sh skipped=\"x\"\n```\n", "```sh needs=\"a b\n```\n"} {
		if _, err := Read(wrong); err == nil {
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
		{"4 by policy", "8 by policy, overload\n", true, true},
		{"4 by policy, overload", "8 by policy\n", true, true},
		{"4 by policy  503", "4 by policy, overload  503\n", true, true},
		{"4 by policy", "4 by policy, overload\n", false, false},
		{"a.c", "abc\n", false, false},
		{"a", "note: /sys/fs/bpf/narthex is mounted for this process alone: ...\na\n", false, true},
	} {
		if got := Matches(strings.Split(tt.shown, "\n"), tt.output, tt.numbers); got != tt.want {
			t.Errorf("shown %q, output %q, numbers %v: %v", tt.shown, tt.output, tt.numbers, got)
		}
	}
	if !Begins([]string{"a"}, "a\nb\n", false) || Begins([]string{"b"}, "a\nb\n", false) {
		t.Error("Begins")
	}
}

func TestCommands(t *testing.T) {
	b := Block{Lang: "console", Body: strings.Split("$ a \\\n> b\nshown\n\n$ c\n^C", "\n")}
	got, err := Commands(&b)
	if err != nil || len(got) != 3 || got[0].Text != "a \\\nb" || strings.Join(got[0].Shown, "|") != "shown|" || got[1].Text != "c" || got[2].Text != Interrupt {
		t.Errorf("got %+v, %v", got, err)
	}
	b = Block{Lang: "sh", Body: strings.Split("# why\na | b   # c\nfor i in 1 2; do\n  d\ndone\ncat <<E\nx\nE\n", "\n")}
	got, err = Commands(&b)
	if err != nil || len(got) != 3 || got[0].Text != "a | b" || got[2].Text != "cat <<E\nx\nE" {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := Commands(&Block{Lang: "console", Body: []string{"shown"}}); err == nil {
		t.Error("output before a command: no error")
	}
}
