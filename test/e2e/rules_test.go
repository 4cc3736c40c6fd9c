// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"narthex/internal/datapath"
	"narthex/internal/lab"
)

// rulesPorts are the services of rulesPolicy. "go", "free", "one" and "watch" are one origin.
var rulesPorts = map[string]uint16{"nginx": 80, "apache": 8080, "go": 8000, "free": 8001, "one": 8002, "watch": 8003}

// rulesPolicy has rules for everything. Rates are such that nothing comes back during a test.
const rulesPolicy = `
version: 1
services:
  - {name: nginx, listen: ["*:80"], concurrency: 64}
  - {name: apache, listen: ["*:8080"], concurrency: unlimited}
  - {name: go, listen: ["*:8000"], concurrency: 64}
  - {name: free, listen: ["*:8001"]}
  - {name: one, listen: ["*:8002"], concurrency: 1, queue: {max_wait: 20s}}
  - {name: watch, listen: ["*:8003"], mode: shadow}
classes:
  - {name: gold, priority: 1}
  - {name: silver, priority: 2}
  - {name: bronze, priority: 3}
connections:
  - {name: vips, from: [10.77.2.0/24, "fd77::2:0/112"], class: silver}
requests:
  - {name: noaccess, path: /noaccess, action: drop}
  - {name: banned, path: "/banned*", action: reject}
  - {name: health, path: /healthz, action: pass}
  - {name: shop, path: /shop.html, class: gold}
  - {name: index, path: /index.html, rate: 1/m, burst: 5, class: gold}
  - {name: cgi, path: ["/cgi-bin/*", "*.php"], rate: 1/m, burst: 2, over: drop}
  - {name: slow, path: "/slow*", rate: 1/m, burst: 1, over: demote, class: gold}
  - {name: each, path: "/each*", rate: 1/m, burst: 2, per: source, class: gold}
  - {name: vip, cookie: {tier: gold}, class: gold}
  - {name: api, host: "*.example.com", method: [POST, PUT], header: {x-plan: free}, class: gold}
  - {name: member, cookie: {session: "*"}, class: gold}
  - {name: heavy, path: "/facets*", query: {f.author: "*", page: "[2-9]*"}, class: gold}
  - {name: many, path: /many, parameters: {min: 3}, action: reject}
  - {name: bare, path: /bare, without: {header: [x-seen, referer], cookie: s, query: token}, class: gold}
  - {name: tool, header: {x-tool: {pattern: "*Bot*", ignore_case: true}}, action: drop}
`

// ruleCase is a request and what the rules make of it.
type ruleCase struct {
	name string
	query
	rule  string // that decides, if any
	fate  fate   // reached if empty
	class string // gold, or empty: the connection's
	free  bool   // not counted
}

