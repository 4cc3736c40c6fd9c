// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"narthex/internal/ja4"
	"narthex/internal/policy"
)

var noon = time.Date(2026, time.November, 22, 12, 0, 0, 0, time.UTC)

// build reads a policy: services and classes that all tests have, and the rules of one.
func build(t interface{ Fatal(...any) }, services, rules string) (*policy.Policy, *policy.Tables) {
	p, _, err := policy.Parse("p.yaml", []byte("version: 1\nservices:\n"+services+
		"classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]\n"+rules))
	if err != nil {
		t.Fatal(err)
	}
	tables, _, err := policy.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return p, tables
}

const (
	web    = "  - {name: web, listen: \"*:80\", concurrency: 4, trusted_proxies: 10.9.0.0/24}\n"
	shadow = "  - {name: web, listen: \"*:80\", concurrency: 4, mode: shadow}\n"
	tls    = "  - {name: web, listen: \"*:80\", protocol: tls, concurrency: 4}\n"
	tcp    = "  - {name: web, listen: \"*:80\", protocol: tcp, concurrency: 4}\n"
)

// step is an arrival, so many milliseconds after the beginning, and what becomes of it.
type step struct {
	at   int
	from string // a client; its port is 4000 unless named
	head string // empty: a SYN
	real string
	busy policy.When // overload
	want string
}

func (s *step) arrival() *Arrival {
	from, err := netip.ParseAddrPort(s.from)
	if err != nil {
		from = netip.AddrPortFrom(netip.MustParseAddr(s.from), 4000)
	}
	a := &Arrival{
		Time: noon, Clock: time.Hour + time.Duration(s.at)*time.Millisecond, Weight: 1, Client: from,
		Server: netip.MustParseAddrPort("192.0.2.1:80"), SYN: s.head == "", Head: []byte(s.head), Level: s.busy,
	}
	if s.real != "" {
		a.Real = netip.MustParseAddr(s.real)
	}
	return a
}

// get is a request's head with headers.
func get(path string, headers ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: shop\r\n" + strings.Join(append(headers, ""), "\r\n") + "\r\n"
}

