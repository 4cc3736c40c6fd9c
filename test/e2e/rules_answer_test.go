// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// answersPolicy has a rule for each way in which an answer is named.
const answersPolicy = `
version: 1
answers:
  gone: {status: 410, retry_after: 0s, refused_by: false}
services: [{name: go, listen: "*:80", concurrency: 100}]
requests:
  - {name: rate, path: /rate, rate: 1/m, burst: 1}
  - {name: block, path: /inline, rate: 1/m, burst: 1, answer: {status: 420, retry_after: 9s}}
  - {name: named, path: /named, action: reject, answer: gone}
`

// What curl and browsers are told by rules.
func TestRuleAnswers(t *testing.T) {
	t.Parallel()
	r := newRuled(t, map[string]uint16{"go": 80}, "go")
	s := r.at(t, "go", false)
	r.enforce(answersPolicy)
	curl := func(path string, args ...string) string {
		t.Helper()
		args = append([]string{"-sS", "-i", "--max-time", "20", "--interface", s.addr(free).String(), "http://" + s.to.String() + path}, args...)
		out, err := s.client.Command("curl", args...).CombinedOutput()
		if err != nil {
			t.Errorf("curl %s: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for path, want := range map[string]string{"/named": ": reject with 410 gone", "/../named": ": reject with 410 gone"} {
		if got := must(t, r.command("explain", "--from", s.addr(free).String(), "--url", "http://"+s.to.String()+path)...); !strings.Contains(got, want) {
			t.Errorf("explain %s: %q, want %q", path, got, want)
		}
	}
	browser := []string{"-H", "Accept: text/html,*/*;q=0.8"}
	curl("/rate")
	curl("/inline")
	const rest = "\r\nConnection: close\r\n\r\n"
	for _, c := range []struct {
		path string
		args []string
		want string
		page bool
	}{
		{"/rate", nil, "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nCache-Control: no-store\r\nRefused-By: narthex\r\nContent-Length: 0" + rest, false},
		{"/rate", []string{"--head", browser[0], browser[1]}, "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nCache-Control: no-store\r\nRefused-By: narthex\r\nContent-Length: 0" + rest, false},
		{"/rate", browser, "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nCache-Control: no-store\r\nRefused-By: narthex\r\nContent-Type: text/html; charset=utf-8\r\n", true},
		{"/inline", nil, "HTTP/1.1 420 Rejected\r\nRetry-After: 9\r\nCache-Control: no-store\r\nRefused-By: narthex\r\nContent-Length: 0" + rest, false},
		{"/named", browser, "HTTP/1.1 410 Gone\r\nCache-Control: no-store\r\nContent-Length: 0" + rest, false},
	} {
		got := curl(c.path, c.args...)
		page := strings.Contains(got, "location.reload()")
		if !strings.HasPrefix(got, c.want) || page != c.page || (!page && got != c.want) {
			t.Errorf("%s %s: %q, want %q, page %v", c.path, fmt.Sprint(c.args), got, c.want, c.page)
		}
	}
}