var ruleCases = []ruleCase{
	{name: "no rule", query: query{path: "/other"}},
	{name: "drop", query: query{path: "/noaccess"}, rule: "noaccess", fate: cutOff},
	{name: "drop, written otherwise", query: query{path: "/..//no%61ccess;y"}, rule: "noaccess", fate: cutOff},
	{name: "reject", query: query{path: "/banned/file"}, rule: "banned", fate: turned},
	{name: "pass", query: query{path: "/healthz"}, rule: "health", free: true},
	{name: "class", query: query{path: "/shop.html"}, rule: "shop", class: "gold"},
	{name: "nearly the path", query: query{path: "/shop.htmls"}},
	{name: "cookie", query: query{path: "/c", headers: "Cookie: a=b; tier=gold\r\n"}, rule: "vip", class: "gold"},
	{name: "second cookie header", query: query{path: "/c", headers: "Cookie: a=b\r\nCookie: tier=gold; c=d\r\n"}, rule: "vip", class: "gold"},
	{name: "another value of the cookie", query: query{path: "/c", headers: "Cookie: tier=golden\r\n"}},
	{name: "any value of a cookie", query: query{path: "/c", headers: "Cookie: session=\r\n"}, rule: "member", class: "gold"},
	{name: "host, method and header", query: query{method: "POST", path: "/api", host: "A.Example.com:80", headers: "x-PLAN:  free \r\n"}, rule: "api", class: "gold"},
	{name: "host of the target", query: query{method: "POST", path: "http://b.example.com/api", host: "b.example.com:80", headers: "X_Plan: free\r\n"}, rule: "api", class: "gold"},
	{name: "another method", query: query{method: "PATCH", path: "/api", host: "a.example.com", headers: "X-Plan: free\r\n"}},
	{name: "another header", query: query{method: "POST", path: "/api", host: "a.example.com", headers: "X-Plan: Free\r\n"}},
	{name: "first match", query: query{path: "/shop.html", headers: "Cookie: tier=gold\r\n"}, rule: "shop", class: "gold"},
	{name: "query", query: query{path: "/facets?f%2eauthor=a+b&page=21"}, rule: "heavy", class: "gold"},
	{name: "another query", query: query{path: "/facets?f.author=a&page=1"}},
	{name: "parameters", query: query{path: "/many?a=1&b&c="}, rule: "many", fate: turned},
	{name: "fewer parameters", query: query{path: "/many?a=1&&c="}},
	{name: "nothing of what must not be there", query: query{path: "/bare?a", headers: "Cookie: a=b\r\n"}, rule: "bare", class: "gold"},
	{name: "a header that must not be there", query: query{path: "/bare?a", headers: "X-Seen:\r\n"}},
	{name: "a cookie that must not be there", query: query{path: "/bare?a", headers: "Cookie: a=b; s=\r\n"}},
	{name: "a parameter that must not be there", query: query{path: "/bare?token="}},
	{name: "without case", query: query{path: "/", headers: "X-Tool: a RoBOT\r\n"}, rule: "tool", fate: cutOff},
	{name: "HTTP/1.0", query: query{path: "/noaccess", version: "1.0"}, rule: "noaccess", fate: cutOff},
}

// ruleWay is how a request comes.
type ruleWay struct {
	name  string
	kept  bool // on a connection that has been served
	ahead bool // behind another one that is not answered yet
	fill  int  // bytes of headers before those that matter
	body  func(*query)
	cuts  func(text string) []int
	few   bool // it takes long
}

func withHeaders(headers, body string) func(*query) {
	return func(q *query) {
		q.method, q.headers, q.body = or(q.method, "POST"), q.headers+headers, body
	}
}

var ruleWays = []ruleWay{
	{name: "first"},
	{name: "kept", kept: true},
	{name: "pipelined", ahead: true, few: true},
	{name: "in bytes", cuts: everywhere, few: true},
	{name: "in bytes, kept", kept: true, cuts: everywhere, few: true},
	{name: "in pieces", cuts: func(text string) []int { return []int{3, len(text) / 3, len(text) - 3} }},
	{name: "8 KB", fill: 8, cuts: func(string) []int { return nil }},
	{name: "15 KB", fill: 15, kept: true},
	{name: "15 KB in pieces", fill: 15, cuts: func(text string) []int { return []int{1, 1400, 9000, len(text) - 1} }},
	{name: "length", body: withHeaders("Content-Length: 5\r\n", "hello")},
	{name: "length, kept", kept: true, body: withHeaders("Content-Length: 5\r\n", "hello"), cuts: func(text string) []int { return []int{len(text) - 7, len(text) - 2} }},
	{name: "chunks", body: withHeaders("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n")},
	{name: "expects", body: withHeaders("Content-Length: 5\r\nExpect: 100-continue\r\n", "")},
}

// fill is so many KB of headers that mean nothing.
func fill(kb int) (lines string) {
	for i := range kb {
		lines += fmt.Sprintf("X-Fill-%d: %s\r\n", i, strings.Repeat("f", 1000-13))
	}
	return lines
}

