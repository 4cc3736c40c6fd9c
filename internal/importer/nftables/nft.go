// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"
	"strings"

	"narthex/internal/importer/draft"
)

// ImportNFT makes a draft of the text of a ruleset, as `nft list ruleset` prints it or
// `nft -f` reads it. The error is a *draft.SyntaxError.
func ImportNFT(name string, text []byte, files draft.Files) (*draft.Draft, error) {
	d := &draft.Draft{}
	p := &parser{file: name, files: files, draft: d, ruleset: &ruleset{}, sets: map[string][]string{}, defined: map[string][]token{}}
	if err := p.read(name, string(text), 0); err != nil {
		return nil, err
	}
	for _, later := range p.later {
		later()
	}
	translate(d, p.ruleset)
	return d, nil
}

// parser reads statements.
type parser struct {
	file    string
	files   draft.Files
	draft   *draft.Draft
	ruleset *ruleset
	list    []token
	at      int
	sets    map[string][]string // elements by family, table and name
	defined map[string][]token
	// Elements that were read, and how deep variables are followed now: they may name one another.
	expanded, following int

	later []func() // rules are read when all sets are known
}

func (p *parser) errorf(format string, args ...any) error {
	line := 1
	if n := len(p.list); n > 0 {
		line = p.list[min(p.at, n-1)].line
	}
	return syntaxError(p.file, line, format, args...)
}

func (p *parser) more() bool { return p.at < len(p.list) }

// is reports whether a sign comes next.
func (p *parser) is(sign string) bool {
	return p.more() && p.list[p.at].sign && p.list[p.at].text == sign
}

func (p *parser) word() string {
	if !p.more() || p.list[p.at].sign {
		return ""
	}
	p.at++
	return p.list[p.at-1].text
}

