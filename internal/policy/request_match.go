// SPDX-License-Identifier: Apache-2.0

package policy

import "slices"

// MatchRequest returns the index of the first request rule that matches, or -1. It compares
// rule by rule: the plain form of what the tables decide.
func (p *Policy) MatchRequest(q *RequestView) int {
	return slices.IndexFunc(p.Requests, func(r Request) bool { return r.matches(q) && p.matchesPlace(&r, q) })
}

// matchesPlace reports whether the request is from whom the rule asks for, and to where.
func (p *Policy) matchesPlace(q *Request, v *RequestView) bool {
	from := len(q.From)+len(q.FromLists) == 0 || inLists(q.FromLists, v.Lists) || slices.ContainsFunc(q.From, func(r Range) bool { return r.contains(v.From) })
	to := p.to(q)
	return from && (len(to) == 0 || slices.ContainsFunc(to, func(d Destination) bool { return d.contains(v.To) }))
}

// matches reports whether the request has all that the rule asks for.
func (q *Request) matches(v *RequestView) bool {
	for field := range textFields {
		if patterns := q.texts(field); len(patterns) > 0 && !anyMatches(patterns, v.Texts[field]) {
			return false
		}
	}
	return q.Parameters <= v.Parameters && pairsMatch(q.Header, v.Headers) && pairsMatch(q.Cookie, v.Cookies) &&
		pairsMatch(q.Query, v.Query) && (q.Without.empty() || v.isHTTP() && v.lacks(&q.Without))
}

// pairsMatch reports whether all of the pairs match what there is.
func pairsMatch(pairs []Pair, list []NameValue) bool {
	return !slices.ContainsFunc(pairs, func(p Pair) bool {
		values := named(list, p.Name)
		return !anyMatches(p.Values, values) && !anyFolded(p.Folded, values)
	})
}

// lacks reports whether the request has nothing of what is listed.
func (q *RequestView) lacks(w *Without) bool {
	there := [][]NameValue{q.Headers, q.Cookies, q.Query}
	for kind, names := range w.lists() {
		if q.Cut && len(names) > 0 && pairKinds[kind] != "query" {
			return false
		}
		for _, name := range names {
			unknown := q.onlyAbsent != nil && !slices.Contains(q.onlyAbsent.lists()[kind], name)
			if unknown || len(named(there[kind], name)) > 0 {
				return false
			}
		}
	}
	return true
}

// named returns the values that come under a name.
func named(list []NameValue, name string) []string {
	var out []string
	for _, v := range list {
		if v.Name == name {
			out = append(out, v.Value)
		}
	}
	return out
}

// anyMatches reports whether one of the patterns matches one of the values.
func anyMatches(patterns, values []string) bool {
	return slices.ContainsFunc(values, func(v string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return globMatches(p, v) })
	})
}

// anyFolded is anyMatches without case.
func anyFolded(patterns, values []string) bool {
	return slices.ContainsFunc(values, func(v string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return foldMatches(p, v) })
	})
}
