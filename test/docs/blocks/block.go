// SPDX-License-Identifier: Apache-2.0

// Package blocks finds the fenced blocks of a page of the documentation, the commands in them, and
// whether these print what the page shows. README.md of the folder above says how blocks are marked.
package blocks

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Block is a fenced block of a page.
type Block struct {
	Line  int // of its fence, from 1
	Lang  string
	Words map[string]string // after the language; a word without a value has ""
	Body  []string
}

// Has reports whether a word follows the language.
func (b *Block) Has(word string) bool {
	_, ok := b.Words[word]
	return ok
}

// Text is what is between the fences.
func (b *Block) Text() string { return strings.Join(b.Body, "\n") + "\n" }

// knownWords are what may follow a language; README.md says what they mean.
var knownWords = []string{
	"skip", "file", "fragment", "kind", "warns", "needs", "fails", "exit", "numbers", "retry", "background", "endless",
	"terminal", "on", "fresh", "path",
}

// Fence is a line that begins or ends a block.
var Fence = regexp.MustCompile("^( *)(```+|~~~+)(.*)$")

// Read finds the fenced blocks of a page. What is wrong with the marking of one is an error.
func Read(page string) (found []Block, err error) {
	var open *Block
	var indent, end string
	for i, line := range strings.Split(page, "\n") {
		m := Fence.FindStringSubmatch(line)
		switch {
		case open == nil && m != nil:
			open, indent, end = &Block{Line: i + 1}, m[1], m[2]
			if open.Lang, open.Words, err = parseInfo(m[3]); err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
		case open != nil && m != nil && strings.HasPrefix(m[2], end) && m[3] == "":
			found, open = append(found, *open), nil
		case open != nil:
			open.Body = append(open.Body, strings.TrimPrefix(line, indent))
		}
	}
	if open != nil {
		return nil, fmt.Errorf("line %d: the block does not end", open.Line)
	}
	return found, nil
}

var infoWord = regexp.MustCompile(`^\s*([a-z]+)(?:=("[^"]*"|[^\s"]+))?(?:\s|$)`)

// parseInfo reads what follows the fence: a language, then words or word=value, a value with
// blanks in quotes.
func parseInfo(info string) (lang string, words map[string]string, err error) {
	lang, rest, _ := strings.Cut(strings.TrimSpace(info), " ")
	words = map[string]string{}
	for rest = strings.TrimSpace(rest); rest != ""; {
		m := infoWord.FindStringSubmatch(rest)
		switch {
		case m == nil:
			return "", nil, fmt.Errorf("%q is no word or word=value", rest)
		case !slices.Contains(knownWords, m[1]):
			return "", nil, fmt.Errorf("nothing is known of %q", m[1])
		}
		words[m[1]] = strings.Trim(m[2], `"`)
		rest = rest[len(m[0]):]
	}
	if reason, ok := words["skip"]; ok && reason == "" {
		return "", nil, fmt.Errorf(`say why it is not executed: skip="why"`)
	}
	return lang, words, nil
}
