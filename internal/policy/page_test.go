// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// paged is a policy in a folder of its own with a page's file in it, which it names.
func paged(t *testing.T, file, body, names string) (policy, text string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "policy.yaml"), fmt.Sprintf("version: 1\nanswers: {busy: {page: %s}}\nservices: [{name: web, listen: \"*:80\", reject: {answer: busy}}]\n", names)
}

// Who gets a page, and as what.
func TestPages(t *testing.T) {
	for _, c := range []struct {
		file, body, kind string
		repeats          bool
	}{
		{"busy.html", "<p>busy</p>", "text/html; charset=utf-8", false},
		{"busy.HTM", `<meta HTTP-EQUIV="Refresh" content=5><p>busy</p>`, "text/html; charset=utf-8", true},
		{"busy.html", "<script>setTimeout(() => location.reload(), 9)</script>", "text/html; charset=utf-8", true},
		{"busy.json", `{"error": "busy"}`, "application/json", false},
		{"busy.txt", "refresh in a while", "text/plain; charset=utf-8", false},
		{"busy", "<!doctype html><p>busy</p>", "text/html; charset=utf-8", false},
		{"largest.txt", strings.Repeat("x", MaxPageBytes), "text/plain; charset=utf-8", false},
	} {
		policy, text := paged(t, c.file, c.body, c.file)
		p, _, err := Parse(policy, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		tables, _, err := Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		a := tables.Answers.Answers[RowOverload]
		said := func(at, length int) string { return string(tables.Answers.Texts[at : at+length]) }
		all, gets := said(a.At, a.Length), said(a.PageAt, a.PageLength)
		with := all
		if c.repeats {
			with = gets
			if !strings.Contains(all, "Content-Length: 0\r\n") || !a.PageForAny {
				t.Errorf("%s: %+v, and who is no GET is told %q", c.file, a, all)
			}
		} else if gets != "" {
			t.Errorf("%s: GETs are told %q", c.file, gets)
		}
		if !strings.Contains(with, "\r\nContent-Type: "+c.kind+"\r\n") || !strings.HasSuffix(with, "\r\n\r\n"+c.body) {
			t.Errorf("%s: %q", c.file, with)
		}
		if head := said(a.At, a.Head); !strings.HasSuffix(head, "\r\n\r\n") || strings.Count(head, "\r\n\r\n") != 1 {
			t.Errorf("%s: HEAD is told %q", c.file, head)
		}
	}
}

// A policy is another when its page is.
func TestPageHash(t *testing.T) {
	policy, text := paged(t, "busy.txt", "busy", "busy.txt")
	hash := func() string {
		p, _, err := Parse(policy, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return p.Hash
	}
	before := hash()
	if err := os.WriteFile(filepath.Join(filepath.Dir(policy), "busy.txt"), []byte("very busy"), 0o600); err != nil {
		t.Fatal(err)
	}
	if hash() == before {
		t.Error("the policy has the same hash with another page")
	}
}

func TestPagesWrong(t *testing.T) {
	for _, c := range []struct{ body, names, want string }{
		{"", "missing.html", `page: page "missing.html": cannot read DIR/missing.html: no such file or directory; write its name as from the policy's folder, or a whole path`},
		{"", "busy.html", `page: page "busy.html": it is empty; write what is to be read, or "none" in its place`},
		{strings.Repeat("x", MaxPageBytes+1), "busy.html", `page: page "busy.html": it has 32769 bytes; a page has at most 32768 (32 KiB): make it smaller, and have it name images instead of having them`},
		{"x", ".", `page: page ".": it is no regular file; name one`},
		{"x", "pipe", `page: page "pipe": it is no regular file; name one`},
		{"x", "[busy.html]", `page is one value, not a list`},
	} {
		policy, text := paged(t, "busy.html", c.body, c.names)
		dir := filepath.Dir(policy)
		if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := Parse(policy, []byte(text))
		want := policy + ":2:24: " + strings.ReplaceAll(c.want, "DIR", dir)
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", c.names, err, want)
		}
	}
}

// Pages that are too much together are told so.
func TestPagesTooMany(t *testing.T) {
	policy, _ := paged(t, "busy.txt", strings.Repeat("x", MaxPageBytes), "busy.txt")
	var b strings.Builder
	b.WriteString("version: 1\nservices: [{name: web, listen: \"*:80\"}]\nrequests:\n")
	for i := range 9 {
		fmt.Fprintf(&b, "  - {name: r%d, path: /%d, action: reject, answer: {status: %d, page: busy.txt}}\n", i, i, 500+i)
	}
	p, _, err := Parse(policy, []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Compile(p); err == nil || !strings.Contains(err.Error(), "they have at most 256") {
		t.Errorf("nine pages of 32 KiB: %v", err)
	}
}
