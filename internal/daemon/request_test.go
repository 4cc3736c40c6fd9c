// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/api"
	"narthex/internal/httphead"
	"narthex/internal/policy"
)

const ruledServices = `version: 1
services:
  - {name: web, listen: "*:80", concurrency: 4, trusted_proxies: [10.9.0.0/16]}
  - {name: test, listen: "*:81", mode: shadow, concurrency: unlimited}
  - {name: front, listen: "*:443", protocol: tls}
  - {name: mail, listen: "*:25", protocol: tcp}
classes:
  - {name: gold, priority: 1}
  - {name: silver, priority: 2}
  - {name: bronze, priority: 3}
connections:
  - {name: known, learned: [gold], class: gold}
  - {name: friend, from: 10.0.0.1, action: pass}
  - {name: foe, from: 10.0.0.2, action: drop}
  - {name: everyone, class: silver}
requests:
  - {name: health, path: /healthz, action: pass}
  - {name: noaccess, path: /noaccess, action: drop, block: 3s}
  - {name: teapot, path: /tea, method: BREW, action: reject}
  - {name: cgi, path: /cgi/*, rate: 10/s, burst: 2, per: source}
  - {name: slow, path: /slow, rate: 10/s, burst: 2, over: demote, class: gold}
  - {name: reset, path: /reset, rate: 10/s, burst: 2, over: drop}
  - {name: vip, host: vip.example, cookie: {tier: gold}, header: {x-plan: "*"}, class: gold, learn: 10m}
  - {name: tenant, sni: "*.customer.example", class: gold}
  - {name: library, ja4: "t13d1516h2_*", action: reject}
`

