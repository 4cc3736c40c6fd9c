// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"testing"
)

// times returns n patterns or rules.
func times[T any](n int, one func(int) T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = one(i)
	}
	return out
}

func TestCompileRequestsIsBounded(t *testing.T) {
	const room = MaxFields - FieldNamed
	alone := func(path ...string) Request { return Request{Path: path} }
	with := func(path ...string) Request { return Request{Path: path, Method: []string{"GET"}} }
	deep := func(i int) string { return "/" + strings.Repeat("a", i) }
	tests := []struct {
		name  string
		rules []Request
		wrong string // part of the error, or empty if it compiles
	}{
		{"prefixes of rules with one key", times(100, func(i int) Request { return alone(deep(i) + "*") }), ""},
		{"prefixes of rules with two keys", times(8, func(i int) Request { return with(deep(i) + "*") }), ""},
		{"a prefix too many", times(9, func(i int) Request { return with(deep(i) + "*") }),
			`drawn.yaml:9:1: path: 9 patterns that begin alike hold within one another, up to "/aaaaaaaa*", and rules use them beside further stars or keys ("r0", "r1", "r2" and 6 more); at most 8 can`},
		{"the star is one", append(times(8, func(i int) Request { return with(deep(i) + "*") }), with("*")), `path: 9 patterns that begin alike`},
		{"prefixes of patterns with more stars", times(9, func(i int) Request { return alone(deep(i) + "*x*") }), `up to "/aaaaaaaa*"`},
		{"prefixes with ends", times(9, func(i int) Request { return alone(deep(i) + "*x") }), `up to "/aaaaaaaa*"`},
		{"suffixes of rules with two keys", times(9, func(i int) Request { return with("*" + strings.Repeat("a", i+1)) }),
			`drawn.yaml:9:1: path: 9 patterns that end alike hold within one another, up to "*aaaaaaaaa"`},
		{"words", times(16, func(i int) Request { return alone("*" + strings.Repeat("a", i+1) + "*") }), ""},
		{"words within words", times(17, func(i int) Request { return alone("*" + strings.Repeat("a", i+1) + "*") }),
			`drawn.yaml:17:1: 17 texts between stars are each other's ends, up to "aaaaaaaaaaaaaaaaa" ("r16", "r15", "r14" and 14 more); at most 16 can be`},
		{"names", times(122, func(i int) Request {
			return Request{Header: []Pair{{Name: fmt.Sprint("x-", i), Values: []string{"*"}}}}
		}), ""},
		{"a name too many", times(62, func(i int) Request {
			return Request{Header: []Pair{{Name: fmt.Sprint("x-", i), Values: []string{"*"}}}, Cookie: []Pair{{Name: fmt.Sprint("c", i), Values: []string{"*"}}}}
		}), fmt.Sprintf(`drawn.yaml:%d:1: request rule "r%d" asks for cookie c%d, and others before it for as many headers, cookies and parameters as there can be, %d`, room/2+1, room/2, room/2, room)},
		{"rules that follow a path", times(64, func(i int) Request {
			return Request{Path: []string{"/"}, Cookie: []Pair{{Name: fmt.Sprint("c", i), Values: []string{"*"}}}}
		}), ""},
		{"patterns that match the same", times(16, func(i int) Request { return with(fmt.Sprintf("*%c*", 'a'+i)) }), ""},
		{"too many of them", append(times(16, func(i int) Request { return with(fmt.Sprintf("*%c*", 'a'+i)) }), with("/abcdefghijklmnop")),
			`drawn.yaml:17:1: requests that rule "r16" matches have too many patterns of other rules at once, and would be rejected for that`},
		{"too many with ends", append(times(33, func(i int) Request { return alone(strings.Replace(fmt.Sprintf("*%c*x", 'A'+i), "[", "\\[", 1)) }), alone("/ABCDEFGHIJKLMNOPQRSTUVWXYZ\\[\\]^_`a")),
			`drawn.yaml:34:1: requests that rule "r33" matches have too many patterns`},
		{"many ways through the graph", []Request{{
			Host: []string{"h", "h*", "*h", "*"}, Path: []string{"/a", "/a*", "*a", "*"}, Method: []string{"M", "M*", "*M", "*"},
			Header: []Pair{{Name: "x", Values: []string{"a", "a*", "*a", "*"}}}, Cookie: []Pair{{Name: "c", Values: []string{"a", "a*", "*a", "*"}}, {Name: "d", Values: []string{"d"}}},
		}, {
			Host: []string{"h"}, Path: []string{"/a"}, Method: []string{"M"}, Header: []Pair{{Name: "x", Values: []string{"a"}}}, Cookie: []Pair{{Name: "c", Values: []string{"a"}}},
		}}, `drawn.yaml:2:1: requests that rule "r1" matches have too many patterns`},
		{"long lists", []Request{{
			Host: times(5000, func(i int) string { return fmt.Sprint("h", i) }), Path: times(5000, func(i int) string { return fmt.Sprint("/p", i) }),
			Method: times(500, func(i int) string { return fmt.Sprint("M", i) }), Header: []Pair{{Name: "x", Values: times(500, func(i int) string { return fmt.Sprint("v", i) })}},
		}}, ""},
		{"lists of many rules that cross", times(3000, func(i int) Request {
			return Request{
				Host: times(40, func(j int) string { return fmt.Sprint("h", i*j%997) }),
				Path: times(40, func(j int) string { return fmt.Sprint("/p", i*j%983) }),
			}
		}), `the tables of the request rules would be too large: rules with several keys can match in too many ways, rule "r1" in 1600; shorten its lists`},
		{"long words", times(1500, func(i int) Request {
			return alone("*" + strings.Repeat(fmt.Sprintf("%c%dabcdefghijklmnopqrstuvwxyz", 'A'+i%26, i), 30) + "*")
		}), `the tables of the request rules would be too large: rules look for 1500 texts between stars, rule "r1000" for the longest, of 930 bytes; let fewer patterns`},
		{"many patterns", times(300, func(i int) Request {
			return alone(times(1000, func(j int) string { return fmt.Sprintf("/%d/%d/%s*", i, j, strings.Repeat("x", j%64)) })...)
		}), `entries, and there is room for 1048576; rule "r0" brings the most, 1000 patterns: replace lists by patterns that match several entries`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := requestPolicy(test.rules...)
			tables, _, err := CompileRequests(p, 1)
			switch {
			case test.wrong == "" && err != nil:
				t.Fatal(err)
			case test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)):
				t.Fatalf("error %v, want %s", err, test.wrong)
			case err == nil && tables.Bytes() > 32<<20:
				t.Fatalf("the tables take %d bytes", tables.Bytes())
			}
		})
	}
}

