// SPDX-License-Identifier: Apache-2.0

// Package httphead reads the head of an HTTP/1 request as the data path does: what request
// rules compare, or why the request is refused. It is written for plainness, and it is what
// the data path's reader is tested against.
package httphead

import (
	"errors"
	"strings"
)

// Request is what a request's head says.
type Request struct {
	Method  string // case counts
	Path    string // normalised; "" if there is none, as with CONNECT
	Host    string // normalised; "" if there is none
	Headers []Field
	Cookies []Field
	Query   Query
}

// Field is a header, with its name as HeaderName has it, a cookie or a parameter of a query.
type Field struct {
	Name, Value string
}

// Refused is why a request is answered 400: servers could read it in two ways, or not at all.
type Refused string

func (r Refused) Error() string { return string(r) }

var errEnd = errors.New("the head does not end")

// Read reads a head from its request line, before which empty lines may be, to the empty line
// that ends it. What comes behind that is not looked at. How long the body is, and what that
// makes of the head, is not Read's to say.
//
// An error is of type Refused unless the head does not end.
func Read(head []byte) (*Request, error) {
	lines, err := split(string(head))
	if err != nil {
		return nil, err
	}
	method, target, err := requestLine(lines[0])
	if err != nil {
		return nil, err
	}
	q := &Request{Method: method}
	if err := q.readHeaders(lines[1:]); err != nil {
		return nil, err
	}
	if err := q.readTarget(target); err != nil {
		return nil, err
	}
	return q, nil
}

// split returns the lines of a head without their ends, up to the empty one.
func split(head string) ([]string, error) {
	var lines []string
	for {
		line, rest, ok := strings.Cut(head, "\n")
		if !ok {
			return nil, errEnd
		}
		head = rest
		line, ok = strings.CutSuffix(line, "\r")
		if !ok {
			return nil, Refused("a line that ends in LF alone")
		}
		if line == "" && len(lines) > 0 {
			return lines, nil
		}
		if hasControl(line) {
			return nil, Refused("a control character")
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
}

// hasControl looks for what no line may have: of controls a tab alone may be there.
func hasControl(line string) bool {
	for i := 0; i < len(line); i++ {
		if line[i] < ' ' && line[i] != '\t' {
			return true
		}
	}
	return false
}

func requestLine(line string) (method, target string, err error) {
	parts := strings.Split(line, " ")
	if len(parts) != 3 || strings.Contains(line, "\t") || !isMethod(parts[0]) || parts[1] == "" {
		return "", "", Refused("no request line")
	}
	if parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0" {
		return "", "", Refused("a version other than HTTP/1.0 and 1.1")
	}
	return parts[0], parts[1], nil
}

// isMethod tells whether there is tchar alone (RFC 9110, 5.6.2) and no lower-case letter: some servers take those for
// capital ones.
func isMethod(s string) bool {
	return s != "" && strings.Trim(s, "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// readHeaders reads headers, cookies, and what the Host header says.
func (q *Request) readHeaders(lines []string) error {
	hosts := 0
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isName(name) {
			return Refused("a line that is no header")
		}
		f := Field{HeaderName(name), strings.Trim(value, " \t")}
		q.Headers = append(q.Headers, f)
		switch f.Name {
		case "cookie":
			q.Cookies = append(q.Cookies, Cookies(f.Value)...)
		case "host":
			if hosts++; hosts > 1 {
				return Refused("two Host headers")
			}
			var err error
			if q.Host, err = Host(f.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// isName tells whether servers could take it for a header's name: no blank is in it.
func isName(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] >= 0x80 {
			return false
		}
	}
	return s != ""
}

// Cookies returns the pairs of a Cookie header that have a name.
func Cookies(value string) []Field {
	var all []Field
	for pair := range strings.SplitSeq(value, ";") {
		name, value, ok := strings.Cut(strings.Trim(pair, " \t"), "=")
		if ok && name != "" {
			all = append(all, Field{name, value})
		}
	}
	return all
}

// HeaderName returns the name of a header as rules compare it: in lower case, and with hyphens for the underscores that
// CGI and its like do not tell from them.
func HeaderName(name string) string { return strings.ReplaceAll(Lower(name), "_", "-") }

// Lower is strings.ToLower for ASCII alone.
func Lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] += 'a' - 'A'
		}
	}
	return string(b)
}
