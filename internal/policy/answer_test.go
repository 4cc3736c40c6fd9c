// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Every answer that a policy can ask for is a response that ends where the connection does.
func TestAnswerText(t *testing.T) {
	for status := 400; status <= 599; status++ {
		for _, retry := range []time.Duration{0, time.Second, 24 * time.Hour} {
			for _, body := range []string{"", "<p>busy</p>"} {
				a := Answer{Status: status, RetryAfter: retry, Unsigned: status%2 == 0}
				text, head := a.response("text/html", body)
				if text[head:] != body {
					t.Errorf("%d: the body is %q", status, text[head:])
				}
				checkResponse(t, a, text, body)
			}
		}
	}
}

func checkResponse(t *testing.T, a Answer, text, body string) {
	rest := bufio.NewReader(strings.NewReader(text))
	r, err := http.ReadResponse(rest, nil)
	if err != nil {
		t.Fatalf("%v: %v in %q", a, err, text)
	}
	got, err := io.ReadAll(r.Body)
	if err != nil || string(got) != body || rest.Buffered() > 0 {
		t.Errorf("%v: body %q, %v, and %d bytes behind it", a, got, err, rest.Buffered())
	}
	retry, by := "", "narthex"
	if a.RetryAfter > 0 {
		retry = fmt.Sprint(int(a.RetryAfter.Seconds()))
	}
	if a.Unsigned {
		by = ""
	}
	if r.StatusCode != a.Status || r.Header.Get("Retry-After") != retry || r.Header.Get("Refused-By") != by ||
		r.Header.Get("Cache-Control") != "no-store" || !r.Close {
		t.Errorf("%v: %q", a, text)
	}
	if reason := strings.TrimSpace(strings.TrimPrefix(r.Status, fmt.Sprint(a.Status))); reason == "" {
		t.Errorf("%v has no reason: some clients need one: %q", a, text)
	}
}

// The page that Narthex has fits into a segment, and tries again no sooner than it may.
func TestBusyPage(t *testing.T) {
	const segment = 536 + 684 // MAX_PIECE of the programs
	for _, cause := range []Cause{CauseOverload, CauseRate} {
		for _, retry := range []time.Duration{0, time.Second, time.Minute, 24 * time.Hour} {
			a := Answer{RetryAfter: retry}.For(cause, 0)
			page := a.busyPage()
			text, _ := a.response("text/html; charset=utf-8", page)
			if len(text) > segment-12 {
				t.Errorf("%v: %d bytes", a, len(text))
			}
			least := fmt.Sprintf(",%d*(1+Math.random()))", 1000*max(int(retry.Seconds()), leastRepeat))
			if !strings.Contains(page, least) || !strings.Contains(page, "location.reload()") {
				t.Errorf("%v: %q", a, page)
			}
		}
	}
}

// What is said to whom: by the service, the rule and why.
func TestAnswers(t *testing.T) {
	c := compiled(t, `
version: 1
answers:
  gone: {status: 410, retry_after: 0s, refused_by: false}
  slow: {retry_after: 2s}
services:
  - {name: web, listen: "*:80"}
  - {name: own, listen: "*:81", reject: {status: 500, retry_after: 7s}}
  - {name: named, listen: "*:82", reject: {answer: slow}}
  - {name: reset, listen: "*:83", reject: {reset: true}}
requests:
  - {name: rated, path: /a, rate: 1/s, burst: 10}
  - {name: blocks, path: /b, rate: 1/s, burst: 10, block: 1500ms}
  - {name: inline, path: /c, rate: 1/s, burst: 10, block: 1m, answer: {status: 420, retry_after: 5s}}
  - {name: names, path: /d, action: reject, answer: gone}
  - {name: rejects, path: /e, action: reject}
  - {name: overloaded, path: /f, action: reject, when: overload}
`)
	none := Page{None: true}
	reset := Answer{Reset: true}
	for _, w := range []struct {
		rule string
		want [4]Answer
	}{
		{"", [4]Answer{{Status: 503, RetryAfter: time.Second}, {Status: 500, RetryAfter: 7 * time.Second, Page: none}, {Name: "slow", Status: 503, RetryAfter: 2 * time.Second}, reset}},
		{"rated", [4]Answer{{Status: 429, RetryAfter: time.Second}, {Status: 500, RetryAfter: 7 * time.Second, Page: none}, {Name: "slow", Status: 429, RetryAfter: 2 * time.Second}, reset}},
		{"blocks", [4]Answer{{Status: 429, RetryAfter: 2 * time.Second}, {Status: 500, RetryAfter: 7 * time.Second, Page: none}, {Name: "slow", Status: 429, RetryAfter: 2 * time.Second}, reset}},
		{"inline", [4]Answer{{Status: 420, RetryAfter: time.Minute, Page: none}}},
		{"names", [4]Answer{{Name: "gone", Status: 410, Page: none, Unsigned: true}}},
		{"rejects", [4]Answer{{Status: 503, RetryAfter: time.Second, Page: none}, {Status: 500, RetryAfter: 7 * time.Second, Page: none}, {Name: "slow", Status: 503, RetryAfter: 2 * time.Second, Page: none}, reset}},
		{"overloaded", [4]Answer{{Status: 503, RetryAfter: time.Second}, {Status: 500, RetryAfter: 7 * time.Second, Page: none}, {Name: "slow", Status: 503, RetryAfter: 2 * time.Second}, reset}},
	} {
		row := RowOverload
		for i, r := range c.RequestRules() {
			if r.Name == w.rule {
				row = c.Answers.Row[i]
			}
		}
		for service, want := range w.want {
			if want == (Answer{}) {
				want = w.want[0]
			}
			if got := c.Answers.Answer(service, row); got != want {
				t.Errorf("%q at %s: %+v, want %+v", w.rule, c.Services[service].Name, got, want)
			}
		}
	}
	for _, w := range []struct {
		service, row int
		reason, want string
	}{
		{0, RowOverload, "queue_full", "503"}, {1, RowOverload, "", "500"}, {2, RowOverload, "max_wait", "503 slow"}, {3, RowOverload, "", "reset"},
		{0, c.Answers.Row[3], "rule", "410 gone"}, {0, c.Answers.Row[3], "no_slot", "503"}, {2, c.Answers.Row[0], "rule", "429 slow"}, {0, c.Answers.Row[3], "dropped", "reset"},
		{0, 0, "malformed", "400"}, {0, 0, "h2c", "400"}, {0, 0, "complex", "400"}, {0, 0, "too_large", "431"}, {0, 0, "blocked", "429"},
	} {
		if got := c.Refused(w.service, w.row, w.reason); got != w.want {
			t.Errorf("service %d, row %d, %q: %q, want %q", w.service, w.row, w.reason, got, w.want)
		}
	}
	if got := c.Answers.Answer(0, RowBlocked); got.Status != 429 || got.RetryAfter != time.Minute {
		t.Errorf("who is blocked: %+v", got)
	}
}