// comes sends the request in a way, and checks what becomes of it and of the next one.
func (c ruleCase) comes(r *ruled, s *scene, service string, w ruleWay, l *ledger) {
	s.t.Helper()
	v := s.visit(bronze)
	class, others := "bronze", uint64(0)
	if s.v6 {
		v.who = gold
		v.conn.Close()
		v, class = s.visit(gold), "silver"
	}
	q := c.query
	if w.body != nil {
		w.body(&q)
	}
	m := mark()
	q.path += m
	q.headers = fill(w.fill) + q.headers
	text := q.String()
	var cuts []int
	if w.cuts != nil {
		cuts = w.cuts(text)
	}
	if w.kept || w.ahead {
		others++
		before := getRequest("x", "/before")
		if w.ahead {
			text = before + text
		} else {
			v.send(before)
		}
	}
	if w.kept {
		if got := v.meets(nil); got != reached {
			s.t.Errorf("%s: the request before: %s", c.name, got)
		}
	}
	failed := v.tries(text, cuts...)
	if w.ahead {
		if got := v.meets(nil); got != reached {
			s.t.Errorf("%s: the request before: %s", c.name, got)
		}
	}
	want := fate(or(string(c.fate), string(reached)))
	if w.name == "chunks" && q.version == "1.0" { // has none
		want, c.rule = ambiguous, ""
	}
	got := v.meets(failed)
	if got == "100 Continue" {
		got = v.meets(v.tries("hello"))
	}
	if got != want {
		s.t.Errorf("%s: %s, want %s", c.name, got, want)
	}
	counts := datapath.Counts{Passed: 1}
	if want != reached {
		counts = datapath.Counts{Dropped: 1}
	}
	if c.rule != "" {
		l.counts(c.rule, counts)
	}
	if want == reached && !c.free {
		l.arrives(service, or(c.class, class), 1)
	}
	if want == reached && q.version == "" && w.name != "expects" {
		v.send(getRequest("x", "/after"))
		if got := v.meets(nil); got != reached {
			s.t.Errorf("%s: the request after: %s", c.name, got)
		}
		others++
	}
	l.arrives(service, class, others)
	v.conn.Close()
	if _, foreign := map[string]bool{"nginx": true, "apache": true}[service]; !foreign && s.sawMark(m) != (want == reached) {
		s.t.Errorf("%s: the server was asked: %v", c.name, want != reached)
	}
}

// Every request is decided by the first rule that matches it, however it comes, before
// whatever server, with a limit and without.
func TestRules(t *testing.T) {
	t.Parallel()
	r := newRuled(t, rulesPorts, "go", "free", "one", "watch")
	r.v4.serve(r.v4.server.StartNginx(lab.NginxConfig{Listen: r.listen("nginx")}))
	r.v4.serve(r.v4.server.StartApache(lab.ApacheConfig{Listen: r.listen("apache"), Workers: apacheWorkers}))
	r.enforce(rulesPolicy)
	l := r.opened()
	t.Run("cases", func(t *testing.T) {
		for _, service := range []string{"nginx", "apache", "go", "free"} {
			for _, v6 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/v6=%v", service, v6), func(t *testing.T) {
					t.Parallel()
					for _, w := range ruleWays {
						if w.few && v6 != (service == "go" || service == "apache") {
							continue
						}
						t.Run(w.name, func(t *testing.T) {
							for _, c := range ruleCases {
								c.comes(r, r.at(t, service, v6), service, w, l)
							}
						})
					}
				})
			}
		}
	})
	r.agrees(t, l)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *ruled)
	}{
		{"over reject", rejectsBeyondRate}, {"over drop", dropsBeyondRate}, {"over demote", demotesBeyondRate}, {"per source", policesSources},
		{"held", decidesWhileOthersWait}, {"shadow", onlyCountsInShadow}, {"reload", takesNewRules}, {"no daemon", goesOnWithoutDaemon},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, r) })
	}
}