// text is an outcome in a line.
func text(o Outcome) string {
	words := []string{string(o.Verdict)}
	for _, w := range []string{o.Rule, o.Class, o.Reason} {
		if w != "" {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}

func TestDecisions(t *testing.T) {
	print, ok := ja4.Of([]byte(hello("a.example", "h2")))
	if !ok {
		t.Fatal("the hello has no fingerprint")
	}
	const limited = "connections: [{name: c, rate: 2/s, burst: 2, per: source}]\n"
	tests := map[string]struct {
		services, rules string
		steps           []step
	}{
		"bucket of a source": {web, limited, []step{
			{at: 0, from: "10.0.0.1", want: "pass c bronze"},
			{at: 0, from: "10.0.0.1", want: "pass c bronze"},
			{at: 499, from: "10.0.0.1", want: "drop c"},
			{at: 499, from: "10.0.0.2", want: "pass c bronze"},
			{at: 500, from: "10.0.0.1", want: "pass c bronze"},
			{at: 501, from: "10.0.0.1", want: "drop c"},
		}},
		"bucket of a rule, and of prefixes": {web, "connections: [{name: six, from: \"::/0\", rate: 1/m, burst: 1, per: source}, {name: r, from: 10.1.0.0/16, rate: 1/m, burst: 1}, {name: p, rate: 1/m, burst: 1, per: {v4: 24, v6: 56}}]\n", []step{
			{from: "10.1.0.1", want: "pass r bronze"},
			{from: "10.1.9.1", want: "drop r"},
			{from: "10.2.0.1", want: "pass p bronze"},
			{from: "10.2.0.2", want: "drop p"},
			{from: "10.2.1.2", want: "pass p bronze"},
			{from: "[2001:db8::1]:1", want: "pass six bronze"},
			{from: "[2001:db8::2]:1", want: "drop six"},
			{from: "[2001:db8:0:1::2]:1", want: "pass six bronze"},
		}},
		"first match, and what no rule matches": {web, "connections: [{name: a, from: 10.0.0.0/24, class: gold}, {name: b, from: 10.0.0.0/8, action: drop}, {name: c, from: 10.3.0.0/16, class: gold}]\n", []step{
			{from: "10.0.0.9", want: "pass a gold"},
			{from: "10.3.0.9", want: "drop b"},
			{from: "192.0.2.9", want: "pass bronze"},
		}},
		"shadow mode": {shadow, limited + "requests: [{name: x, path: /x, action: reject}]\n", []step{
			{from: "10.0.0.1", want: "pass c bronze"},
			{from: "10.0.0.1", want: "pass c bronze"},
			{from: "10.0.0.1", want: "would drop c bronze"},
			{from: "10.0.0.1", head: get("/x"), want: "would reject x bronze"},
		}},
		"overload": {web, "requests: [{name: x, path: /x, when: overload, action: reject, class: gold}]\n", []step{
			{from: "10.0.0.1", head: get("/x"), want: "pass x gold"},
			{from: "10.0.0.1", head: get("/x"), busy: policy.WhenOverload, want: "reject x"},
		}},
		"requests": {web, "connections: [{name: c, from: 10.0.0.1, class: gold}]\nrequests: [{name: d, path: /d, action: drop}, {name: h, path: /h, action: pass}, {name: s, path: \"/s*\", rate: 1/s, burst: 1, over: demote, class: gold}, {name: r, path: /r, rate: 1/s, burst: 1}]\n", []step{
			{from: "10.0.0.1", head: get("/d"), want: "drop d"},
			{from: "10.0.0.1", head: get("/h"), want: "exempt h gold"},
			{from: "10.0.0.1", head: get("/else"), want: "pass gold"},
			{from: "10.0.0.2", head: get("/else"), want: "pass bronze"},
			{from: "10.0.0.2", head: get("/..//s%41"), want: "pass s gold"},
			{from: "10.0.0.2", head: get("/s"), want: "demote s bronze"},
			{at: 1, from: "10.0.0.2", head: get("/r"), want: "pass r bronze"},
			{at: 2, from: "10.0.0.2", head: get("/r"), want: "reject r"},
			{from: "10.0.0.2", head: "GET /d HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", want: "reject malformed"},
			{from: "10.0.0.2", head: "GET /d HTTP/1.1\r\nHost: a\r\nCookie: lo", want: "drop d"},
			{from: "10.0.0.2", head: "\r\n\r\nGET /d HTTP/1.1\r\nHost: a\r\nCookie: lo", want: "drop d"},
			{from: "10.0.0.2", head: "GET /d" + strings.Repeat("x", 2042), want: "pass bronze"},
		}},
		"a connection that was not let in": {web, "connections: [{name: no, from: 10.0.0.1, rate: 1/m, burst: 1}]\n", []step{
			{from: "10.0.0.1:1", want: "pass no bronze"},
			{from: "10.0.0.1:2", want: "drop no"},
			{from: "10.0.0.1:1", head: get("/"), want: "pass bronze"},
			{from: "10.0.0.1:2", head: get("/"), want: "not reached"},
		}},
		"blocked for a while": {web, "requests: [{name: l, path: /login, rate: 1/m, burst: 1, per: source, block: 2s}]\n", []step{
			{from: "10.0.0.1", head: get("/login"), want: "pass l bronze"},
			{at: 10, from: "10.0.0.1", head: get("/login"), want: "reject l"},
			{at: 20, from: "10.0.0.1", want: "drop blocked"},
			{at: 20, from: "10.0.0.2", want: "pass bronze"},
			{at: 2011, from: "10.0.0.1", want: "pass bronze"},
		}},
		"learned for a while": {web, "connections: [{name: known, learned: gold, class: gold}]\nrequests: [{name: m, cookie: {session: \"*\"}, class: gold, learn: 2s}]\n", []step{
			{from: "10.0.0.1", want: "pass bronze"},
			{at: 10, from: "10.0.0.1", head: get("/", "Cookie: session=1"), want: "pass m gold"},
			{at: 20, from: "10.0.0.1", want: "pass known gold"},
			{at: 20, from: "10.0.0.2", want: "pass bronze"},
			{at: 2011, from: "10.0.0.1", want: "pass bronze"},
		}},
		"trusted proxies": {web, "connections: [{name: vip, from: 10.0.0.7, class: gold}, {name: bad, from: 10.0.0.8, action: drop}]\nrequests: [{name: d, path: /d, action: drop}, {name: r, path: \"*\", rate: 1/m, burst: 1, per: source}]\n", []step{
			{from: "10.9.0.1", head: get("/a", "X-Forwarded-For: 10.0.0.7"), real: "10.0.0.7", want: "pass r gold"},
			{from: "10.9.0.1", head: get("/a", "X-Forwarded-For: 10.0.0.9, 10.0.0.7, 10.9.0.2"), real: "10.0.0.7", want: "reject r"},
			{from: "10.9.0.1", head: get("/a", "X-Forwarded-For: 10.0.0.9"), real: "10.0.0.9", want: "pass r bronze"},
			{from: "10.9.0.1", head: get("/a", "X-Forwarded-For: 10.0.0.8"), real: "10.0.0.8", want: "reject bad"},
			{from: "10.9.0.1", head: get("/d", "X-Forwarded-For: 10.0.0.5"), real: "10.0.0.5", want: "reject d"},
			{from: "10.9.0.1", head: get("/b", "X-Forwarded-For: 10.0.0.4"), real: "10.0.0.6", want: "pass r bronze"},
			{from: "10.9.0.1", head: "PROXY TCP4 10.0.0.6 10.9.0.1 1 2\r\n" + get("/b"), real: "10.0.0.6", want: "reject r"},
			{from: "10.0.0.1", head: get("/a", "X-Forwarded-For: 10.0.0.7"), want: "pass r bronze"},
		}},
		"tls": {tls, "requests: [{name: a, sni: \"*.example\", class: gold}, {name: h2, alpn: h2, action: reject}]\n", []step{
			{from: "10.0.0.1", head: hello("a.example", "http/1.1"), want: "pass a gold"},
			{from: "10.0.0.1", head: hello("b.test", "http/1.1", "h2"), want: "reject h2"},
			{from: "10.0.0.1", head: hello("b.test", "http/1.1"), want: "pass bronze"},
			{from: "10.0.0.1", head: "\x16\x03", want: "pass bronze"},
		}},
		"tls, by fingerprint": {tls, "requests: [{name: a, ja4: " + print + ", class: gold}, {name: h2, alpn: h2, action: reject}]\n", []step{
			{from: "10.0.0.1", head: hello("a.example", "h2"), want: "pass a gold"},
			{from: "10.0.0.1", head: hello("a.example", "x", "h2"), want: "reject h2"},
			{from: "10.0.0.1", head: hello("", "x", "h2"), want: "reject h2"},
		}},
		"what is to no service": {web, "", []step{{from: "10.0.0.1:1", head: "", want: "pass bronze"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSide(build(t, tt.services, tt.rules))
			for i := range tt.steps {
				a := tt.steps[i].arrival()
				var says *said
				if !a.SYN {
					says = hear(a)
					says.forwarded = says.isForwarded(s, a)
				}
				if got := text(s.decide(a, says)); got != tt.steps[i].want {
					t.Errorf("step %d: %s, want %s", i, got, tt.steps[i].want)
				}
			}
		})
	}
}

// hello is a ClientHello with a server's name and protocols, in two records.
func hello(name string, protocols ...string) string {
	raw := func(b ...byte) string { return string(b) }
	vector := func(n int, s string) string {
		b := []byte{byte(len(s) >> 16), byte(len(s) >> 8), byte(len(s))}
		return string(b[3-n:]) + s
	}
	list := ""
	for _, p := range protocols {
		list += vector(1, p)
	}
	extensions := raw(0, 43) + vector(2, "\x02\x03\x04") + raw(0, 0) + vector(2, vector(2, "\x00"+vector(2, name))) + raw(0, 16) + vector(2, vector(2, list))
	body := raw(3, 3) + strings.Repeat("r", 32) + vector(1, "id") + vector(2, "\x13\x01") + vector(1, "\x00") + vector(2, extensions)
	message := raw(1) + vector(3, body)
	const first = 50
	return raw(22, 3, 1) + vector(2, message[:first]) + raw(22, 3, 1) + vector(2, message[first:])
}

func TestReport(t *testing.T) {
	live, liveTables := build(t, web, "connections: [{name: everyone, class: bronze}]\nrequests: [{name: a, path: /a, class: gold}]\n")
	next, nextTables := build(t, web+"  - {name: new, listen: \"*:81\"}\n", "connections: [{name: everyone, rate: 1/s, burst: 2, per: source}]\nrequests: [{name: b, path: /b, action: reject}]\n")
	trial := New(live, next, liveTables, nextTables, noon)
	for i, s := range []step{
		{from: "10.0.0.1:1"}, {from: "10.0.0.1:2"}, {from: "10.0.0.1:3"},
		{from: "10.0.0.1:1", head: get("/a")}, {from: "10.0.0.1:2", head: get("/b")}, {from: "10.0.0.1:3", head: get("/c")},
	} {
		a := s.arrival()
		a.Kernel, a.Rule = Pass, "everyone"
		if i == 4 {
			a.Weight = 4
		}
		trial.Take(a)
	}
	trial.Miss(7)
	r := trial.Report(noon.Add(10 * time.Second))
	if r.Seconds != 10 || r.SYNs != 3 || r.Requests != 6 || r.Missed != 7 || r.Same != 2 || r.Different != 7 || r.Agreement != 1 {
		t.Errorf("report %+v", r)
	}
	var pairs []string
	for _, p := range r.Pairs {
		pairs = append(pairs, fmt.Sprintf("%d %s %s: %s -> %s, %s", p.Count, p.Service, p.Of, text(p.Live), text(p.Candidate), p.Examples[0].Client+" "+p.Examples[0].Request))
	}
	want := []string{
		"4 web request: pass bronze -> reject b, 10.0.0.1 GET /b HTTP/1.1",
		"1 web SYN: pass everyone bronze -> drop everyone, 10.0.0.1 ",
		"1 web request: pass bronze -> not reached, 10.0.0.1 GET /c HTTP/1.1",
		"1 web request: pass a gold -> pass bronze, 10.0.0.1 GET /a HTTP/1.1",
	}
	if !slices.Equal(pairs, want) {
		t.Errorf("pairs\n%s\nwant\n%s", strings.Join(pairs, "\n"), strings.Join(want, "\n"))
	}
	rules := fmt.Sprint(r.Rules)
	if want := "[{everyone connection {3 0 0 0} {3 1 0 0} {9 0 0 0}} {b request {0 0 0 0} {4 0 4 0} {0 0 0 0}} {a request {1 0 0 0} {0 0 0 0} {0 0 0 0}}]"; rules != want {
		t.Errorf("rules\n%s\nwant\n%s", rules, want)
	}
	if got, want := fmt.Sprint(r.Classes), "[{web gold 1 0} {web bronze 5 1} {new gold 0 0} {new bronze 0 0}]"; got != want {
		t.Errorf("classes %s, want %s", got, want)
	}
	if len(r.Notes) != 4 || !strings.Contains(r.Notes[1], "service new is not policed yet") {
		t.Errorf("notes %q", r.Notes)
	}
}

// What clients say reaches a terminal in examples.
func TestExamplesSteerNoTerminal(t *testing.T) {
	const evil = "a\x1b]0;owned\x07\nb\x9b\u202e"
	long := strings.Repeat("\x1b", 500)
	for name, tt := range map[string]struct{ service, rules, head, want string }{
		"server name":      {tls, "requests: [{name: r, sni: \"*\", class: gold}]\n", hello(evil, "h2"), `TLS a\x1b]0;owned\a\nb\x9b\u202e`},
		"long server name": {tls, "requests: [{name: r, sni: \"*\", class: gold}]\n", hello(long, "h2"), "TLS " + strings.Repeat(`\x1b`, 116)},
		"no HTTP":          {web, "requests: [{name: r, action: reject, path: \"*\"}]\n", long + "\n\n", strings.Repeat(`\x1b`, 120)},
	} {
		live, liveTables := build(t, tcp, "")
		next, nextTables := build(t, tt.service, tt.rules)
		trial := New(live, next, liveTables, nextTables, noon)
		trial.Take((&step{from: "10.0.0.1", head: tt.head}).arrival())
		r := trial.Report(noon)
		if len(r.Pairs) != 1 || r.Pairs[0].Examples[0].Request != tt.want {
			t.Errorf("%s: %+v, want %s", name, r.Pairs, tt.want)
		}
	}
}

func TestServiceThatTheCandidateLeavesOut(t *testing.T) {
	live, liveTables := build(t, web, "")
	next, nextTables := build(t, strings.Replace(web, ":80", ":81", 1), "")
	trial := New(live, next, liveTables, nextTables, noon)
	trial.Take((&step{from: "10.0.0.1"}).arrival())
	if r := trial.Report(noon); len(r.Pairs) != 1 || text(r.Pairs[0].Candidate) != "not policed" || r.Pairs[0].Service != "web" {
		t.Errorf("pairs %+v", r.Pairs)
	}
}

func TestKernelThatDecidesOtherwise(t *testing.T) {
	p, tables := build(t, web, "connections: [{name: c, rate: 1/s, burst: 1}]\n")
	trial := New(p, p, tables, tables, noon)
	for _, v := range []Verdict{Pass, Pass, Drop, Drop} { // the first is let in
		a := (&step{from: "10.0.0.1"}).arrival()
		a.Kernel, a.Rule = v, "c"
		trial.Take(a)
	}
	if r := trial.Report(noon); r.Agreement != 0.75 || r.Different != 0 || r.Rules[0].Kernel != (Counts{Matched: 4, Dropped: 2}) {
		t.Errorf("agreement %g, %+v", r.Agreement, r.Rules)
	}
}

func TestTablesAreBounded(t *testing.T) {
	p, tables := build(t, web, "connections: [{name: c, rate: 1/m, burst: 1, per: source}]\n")
	trial := New(p, p, tables, tables, noon)
	a := (&step{from: "10.0.0.1"}).arrival()
	const more = 100
	for i := range mostEntries + more {
		a.Client = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1)
		trial.Take(a)
	}
	if n := len(trial.live.buckets.sources.entries); n != mostEntries || trial.live.buckets.sources.lost != more {
		t.Errorf("%d sources, %d lost", n, trial.live.buckets.sources.lost)
	}
	a.Clock += 2 * time.Minute
	trial.Take(a)
	if n := len(trial.live.buckets.sources.entries); n != 1 {
		t.Errorf("%d sources after they are full", n)
	}
	if r := trial.Report(noon); r.Different != 0 || !strings.Contains(strings.Join(r.Notes, "\n"), "200 times there was no room") {
		t.Errorf("report %+v", r)
	}
}

func TestHeadsLongerThanACopy(t *testing.T) {
	p, tables := build(t, web, "requests: [{name: d, path: /d, action: drop}]\n")
	trial := New(p, p, tables, tables, noon)
	for _, head := range []string{get("/d"), "GET /d HTTP/1.1\r\nHo", "GET /d?" + strings.Repeat("x", 2041)} {
		trial.Take((&step{from: "10.0.0.1", head: head}).arrival())
	}
	if r := trial.Report(noon); !strings.Contains(strings.Join(r.Notes, "\n"), "2 heads are longer than a copy") {
		t.Errorf("notes %q", r.Notes)
	}
}

// TestClockThatIsSet changes nothing for buckets.
func TestClockThatIsSet(t *testing.T) {
	p, tables := build(t, web, "connections: [{name: c, rate: 1/m, burst: 1, per: source}]\n")
	s := newSide(p, tables)
	for i, want := range []string{"pass c bronze", "drop c", "drop c", "pass c bronze"} {
		a := (&step{at: []int{0, 1, 2, 60_000}[i], from: "10.0.0.1"}).arrival()
		a.Time = noon.Add([]time.Duration{0, time.Hour, -time.Hour, -time.Hour}[i])
		if got := text(s.decide(a, nil)); got != want {
			t.Errorf("arrival %d: %s, want %s", i, got, want)
		}
	}
}
