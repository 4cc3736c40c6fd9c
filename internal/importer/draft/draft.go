// SPDX-License-Identifier: Apache-2.0

// Package draft holds a policy that is being made from another program's configuration,
// and the list of what could not be carried over.
package draft

import (
	"fmt"
	"regexp"
	"strings"

	"narthex/internal/policy"
)

// Origin is a place in the configuration that is read. Lines count from 1.
type Origin struct {
	File string
	Line int
}

// Left is something that could not be carried over, or not as it was.
type Left struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	What    string `json:"what"`              // as it is written there
	Why     string `json:"why"`               // what Narthex cannot do, or does differently
	Instead string `json:"instead,omitempty"` // what to do
}

// String returns FILE:LINE: what: why; what to do instead.
func (l Left) String() string {
	s := fmt.Sprintf("%s:%d: %s: %s", l.File, l.Line, l.What, l.Why)
	if l.Instead != "" {
		s += "; " + l.Instead
	}
	return s
}

// SyntaxError says that a configuration could not be parsed.
type SyntaxError struct {
	Origin
	Msg string
}

// Error returns FILE:LINE: what is wrong.
func (e *SyntaxError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg) }

// Draft is a policy in the making. Values are texts as the policy file has them.
type Draft struct {
	Services    []*Service
	Classes     []*Class // most important first
	Default     string   // class; empty: the last one
	Connections []*Rule
	Requests    []*Rule
	Left        []Left

	names map[string]bool
	told  map[Left]bool
}

// Service is a service in the making. An empty value leaves the key out.
type Service struct {
	Origin
	Note           []string
	Name           string
	Listen         []string
	Protocol       policy.Protocol
	Concurrency    string
	MaxWait        string
	TrustedProxies []string
}

// Class is a class in the making.
type Class struct {
	Origin
	Note     []string
	Name     string
	Priority int
}

// Rule is a connection or request rule in the making. An empty value leaves the key out.
type Rule struct {
	Origin
	Note []string
	Name string

	From, To                []string
	Path, Host, Method, SNI []string // request rules: patterns, as the next two
	Cookie, Header, Query   []Pair
	Without                 Without

	Action string
	Rate   string
	Burst  int // 0: the default
	Per    string
	Limits []Limit // several limits, or such of what is at once; Rate is empty
	Over   string
	Answer string
	Class  string
}

// rateStatus is what a rule with limits answers if nothing else is said.
const rateStatus = 429

// Answers has the rule refuse with a status. What is none of a refusal, and the default, leave the key out.
func (r *Rule) Answers(status int) {
	r.Answer = ""
	if status >= 400 && status != rateStatus {
		r.Answer = fmt.Sprintf("{status: %d}", status)
	}
}

// Limited reports whether the rule has a limit.
func (r *Rule) Limited() bool { return r.Rate != "" || len(r.Limits) > 0 }

// All returns the rule's limits.
func (r *Rule) All() []Limit {
	if r.Rate != "" {
		return []Limit{{Rate: r.Rate, Burst: r.Burst, Per: r.Per}}
	}
	return r.Limits
}

// Also gives the rule another limit.
func (r *Rule) Also(l Limit) {
	r.Limits = append(r.All(), l)
	r.Rate, r.Burst, r.Per = "", 0, ""
}

// Plain writes a single rate without the list of limits.
func (r *Rule) Plain() {
	if len(r.Limits) == 1 && r.Limits[0].AtOnce == 0 {
		only := r.Limits[0]
		r.Rate, r.Burst, r.Per, r.Limits = only.Rate, only.Burst, only.Per, nil
	}
}

// Limit is one of a rule's limits. An empty value leaves the key out.
type Limit struct {
	Rate   string
	Burst  int // 0: the default
	AtOnce int
	Per    string
}

// Pair is a cookie, header or parameter that a request must have.
type Pair struct {
	Name       string
	Values     []string
	IgnoreCase bool // of the values
}

// Without names what a request must not have.
type Without struct{ Header, Cookie, Query []string }

// Len returns how many names there are.
func (w *Without) Len() int { return len(w.Header) + len(w.Cookie) + len(w.Query) }

// Normal is the class of what goes on without a limit of its own.
const Normal = "normal"

// Leave notes something that is not carried over.
func (d *Draft) Leave(at Origin, what, why, instead string) {
	l := Left{oneLine(at.File), at.Line, oneLine(what), oneLine(why), oneLine(instead)}
	if d.told == nil {
		d.told = map[Left]bool{}
	}
	if !d.told[l] {
		d.told[l] = true
		d.Left = append(d.Left, l)
	}
}

// NeedClass makes sure that there is the class of rules that only end the search.
func (d *Draft) NeedClass() string {
	if len(d.Classes) == 0 {
		d.Classes = append(d.Classes, &Class{Name: Normal, Priority: 1, Note: []string{"Rules with this class alone limit nothing: they end the search for a rule."}})
	}
	return d.Classes[len(d.Classes)-1].Name
}

var noName = regexp.MustCompile(`[^A-Za-z0-9]+`)

// Name returns a name like the wish that nothing of the kind has yet.
func (d *Draft) Name(kind, wish string) string {
	base := strings.ToLower(strings.Trim(noName.ReplaceAllString(wish, "-"), "-"))
	if base == "" {
		base = kind
	}
	base = strings.TrimRight(base[:min(len(base), policy.MaxNameBytes-8)], "-")
	if d.names == nil {
		d.names = map[string]bool{}
	}
	name := base
	for n := 2; d.names[kind+" "+name]; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	d.names[kind+" "+name] = true
	return name
}

// oneLine makes a text fit for one line of a terminal, and short enough to be read.
func oneLine(s string) string {
	const most = 300
	s = spaced(s)
	if r := []rune(s); len(r) > most {
		s = string(r[:most-1]) + "…"
	}
	return s
}

// spaced turns whatever ends lines or controls terminals into spaces.
func spaced(s string) string {
	s = strings.ToValidUTF8(s, "?")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 || r >= 0x80 && r < 0xa0 || r == 0xfeff {
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}
