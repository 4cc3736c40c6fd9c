// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"narthex/internal/httphead"
)

// A pattern is a glob: "*" is any run of bytes, "[a-f2]" one of the bytes named, "\[" a bracket.
// Every other byte is itself. A class is no part of what is looked up: the pattern is compiled
// once for each text that its classes can stand for.

// element is a byte of a pattern, a class or a star.
type element struct {
	star bool
	set  string // the bytes of which there is one
}

// elements takes a pattern apart. The error says what is wrong with a class.
func elements(pattern string) ([]element, error) {
	var out []element
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '*':
			out = append(out, element{star: true})
		case c == '\\' && i+1 < len(pattern) && pattern[i+1] == '[':
			i++
			out = append(out, element{set: "["})
		case c == '[':
			n := classEnd(pattern[i+1:])
			if n < 0 {
				return nil, fmt.Errorf(`%s has a "[" without "]"; write \[ for the character itself`, quote(pattern))
			}
			set, err := classSet(pattern[i+1:][:n])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", quote(pattern), err)
			}
			out = append(out, element{set: set})
			i += n + 1
		default:
			out = append(out, element{set: pattern[i : i+1]})
		}
	}
	return out, nil
}

// classEnd returns where the bracket is that ends a class; one that comes first is of the class.
func classEnd(s string) int {
	if s == "" {
		return -1
	}
	n := strings.IndexByte(s[1:], ']')
	if n < 0 {
		return -1
	}
	return n + 1
}

// classSet returns the bytes of a class, each once.
func classSet(s string) (string, error) {
	class := quote("[" + s + "]")
	if s[0] == '^' || s[0] == '!' {
		return "", fmt.Errorf(`class %s begins with %q, and classes say what a character is, not what it is not; put %q further back if it is meant`, class, s[:1], s[:1])
	}
	var there [256]bool
	for i := 0; i < len(s); i++ {
		first, last := s[i], s[i]
		if i+2 < len(s) && s[i+1] == '-' {
			last = s[i+2]
			i += 2
		}
		if first >= 0x80 || last >= 0x80 {
			return "", fmt.Errorf("class %s has a character beyond ASCII, which is several bytes; write a list of patterns", class)
		}
		if first > last {
			return "", fmt.Errorf("class %s has a range from %q to %q, which is empty; write %c-%c", class, first, last, last, first)
		}
		for b := int(first); b <= int(last); b++ {
			there[b] = true
		}
	}
	var set []byte
	for b, is := range there {
		if is {
			set = append(set, byte(b))
		}
	}
	return string(set), nil
}

// hasClass reports whether there is a bracket in a pattern that begins a class, or would if it ended.
func hasClass(pattern string) bool {
	return strings.Contains(strings.ReplaceAll(pattern, `\[`, ""), "[")
}

// checkGlob refuses a pattern whose classes cannot be read or stand for too many texts.
func checkGlob(pattern string) error {
	if !strings.Contains(pattern, "[") {
		return nil
	}
	list, err := elements(pattern)
	if err != nil {
		return err
	}
	n := 1
	for _, e := range list {
		if !e.star {
			n = min(n*len(e.set), 1<<30)
		}
	}
	if n > MaxTexts {
		return fmt.Errorf("the classes of %s stand for %d texts, and those of one pattern for %d at most; write * for one of them, or shorten them", quote(pattern), n, MaxTexts)
	}
	return nil
}

// expand returns the globs without classes that stand for a pattern, with "*" as their only special byte.
func expand(pattern string) []glob {
	if !strings.Contains(pattern, "[") {
		return []glob{splitGlob(pattern)}
	}
	list, err := elements(pattern)
	if err != nil { // it was refused
		return nil
	}
	out := []glob{{""}}
	for _, e := range list {
		var next []glob
		for _, g := range out {
			if e.star {
				next = append(next, append(g[:len(g):len(g)], ""))
				continue
			}
			for i := range len(e.set) {
				last := len(g) - 1
				next = append(next, append(g[:last:last], g[last]+e.set[i:i+1]))
			}
		}
		out = next
	}
	for i := range out {
		out[i] = out[i].simple()
	}
	return out
}

// folded returns a glob in small letters.
func (g glob) folded() glob {
	out := make(glob, len(g))
	for i, part := range g {
		out[i] = httphead.Lower(part)
	}
	return out
}

// glob is a pattern without classes, split at its stars.
type glob []string

// splitGlob splits a pattern without classes; several stars in a row are one.
func splitGlob(pattern string) glob { return glob(strings.Split(pattern, "*")).simple() }

// simple makes of several stars in a row one.
func (g glob) simple() glob {
	out := g[:1:1]
	for i, p := range g[1:] {
		if p != "" || i == len(g)-2 {
			out = append(out, p)
		}
	}
	return out
}

// globMatches reports whether a pattern matches all of a text.
func globMatches(pattern, text string) bool {
	if !strings.Contains(pattern, "[") {
		return plainMatches(pattern, text)
	}
	list, err := elements(pattern)
	return err == nil && elementsMatch(list, text)
}

// plainMatches does the same of a pattern without classes.
func plainMatches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	text, ok := strings.CutPrefix(text, parts[0])
	if last == 0 || !ok {
		return ok && text == ""
	}
	for _, word := range parts[1:last] {
		if _, text, ok = strings.Cut(text, word); !ok {
			return false
		}
	}
	return strings.HasSuffix(text, parts[last])
}

// foldMatches does the same without case.
func foldMatches(pattern, text string) bool {
	list, err := elements(pattern)
	for i := range list {
		list[i].set = httphead.Lower(list[i].set)
	}
	return err == nil && elementsMatch(list, httphead.Lower(text))
}

// elementsMatch goes back to the last star where a byte does not fit.
func elementsMatch(list []element, text string) bool {
	at, star, from := 0, -1, 0
	for i := 0; ; {
		switch {
		case at < len(list) && list[at].star:
			star, from = at, i
			at++
		case i == len(text) && at == len(list):
			return true
		case i < len(text) && at < len(list) && strings.IndexByte(list[at].set, text[i]) >= 0:
			at++
			i++
		case star < 0 || from == len(text):
			return false
		default:
			from++
			at, i = star+1, from
		}
	}
}
