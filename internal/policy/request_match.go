// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"
)

// RequestView is what rules see of a request, or of a TLS connection, after it has been
// decoded and cleaned as the data path does it.
type RequestView struct {
	Method, Path, Host, SNI, JA4                string
	HasMethod, HasPath, HasHost, HasSNI, HasJA4 bool
	ALPN                                        []string
	Headers, Cookies                            []NameValue    // names of headers in lower case, with hyphens for underscores
	Query                                       []NameValue    // parameters
	Parameters                                  int            // pieces of the query that are not empty
	From                                        netip.Addr     // the client; invalid: not known
	Lists                                       uint64         // bits of the lists that the client is in
	To                                          netip.AddrPort // where the connection is to; invalid: not known
	// Cut says that the head goes on: a header or cookie that is not there may follow.
	Cut bool

	onlyAbsent *Without // of an example: what is absent; of what else there is nothing nobody knows
	placed     *placed  // of an example, in place of From and To
}

// NameValue is a header, a cookie or a parameter of a request.
type NameValue struct {
	Name, Value string
}

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
	for field, patterns := range [][]string{FieldHost: q.Host, FieldPath: q.Path, FieldMethod: q.Method, FieldSNI: q.SNI, FieldALPN: q.ALPN, FieldJA4: q.JA4} {
		if len(patterns) > 0 && !anyMatches(patterns, v.fixed(field)) {
			return false
		}
	}
	return q.Parameters <= v.Parameters && pairsMatch(q.Header, v.Headers) && pairsMatch(q.Cookie, v.Cookies) &&
		pairsMatch(q.Query, v.Query) && (q.Without.empty() || v.HasMethod && v.lacks(&q.Without))
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

// fixed returns the values of a field that is neither a header nor a cookie.
func (q *RequestView) fixed(field int) []string {
	one := func(value string, has bool) []string {
		if has {
			return []string{value}
		}
		return nil
	}
	switch field {
	case FieldHost:
		return one(q.Host, q.HasHost)
	case FieldPath:
		return one(q.Path, q.HasPath)
	case FieldMethod:
		return one(q.Method, q.HasMethod)
	case FieldSNI:
		return one(q.SNI, q.HasSNI)
	case FieldJA4:
		return one(q.JA4, q.HasJA4)
	}
	return q.ALPN
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