func TestExplainRequests(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", ruledServices)))
	defer r.end()
	full := &api.BucketStatus{Tokens: 2}
	empty := &api.BucketStatus{Known: true, Tokens: 0.5, FullIn: 2}
	limited := api.RequestDecision{Method: "GET", Rate: "10/s", Burst: 2, Action: "police"}
	police := func(path, rule, per, over, class, verdict string, b *api.BucketStatus) *api.RequestDecision {
		d := limited
		d.Path, d.Rule, d.Per, d.Over, d.Class, d.Verdict, d.Bucket = path, rule, per, over, class, verdict, b
		if strings.HasSuffix(verdict, "reject") {
			d.Answer = "429"
		}
		return &d
	}
	const plain, poor, proxy = "10.0.0.8:5", "10.0.0.9:5", "10.9.0.1:5"
	tests := []struct {
		name  string
		from  string
		to    string
		req   api.ExplainRequest
		want  *api.RequestDecision
		class string // of who would take a turn; "": nobody
	}{
		{"no rule", plain, "80", api.ExplainRequest{URL: "http://A.example/./y?z"}, &api.RequestDecision{Method: "GET", Path: "/y", Host: "a.example", Verdict: "pass"}, "silver"},
		{"passes", plain, "80", api.ExplainRequest{URL: "/%68ealthz"}, &api.RequestDecision{Method: "GET", Path: "/healthz", Rule: "health", Action: "pass", Class: "silver", Verdict: "pass"}, ""},
		{"dropped", plain, "80", api.ExplainRequest{URL: "//noaccess?x"}, &api.RequestDecision{Method: "GET", Path: "/noaccess", Rule: "noaccess", Action: "drop", Block: 3, Class: "silver", Verdict: "drop"}, ""},
		{"dropped in shadow mode", plain, "81", api.ExplainRequest{URL: "/noaccess"}, &api.RequestDecision{Method: "GET", Path: "/noaccess", Rule: "noaccess", Action: "drop", Block: 3, Class: "silver", Verdict: "would drop"}, ""},
		{"of a proxy, dropped", proxy, "80", api.ExplainRequest{URL: "/noaccess"}, &api.RequestDecision{Method: "GET", Path: "/noaccess", Rule: "noaccess", Action: "drop", Class: "silver", Answer: "503", Verdict: "reject"}, ""},
		{"of nobody", proxy, "80", api.ExplainRequest{URL: "/x", Headers: []string{"X-Forwarded-For: 192.0.2.7, unknown"}}, &api.RequestDecision{Method: "GET", Path: "/x", Verdict: "pass"}, "silver"},
		{"of the first of all, dropped", proxy, "80", api.ExplainRequest{URL: "/noaccess", Headers: []string{"X-Forwarded-For: 10.9.0.2"}}, &api.RequestDecision{Method: "GET", Path: "/noaccess", Client: "10.9.0.2", ClientRule: "everyone", Rule: "noaccess", Action: "drop", Class: "silver", Answer: "503", Verdict: "reject"}, ""},
		{"of the first of 32", proxy, "80", api.ExplainRequest{URL: "/x", Headers: []string{"X-Forwarded-For: 10.0.0.2" + strings.Repeat(", 10.9.0.1", 31)}}, &api.RequestDecision{Method: "GET", Path: "/x", Client: "10.0.0.2", ClientRule: "foe", Class: "bronze", Answer: "503", Verdict: "reject"}, ""},
		{"of nobody beyond 32", proxy, "80", api.ExplainRequest{URL: "/x", Headers: []string{"X-Forwarded-For: 10.0.0.2" + strings.Repeat(", 10.9.0.1", 32)}}, &api.RequestDecision{Method: "GET", Path: "/x", Verdict: "pass"}, "silver"},
		{"of a client, not by a proxy", plain, "80", api.ExplainRequest{URL: "/x", Headers: []string{"X-Forwarded-For: 192.0.2.7"}}, &api.RequestDecision{Method: "GET", Path: "/x", Host: "", Verdict: "pass"}, "silver"},
		{"of a learned client", proxy, "80", api.ExplainRequest{URL: "/x", Headers: []string{"X-Forwarded-For: 192.0.2.7", "X-Forwarded-For: [::ffff:10.0.0.20]:5,"}}, &api.RequestDecision{Method: "GET", Path: "/x", Client: "10.0.0.20", ClientRule: "known", Class: "gold", Verdict: "pass"}, "gold"},
		{"of a blocked client", proxy, "80", api.ExplainRequest{URL: "/x", Headers: []string{"X-Forwarded-For: 10.0.0.21"}}, &api.RequestDecision{Method: "GET", Path: "/x", Client: "10.0.0.21", ClientRule: "everyone", Class: "silver", Blocked: 2, BlockedBy: []string{"noaccess"}, Answer: "429", Verdict: "reject"}, ""},
		{"of a client that passes", proxy, "80", api.ExplainRequest{URL: "/noaccess", Headers: []string{"X-Forwarded-For: 10.0.0.1"}}, &api.RequestDecision{Method: "GET", Path: "/noaccess", Client: "10.0.0.1", ClientRule: "friend", Class: "bronze", Verdict: "pass"}, ""},
		{"of a client that is dropped", proxy, "80", api.ExplainRequest{URL: "/x", Headers: []string{"X-Forwarded-For: 10.0.0.2"}}, &api.RequestDecision{Method: "GET", Path: "/x", Client: "10.0.0.2", ClientRule: "foe", Class: "bronze", Answer: "503", Verdict: "reject"}, ""},
		{"of a proxy's client, dropped", proxy, "80", api.ExplainRequest{URL: "/noaccess", Headers: []string{"X-Forwarded-For: 203.0.113.9, 192.0.2.7 , 10.9.0.2"}}, &api.RequestDecision{Method: "GET", Path: "/noaccess", Client: "192.0.2.7", ClientRule: "everyone", Rule: "noaccess", Action: "drop", Block: 3, Class: "silver", Answer: "503", Verdict: "reject"}, ""},
		{"rejected", plain, "80", api.ExplainRequest{URL: "/tea", Method: "BREW"}, &api.RequestDecision{Method: "BREW", Path: "/tea", Rule: "teapot", Action: "reject", Class: "silver", Answer: "503", Verdict: "reject"}, ""},
		{"a token", plain, "80", api.ExplainRequest{URL: "/cgi/x"}, police("/cgi/x", "cgi", "source", "reject", "silver", "pass", full), "silver"},
		{"no token", poor, "80", api.ExplainRequest{URL: "/cgi/x"}, police("/cgi/x", "cgi", "source", "reject", "silver", "reject", empty), ""},
		{"no token in shadow mode", poor, "81", api.ExplainRequest{URL: "/cgi/x"}, police("/cgi/x", "cgi", "source", "reject", "silver", "would reject", empty), ""},
		{"demoted", poor, "80", api.ExplainRequest{URL: "/slow"}, police("/slow", "slow", "rule", "demote", "bronze", "demote", empty), "bronze"},
		{"reset", poor, "80", api.ExplainRequest{URL: "/reset"}, police("/reset", "reset", "rule", "drop", "silver", "drop", empty), ""},
		{"class", plain, "80", api.ExplainRequest{URL: "/", Headers: []string{"Host: VIP.example:80", "Cookie: a=b; tier=gold", "X-Plan:"}}, &api.RequestDecision{Method: "GET", Path: "/", Host: "vip.example", Rule: "vip", Action: "classify", Learn: 600, Class: "gold", Verdict: "pass"}, "gold"},
		{"in two ways", plain, "80", api.ExplainRequest{URL: "/%zz"}, &api.RequestDecision{Refused: "an invalid escape in the path", Answer: "400", Verdict: "reject"}, ""},
		{"by a server name", plain, "443", api.ExplainRequest{SNI: "A.Customer.example."}, &api.RequestDecision{SNI: "a.customer.example", Rule: "tenant", Action: "classify", Class: "gold", Verdict: "pass"}, ""},
		{"by a URL's name", plain, "443", api.ExplainRequest{URL: "https://b.customer.example:443/x"}, &api.RequestDecision{SNI: "b.customer.example", Rule: "tenant", Action: "classify", Class: "gold", Verdict: "pass"}, ""},
		{"by a fingerprint", plain, "443", api.ExplainRequest{JA4: "t13d1516h2_8daaf6152771_b186095e22b6"}, &api.RequestDecision{JA4: "t13d1516h2_8daaf6152771_b186095e22b6", Rule: "library", Action: "reject", Class: "silver", Answer: "reset", Verdict: "reject"}, ""},
		{"without a server name", plain, "443", api.ExplainRequest{URL: "/x"}, nil, ""},
		{"not seen", plain, "25", api.ExplainRequest{URL: "/x"}, nil, ""},
		{"not looked at", "10.0.0.1:5", "80", api.ExplainRequest{URL: "/noaccess"}, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.req.From, tt.req.To = tt.from, "192.0.2.1:"+tt.to
			got, err := r.client.Explain(t.Context(), tt.req)
			if err != nil {
				t.Fatal(err)
			}
			d := got.Decisions[0]
			if diff := cmp.Diff(tt.want, d.Request); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			if d.Room == nil && tt.class != "" || d.Room != nil && classOfTurn(d) != tt.class {
				t.Errorf("a turn in %+v, want one in class %q", d.Room, tt.class)
			}
		})
	}
}

