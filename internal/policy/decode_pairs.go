// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"narthex/internal/httphead"
)

// names decodes a mapping whose keys are names, by calling decode with each of them.
func (d *decoder) names(n *yaml.Node, what, form string, parse func(string) (string, error), decode func(name string, value *yaml.Node)) {
	if !d.plain(n) {
		return
	}
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		d.errorAt(n, "%s is empty; write patterns by name, as {name: pattern}, or remove the key", what)
		return
	}
	if n.Kind != yaml.MappingNode {
		d.errorAt(n, "%s is %s, not %s", what, form, kindOf(n))
		return
	}
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if !d.key(key, what, nil) {
			continue
		}
		name, err := parse(key.Value)
		if err != nil {
			d.errorAt(key, "%s: %v", what, err)
			continue
		}
		if first := seen[name]; first != nil {
			d.errorAt(key, "%s: %s is given twice, first at line %d; remove one", what, quote(name), first.Line)
			continue
		}
		seen[name] = key
		decode(name, n.Content[i+1])
	}
}

// pairs decodes a mapping of names to patterns.
func (d *decoder) pairs(n *yaml.Node, what string, parse func(string) (string, error)) (out []Pair) {
	d.names(n, what, "a mapping of names to patterns, as {name: pattern}", parse, func(name string, value *yaml.Node) {
		out = append(out, d.pair(name, value, what))
	})
	return out
}

// pair decodes the patterns of a name: those in a mapping may match without case.
func (d *decoder) pair(name string, n *yaml.Node, what string) Pair {
	p := Pair{Name: name}
	if n.Kind == yaml.SequenceNode && slices.ContainsFunc(n.Content, isMapping) {
		for _, e := range n.Content {
			if e.Kind == yaml.SequenceNode {
				d.errorAt(e, "%s: a list stands in a list; give its entries one by one", what)
				continue
			}
			one := d.pair(name, e, what)
			p.Values, p.Folded = append(p.Values, one.Values...), append(p.Folded, one.Folded...)
		}
		return p
	}
	if !isMapping(n) {
		p.Values = d.patterns(n, what, parseGlob)
		return p
	}
	ignore := false
	d.newer = true
	d.required(n, "a pattern", d.mapping(n, &patternForm, func(key string, n *yaml.Node) {
		switch key {
		case "pattern":
			p.Values = d.patterns(n, what, parseGlob)
		case "ignore_case":
			scalar(d, n, key, &ignore, parseBool)
		}
	}), "pattern", "a glob, as {pattern: \"pro*\", ignore_case: true}")
	if ignore {
		p.Values, p.Folded = nil, p.Values
	}
	return p
}

func isMapping(n *yaml.Node) bool { return n.Kind == yaml.MappingNode }

// query decodes what is asked of the parameters of a query: patterns by name, or names that are there.
func (d *decoder) query(n *yaml.Node) (out []Pair) {
	if isMapping(n) {
		return d.pairs(n, "query", d.parseParameter(n))
	}
	for _, name := range distinct(d, n, "query", d.parseParameter(n)) {
		out = append(out, Pair{Name: name, Values: []string{"*"}})
	}
	return out
}

// parseParameter reads the name of a parameter, as it is after decoding.
func (d *decoder) parseParameter(n *yaml.Node) func(string) (string, error) {
	return func(s string) (string, error) {
		switch {
		case s == "":
			return "", fmt.Errorf("a parameter without a name cannot be asked for; name one, as {page: \"*\"}")
		case len(s) > MaxLiteral:
			return "", fmt.Errorf("%s has %d bytes; a name has at most %d", quote(s), len(s), MaxLiteral)
		case strings.ContainsAny(s, "&="):
			return "", fmt.Errorf("%s holds what ends a name in a query; write {name: pattern}", quote(s))
		case escape.MatchString(s):
			d.warnf(position(n), "query: %s holds an escape, but names match after decoding; write the character itself", quote(s))
		}
		return s, nil
	}
}

// parameters decodes how many parameters there have to be.
func (d *decoder) parameters(n *yaml.Node) (least int) {
	seen := d.mapping(n, &parametersForm, func(key string, n *yaml.Node) {
		scalar(d, n, key, &least, parseInt(1, MaxPieces))
	})
	if seen != nil {
		d.required(n, "parameters", seen, "min", "the least number, as {min: 6}")
	}
	return least
}

// without decodes what a request must not have.
func (d *decoder) without(n *yaml.Node) (w Without) {
	seen := d.mapping(n, &withoutForm, func(key string, n *yaml.Node) {
		switch key {
		case "header":
			w.Header = distinct(d, n, key, parseAbsentHeader)
		case "cookie":
			w.Cookie = distinct(d, n, key, parseToken)
		case "query":
			w.Query = distinct(d, n, key, d.parseParameter(n))
		}
	})
	if seen != nil && len(n.Content) == 0 {
		d.errorAt(n, "without is empty; write what must not be there, as {header: referer, cookie: session}, or remove the key")
	}
	return w
}

// parseAbsentHeader reads the name of a header that must not be there.
func parseAbsentHeader(s string) (string, error) {
	name, err := parseToken(s)
	switch name = httphead.HeaderName(name); name {
	case "cookie":
		return "", fmt.Errorf("%q has a key of its own; name the cookies, as without: {cookie: session}", name)
	case "host":
		return "", fmt.Errorf("%q is in every request of HTTP/1.1; match others by host: PATTERN", name)
	case "x-forwarded-for":
		return "", fmt.Errorf("%q says who the client is where there are trusted_proxies, and cannot be asked for there; leave it out", name)
	}
	return name, err
}

// withoutFits reports names that a rule wants both there and absent.
func (d *decoder) withoutFits(n *yaml.Node, r *Request) {
	for kind, pairs := range [][]Pair{r.Header, r.Cookie, r.Query} {
		for _, p := range pairs {
			if slices.Contains(r.Without.lists()[kind], p.Name) {
				d.errorAt(n, "%s: %s cannot be there and be absent; remove it there or from \"without\"", pairKinds[kind], quote(p.Name))
			}
		}
	}
}

// noteBrackets remembers a pattern that had no class before there were any.
func (d *decoder) noteBrackets(n *yaml.Node, what, pattern string) {
	d.newer = d.newer || what == "query" || strings.Contains(n.Value, `\[`)
	if hasClass(pattern) {
		d.brackets = append(d.brackets, bracketed{position(n), what, pattern})
	}
}

// bracketed is a pattern with a class.
type bracketed struct {
	pos           Pos
	what, pattern string
}

// warnBrackets warns of classes in a policy that has nothing by which it is seen to know of them.
func (d *decoder) warnBrackets() {
	for _, b := range d.brackets {
		if !d.newer {
			d.warnf(b.pos, `%s: the brackets in %s are a class, one of the characters in them; write \[ if the character itself is meant`, b.what, quote(b.pattern))
		}
	}
}
