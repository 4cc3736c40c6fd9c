// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"narthex/internal/api"
	"narthex/internal/policy"
	"narthex/internal/trial"
)

// oraclePolicy draws a policy without rates, whose outcome explain and a trial know alike.
func oraclePolicy(t *rapid.T) string {
	pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nservices: [{name: web, listen: \"*:80\", concurrency: 4, trusted_proxies: 10.9.0.0/24%s}]\n", pick("mode", "", "", ", mode: shadow"))
	b.WriteString("classes: [{name: gold, priority: 1}, {name: silver, priority: 2}, {name: bronze, priority: 3}]\nconnections:\n")
	for i := range rapid.IntRange(1, 4).Draw(t, "connections") {
		fmt.Fprintf(&b, "  - {name: c%d, %s%s}\n", i, pick("from", "", "from: 10.0.0.0/30, ", "from: 10.0.0.2, ", "from: \"2001:db8::/32\", ", "from_port: 1-4000, "),
			pick("does", "class: gold", "class: silver", "action: drop", "action: pass", "action: drop, when: overload"))
	}
	b.WriteString("requests:\n")
	for i := range rapid.IntRange(1, 4).Draw(t, "requests") {
		fmt.Fprintf(&b, "  - {name: r%d, %s, %s}\n", i, pick("asks", "path: /a", "path: \"/*b\"", "header: {x: \"1\"}", "cookie: {s: \"*\"}", "method: POST", "host: \"*.example\""),
			pick("does", "class: gold", "action: drop", "action: pass", "action: reject", "action: reject, class: silver, when: overload"))
	}
	return b.String()
}

// A trial decides as explain says.
func TestTrialDecidesAsExplained(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
		p, _, err := policy.Parse("p.yaml", []byte(oraclePolicy(t)))
		if err != nil {
			t.Fatal(err)
		}
		tables, _, err := policy.Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		q := api.ExplainRequest{
			From: pick("client", "10.0.0.1", "10.0.0.2", "10.0.9.9", "10.9.0.1") + pick("port", ":3999", ":4001"), To: "192.0.2.1:80",
			URL: pick("url", "/a", "/x/../a", "http://www.example/cb", "/%zz", "/"), Method: pick("method", "GET", "POST"),
			Headers: []string{pick("header", "X: 1", "Cookie: s=1", "X-Forwarded-For: 10.0.0.2, 10.9.0.3", "X-Forwarded-For: nobody", "A: b")},
		}
		level := rapid.SampledFrom([]policy.When{policy.WhenAlways, policy.WhenOverload, policy.WhenRejecting, policy.WhenFlooded}).Draw(t, "level")
		x := Explainer{Policy: p, Tables: tables, Adaptation: func(string) *api.AdaptationStatus { return &api.AdaptationStatus{Level: level.String()} }}
		result, err := x.Explain(q)
		if err != nil {
			t.Fatal(err)
		}
		d := result.Decisions[0]
		a := &trial.Arrival{
			Time: time.Unix(1, 0), Client: netip.MustParseAddrPort(q.From), Server: netip.MustParseAddrPort(q.To), SYN: true, Level: level,
		}
		syn := decidedBy(p, tables, a)
		if want := explainedSYN(d); syn != want {
			t.Fatalf("a SYN: %s, want %s", syn, want)
		}
		if strings.HasSuffix(d.Verdict, "drop") || d.Action == "pass" {
			return // no request is asked about
		}
		a.SYN, a.Head = false, []byte(httpHead(q))
		if got, want := decidedBy(p, tables, a), explainedRequest(p, level, d); got != want {
			t.Fatalf("a request: %s, want %s", got, want)
		}
	})
}

// decidedBy has a trial decide on one arrival, beside a policy that refuses all, lest it differ
// in nothing.
func decidedBy(p *policy.Policy, tables *policy.Tables, a *trial.Arrival) string {
	none, _, err := policy.Parse("none.yaml", []byte("version: 1\nservices: [{name: other, listen: \"*:1\"}]\n"))
	if err != nil {
		return err.Error()
	}
	noTables, _, err := policy.Compile(none)
	if err != nil {
		return err.Error()
	}
	t := trial.New(none, p, noTables, tables, a.Time)
	t.Take(a)
	pairs := t.Report(a.Time).Pairs
	if len(pairs) != 1 {
		return fmt.Sprintf("%d differences", len(pairs))
	}
	o := pairs[0].Candidate
	return fmt.Sprintf("%s %s %s", o.Verdict, o.Rule, o.Class)
}

func explainedSYN(d api.Decision) string {
	verdict, class := d.Verdict, d.Class
	if d.Action == "pass" {
		verdict = "exempt"
	}
	if verdict == "drop" {
		class = ""
	}
	return fmt.Sprintf("%s %s %s", verdict, d.Rule, class)
}

func explainedRequest(p *policy.Policy, level policy.When, d api.Decision) string {
	r := d.Request
	if r == nil {
		return fmt.Sprintf("pass  %s", d.Class)
	}
	class, rule, verdict := d.Class, r.Rule, r.Verdict
	if r.Class != "" {
		class = r.Class
	}
	for _, c := range p.Connections { // that decides about a trusted proxy's client
		enforced := c.When.At(level)
		if c.Name == r.ClientRule && enforced && (c.Action == policy.ActionPass || c.Action == policy.ActionDrop) {
			rule = c.Name
		}
	}
	if verdict == "pass" && d.Room == nil {
		verdict = "exempt"
	}
	if verdict == "drop" || verdict == "reject" {
		class = ""
	}
	return fmt.Sprintf("%s %s %s", verdict, rule, class)
}