// TestPlaceChangesTheSeed places what has a key of 0 under the first seed, and what has the
// same key twice under every seed.
func TestPlaceChangesTheSeed(t *testing.T) {
	c := newRequestCompiler(requestPolicy(Request{}), &diagnostics{})
	c.pending = []pendingEntry{{kind: MatchExact, rule: 7}}
	c.place(0)
	e, ok := c.tables.find(textKey(c.tables.Seed, MatchExact, 0))
	if c.tables.Seed == 0 || !ok || e.Rule != 7 {
		t.Errorf("seed %#x: found %v, %+v", c.tables.Seed, ok, e)
	}
	c.pending = append(c.pending, c.pending[0])
	if c.place(0); len(c.report.errors) != 1 {
		t.Errorf("errors %v for one key twice", c.report.errors)
	}
}

// TestPlaceMakesRoom places more keys of one home cell than can be found from it.
func TestPlaceMakesRoom(t *testing.T) {
	const seed, keys = 1, MatchWays*MatchCells + 1
	mask := uint64(tableSize(keys)/MatchWays - 1)
	c := newRequestCompiler(requestPolicy(Request{}), &diagnostics{})
	for i := 0; len(c.pending) < keys; i++ {
		if e := (pendingEntry{kind: MatchExact, text: fmt.Sprint(i), rule: uint32(i)}); e.key(seed)&mask == mask {
			c.pending = append(c.pending, e)
		}
	}
	c.place(seed)
	if n := len(c.tables.Entries); n != 2*tableSize(keys) {
		t.Errorf("%d places, want %d", n, 2*tableSize(keys))
	}
	for _, want := range c.pending {
		if e, ok := c.tables.find(want.key(c.tables.Seed)); !ok || e.Rule != want.rule {
			t.Errorf("%q: found %v, %+v", want.text, ok, e)
		}
	}
}
