// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decoder turns YAML nodes into values and reports what does not fit.
type decoder struct {
	diagnostics
	starry   int         // patterns with more than two stars so far
	brackets []bracketed // patterns with classes
	newer    bool        // there is what came together with classes, or later
	pages    []byte      // bodies of pages
}

func position(n *yaml.Node) Pos { return Pos{max(n.Line, 1), max(n.Column, 1)} }

func (d *decoder) errorAt(n *yaml.Node, format string, args ...any) {
	d.errorf(position(n), format, args...)
}

// kindOf says what a node is, in the words of the reference.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	if n.Tag == "!!null" {
		return "nothing"
	}
	return quote(n.Value)
}

// plain refuses what YAML can do and a policy does not need: aliases, which can make a
// small file mean a huge one, and tags.
func (d *decoder) plain(n *yaml.Node) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		d.errorAt(n, `"*%s" is a YAML alias, which a policy cannot use; write the value out, or in quotes if a pattern is meant`, n.Value)
		return false
	case n.Style&yaml.TaggedStyle != 0:
		d.errorAt(n, "YAML tag %s; a policy uses no tags: remove it", quote(n.Tag))
		return false
	}
	return true
}

// mapping decodes a mapping of the given form, by calling decode with each of its keys and
// the value's node. It returns the keys that are there, among them those that were surely meant
// by an unknown one: to report them as missing too would be noise.
func (d *decoder) mapping(n *yaml.Node, f *form, decode func(key string, value *yaml.Node)) map[string]*yaml.Node {
	if !d.plain(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		d.errorAt(n, "%s is a mapping of keys to values, not %s", f.what, kindOf(n))
		return nil
	}
	seen := make(map[string]*yaml.Node, len(n.Content)/2)
	meant := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !d.key(key, f.what, seen) {
			continue
		}
		if !f.has(key.Value) {
			meant[d.unknownKey(key, f)] = key
			continue
		}
		seen[key.Value] = key
		decode(key.Value, value)
	}
	for key, n := range meant {
		if seen[key] == nil {
			seen[key] = n
		}
	}
	return seen
}

// key checks that a node can be a key and is there for the first time.
func (d *decoder) key(key *yaml.Node, what string, seen map[string]*yaml.Node) bool {
	if key.Tag == "!!merge" {
		d.errorAt(key, "YAML merge key; a policy cannot use it: write the keys out")
		return false
	}
	if !d.plain(key) {
		return false
	}
	if key.Kind != yaml.ScalarNode {
		d.errorAt(key, "a key of %s is a word, not %s", what, kindOf(key))
		return false
	}
	if first, ok := seen[key.Value]; ok {
		d.errorAt(key, "key %s is given twice in %s, first at line %d; remove one", quote(key.Value), what, first.Line)
		return false
	}
	return true
}

// elsewhere says where a key belongs that is known but misplaced.
var elsewhere = map[string]map[string]string{
	"a connection rule": {
		"path": "request", "host": "request", "method": "request", "cookie": "request", "header": "request",
		"query": "request", "parameters": "request", "without": "request",
		"sni": "request", "alpn": "request", "ja4": "request", "over": "request", "block": "request", "learn": "request", "answer": "request",
	},
	"a request rule": {"from_port": "connection", "learned": "connection"},
}

// unknownKey reports a key and returns the one that was meant, if that can be guessed.
func (d *decoder) unknownKey(key *yaml.Node, f *form) string {
	if d.full() {
		d.dropped++
		return ""
	}
	if kind := elsewhere[f.what][key.Value]; kind != "" {
		d.errorAt(key, "key %q belongs to %s rules and %s cannot have it; move the rule to %q", key.Value, kind, f.what, kind+"s")
		return ""
	}
	known := f.names()
	meant := nearest(key.Value, known)
	hint := didYouMean(meant)
	if inside := f.inside(key.Value); inside != "" {
		hint = fmt.Sprintf("; it is one of %[1]q: write \"%[1]s: {%[2]s: ...}\"", inside, key.Value)
		meant = ""
	} else if meant == "" {
		hint = "; the keys are " + strings.Join(known, ", ")
	}
	d.errorAt(key, "unknown key %s in %s%s", quote(key.Value), f.what, hint)
	return meant
}

// text returns a scalar as it is written; what names it in errors.
func (d *decoder) text(n *yaml.Node, what string) (string, bool) {
	if !d.plain(n) {
		return "", false
	}
	switch {
	case n.Kind == yaml.MappingNode:
		d.errorAt(n, "%s is one value, not a mapping; a value with a colon is written in quotes", what)
	case n.Kind != yaml.ScalarNode:
		d.errorAt(n, "%s is one value, not %s", what, kindOf(n))
	case n.Tag == "!!null":
		d.errorAt(n, "%s has no value; give one or remove the key", what)
	case strings.TrimSpace(n.Value) == "":
		d.errorAt(n, "%s is empty; give a value or remove the key", what)
	default:
		return n.Value, true
	}
	return "", false
}

// list returns the elements of a list; one value stands for a list of one. An empty list
// is an error, because it would match nothing or everything depending on who reads it.
func (d *decoder) list(n *yaml.Node, what string) []*yaml.Node {
	if !d.plain(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		return []*yaml.Node{n}
	}
	if len(n.Content) == 0 {
		d.errorAt(n, "%s is an empty list; give an entry or remove the key", what)
	}
	return n.Content
}

// table returns the elements of a top-level list, which may be empty: one comments all
// of it out while trying things.
func (d *decoder) table(n *yaml.Node, what string) []*yaml.Node {
	if !d.plain(n) || n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		d.errorAt(n, `%q is a list whose entries begin with "-", not %s`, what, kindOf(n))
		return nil
	}
	return n.Content
}

// scalar decodes one value with a parser whose error says what would be right, and
// reports whether it could.
func scalar[T any](d *decoder, n *yaml.Node, what string, into *T, parse func(string) (T, error)) bool {
	s, ok := d.text(n, what)
	if !ok {
		return false
	}
	v, err := parse(s)
	if err != nil {
		d.errorAt(n, "%s: %v", what, err)
		return false
	}
	*into = v
	return true
}

// values decodes a list of values with the same parser.
func values[T any](d *decoder, n *yaml.Node, what string, parse func(string) (T, error)) []T {
	nodes := d.list(n, what)
	out := make([]T, 0, len(nodes))
	for _, e := range nodes {
		var v T
		if scalar(d, e, what, &v, parse) {
			out = append(out, v)
		}
	}
	return out
}

// distinct decodes a list of values of which no two are equal.
func distinct[T comparable](d *decoder, n *yaml.Node, what string, parse func(string) (T, error)) []T {
	nodes := d.list(n, what)
	out := make([]T, 0, len(nodes))
	once := onlyOnce[T](d, what, len(nodes))
	for _, e := range nodes {
		var v T
		if scalar(d, e, what, &v, parse) && once(v, position(e)) {
			out = append(out, v)
		}
	}
	return out
}

// onlyOnce returns a function that reports a value of a list if it was there before.
func onlyOnce[T comparable](d *decoder, what string, entries int) func(T, Pos) bool {
	if entries < 2 { // most lists: save the map
		return func(T, Pos) bool { return true }
	}
	first := make(map[T]Pos, entries)
	return func(v T, at Pos) bool {
		if before, twice := first[v]; twice {
			d.errorf(at, "%s: %s is there twice, first at line %d; remove one", what, quote(fmt.Sprint(v)), before.Line)
			return false
		}
		first[v] = at
		return true
	}
}
