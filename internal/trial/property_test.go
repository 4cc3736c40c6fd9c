// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"narthex/internal/policy"
)

// drawRules draws a policy's rules of both tables.
func drawRules(t *rapid.T) string {
	var b strings.Builder
	pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	b.WriteString("connections:\n")
	for i := range rapid.IntRange(1, 4).Draw(t, "connections") {
		fmt.Fprintf(&b, "  - {name: c%d, %s%s}\n", i,
			pick("from", "", "from: 10.0.0.0/30, ", "from: \"2001:db8::/32\", ", "from_port: 1-4000, ", "learned: gold, "),
			pick("does", "class: gold", "action: drop", "action: pass", "rate: 5/s, burst: 2", "rate: 2/s, per: source, class: gold", "rate: 60/m, burst: 3, per: {v4: 24, v6: 56}, when: overload"))
	}
	b.WriteString("requests:\n")
	for i := range rapid.IntRange(1, 4).Draw(t, "requests") {
		fmt.Fprintf(&b, "  - {name: r%d, %s, %s}\n", i,
			pick("asks", "path: /a", "path: \"/*b\"", "header: {x: \"1\"}", "cookie: {s: \"*\"}, path: \"*\"", "method: POST"),
			pick("does", "class: gold", "action: drop", "action: pass", "action: reject", "rate: 2/s, per: source, block: 1s",
				"rate: 3/s, over: demote", "class: gold, learn: 2s", "rate: 1/s, burst: 4, when: overload, over: drop"))
	}
	return b.String()
}

// drawArrival draws what comes some time after what came before.
func drawArrival(t *rapid.T, at time.Duration) *Arrival {
	addr := rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "10.0.1.9", "10.9.0.1", "2001:db8::1", "2001:db8:0:1::1"}).Draw(t, "client")
	a := &Arrival{
		Clock:  at + time.Duration(rapid.IntRange(-20, 900).Draw(t, "ms"))*time.Millisecond,
		Weight: rapid.SampledFrom([]int{1, 1, 1, 2, 8}).Draw(t, "weight"),
		Client: netip.AddrPortFrom(netip.MustParseAddr(addr), rapid.SampledFrom([]uint16{3999, 4001}).Draw(t, "port")),
		Server: netip.MustParseAddrPort("192.0.2.1:80"), SYN: rapid.Bool().Draw(t, "syn"), Level: rapid.SampledFrom([]policy.When{policy.WhenAlways, policy.WhenOverload, policy.WhenFlooded}).Draw(t, "level"),
	}
	if a.SYN {
		return a
	}
	head := get(rapid.SampledFrom([]string{"/a", "/x/../a", "/cb", "/%"}).Draw(t, "path"),
		rapid.SampledFrom([]string{"X: 1", "Cookie: s=1", "X-Forwarded-For: 10.0.0.1", "X-Forwarded-For: nobody"}).Draw(t, "header"))
	a.Head = []byte(head[:rapid.SampledFrom([]int{len(head), len(head), 20, 0}).Draw(t, "length")])
	if addr == "10.9.0.1" && rapid.Bool().Draw(t, "named") {
		a.Real = netip.MustParseAddr("10.0.0.1")
	}
	return a
}

// A policy differs from itself on no traffic.
func TestSamePolicyTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		services := rapid.SampledFrom([]string{web, shadow, tls, tcp}).Draw(t, "service")
		rules := drawRules(t)
		p, tables := build(t, services, rules)
		q, again := build(t, services, rules)
		trial := New(p, q, tables, again, noon)
		at := time.Hour
		for range rapid.IntRange(1, 60).Draw(t, "arrivals") {
			a := drawArrival(t, at)
			trial.Take(a)
			at = a.Clock
		}
		r := trial.Report(noon)
		if r.Different != 0 || len(r.Pairs) != 0 || r.Same != r.SYNs+r.Requests {
			t.Fatalf("it differs from itself: %+v", r)
		}
		for _, rule := range r.Rules {
			if rule.Live != rule.Candidate {
				t.Fatalf("rule %+v", rule)
			}
		}
		for _, c := range r.Classes {
			if c.Live != c.Candidate {
				t.Fatalf("class %+v", c)
			}
		}
	})
}
