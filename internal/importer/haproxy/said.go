// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"narthex/internal/importer/draft"
)

// methods are the ways of matching texts, by the ending of a fetch's name or by -m.
var methods = []string{"str", "beg", "end", "sub", "dom", "dir", "reg", "found"}

// said reads a test of what a request says.
func said(fetch, arg string, f flags, values []string) (*draft.Rule, error) {
	name, method := fetch, f.method
	if base, ending, ok := cutLast(fetch, "_"); ok && slices.Contains(methods, ending) && fetch != "req_ssl_sni" {
		name = base
		method = ending
	}
	if method == "" {
		method = "str"
	}
	host := (name == "hdr" || name == "req.hdr" || name == "req.fhdr") && strings.EqualFold(arg, "host")
	sni := strings.HasSuffix(name, "ssl_sni") || name == "ssl_fc_sni"
	pair := slices.Contains([]string{"hdr", "req.hdr", "req.fhdr", "cook", "req.cook", "url_param", "urlp"}, name)
	globs, err := patterns(method, f.caseless, host || sni || pair, values)
	if err != nil {
		return nil, err
	}
	named := func(name string) []draft.Pair {
		return []draft.Pair{{Name: name, Values: globs, IgnoreCase: f.caseless && slices.ContainsFunc(globs, draft.HasLetters)}}
	}
	switch {
	case host:
		return &draft.Rule{Host: globs}, nil
	case sni:
		return &draft.Rule{SNI: globs}, nil
	case name == "method":
		return &draft.Rule{Method: globs}, nil
	case name == "path", name == "url" && method == "beg" && !strings.Contains(strings.Join(values, ""), "?"):
		return &draft.Rule{Path: globs}, nil
	case (name == "hdr" || name == "req.hdr" || name == "req.fhdr") && arg != "" && !strings.Contains(arg, ",") && !strings.EqualFold(arg, "cookie"):
		return &draft.Rule{Header: named(strings.ToLower(arg))}, nil
	case (name == "cook" || name == "req.cook") && arg != "":
		return &draft.Rule{Cookie: named(arg)}, nil
	case (name == "url_param" || name == "urlp") && arg != "" && !strings.Contains(arg, ","):
		return &draft.Rule{Query: named(arg)}, nil
	}
	return nil, fmt.Errorf("rules do not ask for %q", fetch)
}

// cutLast parts a text at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// patterns makes globs of values.
func patterns(method string, caseless, foldless bool, values []string) ([]string, error) {
	if method == "found" {
		return []string{"*"}, nil
	}
	if len(values) == 0 {
		return nil, errors.New("there is nothing to compare with")
	}
	var out []string
	seen := map[string]bool{}
	for _, v := range values {
		globs, err := globsOf(method, v, caseless, foldless)
		if err != nil {
			return nil, err
		}
		for _, g := range globs {
			if !seen[g] {
				seen[g] = true
				out = append(out, g)
			}
		}
	}
	return out, nil
}

func globsOf(method, v string, caseless, foldless bool) ([]string, error) {
	switch {
	case method == "reg":
		return draft.Globs(v, caseless, foldless)
	case strings.ContainsAny(v, `*[\`):
		return nil, fmt.Errorf("the value %q has one of * [ \\, which mean something else in a policy", v)
	case v == "":
		return nil, errors.New("a value is empty")
	}
	if caseless && !foldless {
		var err error
		if v, err = draft.AnyCase(v); err != nil {
			return nil, err
		}
	}
	switch method {
	case "str":
		return []string{v}, nil
	case "beg":
		return []string{v + "*"}, nil
	case "end":
		return []string{"*" + v}, nil
	case "sub":
		return []string{"*" + v + "*"}, nil
	case "dom":
		return []string{v, "*." + v, v + ".*", "*." + v + ".*"}, nil
	case "dir":
		v = strings.Trim(v, "/")
		return []string{"/" + v, "/" + v + "/*", "*/" + v, "*/" + v + "/*"}, nil
	}
	return nil, fmt.Errorf("-m %s is not carried over", method)
}

// absent turns a test for something with any value into one that it is not there. It reports whether it could.
func absent(present *draft.Rule) (*draft.Rule, bool) {
	var w draft.Without
	for _, list := range []struct {
		from []draft.Pair
		to   *[]string
	}{{present.Header, &w.Header}, {present.Cookie, &w.Cookie}, {present.Query, &w.Query}} {
		for _, pair := range list.from {
			if !slices.Equal(pair.Values, []string{"*"}) {
				return nil, false
			}
			*list.to = append(*list.to, pair.Name)
		}
	}
	return &draft.Rule{Without: w}, w.Len() == 1
}

// both makes a rule that asks for what two rules ask. It reports whether there is one.
func both(a, b *draft.Rule) (*draft.Rule, bool) {
	r := *a
	for _, list := range []struct{ to, from *[]string }{{&r.From, &b.From}, {&r.Path, &b.Path}, {&r.Host, &b.Host}, {&r.Method, &b.Method}, {&r.SNI, &b.SNI}} {
		if len(*list.to) > 0 && len(*list.from) > 0 {
			return nil, false
		}
		if len(*list.from) > 0 {
			*list.to = *list.from
		}
	}
	for _, list := range []struct{ to, from *[]draft.Pair }{{&r.Header, &b.Header}, {&r.Cookie, &b.Cookie}, {&r.Query, &b.Query}} {
		for _, pair := range *list.from {
			if slices.ContainsFunc(*list.to, func(p draft.Pair) bool { return p.Name == pair.Name }) {
				return nil, false
			}
		}
		*list.to = slices.Concat(*list.to, *list.from)
	}
	w := &r.Without
	w.Header, w.Cookie, w.Query = slices.Concat(w.Header, b.Without.Header), slices.Concat(w.Cookie, b.Without.Cookie), slices.Concat(w.Query, b.Without.Query)
	return &r, len(r.SNI) == 0 || w.Len()+len(r.Path)+len(r.Host)+len(r.Method)+len(r.Header)+len(r.Cookie)+len(r.Query) == 0
}
