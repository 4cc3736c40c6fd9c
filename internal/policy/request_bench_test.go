// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"testing"
)

// requestPolicy returns a policy with those request rules.
func requestPolicy(rules ...Request) *Policy {
	p := &Policy{
		File: "drawn.yaml", Classes: []Class{{Name: implicitClass, Priority: 1}},
		Services: []Service{{Name: "web", Protocol: HTTP}, {Name: "front", Protocol: TLS}},
	}
	for i, r := range rules {
		r.Name, r.Pos, r.Per, r.Class = fmt.Sprint("r", i), Pos{i + 1, 1}, PerRule, 0
		p.Requests = append(p.Requests, r)
	}
	return p
}

// mixedPaths returns n rules on paths of all shapes: whole, beginnings, ends and both, of
// lengths from 10 to 130 bytes.
func mixedPaths(n int) *Policy {
	var rules []Request
	for i := range n {
		way := ""
		for depth := range 1 + i%12 {
			way += fmt.Sprintf("/dir-%d", (i*7+depth*depth)%97)
		}
		pattern := fmt.Sprintf([]string{"%s/page-%d.html", "%s/tree-%d/*", "*%s/image-%d.png", "%s/app-%d/*.php"}[i%4], way, i)
		rules = append(rules, Request{Path: []string{pattern}})
	}
	return requestPolicy(rules...)
}

// hostsAndPaths returns a rule for each path of each host.
func hostsAndPaths(hosts, paths int) *Policy {
	var rules []Request
	for h := range hosts {
		for p := range paths {
			rules = append(rules, Request{Host: []string{fmt.Sprintf("shop-%d.example", h)}, Path: []string{fmt.Sprintf("/section-%d/*", p)}})
		}
	}
	return requestPolicy(rules...)
}

// headersAndCookies returns a hundred rules on headers and cookies.
func headersAndCookies() *Policy {
	var rules []Request
	for i := range 50 {
		header := Pair{Name: fmt.Sprint("x-header-", i), Values: []string{"on", fmt.Sprintf("v%d*", i)}}
		cookie := Pair{Name: fmt.Sprint("cookie", i), Values: []string{"*", fmt.Sprintf("*-%d", i)}}
		rules = append(rules, Request{Header: []Pair{header}, Path: []string{"/a/*"}}, Request{Cookie: []Pair{cookie}})
	}
	return requestPolicy(rules...)
}

// wordsAndLists returns rules whose patterns have two stars, and one with long lists.
func wordsAndLists() *Policy {
	var rules []Request
	var hosts, paths []string
	for i := range 1000 {
		rules = append(rules, Request{Path: []string{fmt.Sprintf("*/word-%d/*", i), fmt.Sprintf("/a%d/*/b%d", i%10, i)}})
		hosts, paths = append(hosts, fmt.Sprintf("*.shop-%d.example", i)), append(paths, fmt.Sprintf("/list-%d/*", i))
	}
	return requestPolicy(append(rules, Request{Host: hosts, Path: paths, Method: []string{"GET", "POST"}})...)
}

// largePolicies are bounded by what their tables may take.
var largePolicies = []struct {
	name   string
	policy *Policy
	most   int // bytes
}{
	{"10,000 mixed paths", mixedPaths(10_000), 8 << 20},
	{"1,000 hosts of 10 paths", hostsAndPaths(1000, 10), 4 << 20},
	{"100 headers and cookies", headersAndCookies(), 64 << 10},
	{"words and lists", wordsAndLists(), 8 << 20},
}

// TestRequestTablesSize checks what tables take, and that every rule is found in them.
func TestRequestTablesSize(t *testing.T) {
	for _, l := range largePolicies {
		tables, warnings, err := CompileRequests(l.policy, 1)
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: error %v, warnings %v", l.name, err, warnings)
			continue
		}
		t.Logf("%s: %d KiB, %d entries, %d patterns, %d nodes, %d × %d states", l.name, tables.Bytes()>>10, len(tables.Entries), len(tables.Patterns), len(tables.Nodes), len(tables.States)/max(tables.Width, 1), tables.Width)
		if n := tables.Bytes(); n > l.most {
			t.Errorf("%s: the tables take %d bytes, at most %d are expected", l.name, n, l.most)
		}
		for i := range l.policy.Requests {
			q := newExample(&l.policy.Requests[i]).view()
			if got := tables.Match(q); got != i {
				t.Errorf("%s: the tables say rule %d for what rule %d asks for: %+v", l.name, got, i, q)
				break
			}
		}
	}
}

func BenchmarkCompileRequests(b *testing.B) {
	for _, l := range largePolicies {
		b.Run(l.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tables, _, err := CompileRequests(l.policy, 1)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(tables.Bytes()), "table-bytes")
			}
		})
	}
}
