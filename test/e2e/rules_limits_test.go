// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"narthex/internal/lab"
)

// limitsPolicy has a rule for each thing that a bucket goes by.
const limitsPolicy = `
version: 1
services: [{name: web, listen: "*:80", concurrency: 100}]
requests:
  - {name: cookie, path: /cookie, rate: 1/h, burst: 2, per: {cookie: session}}
  - {name: header, path: /header, rate: 1/h, burst: 2, per: {header: X-Api-Key}}
  - {name: query, path: /query, rate: 1/h, burst: 2, per: {query: f.author}}
  - {name: host, path: /host, rate: 1/h, burst: 2, per: host}
`

// bounded is nginx behind rules with limits, that curl asks.
type bounded struct {
	*ruled
	s *scene
}

func newLimited(t *testing.T, policy string) *bounded {
	t.Helper()
	r := newRuled(t, map[string]uint16{"web": 80})
	s := r.at(t, "web", false)
	s.serve(s.server.StartNginx(lab.NginxConfig{Listen: r.listen("web"), Server: "location / { return 200 fine; }"}))
	r.enforce(policy)
	return &bounded{r, s}
}

// asks has curl ask for a path, with a header unless it is empty, and returns the status.
func (l *bounded) asks(w who, path, header string) string {
	l.t.Helper()
	args := []string{"-sS", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "20", "--interface", l.s.addr(w).String()}
	if header != "" {
		args = append(args, "-H", header)
	}
	out, err := l.s.client.Command("curl", append(args, "http://"+l.s.to.String()+path)...).CombinedOutput()
	if err != nil {
		l.t.Errorf("curl %s %q: %v, %s", path, header, err, out)
	}
	return string(out)
}

// want checks the statuses of so many requests, one after the other.
func (l *bounded) want(w who, path, header string, want ...string) {
	l.t.Helper()
	for i, code := range want {
		if got := l.asks(w, path, header); got != code {
			l.t.Errorf("request %d of client %d for %s with %q: %s, want %s", i+1, w, path, header, got, code)
		}
	}
}

// Each value has a bucket, whoever sends it; where there is none, each source has. A reload and a new daemon
// forget none.
func TestRulesPerValue(t *testing.T) {
	t.Parallel()
	l := newLimited(t, limitsPolicy)
	const fine, over = "200", "429"
	long := strings.Repeat("a", 5000)
	for _, c := range []struct {
		path, value, other, empty string
		query                     bool
	}{
		{path: "/cookie", value: "Cookie: a=b; session=one; session=two", other: "Cookie: session=two", empty: "Cookie: session="},
		{path: "/cookie", value: "Cookie: session=" + long + "1", other: "Cookie: session=" + long + "2"},
		{path: "/header", value: "x_api_key:  one ", other: "X-Api-Key: One", empty: "X-Api-Key;"},
		{path: "/query", query: true, value: "?x=1&f%2Eauthor=o+e", other: "?f.author=oe", empty: "?f.author="},
		{path: "/host", value: "Host: one.example:80", other: "Host: two.example"},
	} {
		ask := func(w who, value string, want ...string) {
			t.Helper()
			if c.query {
				l.want(w, c.path+value, "", want...)
			} else {
				l.want(w, c.path, value, want...)
			}
		}
		ask(gold, c.value, fine)
		ask(bronze, c.value, fine)
		ask(free, c.value, over)
		ask(gold, c.other, fine, fine, over)
		if c.empty != "" {
			ask(gold, c.empty, fine)
			ask(gold, "", fine, over)
			ask(bronze, "", fine, fine, over)
		}
		ask(gold, c.value, over)
	}
	l.reload(limitsPolicy + "\n# again\n")
	l.want(bronze, "/host", "Host: ONE.example", over)
	l.want(bronze, "/cookie", "Cookie: session=one", over)
	explained := must(t, l.command("explain", "--from", l.s.addr(gold).String(), "--url", "http://"+l.s.to.String()+"/cookie", "-H", "Cookie: session=one")...)
	if !strings.Contains(explained, "1/h burst 2 per cookie session") || !strings.Contains(explained, "(0.0 of 2 tokens") {
		t.Errorf("explain says %q", explained)
	}
	l.stop(syscall.SIGKILL)
	l.want(bronze, "/header", "X-Api-Key: one", over)
	l.want(bronze, "/header", "X-Api-Key: three", fine)
	l.start()
	l.want(bronze, "/header", "X-Api-Key: one", over)
	l.want(free, "/header", "X-Api-Key: three", fine, over)
	if status := must(t, l.command("status")...); !strings.Contains(status, "cookie session") || !strings.Contains(status, "query f.author") {
		t.Errorf("status says:\n%s", fmt.Sprint(status))
	}
}

// stackedPolicy has several limits for the same requests.
const stackedPolicy = `
version: 1
services: [{name: web, listen: "*:80", concurrency: 100}]
classes: [{name: all, priority: 1}, {name: low, priority: 2}]
requests:
  - {name: all, path: "/all*", limits: [{rate: 1/h, burst: 6}, {rate: 1/h, burst: 4, per: source}, {rate: 1/h, burst: 2, per: {cookie: session}}]}
  - {name: low, path: "/low*", limits: [{rate: 1/h, burst: 1}], rate: 1/h, burst: 3, over: demote}
`

// Every limit must have a token, and those before one that has none get theirs back.
func TestRulesLimits(t *testing.T) {
	t.Parallel()
	l := newLimited(t, stackedPolicy)
	const fine, over = "200", "429"
	l.want(gold, "/all", "Cookie: session=a", fine, fine, over, over)
	l.want(gold, "/all", "Cookie: session=b", fine, fine, over)
	l.want(gold, "/all", "Cookie: session=c", over)
	l.want(bronze, "/all", "Cookie: session=b", over)
	l.want(bronze, "/all", "Cookie: session=c", fine)
	l.want(bronze, "/all", "", fine, over)
	l.want(free, "/low", "", fine, fine, fine)
	var refused []uint64
	for _, r := range l.status().Requests {
		for _, limit := range r.Limits {
			refused = append(refused, limit.Refused)
		}
	}
	if want := []uint64{1, 2, 3, 2}; !slices.Equal(refused, want) {
		t.Errorf("limits have refused %v, want %v", refused, want)
	}
	must(t, l.command("set", "requests.all.limits.1.rate", "1000/s")...)
	l.want(bronze, "/all", "Cookie: session=d", fine, fine, over)
	explained := must(t, l.command("explain", "--from", l.s.addr(bronze).String(), "--url", "http://"+l.s.to.String()+"/all", "-H", "Cookie: session=d")...)
	for _, want := range []string{"rule all, police, class low: reject", "limit 1: 1000/s burst 6 per rule (full", "limit 3: 1/h burst 2 per cookie session (0."} {
		if !strings.Contains(explained, want) {
			t.Errorf("explain says %q, want %q in it", explained, want)
		}
	}
}
