// SPDX-License-Identifier: Apache-2.0

package policy

import "strings"

// star stands for a star of a pattern in a value. No pattern holds it, so only a star matches
// it: what matches a pattern with its stars replaced by it matches all that the pattern does.
const star = "\x01"

// maxExamples bounds the ways to match one rule that are tried.
const maxExamples = 1 << 12

// warnUnreachable warns of rules before which another one always matches, in each of the
// ways to match their lists. It does not find rules that earlier ones cover only together.
func (c *requestCompiler) warnUnreachable() {
	left := maxVisits
	for i := range c.policy.Requests {
		if left <= 0 {
			return
		}
		if cover := c.coverOf(i, min(left, maxExamples)); cover != nil {
			r := &c.policy.Requests[i]
			c.report.warnf(r.Pos, "request rule %q can never match: %s", r.Name, coverSentence(c.policy.requestAt, cover))
			left -= c.example(i).ways()
		}
		left--
	}
}

// coverOf returns the rules of which one matches whatever the rule does, or nil.
func (c *requestCompiler) coverOf(rule, most int) map[int]bool {
	cover := map[int]bool{}
	for e := c.example(rule); ; {
		at := c.tables.Match(e.view())
		if most--; at == rule || at < 0 || most < 0 {
			return nil
		}
		cover[at] = true
		if !e.next() {
			return cover
		}
	}
}

// example goes through the ways to match a rule: one entry of each of its lists.
type example struct {
	rule  *Request
	lists [][]string    // of the fixed fields, then of headers, cookies and parameters
	sets  [2][][]uint32 // of the client and of the destination, for each entry
	at    []int
}

func newExample(r *Request) *example {
	e := &example{rule: r}
	for field := range textFields {
		e.lists = append(e.lists, examplesOf(r.texts(field)))
	}
	for _, pairs := range [][]Pair{r.Header, r.Cookie, r.Query} {
		for _, p := range pairs {
			folded := examplesOf(p.Folded)
			for _, text := range folded {
				folded = append(folded, strings.ToUpper(text))
			}
			e.lists = append(e.lists, append(examplesOf(p.Values), folded...))
		}
	}
	e.at = make([]int, len(e.lists)+len(e.sets))
	return e
}

// example returns the ways to match a rule.
func (c *requestCompiler) example(rule int) *example {
	e := newExample(&c.policy.Requests[rule])
	for i := range c.places {
		e.sets[i] = c.places[i].examples(rule)
	}
	return e
}

// options returns how many entries a list has.
func (e *example) options(list int) int {
	if list < len(e.lists) {
		return len(e.lists[list])
	}
	return len(e.sets[list-len(e.lists)])
}

// next goes on to the next way. It reports whether there is one.
func (e *example) next() bool {
	for i := range e.at {
		if e.at[i]++; e.at[i] < e.options(i) {
			return true
		}
		e.at[i] = 0
	}
	return false
}

// view returns what matches the rule in that way.
func (e *example) view() *RequestView {
	v := &RequestView{placed: &placed{}}
	for i, sets := range e.sets {
		if len(sets) > 0 {
			v.placed[i] = sets[e.at[len(e.lists)+i]]
			if i == 0 && e.at[len(e.lists)] < len(e.rule.FromLists) {
				v.Lists, v.placed[0] = 1<<e.rule.FromLists[e.at[len(e.lists)]], nil
			}
		}
	}
	for field := range textFields {
		if text, ok := e.value(field); ok {
			v.Texts[field] = []string{text}
		}
	}
	list := FieldNamed
	for _, part := range []struct {
		pairs []Pair
		to    *[]NameValue
	}{{e.rule.Header, &v.Headers}, {e.rule.Cookie, &v.Cookies}, {e.rule.Query, &v.Query}} {
		for _, p := range part.pairs {
			value, _ := e.value(list)
			*part.to = append(*part.to, NameValue{p.Name, value})
			list++
		}
	}
	v.Parameters = max(e.rule.Parameters, len(v.Query))
	v.onlyAbsent = &e.rule.Without
	if e.rule.asksHTTP() {
		e.complete(v)
	}
	return v
}

// complete adds what every request has of which the rule does not ask: a method, and a path unless the method may be
// CONNECT, to which there is no query. Another path than one that begins with a slash is that of OPTIONS alone.
func (e *example) complete(v *RequestView) {
	if !v.isHTTP() {
		v.Texts[FieldMethod] = []string{star}
	}
	may := func(method string) bool {
		return v.Parameters == 0 && (len(e.rule.Method) == 0 || anyMatches(e.rule.Method, []string{method}))
	}
	switch {
	case len(v.Texts[FieldPath]) > 0 || may("CONNECT"):
	case may("OPTIONS"):
		v.Texts[FieldPath] = []string{star}
	default:
		v.Texts[FieldPath] = []string{"/" + star}
	}
}

// value returns what matches the entry at hand of a list, if there is one.
func (e *example) value(list int) (string, bool) {
	if len(e.lists[list]) == 0 {
		return "", false
	}
	return e.lists[list][e.at[list]], true
}

// examplesOf returns texts that match patterns: one for each that their classes stand for.
func examplesOf(patterns []string) (texts []string) {
	for _, p := range patterns {
		for _, g := range expand(p) {
			texts = append(texts, strings.Join(g, star))
		}
	}
	return texts
}

// checkComplex reports rules whose requests the data path would reject, because they have too
// many patterns at once that it has to follow.
func (c *requestCompiler) checkComplex() {
	for i := range c.policy.Requests {
		r := &c.policy.Requests[i]
		if v := c.example(i).view(); c.tables.Complex(v) {
			c.report.errorf(r.Pos, "requests that rule %q matches have too many patterns of other rules at once, and would be rejected for that; let fewer patterns with several stars, or of rules with several keys, match the same requests", r.Name)
		}
	}
}

// ways returns in how many ways a rule can match.
func (e *example) ways() int {
	n := 1
	for i := range e.at {
		n = min(maxVisits, n*max(1, e.options(i)))
	}
	return n
}
