// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"testing"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

// heavyPages are real requests and the rule of examples/heavy-pages.yaml that decides, "" if none does.
var heavyPages = []struct {
	path, rule string
	headers    []string
}{
	{path: "/"},
	{path: "/search?query=a"},
	{path: "/search?query=a&f.author=b%2Cc&sort=x&page=1", rule: "facets"},
	{path: "/search?query=a&f.author=b&sort=x&page=1", headers: []string{"Referer: http://a/search?query=a"}},
	{path: "/search?f%2Eauthor=b+c", rule: "author"},
	{path: "/search?spc.page=12", headers: []string{"Referer: x"}, rule: "later-pages"},
	{path: "/search?spc.page=1", headers: []string{"Referer: x"}},
	{path: "/search?q=dune", rule: "search"},
	{path: "/search?q=dune", headers: []string{"Referer: http://a/"}},
	{path: "/search?q=dune", headers: []string{"Cookie: session=1"}, rule: "library-user"},
	{path: "/index.php?title=A&action=history", rule: "history"},
	{path: "/index.php?title=A&oldid=7", rule: "versions"},
	{path: "/index.php?title=A&diff=7", headers: []string{"Sec-Fetch-Mode: navigate"}},
	{path: "/index.php?title=A&diff=7", rule: "differences"},
	{path: "/a/b/commits/branch/main", rule: "commits"},
	{path: "/a/b/commits/branch/main", headers: []string{"User-Agent: GIT/2.47"}, rule: "git"},
}

// TestRulesHeavyPages has curl ask for pages with and without the marks of heavy ones. What explain says of each
// is what is counted for it.
func TestRulesHeavyPages(t *testing.T) {
	t.Parallel()
	policy, err := os.ReadFile("../../examples/heavy-pages.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := newRuled(t, map[string]uint16{"web": 80}, "web")
	s := r.at(t, "web", false)
	r.enforce(string(policy))
	counts := map[string]uint64{}
	for _, p := range heavyPages {
		args := []string{"-sS", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "20", "-A", "Mozilla/5.0"}
		explain := []string{"explain", "--json", "--from", s.addr(gold).String(), "--url", "http://" + s.to.String() + p.path}
		for _, h := range p.headers {
			args, explain = append(args, "-H", h), append(explain, "-H", h)
		}
		url := "http://" + s.to.String() + p.path
		if out, err := s.client.Command("curl", append(args, url)...).CombinedOutput(); string(out) != "200" {
			t.Errorf("curl %v: %q, %v", args, out, err)
		}
		if p.rule != "" {
			counts[p.rule]++
		}
		var said api.ExplainResult
		err := json.Unmarshal([]byte(must(t, r.command(explain...)...)), &said)
		if err != nil || len(said.Decisions) != 1 || said.Decisions[0].Request == nil || said.Decisions[0].Request.Rule != p.rule {
			t.Errorf("explain %s %v: %+v, %v; want rule %q", p.path, p.headers, said, err, p.rule)
		}
	}
	got := r.opened()
	for rule, n := range counts {
		if got.rules[rule] != (datapath.Counts{Passed: n}) {
			t.Errorf("rule %s counted %+v, want %d passed", rule, got.rules[rule], n)
		}
	}
	out, err := s.client.Command("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "http://"+s.to.String()+"/?a=%4").CombinedOutput()
	if string(out) != "400" {
		t.Errorf("a bad escape: %q, %v; want 400", out, err)
	}
}