// classOfTurn returns the class in which somebody takes a turn.
func classOfTurn(d api.Decision) string {
	if d.Room.Class != "" {
		return d.Room.Class
	}
	return d.Class
}

func TestExplainOfWhoIsRemembered(t *testing.T) {
	m := newMachine(t, "eth0")
	file := m.write("p.yaml", ruledServices)
	r := m.start(m.config(file))
	for from, want := range map[string]api.Decision{
		"10.0.0.20:5": {Learned: "gold", Rule: "known", Action: "classify", Class: "gold", Verdict: "pass"},
		"10.0.0.21:5": {Reason: "blocked for another 2s by request rule noaccess", Class: "bronze", Verdict: "drop"},
		"10.0.0.22:5": {Rule: "everyone", Action: "classify", Class: "silver", Verdict: "pass"},
	} {
		got, err := r.client.Explain(t.Context(), api.ExplainRequest{From: from, To: "192.0.2.1:25"})
		if err != nil {
			t.Fatal(err)
		}
		want.Service, want.Interface, want.Policed = "mail", "eth0", got.Decisions[0].Policed
		if diff := cmp.Diff(want, got.Decisions[0]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", from, diff)
		}
	}
	r.end()
	got, err := Offline(file, api.ExplainRequest{From: "10.0.0.20:5", To: "192.0.2.1:80", URL: "/slow"})
	if err != nil {
		t.Fatal(err)
	}
	if d := got.Decisions[0]; d.Rule != "everyone" || d.Request.Verdict != "by the bucket" || len(got.Notes) != 2 {
		t.Errorf("without a daemon: %+v, %+v, notes %q", d, d.Request, got.Notes)
	}
}

func TestStatusOfRequestRules(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", ruledServices)))
	defer r.end()
	if _, err := r.client.Set(t.Context(), api.SetRequest{Path: "requests.slow.rate", Value: "5/s"}); err != nil {
		t.Fatal(err)
	}
	got := r.status().Requests
	want := api.RequestRuleStatus{Over: string(policy.OverDemote)}
	want.RuleStatus = api.RuleStatus{Name: "slow", Action: "police", Rate: "5/s", Burst: 2, Per: "rule", Class: "gold", Overridden: true}
	want.Matched, want.Passed, want.Demoted = 5500, 500, 5000
	if len(got) != 9 {
		t.Fatalf("%d rules, want 9", len(got))
	}
	if diff := cmp.Diff(want, got[4]); diff != "" {
		t.Errorf("rule (-want +got):\n%s", diff)
	}
	if got[1].Block != 3 || got[6].Learn != 600 || got[3].Overridden {
		t.Errorf("rules %+v", got)
	}
}

func TestForwardedAddress(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "192.0.2.7:80": "192.0.2.7", "2001:db8::1": "2001:db8::1", "[2001:db8::1]": "2001:db8::1",
		"[2001:db8::1]:80": "2001:db8::1", "::ffff:192.0.2.7": "192.0.2.7",
		"unknown": "", "_hidden": "", "[192.0.2.7]": "", "fe80::1%eth0": "", "[fe80::1%eth0]:1": "", "192.0.2.7:x": "", "": "", "[": "", "]": "",
	} {
		addr, ok := httphead.Address(text)
		if ok != (want != "") || ok && addr.String() != want {
			t.Errorf("%q: %s, %v, want %q", text, addr, ok, want)
		}
	}
}