// asks has somebody ask for a path, and checks what becomes of it.
func (v *visitor) asks(path string, want fate) {
	v.t.Helper()
	if got := v.meets(v.tries(to(path))); got != want {
		v.t.Errorf("%s: %s, want %s", path, got, want)
	}
}

func rejectsBeyondRate(t *testing.T, r *ruled) {
	l := r.opened()
	kept := r.at(t, "go", false).visit(bronze)
	for range 3 {
		kept.asks("/index.html"+mark(), reached)
	}
	r.at(t, "free", true).visit(gold).asks("/index.html", reached)
	r.at(t, "nginx", false).visit(bronze).asks("/..//index.html", reached)
	kept.asks("/index.html", turned)
	kept.isClosed()
	r.at(t, "apache", true).visit(gold).asks("/index.html", turned)
	l.counts("index", datapath.Counts{Passed: 5, Dropped: 2})
	for service, n := range map[string]uint64{"go": 3, "free": 1, "nginx": 1} {
		l.arrives(service, "gold", n)
	}
	r.agrees(t, l)
}

func dropsBeyondRate(t *testing.T, r *ruled) {
	l := r.opened()
	v := r.at(t, "free", false).visit(bronze)
	v.asks("/cgi-bin/a", reached)
	v.asks("/b.php?c", reached)
	v.asks("/d.php", cutOff)
	l.counts("cgi", datapath.Counts{Passed: 2, Dropped: 1})
	l.arrives("free", "bronze", 2)
	r.agrees(t, l)
}

func demotesBeyondRate(t *testing.T, r *ruled) {
	l := r.opened()
	v := r.at(t, "go", false).visit(gold)
	v.asks("/slow/a", reached)
	v.asks("/slow/b", reached)
	v.asks("/after", reached)
	l.counts("slow", datapath.Counts{Passed: 1})
	for _, class := range []string{"gold", "silver", "bronze"} {
		l.arrives("go", class, 1)
	}
	r.agrees(t, l)
}

func policesSources(t *testing.T, r *ruled) {
	l := r.opened()
	for _, w := range []who{gold, bronze} {
		s := r.at(t, "go", false)
		v := s.visit(w)
		v.asks("/each", reached)
		s.visit(w).asks("/each", reached)
		v.asks("/each", turned)
	}
	r.at(t, "go", true).visit(gold).asks("/each", reached)
	r.at(t, "go", true).visit(bronze).asks("/each", reached) // of the same /64
	r.at(t, "go", true).visit(gold).asks("/each", turned)
	l.counts("each", datapath.Counts{Passed: 6, Dropped: 3})
	l.arrives("go", "gold", 6)
	r.agrees(t, l)
}

// While requests wait, rules say who is before whom, who goes by, and who need not wait for an end.
func decidesWhileOthersWait(t *testing.T, r *ruled) {
	l := r.opened()
	s := r.at(t, "one", false)
	first, plain, better := s.visit(bronze), s.visit(bronze), s.visit(bronze)
	names := []string{"/wait?for=turn", "/shop.html" + mark(), "/other" + mark()}
	first.send(to(names[0]))
	r.awaits("one", 1, 0)
	plain.send(to(names[2]))
	r.awaits("one", 1, 1)
	better.send(to(names[1]))
	r.awaits("one", 1, 2)
	s.visit(bronze).asks("/noaccess", cutOff)
	s.visit(bronze).asks("/banned", turned)
	s.visit(bronze).asks("/healthz"+mark(), reached)
	r.awaits("one", 1, 2)
	s.letGo("turn")
	for _, v := range []*visitor{first, better, plain} {
		v.wants(200)
	}
	var got []string
	for _, uri := range s.asked() {
		if slices.Contains(names, uri) {
			got = append(got, uri)
		}
	}
	if !slices.Equal(got, names) {
		t.Errorf("the server was asked for %q, want %q", got, names)
	}
	r.awaits("one", 0, 0)
	for rule, counts := range map[string]datapath.Counts{"noaccess": {Dropped: 1}, "banned": {Dropped: 1}, "health": {Passed: 1}, "shop": {Passed: 1}} {
		l.counts(rule, counts)
	}
	l.arrives("one", "bronze", 2)
	l.arrives("one", "gold", 1)
	r.agrees(t, l)
}

