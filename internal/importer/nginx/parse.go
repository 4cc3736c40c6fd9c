// SPDX-License-Identifier: Apache-2.0

// Package nginx makes a draft of a policy from an nginx configuration.
package nginx

import (
	"fmt"
	"strings"

	"narthex/internal/importer/draft"
)

// directive is one directive with its block, if it has one.
type directive struct {
	draft.Origin
	name  string
	args  []string
	block []*directive
	opens bool // it has a block
}

// text is the directive as one writes it, without its block.
func (d *directive) text() string { return strings.Join(append([]string{d.name}, d.args...), " ") }

const (
	maxDepth = 64      // of blocks, and of files that include files
	maxTotal = 500_000 // directives
	maxFiles = 4096    // that are included
)

// parser reads a file and those that it includes.
type parser struct {
	files draft.Files
	draft *draft.Draft
	count int
	read  int // files that were included
}

// file parses the text of a file.
func (p *parser) file(name string, text []byte, depth int) ([]*directive, error) {
	s := &scanner{file: name, text: text, line: 1}
	list, err := p.block(s, depth)
	if err != nil {
		return nil, err
	}
	if s.at < len(s.text) {
		return nil, s.errorf(`unexpected "}": no block is open here`)
	}
	return list, nil
}

// block parses up to the closing brace, or the end of the file.
func (p *parser) block(s *scanner, depth int) ([]*directive, error) {
	if depth > maxDepth {
		return nil, s.errorf("blocks or included files are nested too deeply")
	}
	var out []*directive
	for {
		d, err := p.directive(s)
		if err != nil || d == nil {
			return out, err
		}
		if p.count++; p.count > maxTotal {
			return nil, s.errorf("there are more than %d directives", maxTotal)
		}
		switch {
		case d.opens && strings.HasSuffix(d.name, "_by_lua_block"):
			err = s.skipCode()
		case d.opens:
			if d.block, err = p.block(s, depth+1); err == nil && s.at >= len(s.text) {
				err = s.errorf(`the block of %q, which begins at line %d, is not closed: "}" is missing`, d.name, d.Line)
			}
			s.at++ // the closing brace
		case d.name == "include" && len(d.args) == 1:
			var included []*directive
			included, err = p.include(d, depth)
			out = append(out, included...)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
}

// directive reads up to ; or {. It returns nil before a closing brace and at the end.
func (p *parser) directive(s *scanner) (*directive, error) {
	var d *directive
	for {
		word, kind, line, err := s.token()
		if err != nil {
			return nil, err
		}
		switch {
		case kind == tokenWord && d == nil:
			d = &directive{Origin: draft.Origin{File: s.file, Line: line}, name: word}
		case kind == tokenWord:
			d.args = append(d.args, word)
		case d == nil && (kind == tokenEnd || kind == tokenClose):
			return nil, nil
		case d == nil:
			return nil, s.errorf("unexpected %q", kind.String())
		case kind == tokenSemicolon || kind == tokenOpen:
			d.opens = kind == tokenOpen
			return d, nil
		default:
			return nil, s.errorf(`unexpected %s: directive %q is not ended by ";"`, kind, d.name)
		}
	}
}

// include reads the files that an include names, in their place. One that cannot be read is
// noted, for configurations are copied without all that belongs to them.
func (p *parser) include(d *directive, depth int) ([]*directive, error) {
	names, err := p.files.Glob(d.args[0])
	if err != nil {
		p.draft.Leave(d.Origin, d.text(), "cannot be read: "+err.Error(), "")
		return nil, nil
	}
	var out []*directive
	for _, name := range names {
		if p.read++; p.read > maxFiles {
			return nil, &draft.SyntaxError{Origin: d.Origin, Msg: fmt.Sprintf("more than %d files are included", maxFiles)}
		}
		text, err := p.files.Read(name)
		if err != nil {
			p.draft.Leave(d.Origin, d.text(), "cannot be read: "+err.Error(), "if limits are in it, copy it there, or say with --root where the files are")
			continue
		}
		list, err := p.file(name, text, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}
