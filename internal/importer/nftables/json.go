// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"narthex/internal/importer/draft"
)

type object = map[string]any

// ImportJSON makes a draft of what `nft -j list ruleset` prints. The error is a
// *draft.SyntaxError.
func ImportJSON(name string, text []byte) (*draft.Draft, error) {
	var file struct {
		Nftables []map[string]json.RawMessage `json:"nftables"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		line := 1
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			line += bytes.Count(text[:min(int(syntax.Offset), len(text))], []byte("\n"))
		}
		return nil, syntaxError(name, line, "not JSON as nft prints it: %v", err)
	}
	d := &draft.Draft{}
	j := &jsonReader{draft: d, ruleset: &ruleset{}, sets: map[string][]string{}}
	for _, e := range file.Nftables {
		for kind, raw := range e {
			j.object(name, kind, raw)
		}
	}
	for _, read := range j.later {
		read()
	}
	translate(d, j.ruleset)
	return d, nil
}

type jsonReader struct {
	draft   *draft.Draft
	ruleset *ruleset
	sets    map[string][]string
	later   []func()
}

// named is what objects of a ruleset have in common.
type named struct {
	Family  string `json:"family"`
	Table   string `json:"table"`
	Name    string `json:"name"`
	Chain   string `json:"chain"`
	Handle  int    `json:"handle"`
	Type    string `json:"type"`
	Hook    string `json:"hook"`
	Policy  string `json:"policy"`
	Comment string `json:"comment"`
	Elem    []any  `json:"elem"`
	Expr    []any  `json:"expr"`
}

func (j *jsonReader) object(file, kind string, raw json.RawMessage) {
	var o named
	switch kind {
	case "chain", "set", "rule", "element":
		if json.Unmarshal(raw, &o) != nil {
			return // a concatenation, a map
		}
	default:
		return
	}
	key := o.Family + " " + o.Table
	switch kind {
	case "chain":
		c := j.ruleset.chain(key + " " + o.Name)
		if o.Hook != "" {
			c.hook = hookOfType(o.Type, o.Hook)
		}
		c.drops = o.Policy == "drop"
	case "set", "element":
		j.sets[key+" "+o.Name] = append(j.sets[key+" "+o.Name], texts(o.Elem)...)
	case "rule":
		// All of it is on one line: the handle says which rule it is.
		text := fmt.Sprintf("rule %d in chain %s of table %s", o.Handle, o.Chain, key)
		r := &rule{Origin: draft.Origin{File: file, Line: 1}, text: text}
		switch o.Family {
		case "ip":
			r.family = 4
		case "ip6":
			r.family = 6
		case "arp":
			r.other = true
		}
		c := j.ruleset.chain(key + " " + o.Chain)
		c.rules = append(c.rules, r)
		j.later = append(j.later, func() { j.rule(r, key, o.Expr) })
	}
}

// texts writes elements of a set as nft's language has them.
func texts(list []any) []string {
	var out []string
	for _, e := range list {
		switch e := e.(type) {
		case string:
			out = append(out, e)
		case float64:
			out = append(out, strconv.FormatFloat(e, 'f', -1, 64))
		case object:
			out = append(out, textsOf(e)...)
		}
	}
	return out
}

func textsOf(e object) []string {
	if p, ok := e["prefix"].(object); ok {
		return []string{fmt.Sprintf("%v/%v", p["addr"], p["len"])}
	}
	if r, ok := e["range"].([]any); ok && len(r) == 2 {
		return []string{strings.Join(texts(r), "-")}
	}
	if s, ok := e["set"].([]any); ok {
		return texts(s)
	}
	if el, ok := e["elem"].(object); ok {
		return texts([]any{el["val"]})
	}
	return []string{"an element that is not understood"}
}

// rule turns statements into those of nft's language, which is then read as text is.
func (j *jsonReader) rule(r *rule, key string, list []any) {
	var words []token
	for _, s := range list {
		o, ok := s.(object)
		if !ok {
			r.leave("a statement is not understood")
			continue
		}
		for name, body := range o {
			words = append(words, j.statement(name, body)...)
		}
	}
	e := &expression{parser: &parser{file: r.File, draft: j.draft, ruleset: j.ruleset, sets: j.sets}, rule: r, key: key, list: words}
	e.read()
}

func (j *jsonReader) statement(name string, body any) []token {
	o, _ := body.(object)
	switch name {
	case "accept", "drop", "return", "continue", "reject":
		return said(name)
	case "jump", "goto":
		return said(name, fmt.Sprint(o["target"]))
	case "counter", "log":
		return nil
	case "match":
		return j.match(o)
	case "limit":
		return limitWords(o)
	case "ct count":
		return countWords(o)
	case "meter":
		key, ok := field(o["key"])
		stmt, _ := o["stmt"].(object)
		if !ok {
			break
		}
		return keyed(said("meter", "a", "{"), key, stmt)
	case "set":
		elem := o["elem"]
		if inner, ok := elem.(object); ok && inner["elem"] != nil {
			if with, ok := inner["elem"].(object); ok {
				elem = with["val"]
			}
		}
		key, ok := field(elem)
		stmts, _ := o["stmt"].([]any)
		if !ok || len(stmts) != 1 {
			break
		}
		stmt, _ := stmts[0].(object)
		return keyed(said("add", "@set", "{"), key, stmt)
	case "vmap":
		if key, ok := field(o["key"]); ok {
			return append(key, said("vmap")...)
		}
	}
	return said(name)
}

func countWords(o object) []token {
	out := said("ct", "count")
	if o["inv"] == true {
		out = append(out, said("over")...)
	}
	return append(out, said(fmt.Sprint(o["val"]))...)
}

// keyed makes a meter of its beginning, its key and what it keeps.
func keyed(begin, key []token, stmt object) []token {
	out := append(begin, key...)
	switch {
	case stmt["limit"] != nil:
		o, _ := stmt["limit"].(object)
		out = append(out, limitWords(o)...)
	case stmt["ct count"] != nil:
		o, _ := stmt["ct count"].(object)
		out = append(out, countWords(o)...)
	}
	return append(out, said("}")...)
}

func (j *jsonReader) match(o object) []token {
	if and, ok := o["left"].(object); ok && and["&"] != nil {
		if list, ok := and["&"].([]any); ok && len(list) == 2 {
			if key, ok := field(list[0]); ok && key[1].text == "flags" && o["right"] == "syn" && strings.Contains(fmt.Sprint(list[1]), "syn") {
				return said("tcp", "flags", "==", "syn")
			}
		}
	}
	key, ok := field(o["left"])
	if !ok || len(key) != 2 {
		return said("a match that is not understood")
	}
	if key[1].text == "flags" && o["right"] != "syn" {
		return said("tcp flags")
	}
	op := "=="
	if o["op"] == "!=" {
		op = "!="
	}
	out := append(key, said(op)...)
	switch right := o["right"].(type) {
	case string:
		return append(out, said(right)...)
	case []any:
		return append(out, braced(texts(right))...)
	default:
		return append(out, braced(texts([]any{right}))...)
	}
}
