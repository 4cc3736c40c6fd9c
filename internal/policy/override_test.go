// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const overridable = `
version: 1
services:
  - {name: web, listen: "*:80"}
classes:
  - {name: gold, priority: 1, reserve: 60%}
  - {name: bronze, priority: 2}
connections:
  - {name: block, from: 192.0.2.0/24, action: drop}
  - {name: partner, from: 10.0.0.0/8, rate: 100/s, burst: 7}
  - {name: everyone, rate: 300/s}
requests:
  - {name: index, path: /, rate: 15/m}
  - {name: cgi, path: /cgi, action: drop}
`

func parsed(t *testing.T, text string) *Policy {
	t.Helper()
	p, _, err := Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestOverride(t *testing.T) {
	tests := []struct {
		path, value string
		rule        int
		rate        string
		burst       int
	}{
		{"connections.everyone.rate", "50/s", 2, "50/s", 5}, // the burst follows
		{"connections.everyone.burst", "1", 2, "300/s", 1},
		{"connections.partner.rate", "6/m", 1, "6/m", 7}, // the burst was given
		{"connections.partner.burst", "1000000", 1, "100/s", 1_000_000},
	}
	for _, test := range tests {
		p := parsed(t, overridable)
		before := parsed(t, overridable)
		c := p.Clone()
		if err := c.Override(test.path, test.value); err != nil {
			t.Errorf("%s %s: %v", test.path, test.value, err)
			continue
		}
		r := c.Connections[test.rule]
		if r.Rate.String() != test.rate || r.Burst != test.burst {
			t.Errorf("%s %s: rate %s, burst %d, want %s, %d", test.path, test.value, r.Rate, r.Burst, test.rate, test.burst)
		}
		if !reflect.DeepEqual(p, before) {
			t.Errorf("%s %s: changed the policy that was cloned", test.path, test.value)
		}
		tables, _, err := Compile(c)
		if err != nil {
			t.Fatal(err)
		}
		if got := tables.Rules[test.rule]; got.Interval != r.Rate.Interval() || int(got.Burst) != test.burst {
			t.Errorf("%s %s: compiled to interval %s, burst %d", test.path, test.value, got.Interval, got.Burst)
		}
	}
}

// A target of waiting is set, taken away, and no longer than anybody waits.
func TestOverrideTarget(t *testing.T) {
	p := parsed(t, overridable)
	for _, c := range []struct {
		path, value string
		want        time.Duration
		fits        bool
	}{
		{"services.web.queue.target", "500ms", 500 * time.Millisecond, true}, {"services.web.queue.max_wait", "400ms", 500 * time.Millisecond, false},
		{"services.web.queue.max_wait", "2s", 500 * time.Millisecond, true}, {"services.web.queue.target", "3s", 3 * time.Second, false},
		{"services.web.queue.target", "none", 0, true},
	} {
		if err := p.Override(c.path, c.value); err != nil {
			t.Fatal(err)
		}
		if err := p.CheckBounds(); p.Services[0].Queue.Target != c.want || (err == nil) != c.fits {
			t.Errorf("%s %s: target %s, %v", c.path, c.value, p.Services[0].Queue.Target, err)
		}
	}
	tables, _, err := Compile(p)
	if err != nil || tables.Services[0].Room.Queue.Target != 0 {
		t.Errorf("target %s in force, %v", tables.Services[0].Room.Queue.Target, err)
	}
}

func TestOverrideBurstStaysWhenRateFollows(t *testing.T) {
	p := parsed(t, overridable)
	for _, set := range [][2]string{{"connections.everyone.burst", "3"}, {"connections.everyone.rate", "900/s"}} {
		if err := p.Override(set[0], set[1]); err != nil {
			t.Fatal(err)
		}
	}
	if b := p.Connections[2].Burst; b != 3 {
		t.Errorf("burst %d, want 3 as it was set", b)
	}
}

func TestOverrideErrors(t *testing.T) {
	tests := []struct{ path, value, wrong string }{
		{"connections.everyone.rate", "fast", `set connections.everyone.rate: "fast" is not a rate; write a whole number`},
		{"connections.everyone.burst", "0", `set connections.everyone.burst: 0 is out of range; write a number from 1 to 1000000`},
		{"connections.block.rate", "1/s", `set connections.block.rate: rule "block" has no rate`},
		{"connections.evryone.rate", "1/s", `did you mean "connections.everyone.rate"?`},
		{"connections.evryone.brst", "1", `did you mean "connections.everyone.burst"?`},
		{"connections.nobody.rate", "1/s", `"connections.nobody.rate": there is no such path; what can be set: connections.partner.rate, `},
		{"connections.everyone", "1/s", `there is no such path; what can be set: `},
		{"classes.gold.maxx", "1", `did you mean "classes.gold.max"?`},
		{"requests.index.ratee", "1/s", `did you mean "requests.index.rate"?`},
		{"", "", `"": there is no such path; what can be set: `},
		{"services.web.concurrency", "some", `"some" is not a whole number`},
		{"classes.bronze.reserve", "41%", `"41%" brings the reserves to 101%`},
		{"classes.bronze.max", "0", `0 is out of range`},
		{"requests.cgi.rate", "1/s", `set requests.cgi.rate: rule "cgi" has no rate`},
		{"requests.cgi.over", "drop", `set requests.cgi.over: rule "cgi" has no rate`},
		{"requests.index.burst", "x", `"x" is not a whole number`},
		{"requests.index.over", "x", `set requests.index.over: `},
	}
	for _, test := range tests {
		p := parsed(t, overridable)
		err := p.Override(test.path, test.value)
		if err == nil || !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("set %s %s: error %v, want one with %q", test.path, test.value, err, test.wrong)
		}
		if !reflect.DeepEqual(p, parsed(t, overridable)) {
			t.Errorf("set %s %s: failed and changed the policy", test.path, test.value)
		}
	}
}

func TestOverrideUnknownPath(t *testing.T) {
	tests := []struct{ policy, want string }{
		{overridable, `set "nonsense": there is no such path; what can be set: connections.partner.rate, connections.partner.burst, ` +
			`connections.everyone.rate, connections.everyone.burst, requests.index.rate, requests.index.burst, ` +
			`requests.index.over, services.web.mode and 18 more`},
		{"version: 1\nservices:\n  - {name: web, listen: \"*:80\"}\n", `set "nonsense": there is no such path; what can be set: services.web.mode, services.web.concurrency, ` +
			`services.web.concurrency.min, services.web.concurrency.max, services.web.concurrency.target, services.web.overload.after, services.web.overload.calm, ` +
			`services.web.overload.rejecting and 8 more`},
		{manyRated(5), `set "nonsense": there is no such path; what can be set: connections.r0.rate, connections.r0.burst, connections.r1.rate, ` +
			`connections.r1.burst, connections.r2.rate, connections.r2.burst, connections.r3.rate, connections.r3.burst and 18 more`},
	}
	for _, test := range tests {
		if err := parsed(t, test.policy).Override("nonsense", "1"); err == nil || err.Error() != test.want {
			t.Errorf("error %v\nwant  %s", err, test.want)
		}
	}
}

// manyRated returns a policy with n rules that have a rate.
func manyRated(n int) string {
	text := "version: 1\nservices:\n  - {name: web, listen: \"*:80\"}\nconnections:\n"
	for i := range n {
		text += fmt.Sprintf("  - {name: r%d, from: 10.0.0.%d, rate: 1/s}\n", i, i)
	}
	return text
}

func TestOverrideRequests(t *testing.T) {
	p := parsed(t, overridable)
	for path, value := range map[string]string{"requests.index.rate": "50/s", "requests.index.over": "demote"} {
		if err := p.Override(path, value); err != nil {
			t.Fatal(err)
		}
	}
	if q := p.Requests[0]; q.Rate.String() != "50/s" || q.Burst != pageBurst || q.Over != OverDemote { // the burst follows
		t.Errorf("rule %+v", q)
	}
	tables, _, err := Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	if r := tables.Requests.Rules[0]; r.Interval != 20*time.Millisecond || r.Burst != pageBurst || r.Over != OverDemote {
		t.Errorf("compiled to %+v", r)
	}
}

// TestOverrideConcurrency takes a limit away, whatever the policy says.
func TestOverrideConcurrency(t *testing.T) {
	const path = "services.web.concurrency"
	for _, written := range []string{"auto", "unlimited", "64"} {
		for _, value := range []string{"auto", "unlimited"} {
			text := strings.Replace(overridable, `"*:80"`, `"*:80", concurrency: `+written, 1)
			p := parsed(t, text)
			if err := p.Override(path, value); err != nil {
				t.Errorf("%s over %s: %v", value, written, err)
				continue
			}
			i := slices.IndexFunc(p.Settings(), func(s Setting) bool { return s.Path == path })
			if got := p.Settings()[i]; got != (Setting{path, value}) {
				t.Errorf("%s over %s: setting %+v", value, written, got)
			}
			if got := p.Services[0].Concurrency; got.Limit != 0 {
				t.Errorf("%s over %s: concurrency %+v, want no limit", value, written, got)
			}
		}
	}
}

// TestSettings sets every path to the value that it has: that changes nothing but where
// a value comes from.
func TestSettings(t *testing.T) {
	p := parsed(t, overridable)
	var paths []string
	for _, s := range p.Settings() {
		paths = append(paths, s.Path)
		if err := p.Clone().Override(s.Path, s.Value); err != nil {
			t.Errorf("set %s %s: %v", s.Path, s.Value, err)
		}
	}
	want := []string{"connections.partner.rate", "connections.partner.burst", "connections.everyone.rate", "connections.everyone.burst",
		"requests.index.rate", "requests.index.burst", "requests.index.over",
		"services.web.mode", "services.web.concurrency", "services.web.concurrency.min", "services.web.concurrency.max", "services.web.concurrency.target",
		"services.web.overload.after", "services.web.overload.calm", "services.web.overload.rejecting", "services.web.overload.flooded",
		"services.web.queue.size", "services.web.queue.max_wait", "services.web.queue.max_service", "services.web.queue.target",
		"classes.gold.reserve", "classes.gold.max", "classes.gold.stall", "classes.bronze.reserve", "classes.bronze.max", "classes.bronze.stall"}
	if got := p.Paths(); !slices.Equal(got, want) || !slices.Equal(paths, want) {
		t.Errorf("paths %q, of settings %q, want %q", got, paths, want)
	}
}

func TestInterval(t *testing.T) {
	tests := map[string]time.Duration{
		"1/s": time.Second, "15/m": 4 * time.Second, "7/s": 142_857_143, "3/s": 333_333_333,
		"1000000/s": 1000, "60000000/m": 1000, "1/m": time.Minute, "7/m": 8_571_428_571,
	}
	for text, want := range tests {
		r, err := parseRate(text)
		if err != nil || r.Interval() != want || r.String() != text {
			t.Errorf("%s: interval %d ns of %s, error %v, want %d ns", text, r.Interval(), r, err, want)
		}
	}
}
