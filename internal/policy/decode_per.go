// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strconv"

	"go.yaml.in/yaml/v3"
)

// String says what has a bucket for each of its values.
func (k PerKey) String() string {
	if k.Name == "" {
		return k.Kind
	}
	return map[string]string{"header": "header ", "cookie": "cookie ", "query": "parameter "}[k.Kind] + k.Name
}

// Word returns who shares a bucket, in one or two words of a policy.
func (p Per) Word() string {
	switch {
	case p == PerRule:
		return "rule"
	case p == PerSource:
		return "source"
	case p.Key.Name != "":
		return p.Key.Kind + " " + p.Key.Name
	case p.Key.Kind != "":
		return p.Key.Kind
	}
	return "/" + strconv.Itoa(p.V4) + " and /" + strconv.Itoa(p.V6)
}

// Value returns what a request has of the key, "" for nothing: the first value that is not empty.
func (k PerKey) Value(v *RequestView) string {
	if k.Kind == "host" {
		return v.Text(FieldHost)
	}
	lists := [][]NameValue{v.Headers, v.Cookies, v.Query}
	for kind, list := range lists {
		for _, value := range named(list, k.Name) {
			if pairKinds[kind] == k.Kind && value != "" {
				return value
			}
		}
	}
	return ""
}

// per decodes who shares a bucket. Only requests have values that may have one each.
func (d *decoder) per(n *yaml.Node, per *Per, ofRequests bool) {
	if n.Kind != yaml.MappingNode {
		d.perWord(n, per, ofRequests)
		return
	}
	f := &perForm
	if ofRequests {
		f = &requestPerForm
	}
	p := PerSource
	seen := d.mapping(n, f, d.onePer(`"per" has %q and %q, but a bucket goes by one thing; write one of them, or one of "limits" for each`, &p.V4, &p.V6, &p.Key))
	if len(n.Content) == 0 {
		d.errorAt(n, `"per" is empty; write source, rule or prefix lengths, as {v4: 24, v6: 56}`)
	}
	if len(seen) > 0 {
		*per = p
	}
}

// onePer returns what decodes the keys of a mapping that has lengths of prefixes, or one thing of which each value
// counts for itself. The complaint names two keys of which one is too many.
func (d *decoder) onePer(complaint string, v4, v6 *int, by *PerKey) func(key string, n *yaml.Node) {
	var first string
	return func(key string, n *yaml.Node) {
		switch key {
		case "v4":
			scalar(d, n, key, v4, parseInt(1, 32))
		case "v6":
			scalar(d, n, key, v6, parseInt(1, 128))
		case "header", "cookie", "query":
			by.Kind, d.newer = key, true
			scalar(d, n, key, &by.Name, map[string]func(string) (string, error){
				"header": parseHeaderName, "cookie": parseToken, "query": d.parseParameter(n),
			}[key])
		}
		if first == "" {
			first = key
		} else if by.Kind != "" {
			d.errorAt(n, complaint, first, key)
		}
	}
}

// perWord decodes who shares a bucket, in a word.
func (d *decoder) perWord(n *yaml.Node, per *Per, ofRequests bool) {
	words := sharers
	if ofRequests {
		words = requestSharers
	}
	var word string
	scalar(d, n, "per", &word, parseWord(words...))
	switch word {
	case "source":
		*per = PerSource
	case "host":
		*per, d.newer = PerValue(PerKey{Kind: word}), true
	}
}
