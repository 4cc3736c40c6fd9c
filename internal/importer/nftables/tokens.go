// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"strings"

	"narthex/internal/importer/draft"
)

// token is a word, a quoted text or a sign of nft's language. A line's end is a sign.
type token struct {
	text string
	line int
	sign bool
}

const maxTokens = 4_000_000

// tokens takes a ruleset apart.
func tokens(file string, text string) ([]token, error) {
	var out []token
	line := 1
	for at := 0; at < len(text); {
		if len(out) > maxTokens {
			return nil, syntaxError(file, line, "the ruleset is too long")
		}
		switch c := text[at]; {
		case c == '\\' && at+1 < len(text) && text[at+1] == '\n':
			line++
			at += 2
		case c == ' ' || c == '\t' || c == '\r':
			at++
		case c == '#':
			for at < len(text) && text[at] != '\n' {
				at++
			}
		case c == '\n' || c == ';':
			out = append(out, token{";", line, true})
			if c == '\n' {
				line++
			}
			at++
		case strings.IndexByte("{},=()|&!<>", c) >= 0:
			n := 1
			if at+1 < len(text) && text[at+1] == '=' && c != '{' && c != '}' && c != ',' {
				n = 2
			}
			out = append(out, token{text[at : at+n], line, true})
			at += n
		case c == '"':
			end := strings.IndexByte(text[at+1:], '"')
			if end < 0 {
				return nil, syntaxError(file, line, "the quote that begins here is not closed")
			}
			out = append(out, token{text[at+1 : at+1+end], line, false})
			line += strings.Count(text[at:at+end+2], "\n")
			at += end + 2
		default:
			end := at
			for end < len(text) && strings.IndexByte(" \t\r\n;{},=()|&!<>\"#", text[end]) < 0 {
				end++
			}
			out = append(out, token{text[at:end], line, false})
			at = end
		}
	}
	return out, nil
}

func syntaxError(file string, line int, format string, args ...any) error {
	return &draft.SyntaxError{Origin: draft.Origin{File: file, Line: line}, Msg: fmt.Sprintf(format, args...)}
}

// written returns tokens as a text.
func written(list []token) string {
	words := make([]string, len(list))
	for i, t := range list {
		words[i] = t.text
	}
	return strings.Join(words, " ")
}