// read reads a file, or one that it includes.
func (p *parser) read(name, text string, depth int) error {
	list, err := tokens(name, text)
	if err != nil {
		return err
	}
	file, outer, at := p.file, p.list, p.at
	defer func() { p.file, p.list, p.at = file, outer, at }()
	p.file, p.list, p.at = name, list, 0
	for p.more() {
		if err := p.statement(depth); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) statement(depth int) error {
	if p.is(";") {
		p.at++
		return nil
	}
	verb := p.word()
	what := verb
	if verb == "add" || verb == "create" || verb == "insert" || verb == "replace" {
		what = p.word()
	}
	switch what {
	case "table":
		return p.table()
	case "chain":
		key := p.address()
		return p.optional(func() error { return p.chain(key, p.word()) })
	case "set":
		key := p.address()
		return p.optional(func() error { return p.set(key, p.word()) })
	case "element":
		key := p.address()
		name := p.word()
		p.elements(key + " " + name)
		return p.end()
	case "rule":
		key := p.address()
		name := p.word()
		p.rule(key, name, verb == "insert")
		return p.end()
	case "define", "redefine":
		name := p.word()
		if p.is("=") {
			p.at++
			p.defined[name] = p.rest()
		}
		return p.end()
	case "include":
		return p.include(depth)
	case "flush", "delete", "destroy", "list", "reset", "undefine":
		p.rest()
		return p.end()
	}
	if len(p.ruleset.chains) == 0 || verb == "" {
		return p.errorf("%q is not understood: a ruleset begins with a table", written(p.list[max(p.at-1, 0):min(p.at+2, len(p.list))]))
	}
	p.rest()
	return p.end()
}

// optional reads what has a block, or has none.
func (p *parser) optional(read func() error) error {
	before := p.at
	err := read()
	if err != nil && p.at <= before+1 {
		return p.end()
	}
	return err
}

func (p *parser) include(depth int) error {
	line := p.list[p.at-1].line
	pattern := p.word()
	at := draft.Origin{File: p.file, Line: line}
	names, err := p.files.Glob(pattern)
	if depth > maxJumps {
		return p.errorf("files include one another too deeply")
	}
	for _, name := range names {
		var text []byte
		if text, err = p.files.Read(name); err != nil {
			break
		}
		if err := p.read(name, string(text), depth+1); err != nil {
			return err
		}
	}
	if err != nil {
		p.draft.Leave(at, "include "+pattern, "cannot be read: "+err.Error(), "copy it there, or say with --root where the files are")
	}
	return p.end()
}

// end skips to the end of a statement.
func (p *parser) end() error {
	for p.more() && !p.is(";") && !p.is("}") {
		p.at++
	}
	if p.is("}") {
		return p.errorf(`unexpected "}"`)
	}
	p.at++
	return nil
}

// families are the names of tables' families.
var families = []string{"ip", "ip6", "inet", "arp", "bridge", "netdev"}

// address reads [FAMILY] TABLE.
func (p *parser) address() string {
	family := "ip"
	if p.more() && slices.Contains(families, p.list[p.at].text) {
		family = p.word()
	}
	return family + " " + p.word()
}

// rest takes the tokens up to the end of a statement, with the blocks in it.
func (p *parser) rest() []token {
	begin, depth := p.at, 0
	for ; p.more(); p.at++ {
		switch {
		case p.is("{"):
			depth++
		case p.is("}") && depth == 0, p.is(";") && depth == 0:
			return p.list[begin:p.at]
		case p.is("}"):
			depth--
		}
	}
	return p.list[begin:]
}

// block reads what is within braces, one statement after the other.
func (p *parser) block(each func() error) error {
	if !p.is("{") {
		return p.errorf(`"{" is missing`)
	}
	line := p.list[p.at].line
	for p.at++; ; {
		switch {
		case !p.more():
			return syntaxError(p.file, line, `the block that begins here is not closed: "}" is missing`)
		case p.is("}"):
			p.at++
			return nil
		case p.is(";"):
			p.at++
		default:
			before := p.at
			if err := each(); err != nil {
				return err
			}
			if p.at == before {
				return p.errorf("%q is not expected here", p.list[p.at].text)
			}
		}
	}
}

func (p *parser) table() error {
	key := p.address()
	if !p.is("{") {
		return p.end()
	}
	return p.block(func() error {
		switch what := p.word(); what {
		case "chain":
			return p.chain(key, p.word())
		case "set":
			return p.set(key, p.word())
		default:
			p.rest()
			return nil
		}
	})
}

func (p *parser) chain(key, name string) error {
	c := p.ruleset.chain(key + " " + name)
	return p.block(func() error {
		line := p.list[p.at]
		switch {
		case line.text == "type" && !line.sign:
			words := p.rest()
			if i := slices.IndexFunc(words, func(t token) bool { return t.text == "hook" }); i >= 0 && i+1 < len(words) {
				c.hook = hookOfType(words[1].text, words[i+1].text)
			}
		case line.text == "policy" && !line.sign:
			p.at++
			c.drops = p.word() == "drop"
		case slices.Contains([]string{"devices", "device", "flags"}, line.text) && !line.sign:
			p.rest()
		default:
			p.rule(key, name, false)
		}
		return nil
	})
}

// rule reads a rule, when all sets are known.
func (p *parser) rule(key, chainName string, first bool) {
	c := p.ruleset.chain(key + " " + chainName)
	list, file := p.rest(), p.file
	if len(list) == 0 {
		return
	}
	r := &rule{Origin: draft.Origin{File: file, Line: list[0].line}, text: written(list)}
	switch strings.Fields(key)[0] {
	case "ip":
		r.family = 4
	case "ip6":
		r.family = 6
	case "arp":
		r.other = true
	}
	if first {
		c.rules = append([]*rule{r}, c.rules...)
	} else {
		c.rules = append(c.rules, r)
	}
	p.later = append(p.later, func() {
		e := &expression{parser: p, rule: r, key: key, list: list}
		e.read()
	})
}
