// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"unicode/utf8"
)

// token is a value that is not in quotes, as it is written in the file.
type token struct {
	at   Pos
	text string
	flow bool // within [ ] or { }
}

// quoted returns the text as it would be right in YAML.
func (t token) quoted() string {
	if strings.ContainsAny(t.text, `"\`) {
		return "'" + strings.ReplaceAll(t.text, "'", "''") + "'"
	}
	return `"` + t.text + `"`
}

// scanner finds the tokens of a text that is perhaps no valid YAML, to say where the
// trouble is. It knows quotes, comments, brackets and block scalars, and is no parser.
type scanner struct {
	text   string
	offset int // in bytes
	at     Pos
	indent int   // of the line, in spaces
	open   []Pos // brackets that are not closed
	closed Pos   // the bracket that was closed last, or zero
}

// scan calls visit for each token that begins in the first bytes of a text, and returns
// the bracket that is open there or was the last one, or zero.
func scan(text string, bytes int, visit func(token)) Pos {
	s := &scanner{text: text, at: Pos{1, 1}}
	s.indent = s.spaces()
	for s.offset < bytes && s.rest() != "" {
		switch r := s.peek(0); {
		case r == '#':
			s.skipLine()
		case r == '[' || r == '{':
			s.open = append(s.open, s.at)
			s.advance()
		case r == ']' || r == '}':
			s.closeBracket()
		case r == '"' || r == '\'':
			s.quoted(r)
		case (r == '|' || r == '>') && !s.flow():
			s.block()
		case blank(r), r == ',' && s.flow(), (r == '-' || r == '?' || r == ':') && blank(s.peek(1)):
			s.advance()
		default:
			visit(s.plain())
		}
	}
	if s.flow() {
		return s.open[len(s.open)-1]
	}
	return s.closed
}

func (s *scanner) closeBracket() {
	if last := len(s.open) - 1; last >= 0 {
		s.closed, s.open = s.open[last], s.open[:last]
	}
	s.advance()
}

func (s *scanner) rest() string { return s.text[s.offset:] }

func (s *scanner) flow() bool { return len(s.open) > 0 }

// blank reports what separates tokens; the end of the text is a line feed.
func blank(r rune) bool { return r == ' ' || r == '\t' || lineBreak(r) }

// peek returns the character a number of single-byte characters further on.
func (s *scanner) peek(further int) rune {
	if s.offset+further >= len(s.text) {
		return '\n'
	}
	r, _ := utf8.DecodeRuneInString(s.text[s.offset+further:])
	return r
}

func (s *scanner) spaces() int {
	return len(s.rest()) - len(strings.TrimLeft(s.rest(), " "))
}

func (s *scanner) advance() {
	r, n := utf8.DecodeRuneInString(s.rest())
	s.offset += n
	s.at.Col++
	if lineBreak(r) && !(r == '\r' && s.peek(0) == '\n') {
		s.at = Pos{s.at.Line + 1, 1}
		s.indent = s.spaces()
	}
}

// skipLine goes to the end of the line.
func (s *scanner) skipLine() {
	for s.rest() != "" && !lineBreak(s.peek(0)) {
		s.advance()
	}
}

// quoted goes past a value in quotes and a colon right behind it.
func (s *scanner) quoted(quote rune) {
	s.advance()
	for s.rest() != "" {
		r, next := s.peek(0), s.peek(1)
		if r == '\\' && quote == '"' || r == quote && quote == '\'' && next == quote {
			s.advance()
		} else if r == quote {
			break
		}
		s.advance()
	}
	s.advance()
	if s.peek(0) == ':' {
		s.advance()
	}
}

// block goes past a block scalar: the lines that are indented like its first one.
func (s *scanner) block() {
	above, within := s.indent, -1
	for s.rest() != "" {
		s.skipLine()
		for s.rest() != "" && lineBreak(s.peek(0)) {
			s.advance()
		}
		switch {
		case within < 0 && s.indent > above:
			within = s.indent
		case s.indent < within || within < 0:
			return
		}
	}
}

// plain returns the token that begins here.
func (s *scanner) plain() token {
	t := token{at: s.at, flow: s.flow()}
	begin, before := s.offset, ' '
	for s.rest() != "" {
		r := s.peek(0)
		end := lineBreak(r) || r == '#' && blank(before) || r == ':' && blank(s.peek(1)) ||
			t.flow && strings.ContainsRune(",[]{}", r)
		if end && s.offset > begin {
			break
		}
		before = r
		s.advance()
	}
	t.text = strings.TrimRight(s.text[begin:s.offset], " \t")
	return t
}
