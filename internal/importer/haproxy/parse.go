// SPDX-License-Identifier: Apache-2.0

// Package haproxy makes a draft of a policy from an HAProxy configuration.
package haproxy

import (
	"fmt"
	"slices"
	"strings"

	"narthex/internal/importer/draft"
)

// line is one line of a configuration, taken apart into words.
type line struct {
	draft.Origin
	words []string
}

func (l line) text() string { return strings.Join(l.words, " ") }

// begins reports whether a line begins with these words.
func (l line) begins(words ...string) bool {
	return len(l.words) >= len(words) && slices.Equal(l.words[:len(words)], words)
}

// section is a section with its lines.
type section struct {
	line
	kind  string // defaults, frontend, backend, listen
	name  string
	lines []line
}

// kinds are the sections; only the first four are of interest.
var kinds = []string{"defaults", "frontend", "backend", "listen", "global", "peers", "resolvers", "userlist", "mailers", "program", "http-errors", "cache", "ring", "fcgi-app", "log-forward", "crt-store", "traces", "acme"}

// maxLines bounds a configuration.
const maxLines = 500_000

// Lookup returns the value of an environment variable.
type Lookup func(name string) (value string, ok bool)

// parse reads the sections. A line that depends on variables that are not set, or on a
// condition, is noted where it could matter.
func parse(name string, text []byte, env Lookup, d *draft.Draft) ([]*section, error) {
	var out []*section
	current := &section{}
	conditions := 0
	for i, raw := range strings.Split(string(text), "\n") {
		at := draft.Origin{File: name, Line: i + 1}
		if i > maxLines {
			return nil, &draft.SyntaxError{Origin: at, Msg: fmt.Sprintf("there are more than %d lines", maxLines)}
		}
		words, unset, err := split(strings.TrimSuffix(raw, "\r"), env)
		if err != nil {
			return nil, &draft.SyntaxError{Origin: at, Msg: err.Error()}
		}
		if len(words) == 0 {
			continue
		}
		l := line{at, words}
		switch words[0] {
		case ".if":
			if conditions++; conditions == 1 {
				d.Leave(at, l.text(), "conditions are not evaluated: what they enclose is left out", "write the configuration as it is meant here")
			}
			continue
		case ".endif":
			conditions = max(conditions-1, 0)
			continue
		}
		if conditions > 0 || strings.HasPrefix(words[0], ".") {
			continue
		}
		if unset != "" && (current.matters() || slices.Contains(kinds, words[0])) {
			d.Leave(at, l.text(), "the environment variable "+unset+" is not set", "set it for this command")
			continue
		}
		if slices.Contains(kinds, words[0]) {
			current = &section{line: l, kind: words[0]}
			if len(words) > 1 {
				current.name = words[1]
			}
			out = append(out, current)
			continue
		}
		if current.kind == "" {
			return nil, &draft.SyntaxError{Origin: at, Msg: fmt.Sprintf("unknown keyword %q outside of a section", words[0])}
		}
		current.lines = append(current.lines, l)
	}
	return out, nil
}

func (s *section) matters() bool { return slices.Contains(kinds[:4], s.kind) }

// split takes a line apart by HAProxy's rules (manual, section 2.2): a backslash takes the
// meaning from a character, single quotes from all; within double quotes variables are
// replaced. It also returns the name of a variable that is needed and not set.
func split(text string, env Lookup) (words []string, unset string, err error) {
	s := &splitter{text: text, env: env}
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case s.quote == 0 && (c == ' ' || c == '\t'):
			s.finish()
			s.at++
		case s.quote == 0 && c == '#':
			s.at = len(s.text)
		case s.quote != '"' && c == '\'', s.quote != '\'' && c == '"':
			s.quote ^= c
			s.open = true
			s.at++
		case s.quote != '\'' && c == '\\':
			s.escape()
		case s.quote == '"' && c == '$':
			if err := s.variable(); err != nil {
				return nil, "", err
			}
		default:
			s.add(s.text[s.at : s.at+1])
			s.at++
		}
	}
	if s.quote != 0 {
		return nil, "", fmt.Errorf("the quote %c is not closed", s.quote)
	}
	s.finish()
	return s.words, s.unset, nil
}

// splitter is the state of split.
type splitter struct {
	text  string
	at    int
	env   Lookup
	words []string
	word  strings.Builder
	open  bool // a word has begun, be it empty
	quote byte
	unset string
}

func (s *splitter) add(text string) {
	s.word.WriteString(text)
	s.open = true
}

func (s *splitter) finish() {
	if s.open {
		s.words = append(s.words, s.word.String())
		s.word.Reset()
		s.open = false
	}
}

func (s *splitter) escape() {
	s.at++
	if s.at >= len(s.text) {
		s.add(`\`)
		return
	}
	c := s.text[s.at]
	s.at++
	switch c {
	case 'r', 'n', 't':
		s.add(map[byte]string{'r': "\r", 'n': "\n", 't': "\t"}[c])
	case 'x':
		var value byte
		if n, err := fmt.Sscanf(s.text[s.at:min(s.at+2, len(s.text))], "%02x", &value); n == 1 && err == nil {
			s.at = min(s.at+2, len(s.text))
			s.add(string([]byte{value}))
			return
		}
		s.add(`\x`)
	case ' ', '\t', '#', '\\', '\'', '"', '$':
		s.add(string(c))
	default:
		s.add(`\` + string(c))
	}
}

// variable replaces $NAME, ${NAME} and ${NAME-default}.
func (s *splitter) variable() error {
	s.at++
	braces := s.at < len(s.text) && s.text[s.at] == '{'
	if braces {
		s.at++
	}
	begin := s.at
	for s.at < len(s.text) && isWord(s.text[s.at]) {
		s.at++
	}
	name := s.text[begin:s.at]
	if name == "" {
		if braces {
			return fmt.Errorf("a variable's name is missing after ${")
		}
		s.add("$")
		return nil
	}
	fallback, hasFallback := "", false
	if braces {
		end := strings.IndexByte(s.text[s.at:], '}')
		if end < 0 {
			return fmt.Errorf("the brace after ${%s is not closed", name)
		}
		fallback, hasFallback = strings.CutPrefix(s.text[s.at:s.at+end], "-")
		s.at += end + 1
	}
	value, ok := s.env(name)
	switch {
	case ok:
	case hasFallback:
		value = fallback
	default:
		s.unset = name
	}
	s.add(value)
	return nil
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