func onlyCountsInShadow(t *testing.T, r *ruled) {
	l := r.opened()
	v := r.at(t, "watch", false).visit(bronze)
	for _, path := range []string{"/noaccess", "/banned", "/d.php", "/shop.html", "/noaccess/.", "/other"} {
		v.asks(path, reached)
	}
	for rule, counts := range map[string]datapath.Counts{"noaccess": {WouldDrop: 1}, "banned": {WouldDrop: 1}, "cgi": {WouldDrop: 1}, "shop": {Passed: 1}} {
		l.counts(rule, counts)
	}
	l.arrives("watch", "gold", 1)
	l.arrives("watch", "bronze", 5)
	r.agrees(t, l)
}

// A reload holds for the next request of connections that are there, and leaves buckets as they are.
func takesNewRules(t *testing.T, r *ruled) {
	kept, other := r.at(t, "go", false).visit(bronze), r.at(t, "free", true).visit(bronze)
	for _, v := range []*visitor{kept, other} {
		v.asks("/newly", reached)
	}
	r.reload(strings.Replace(rulesPolicy, "path: /noaccess, action: drop", "path: /newly, action: drop", 1))
	for _, v := range []*visitor{kept, other} {
		v.asks("/noaccess", reached)
		v.asks("/newly", cutOff)
	}
	r.at(t, "go", false).visit(bronze).asks("/index.html", turned)
	r.reload(rulesPolicy)
}

func goesOnWithoutDaemon(t *testing.T, r *ruled) {
	l := r.opened()
	kept := r.at(t, "go", false).visit(bronze)
	kept.asks("/shop.html", reached)
	r.stop(syscall.SIGKILL)
	kept.asks("/shop.html", reached)
	kept.asks("/noaccess", cutOff)
	v := r.at(t, "free", true).visit(bronze)
	v.asks("/noacces", reached)
	v.asks("/noaccess", cutOff)
	r.at(t, "nginx", false).visit(bronze).asks("/index.html", turned)
	r.start()
	for rule, counts := range map[string]datapath.Counts{"noaccess": {Dropped: 2}, "index": {Dropped: 1}, "shop": {Passed: 2}} {
		l.counts(rule, counts)
	}
	l.arrives("go", "gold", 2)
	l.arrives("free", "bronze", 1)
	r.agrees(t, l)
	r.at(t, "go", false).visit(bronze).asks("/noaccess", cutOff)
}

// Rules that appear with a reload hold for connections that were there before, where nothing was held.
func TestRulesAppear(t *testing.T) {
	t.Parallel()
	r := newRuled(t, map[string]uint16{"go": 80}, "go")
	const without = `
version: 1
services: [{name: go, listen: ["*:80"]}]
`
	r.enforce(without)
	for _, v6 := range []bool{false, true} {
		kept, other := r.at(t, "go", v6).visit(bronze), r.at(t, "go", v6).visit(bronze)
		for _, v := range []*visitor{kept, other} {
			v.asks("/noaccess", reached)
		}
		r.reload(without + "requests: [{name: noaccess, path: /noaccess, action: drop}]\n")
		kept.asks("/plain", reached)
		kept.asks("/noaccess", cutOff)
		r.at(t, "go", v6).visit(bronze).asks("/noaccess", cutOff)
		r.reload(without)
		other.asks("/noaccess", reached)
	}
}
