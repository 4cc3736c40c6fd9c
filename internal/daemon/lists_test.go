// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"narthex/internal/api"
	"narthex/internal/policy"
)

const listedPolicy = `version: 1
lists: {blocked: {file: blocked.txt, max: 3}}
services: [{name: web, listen: "*:80"}]
connections:
  - {name: blocked, from: "@blocked", action: drop}
`

// Lists are read beside the policy; a broken one keeps a start from happening, and later what was there before.
func TestLists(t *testing.T) {
	m := newMachine(t, "eth0")
	file := m.write("p.yaml", listedPolicy)
	list := filepath.Join(filepath.Dir(file), "blocked.txt")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(list+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(list+".new", list); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Offline(file, api.ExplainRequest{From: "10.0.0.1"}); !errors.As(err, new(policy.Errors)) || !strings.Contains(err.Error(), `p.yaml:2:9: list "blocked": `+list+": no such file or directory; name a file that can be read") {
		t.Fatalf("without the file: %v", err)
	}
	write("10.0.0.1\nnobody\n")
	if _, err := Offline(file, api.ExplainRequest{From: "10.0.0.1"}); err == nil || !strings.HasPrefix(err.Error(), list+`:2:1: "nobody" is not an IP address`) {
		t.Fatalf("with a broken file: %v", err)
	}
	write("10.0.0.1\n10.0.1.0/24\n")
	r := m.start(m.config(file))
	defer r.end()
	status := func() api.ListStatus {
		t.Helper()
		s, err := r.client.Status(t.Context())
		if err != nil || len(s.Lists) != 1 {
			t.Fatalf("lists %+v, %v", s.Lists, err)
		}
		return s.Lists[0]
	}
	verdict := func(from string) string {
		t.Helper()
		x, err := r.client.Explain(t.Context(), api.ExplainRequest{From: from})
		if err != nil {
			t.Fatal(err)
		}
		return x.Decisions[0].Verdict
	}
	until := func(what string, is func(api.ListStatus) bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !is(status()); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", what, status())
			}
		}
	}
	if s := status(); s.Name != "blocked" || s.File != list || s.Entries != 2 || s.V4 != 2 || s.Reads != 1 || s.Matches != 7 || s.Wrong != "" {
		t.Errorf("at first %+v", s)
	}
	if a, b := verdict("10.0.1.5"), verdict("10.0.0.2"); a != "drop" || b != "pass" {
		t.Errorf("who is listed: %s, who is not: %s", a, b)
	}
	write("10.0.0.2\n")
	until("replaced", func(s api.ListStatus) bool { return s.Entries == 1 && s.Reads == 2 })
	if a, b := verdict("10.0.1.5"), verdict("10.0.0.2"); a != "pass" || b != "drop" {
		t.Errorf("who was listed: %s, who is: %s", a, b)
	}
	for _, text := range []string{"10.0.0.3\n10.0.0.4/8\n", "", "10.0.0.3\n10.0.0.4\n10.0.0.5\n10.0.0.6\n"} {
		failures := status().Failures
		write(text)
		until("broken", func(s api.ListStatus) bool { return s.Failures == failures+1 && s.Wrong != "" && s.Entries == 1 })
	}
	all, err := r.client.Status(t.Context())
	if err != nil || len(all.Notes) != 1 || !strings.HasSuffix(all.Notes[0], "; what the list had before stays in force") {
		t.Errorf("notes %q, %v", all.Notes, err)
	}
	if got := verdict("10.0.0.2"); got != "drop" {
		t.Errorf("with a broken file: %s", got)
	}
	if _, err := r.client.Reload(t.Context(), api.ReloadRequest{}); err == nil {
		t.Error("a reload with a broken list succeeds")
	}
	write("# nobody\n")
	until("repaired", func(s api.ListStatus) bool { return s.Entries == 0 && s.Wrong == "" })
	if got := verdict("10.0.0.2"); got != "pass" {
		t.Errorf("with an empty list: %s", got)
	}
}
