// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Answer is what is said to who is refused.
type Answer struct {
	Name       string        // under answers; empty: it has none
	Reset      bool          // RST in place of an answer
	Status     int           // HTTP status; 0: that of the cause, see For
	RetryAfter time.Duration // whole seconds; 0: the header is left out
	Page       Page
	Unsigned   bool // without the header that says who refused
}

// NamedAnswer is an answer that services and rules name.
type NamedAnswer struct {
	Pos Pos
	Answer
}

// Cause says why a request is refused.
type Cause uint8

// The causes.
const (
	CauseOverload Cause = iota // it found no place, or waited for too long
	CauseRate                  // a rule's rate
	CauseRule                  // a rule that rejects all that it matches
)

// For returns what is said for a cause: with a status and, if the client's connections are refused from now
// on, a Retry-After that is no shorter. Where to ask again leads to nothing there is no page that does so.
func (a Answer) For(cause Cause, block time.Duration) Answer {
	if a.Reset {
		return a
	}
	if a.Status == 0 {
		a.Status = defaultStatus
		if cause == CauseRate {
			a.Status = rateStatus
		}
	}
	if a.RetryAfter > 0 {
		a.RetryAfter = max(a.RetryAfter, (block + time.Second - 1).Truncate(time.Second))
	}
	busy := a.Status == defaultStatus || a.Status == rateStatus
	if a.Page == (Page{}) && (!busy || cause == CauseRule) {
		a.Page.None = true
	}
	return a
}

// Brief is what tells the answer from others: its status and its name.
func (a Answer) Brief() string {
	switch {
	case a.Reset:
		return "reset"
	case a.Name != "":
		return fmt.Sprintf("%d %s", a.Status, a.Name)
	}
	return fmt.Sprint(a.Status)
}

// String returns the answer in words, with the status of overload if it has none.
func (a Answer) String() string {
	if a.Reset {
		return "a reset"
	}
	a = a.For(CauseOverload, 0)
	s := fmt.Sprint(a.Status)
	if a.RetryAfter > 0 {
		s += fmt.Sprintf(" with Retry-After %d", int(a.RetryAfter.Seconds()))
	}
	if a.Page.File != "" {
		s += ", page " + a.Page.File
	}
	return s
}

// attribute is String with what of an answer is rarely set, for comparisons.
func (a Answer) attribute() string {
	s := a.String()
	if a.Page.File != "" {
		s += " " + shortSum(a.Page.Body)
	}
	if a.Page.None {
		s += ", no page"
	}
	if a.Unsigned {
		s += ", no Refused-By"
	}
	return s
}

// statusText names a status; some clients need a reason.
func statusText(status int) string {
	if text := http.StatusText(status); text != "" {
		return text
	}
	return "Rejected"
}

// response returns an HTTP response, and how many bytes of it are its head.
func (a Answer) response(kind, body string) (text string, head int) {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", a.Status, statusText(a.Status))
	if a.RetryAfter > 0 {
		fmt.Fprintf(&b, "Retry-After: %d\r\n", int(a.RetryAfter.Seconds()))
	}
	b.WriteString("Cache-Control: no-store\r\n")
	if !a.Unsigned {
		b.WriteString("Refused-By: narthex\r\n")
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Type: %s\r\n", kind)
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\nConnection: close\r\n\r\n", len(body))
	return b.String() + body, b.Len()
}

// leastRepeat is after how many seconds the page that Narthex has tries again at the least; at the most after
// twice as many, so that not all who were refused at once come again at once.
const leastRepeat = 3

// busyPage is that page. It takes one segment, whatever the client's is.
func (a Answer) busyPage() string {
	title, why := "The site is busy", "More people are here than it can serve at once."
	if a.Status == rateStatus {
		title, why = "The site is busy with you", "More came from your connection than it can serve at once."
	}
	after := max(int(a.RetryAfter.Seconds()), leastRepeat)
	return fmt.Sprintf(`<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width"><title>%s</title>`+
		`<style>body{font:1.1em/1.5 sans-serif;max-width:32em;margin:15vh auto;padding:0 1em}</style>`+
		`<noscript><meta http-equiv=refresh content=%d></noscript><h1>%s</h1><p>%s This page tries again by itself; you need not do anything.</p>`+
		`<script>setTimeout(function(){location.reload()},%d*(1+Math.random()))</script>`+"\n",
		title, 2*after, title, why, 1000*after)
}
