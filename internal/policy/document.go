// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxFileBytes is the largest policy file that is read: room for 131,072 rules of 120
// bytes.
const MaxFileBytes = 16 << 20

// maxValues bounds the values in a file, because each takes some 200 bytes of memory when
// it is read: room for 131,072 rules of 20 keys, values and list entries.
const maxValues = 3 << 20

// document reads data as one YAML document and returns its root, or nil after it has
// reported why there is none.
func document(d *diagnostics, data []byte) *yaml.Node {
	if len(data) > MaxFileBytes {
		d.errorf(Pos{1, 1}, "the file has %d bytes; a policy has at most %d", len(data), MaxFileBytes)
		return nil
	}
	if n := countValues(data); n > maxValues {
		d.errorf(Pos{1, 1}, "the file has about %d values; a policy has at most %d", n, maxValues)
		return nil
	}
	if !checkText(d, data) {
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && isEmpty(&doc) {
		d.errorf(Pos{1, 1}, `the file is empty; a policy begins with "version: 1"`)
		return nil
	}
	if err == nil {
		err = dec.Decode(&next)
		if err == nil {
			d.errorf(position(&next), `a second document begins here; a policy is one document: remove the "---" or the rest`)
			return nil
		}
	}
	if !errors.Is(err, io.EOF) {
		reportSyntax(d, data, err)
		return nil
	}
	return doc.Content[0]
}

// countValues returns how many values there are at most, from what separates them.
func countValues(data []byte) int {
	n := 1
	for _, s := range []string{"\n", "\r", ",", "[", "{", ": ", "- ", "? "} {
		n += bytes.Count(data, []byte(s))
	}
	return n
}

func isEmpty(doc *yaml.Node) bool {
	return len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" && doc.Content[0].Value == ""
}

// checkText reports the first byte that is no UTF-8 and the first character that YAML
// does not allow, because the YAML library names no position for them.
func checkText(d *diagnostics, data []byte) bool {
	at := Pos{1, 1}
	for rest := data; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && n == 1:
			d.errorf(at, "byte 0x%02x is not UTF-8; save the file as UTF-8", rest[0])
			return false
		case r < ' ' && r != '\n' && r != '\r' && r != '\t', r >= 0x7f && r < 0xa0 && r != 0x85, r == 0xfffe, r == 0xffff:
			d.errorf(at, "control character %U; remove it", r)
			return false
		}
		rest = rest[n:]
		if lineBreak(r) && !(r == '\r' && bytes.HasPrefix(rest, []byte("\n"))) {
			at = Pos{at.Line + 1, 1}
		} else {
			at.Col++
		}
	}
	return true
}

// lineBreak reports what YAML takes for the end of a line.
func lineBreak(r rune) bool { return strings.ContainsRune("\r\n\u0085\u2028\u2029", r) }
