// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"
)

// view makes a request of words: METHOD, /path, host:H and so on, header:N=V, cookie:N=V, query:N=V.
func view(words ...string) *RequestView {
	v := &RequestView{}
	for _, w := range words {
		key, value, ok := strings.Cut(w, ":")
		name, pair, _ := strings.Cut(value, "=")
		switch {
		case strings.HasPrefix(w, "/"):
			v.Texts[FieldPath] = []string{w}
		case !ok:
			v.Texts[FieldMethod] = []string{w}
		case textFieldOf(key) >= 0:
			v.Texts[textFieldOf(key)] = append(v.Texts[textFieldOf(key)], value)
		case key == "header":
			v.Headers = append(v.Headers, NameValue{name, pair})
		case key == "query":
			v.Query = append(v.Query, NameValue{name, pair})
			v.Parameters++
		case key == "cookie":
			v.Cookies = append(v.Cookies, NameValue{name, pair})
		}
	}
	return v
}

// TestMatchRequest checks by hand what patterns mean, rule by rule and by the tables.
func TestMatchRequest(t *testing.T) {
	long := strings.Repeat("x", maxPatternBytes)
	tests := []struct {
		rule  string // as in a policy, without name and action
		match [][]string
		not   [][]string
	}{
		{`path: /a`, [][]string{{"/a"}, {"GET", "/a", "host:h"}}, [][]string{{"/"}, {"/a/"}, {"/ab"}, {"/A"}, {"GET"}}},
		{`path: "/a*a"`, [][]string{{"/aa"}, {"/aba"}, {"/aaa"}, {"/a/a"}}, [][]string{{"/a"}, {"/ab"}, {"/aab"}}},
		{`path: "/ab*ba"`, [][]string{{"/abba"}, {"/ab-ba"}}, [][]string{{"/aba"}, {"/ab"}}},
		{`path: "/a*"`, [][]string{{"/a"}, {"/ab"}, {"/a/b/c"}}, [][]string{{"/"}, {"/b/a"}}},
		{`path: "*.php"`, [][]string{{"/a.php"}, {"/.php"}, {"/a.php.php"}}, [][]string{{"/a.php/"}, {"/a.PHP"}, {"/php"}}},
		{`path: "*/a/*"`, [][]string{{"/a/"}, {"/x/a/y"}}, [][]string{{"/a"}, {"/aa/"}, {"/x/a"}}},
		{`path: "/*a*a"`, [][]string{{"/aa"}, {"/xaxa"}}, [][]string{{"/a"}, {"/xa"}, {"/aax"}}},
		{`path: "/*ab*ba*ab"`, [][]string{{"/abbaab"}, {"/abxbaxab"}}, [][]string{{"/abab"}, {"/ababab"}, {"/abbab"}, {"/ababaab/"}}},
		{`path: "*a*b*c*d*"`, [][]string{{"/abcd"}, {"/xaxbxcxdx"}, {"/dcbabcd"}}, [][]string{{"/abdc"}, {"/dcba"}}},
		{`path: "*aa*aa*"`, [][]string{{"/aaaa"}, {"/aabaa"}}, [][]string{{"/aaa"}, {"/aa"}, {"/abaa"}}},
		{`path: "/**"`, [][]string{{"/"}, {"/a"}}, [][]string{{"GET"}}},
		{`path: "*"`, [][]string{{"/"}, {"/a"}}, [][]string{{"CONNECT", "host:h"}}},
		{`path: ["/a", "/b*", "*c"]`, [][]string{{"/a"}, {"/b"}, {"/bc"}, {"/c"}}, [][]string{{"/ab"}, {"/ca"}}},
		{`path: ["/` + long[1:] + `", "/` + long[2:] + `*"]`, [][]string{{"/" + long[1:]}, {"/" + long}}, [][]string{{"/" + long[3:]}}},
		{`path: "*` + long[1:] + `"`, [][]string{{"/" + long[1:]}, {"/" + long}}, [][]string{{"/" + long[2:]}, {"/" + long + "/"}}},
		{`host: "*.example.com"`, [][]string{{"host:a.example.com"}, {"host:.example.com"}}, [][]string{{"host:example.com"}, {"/"}, {"sni:a.example.com"}}},
		{`host: "*"`, [][]string{{"host:a"}}, [][]string{{"/"}}},
		{`method: [GET, "P*"]`, [][]string{{"GET"}, {"POST"}, {"P"}}, [][]string{{"get"}, {"GETS"}, {"HEAD"}}},
		{`header: {X-Plan: free}`, [][]string{{"header:x-plan=free"}, {"header:x-plan=paid", "header:x-plan=free"}}, [][]string{{"header:x-plan=Free"}, {"header:x-plan="}, {"cookie:x-plan=free"}, {"header:x=free"}}},
		{`query: {q: "a*"}`, [][]string{{"query:q=a"}, {"query:q=b", "query:q=ab"}}, [][]string{{"/a"}, {"query:r=a"}, {"header:q=a"}, {"query:Q=a"}}},
		{`query: {page: "[2-9]*"}`, [][]string{{"query:page=2"}, {"query:page=91"}}, [][]string{{"query:page=1"}, {"query:page=12"}, {"query:page="}}},
		{`query: [a, b]`, [][]string{{"query:a=", "query:b=1"}}, [][]string{{"query:a="}, {"query:b="}}},
		{`query: a, parameters: {min: 3}`, [][]string{{"query:a=", "query:b=", "query:b="}, {"query:a", "query:b", "query:c", "query:d"}}, [][]string{{"query:b", "query:c", "query:d"}, {"query:a=", "query:b="}}},
		{`parameters: {min: 2}`, [][]string{{"query:a=", "query:a="}}, [][]string{{"query:a="}, {"/"}}},
		{`without: {header: referer}`, [][]string{{"GET"}, {"GET", "header:x=1", "cookie:referer=1"}}, [][]string{{"GET", "header:referer="}, {"sni:a"}}},
		{`without: {header: [x, y], cookie: s, query: q}`, [][]string{{"GET"}, {"GET", "query:r="}}, [][]string{{"GET", "header:x="}, {"GET", "header:y=1"}, {"GET", "cookie:s="}, {"GET", "query:q="}}},
		{`header: {x: {pattern: ["Pro*", "[a-c]"], ignore_case: true}}`, [][]string{{"header:x=PROFI"}, {"header:x=pro"}, {"header:x=B"}, {"header:x=b"}}, [][]string{{"header:x=xpro"}, {"header:x=d"}, {"header:y=pro"}}},
		{`header: {x: [A, {pattern: b, ignore_case: true}]}`, [][]string{{"header:x=A"}, {"header:x=B"}, {"header:x=b"}}, [][]string{{"header:x=a"}}},
		{`header: {x: {pattern: A, ignore_case: false}}`, [][]string{{"header:x=A"}}, [][]string{{"header:x=a"}}},
		{`path: "/[ab]*[0-9]x"`, [][]string{{"/a1x"}, {"/byy9x"}}, [][]string{{"/c1x"}, {"/ax"}, {"/aax"}}},
		{`path: '/\[a]\b'`, [][]string{{`/[a]\b`}}, [][]string{{"/a"}, {`/\[a]\b`}}},
		{`path: "/[]a-]*[*]"`, [][]string{{"/]*"}, {"/-x*"}, {"/ab*"}}, [][]string{{"/]x"}, {"/b*"}}},
		{`host: "[::1]"`, [][]string{{"host:[::1]"}}, [][]string{{"host::"}, {"host:1"}}},
		{`host: "[A-C].example"`, [][]string{{"host:a.example"}, {"host:c.example"}}, [][]string{{"host:d.example"}}},
		{`header: {x: "*"}`, [][]string{{"header:x="}, {"header:x=1"}}, [][]string{{"header:y="}, {"cookie:x=1"}}},
		{`cookie: {s: "*"}`, [][]string{{"cookie:s="}, {"cookie:s=1"}}, [][]string{{"cookie:S=1"}, {"header:s=1"}, {"/"}}},
		{`cookie: {s: "?*"}`, [][]string{{"cookie:s=?"}}, [][]string{{"cookie:s="}, {"cookie:s=1"}}},
		{`cookie: {a: "1", b: "2"}`, [][]string{{"cookie:b=2", "cookie:a=1"}, {"cookie:a=2", "cookie:a=1", "cookie:b=2"}}, [][]string{{"cookie:a=1"}, {"cookie:a=2", "cookie:b=1"}}},
		{`header: {a: "1"}, cookie: {a: "2"}`, [][]string{{"header:a=1", "cookie:a=2"}}, [][]string{{"header:a=2", "cookie:a=1"}, {"header:a=1"}}},
		{`path: ["/a*", "/ab*"], host: [x, "y*"], method: GET`, [][]string{{"GET", "/abc", "host:x"}, {"GET", "/a", "host:yx"}}, [][]string{{"GET", "/abc"}, {"POST", "/a", "host:x"}, {"GET", "/", "host:x"}, {"GET", "/a", "host:xy"}}},
		{`path: "/a*", cookie: {s: "*"}`, [][]string{{"/a", "cookie:s="}}, [][]string{{"/a"}, {"cookie:s=1"}}},
		{`sni: "*.example"`, [][]string{{"sni:a.example"}}, [][]string{{"host:a.example"}, {"GET", "/"}, {"alpn:h2"}}},
		{`alpn: [h2, "http/*"]`, [][]string{{"alpn:h3", "alpn:h2"}, {"alpn:http/1.1"}}, [][]string{{"alpn:H2"}, {"sni:h2"}}},
		{`ja4: [t13d1516h2_8daaf6152771_e5627efa2ab1, "t12*"]`, [][]string{{"ja4:t13d1516h2_8daaf6152771_e5627efa2ab1"}, {"sni:a", "ja4:t12"}}, [][]string{{"ja4:t13d1516h2_8daaf6152771_e5627efa2ab2"}, {"sni:t12"}, {"GET", "/"}}},
		{`ja4: "t13*", sni: a`, [][]string{{"ja4:t13x", "sni:a"}}, [][]string{{"ja4:t13x"}, {"sni:a"}}},
		{`sni: a, alpn: h2`, [][]string{{"sni:a", "alpn:h2"}}, [][]string{{"sni:a"}, {"alpn:h2"}}},
		{``, [][]string{{"GET", "/"}, {}}, nil},
	}
	for _, test := range tests {
		rule := test.rule
		if rule != "" {
			rule = ", " + rule
		}
		p := parsed(t, "version: 1\nservices: [{name: web, listen: \"*:80\"}, {name: front, listen: \"*:443\", protocol: tls}]\nrequests:\n  - {name: r, action: drop"+rule+"}\n")
		tables, _, err := CompileRequests(p, 1)
		if err != nil {
			t.Fatal(err)
		}
		check := func(words []string, want int) {
			t.Helper()
			q := view(words...)
			if got := p.MatchRequest(q); got != want {
				t.Errorf("{%.60s} and %.60q: rule by rule it is %d, want %d", test.rule, words, got, want)
			}
			if got := tables.Match(q); got != want {
				t.Errorf("{%.60s} and %.60q: the tables say %d, want %d", test.rule, words, got, want)
			}
		}
		for _, words := range test.match {
			check(words, 0)
		}
		for _, words := range test.not {
			check(words, -1)
		}
	}
}

