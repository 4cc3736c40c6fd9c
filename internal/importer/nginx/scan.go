// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"fmt"
	"strings"

	"narthex/internal/importer/draft"
)

type tokenKind uint8

const (
	tokenWord tokenKind = iota
	tokenSemicolon
	tokenOpen
	tokenClose // not taken
	tokenEnd
)

func (k tokenKind) String() string {
	return [...]string{"a word", ";", "{", "}", "the end of the file"}[k]
}

// scanner takes a configuration apart as nginx does (ngx_conf_read_token): quotes count at
// the beginning of a word only, a backslash takes the meaning from any character, and braces
// belong to a word after a dollar sign. The rules are few, and a library that guesses at
// braces and leaves escapes as they are reads other configurations than nginx does.
type scanner struct {
	file string
	text []byte
	at   int
	line int
}

func (s *scanner) errorf(format string, args ...any) error {
	return &draft.SyntaxError{Origin: draft.Origin{File: s.file, Line: s.line}, Msg: fmt.Sprintf(format, args...)}
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// token returns the next word or sign, and the line on which it begins.
func (s *scanner) token() (word string, kind tokenKind, line int, err error) {
	s.blanks()
	line = s.line
	if s.at >= len(s.text) {
		return "", tokenEnd, line, nil
	}
	switch c := s.text[s.at]; c {
	case ';', '{':
		s.at++
		return "", map[byte]tokenKind{';': tokenSemicolon, '{': tokenOpen}[c], line, nil
	case '}':
		return "", tokenClose, line, nil
	case '"', '\'':
		s.at++
		word, err = s.quoted(c)
		return word, tokenWord, line, err
	}
	return s.word(), tokenWord, line, nil
}

// blanks skips what separates words, and comments.
func (s *scanner) blanks() {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '#':
			for s.at < len(s.text) && s.text[s.at] != '\n' {
				s.at++
			}
			s.at-- // the end of the line is next
		case c == '\n':
			s.line++
		case !blank(c):
			return
		}
	}
}

func (s *scanner) word() string {
	begin, variable := s.at, false
	for ; s.at < len(s.text); s.at++ {
		c := s.text[s.at]
		switch {
		case c == '{' && variable:
			variable = false
			continue
		case blank(c) || c == ';' || c == '{':
			return unescape(s.text[begin:s.at])
		case c == '\\' && s.at+1 < len(s.text):
			s.at++
			if s.text[s.at] == '\n' {
				s.line++
			}
		}
		variable = c == '$'
	}
	return unescape(s.text[begin:s.at])
}

func (s *scanner) quoted(quote byte) (string, error) {
	begin, line := s.at, s.line
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case '\n':
			s.line++
		case '\\':
			if s.at++; s.at < len(s.text) && s.text[s.at] == '\n' {
				s.line++
			}
		case quote:
			word := unescape(s.text[begin:s.at])
			s.at++
			if s.at < len(s.text) && !blank(s.text[s.at]) && !strings.ContainsRune(";{)", rune(s.text[s.at])) {
				return "", s.errorf("unexpected %q after a closing quote", s.text[s.at])
			}
			return word, nil
		}
	}
	s.at, s.line = len(s.text), line
	return "", s.errorf("the quote that begins here is not closed")
}

// unescape takes those backslashes away that nginx does.
func unescape(raw []byte) string {
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		if raw[i] == '\\' && i+1 < len(raw) {
			switch next := raw[i+1]; next {
			case '"', '\'', '\\':
				i++
			case 't', 'r', 'n':
				b.WriteByte(map[byte]byte{'t': '\t', 'r': '\r', 'n': '\n'}[next])
				i++
				continue
			}
		}
		b.WriteByte(raw[i])
	}
	return b.String()
}

// skipCode skips a block in another language up to its closing brace, which it takes.
func (s *scanner) skipCode() error {
	line := s.line
	for depth := 1; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '\n':
			s.line++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				s.at++
				return nil
			}
		}
	}
	s.line = line
	return s.errorf(`the block of code that begins here is not closed: "}" is missing`)
}
