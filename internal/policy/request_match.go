// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
)

// RequestView is what rules see of a request, or of a TLS connection, after it has been
// decoded and cleaned as the data path does it.
type RequestView struct {
	Method, Path, Host, SNI             string
	HasMethod, HasPath, HasHost, HasSNI bool
	ALPN                                []string
	Headers, Cookies                    []NameValue // names of headers in lower case, with hyphens for underscores
}

// NameValue is a header or cookie of a request.
type NameValue struct {
	Name, Value string
}

// MatchRequest returns the index of the first request rule that matches, or -1. It compares
// rule by rule: the plain form of what the tables decide.
func (p *Policy) MatchRequest(q *RequestView) int {
	return slices.IndexFunc(p.Requests, func(r Request) bool { return r.matches(q) })
}

// matches reports whether the request has all that the rule asks for.
func (q *Request) matches(v *RequestView) bool {
	for field, patterns := range [][]string{FieldHost: q.Host, FieldPath: q.Path, FieldMethod: q.Method, FieldSNI: q.SNI, FieldALPN: q.ALPN} {
		if len(patterns) > 0 && !anyMatches(patterns, v.fixed(field)) {
			return false
		}
	}
	for _, h := range q.Header {
		if !anyMatches(h.Values, named(v.Headers, h.Name)) {
			return false
		}
	}
	for _, c := range q.Cookie {
		if !anyMatches(c.Values, named(v.Cookies, c.Name)) {
			return false
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

// globMatches reports whether a pattern matches all of a text: "*" is any run of bytes.
func globMatches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	text, ok := strings.CutPrefix(text, parts[0])
	if last == 0 || !ok {
		return ok && text == ""
	}
	for _, word := range parts[1:last] {
		if _, text, ok = strings.Cut(text, word); !ok {
			return false
		}
	}
	return strings.HasSuffix(text, parts[last])
}