// TestFirstRuleDecides checks the order of rules that match the same in different ways.
func TestFirstRuleDecides(t *testing.T) {
	rules := []Request{
		{Path: []string{"/x"}}, {Path: []string{"/a*"}, Host: []string{"h"}}, {Path: []string{"/ab*"}}, {Cookie: []Pair{{Name: "c", Values: []string{"*"}}}}, {Path: []string{"*b"}}, {Path: []string{"/*"}}, {},
	}
	tests := []struct {
		words []string
		want  int
	}{
		{[]string{"/x", "host:h", "cookie:c=1"}, 0}, {[]string{"/ab", "host:h"}, 1}, {[]string{"/ab", "host:g"}, 2}, {[]string{"/b", "cookie:c="}, 3},
		{[]string{"/b", "host:h"}, 4}, {[]string{"/c"}, 5}, {[]string{"host:h"}, 6}, {[]string{"sni:h"}, 6},
	}
	p := requestPolicy(rules...)
	tables, warnings, err := CompileRequests(p, 1)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("error %v, warnings %v", err, warnings)
	}
	for _, test := range tests {
		q := view(test.words...)
		if a, b := p.MatchRequest(q), tables.Match(q); a != test.want || b != test.want {
			t.Errorf("%q: rule by rule %d, by the tables %d, want %d", test.words, a, b, test.want)
		}
	}
	backwards := requestPolicy(reverse(rules)...)
	if _, warnings, _ = CompileRequests(backwards, 1); len(warnings) != len(rules)-1 {
		t.Errorf("warnings %v of rules after one that always matches", warnings)
	}
}

func reverse(rules []Request) []Request {
	return times(len(rules), func(i int) Request { return rules[len(rules)-1-i] })
}
