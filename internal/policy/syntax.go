// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

var (
	syntaxLine    = regexp.MustCompile(`^line \d+: `)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// reportSyntax says what the YAML library found and where. The library's own line is that
// of the block's beginning, or off by one, so the file is read once more byte by byte to
// see how far the library gets, and what it stumbled over is searched before that.
func reportSyntax(d *diagnostics, data []byte, err error) {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	msg = syntaxLine.ReplaceAllString(msg, "")
	read := bytesUntilError(data)
	at, line := lastLine(data[:read])
	hint := syntaxHint(line)
	if where, better := stumble(msg, string(data), read); better != "" {
		at, hint = where, better
	}
	if m := unknownAnchor.FindStringSubmatch(msg); m != nil {
		msg = fmt.Sprintf("%q is an alias of nothing", "*"+m[1])
	}
	d.errorf(at, "not valid YAML: %s; %s", msg, hint)
}

// syntaxHint guesses from the line what was meant.
func syntaxHint(line string) string {
	switch {
	case strings.Contains(line, "\t"):
		return "indent with spaces, not with tabs"
	case strings.Contains(line, "[") && strings.Contains(line, "]:"):
		return `an IPv6 listen is written in quotes: "[fd00::2]:80"`
	}
	return "look at the indentation, the quotes and the brackets here and above"
}

// stumble returns where the YAML library stumbled and what to do about it, or nothing.
func stumble(msg, text string, read int) (Pos, string) {
	var culprit func(token) bool
	last := false // of the culprits, not the first
	why := "a value that begins with %c is written in quotes: %s"
	brackets := strings.Contains(msg, "did not find expected ',' or")
	anchor := unknownAnchor.FindStringSubmatch(msg)
	switch {
	case anchor != nil:
		culprit = func(t token) bool { return isAlias(t.text, anchor[1]) }
	case strings.Contains(msg, "alphabetic or numeric character"):
		last = true
		culprit = func(t token) bool { return strings.ContainsRune("*&", rune(t.text[0])) }
	case strings.Contains(msg, "cannot start any token"):
		culprit = func(t token) bool { return strings.ContainsRune("@`%", rune(t.text[0])) }
	case brackets:
		why = "within brackets a value with %c is written in quotes: %s"
		culprit = func(t token) bool { return t.flow && strings.Contains(t.text, "?") }
	default:
		return Pos{}, ""
	}
	var found *token
	bracket := scan(text, read, func(t token) {
		if (last || found == nil) && culprit(t) {
			found = &t
		}
	})
	switch {
	case found != nil && brackets:
		return found.at, fmt.Sprintf(why, '?', found.quoted())
	case found != nil:
		return found.at, fmt.Sprintf(why, found.text[0], found.quoted())
	case brackets && bracket.Line > 0:
		return bracket, "the bracket here is not closed, or a comma or quotes are missing after it"
	}
	return Pos{}, ""
}

// isAlias reports whether YAML takes a text for the alias of that name.
func isAlias(text, name string) bool {
	rest, ok := strings.CutPrefix(text, "*"+name)
	return ok && (rest == "" || blank(rune(rest[0])))
}

// byteReader counts what it hands out, one byte at a time.
type byteReader struct {
	data []byte
	read int
}

func (r *byteReader) Read(p []byte) (int, error) {
	if r.read == len(r.data) {
		return 0, io.EOF
	}
	p[0] = r.data[r.read]
	r.read++
	return 1, nil
}

// bytesUntilError returns how much the YAML library reads before it gives up.
func bytesUntilError(data []byte) int {
	r := &byteReader{data: data}
	dec := yaml.NewDecoder(r)
	for {
		if err := dec.Decode(new(yaml.Node)); err != nil {
			return r.read
		}
	}
}

// lastLine returns the last line of data with something on it and where its text begins.
func lastLine(data []byte) (Pos, string) {
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	text = strings.TrimRightFunc(text, func(r rune) bool { return lineBreak(r) || r == ' ' || r == '\t' })
	breaks := 0
	line := text
	for i, r := range text {
		if lineBreak(r) {
			breaks++
			line = text[i+utf8.RuneLen(r):]
		}
	}
	indent := len(line) - len(strings.TrimLeft(line, " \t"))
	return Pos{breaks + 1, indent + 1}, line
}
