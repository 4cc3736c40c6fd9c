// SPDX-License-Identifier: Apache-2.0

package http

import (
	"bytes"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"
)

// oracle reads lines as RFC 9112 describes them, and stops at the first that two readers
// could read differently. Each check also knows what may be the beginning of a line: what
// nothing can be added to is lost at once.
type oracle struct {
	framing      Framing
	old          bool // HTTP/1.0
	lengths      int  // Content-Length headers
	label        Label
	hosts        int // Host headers
	connection   []string
	upgrade      bool
	trailers     bool     // the lines are behind the last chunk
	protocols    []string // of Upgrade
	line         bool     // the request line was there, but for its end
	expectations []string
}

// prefaceLine is HTTP/2's first line, as far as it tells.
var prefaceLine = regexp.MustCompile(`^(\r\n)*PRI [^\x00-\x20]+ HTTP/2\.0`)

// oracleSays says what there is to know of a connection's first bytes.
func oracleSays(b []byte) Result {
	var o oracle
	step, n := o.lines(b, o.requestLine)
	if step == Lost {
		return Result{Step: Lost, Preface: prefaceLine.Match(b)}
	}
	if step == More {
		return Result{Step: More, Used: n, Line: o.line}
	}
	f := o.finish() // before trailers, which say nothing of the framing
	if !f.Chunked {
		return Result{Step: End, Used: n, Framing: f, Head: n, Line: true}
	}
	step, chunks := o.chunks(b[n:])
	if step == Lost {
		return Result{Step: Lost}
	}
	return Result{Step: step, Used: n + chunks, Framing: f, Head: n, InBody: step == More, Line: true}
}

// lines reads a head, or a trailer section, which has no first line.
func (o *oracle) lines(b []byte, first func(line string, whole bool) bool) (Step, int) {
	begun := first == nil
	for rest := b; ; {
		line, next, whole := bytes.Cut(rest, []byte("\n"))
		text, ends := strings.CutSuffix(string(line), "\r") // a CR says that the line is complete
		switch {
		case badLine(text), whole && !ends:
			return Lost, 0
		case text == "" && ends && begun && whole:
			return End, len(b) - len(next)
		case text == "":
		case !begun:
			if !first(text, ends) {
				return Lost, 0
			}
			begun = whole
		case !o.header(text, ends):
			return Lost, 0
		}
		if !whole {
			return More, len(b)
		}
		rest = next
	}
}

// What the line before a chunk may be, and what the beginning of one (RFC 9112, 7.1).
var (
	sizeLine      = regexp.MustCompile(`^([0-9A-Fa-f]{1,8})[ \t]*(;[\t\x20-\x7f]*)?$`)
	sizeLineBegun = regexp.MustCompile(`^(([0-9A-Fa-f]{1,8})[ \t]*(;[\t\x20-\x7f]*)?\r?)?$`)
)

// chunks reads a body in chunks and its trailer section.
func (o *oracle) chunks(b []byte) (Step, int) {
	for rest := b; ; {
		line, next, whole := bytes.Cut(rest, []byte("\r\n"))
		var digits []byte
		if m := sizeLine.FindSubmatch(line); m != nil && whole {
			digits = m[1]
		} else if m := sizeLineBegun.FindSubmatch(line); m != nil && !whole {
			digits = m[2]
		} else {
			return Lost, 0
		}
		n, err := strconv.ParseUint("0"+string(digits), 16, 64)
		switch {
		case err != nil || n > maxLength:
			return Lost, 0
		case !whole || n >= uint64(len(next)) && n > 0:
			return More, len(b)
		case n == 0:
			o.trailers = true
			step, trailers := o.lines(next, nil)
			return step, len(b) - len(next) + trailers
		}
		end := next[n:min(n+2, uint64(len(next)))]
		if !strings.HasPrefix("\r\n", string(end)) {
			return Lost, 0
		}
		if len(end) < 2 {
			return More, len(b)
		}
		rest = next[n+2:]
	}
}

// badLine tells whether there are controls in a line: only HTAB may be, and only in values.
func badLine(line string) bool {
	return strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' })
}

// isToken tells whether there are only tchar (RFC 9110, 5.6.2).
func isToken(s string) bool {
	return strings.Trim(s, "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == ""
}

// isMethod tells whether there is a token without lower-case letters.
func isMethod(s string) bool { return isToken(s) && s == strings.ToUpper(s) }

// requestLine reads METHOD SP target SP HTTP/1.x.
func (o *oracle) requestLine(line string, whole bool) bool {
	parts := strings.Split(line, " ")
	if strings.Contains(line, "\t") || len(parts) > 3 || !isMethod(parts[0]) {
		return false
	}
	for i, p := range parts {
		if p == "" && i < len(parts)-1 {
			return false
		}
	}
	if parts[0] == "PRI" && len(parts) == 3 && strings.HasPrefix("HTTP/2.", parts[2]) {
		return !whole
	}
	o.line = len(parts) == 3 && (parts[2] == "HTTP/1.0" || parts[2] == "HTTP/1.1")
	if whole {
		if !o.line {
			return false
		}
		o.old = parts[2] == "HTTP/1.0"
		o.framing.Head = parts[0] == "HEAD"
		o.framing.Upgrade = parts[0] == "CONNECT"
		return true
	}
	return len(parts) < 3 || strings.HasPrefix("HTTP/1.0", parts[2]) || strings.HasPrefix("HTTP/1.1", parts[2])
}

// header reads a header line.
func (o *oracle) header(line string, whole bool) bool {
	name, value, colon := strings.Cut(line, ":")
	bad := strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x80 })
	if bad || name == "" || whole && !colon {
		return false
	}
	if !colon {
		return true
	}
	if o.trailers && has([]string{"connection", "upgrade", "expect"}, strings.ToLower(name)) {
		return false
	}
	switch strings.ToLower(name) {
	case "host":
		o.hosts++
		return o.hosts == 1
	case "content-length":
		return o.contentLength(value, whole)
	case "transfer-encoding":
		return o.transferEncoding(value, whole)
	case "connection":
		o.connection = append(o.connection, elements(value, whole)...)
	case "upgrade":
		o.upgrade = true
		o.protocols = append(o.protocols, elements(value, whole)...)
	case "narthex-class":
		if whole && !o.trailers {
			o.label = readLabel(value)
		}
	case "expect":
		o.expectations = append(o.expectations, elements(value, whole)...)
	}
	return true
}

// transferEncoding takes "chunked" and nothing else, once.
func (o *oracle) transferEncoding(value string, whole bool) bool {
	if o.old || o.lengths > 0 || o.framing.Chunked {
		return false
	}
	o.framing.Chunked = true
	coding := lower(strings.Trim(value, " \t"))
	begun := strings.HasPrefix("chunked", lower(strings.TrimLeft(value, " \t")))
	return coding == "chunked" || !whole && begun
}

// contentLength takes one plain number, once.
func (o *oracle) contentLength(value string, whole bool) bool {
	o.lengths++
	if o.lengths > 1 || o.framing.Chunked {
		return false
	}
	digits := strings.Trim(value, " \t")
	if digits == "" {
		return !whole
	}
	if strings.Trim(digits, "0123456789") != "" {
		return false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	o.framing.Endless = err != nil || n > maxLength
	if !o.framing.Endless {
		o.framing.Length = n
	}
	return true
}

// elements splits a list as RFC 9110, 5.6.1 says. The last element of an incomplete line may
// go on.
func elements(value string, whole bool) []string {
	all := strings.Split(value, ",")
	if !whole {
		all = all[:len(all)-1]
	}
	for i, e := range all {
		all[i] = lower(strings.Trim(e, " \t"))
	}
	return all
}

// lower is strings.ToLower for ASCII alone: in Unicode, K has another upper case yet.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] += 'a' - 'A'
		}
	}
	return string(b)
}

func (o *oracle) finish() Framing {
	f := o.framing
	f.Closes = o.closes()
	f.Upgrade = f.Upgrade || o.upgrade && has(o.connection, "upgrade")
	f.H2C = has(o.protocols, "h2c")
	f.Expect = has(o.expectations, "100-continue")
	return f
}

// closes is RFC 9112, 9.3.
func (o *oracle) closes() bool {
	return has(o.connection, "close") || o.old && !has(o.connection, "keep-alive")
}

func has(list []string, token string) bool {
	for _, e := range list {
		if e == token {
			return true
		}
	}
	return false
}

// statusLine is what a response may begin with, and the beginnings of that.
var statusLine = regexp.MustCompile(`^(H(T(T(P(/(1(\.([0-9]( ([1-9]([0-9]([0-9](.|\n)*)?)?)?)?)?)?)?)?)?)?)?)?$`)

// oracleSaysOfAnswer says what there is to know of a response's first bytes.
func oracleSaysOfAnswer(b []byte) Answer {
	if !statusLine.Match(latin1(b[:min(len(b), 12)])) {
		return Answer{Step: Lost}
	}
	var o oracle
	o.old = len(b) > 7 && b[7] == '0'
	step, n := o.lines(b, func(line string, whole bool) bool { return !whole || len(line) >= 12 })
	a := Answer{Step: step, Used: n}
	if step == Lost {
		return Answer{Step: Lost}
	}
	if len(b) >= 12 {
		a.Status, _ = strconv.Atoi(string(b[9:12]))
	}
	if step == More {
		return a
	}
	f := o.finish() // before trailers, which say nothing of the framing
	a.Ended, a.Chunked, a.Closes, a.Sized = true, f.Chunked, f.Closes, o.lengths > 0
	a.Keeps = has(o.connection, "keep-alive") && !has(o.connection, "close")
	a.Label = o.label
	if !a.Chunked {
		a.Length = f.Length
		return a
	}
	step, chunks := o.chunks(b[n:])
	if step == Lost {
		return Answer{Step: Lost}
	}
	a.Step, a.Used = step, n+chunks
	return a
}

// What Narthex-Class says beside a class.
var (
	labelLasts = regexp.MustCompile(`^[fF][oO][rR]=([0-9]+)([smh]?)[ \t]*$`)
	labelUnits = map[string]int{"": 1, "s": 1, "m": 60, "h": 3600}
)

// readLabel reads Narthex-Class. Words beside the class make another name of it, with a NUL before each.
func readLabel(value string) Label {
	class, parameters, _ := strings.Cut(value, ";")
	h := fnv.New32a()
	h.Write([]byte(strings.Join(strings.FieldsFunc(class, func(r rune) bool { return r == ' ' || r == '\t' }), "\x00")))
	l := Label{Class: h.Sum32()}
	for p := range strings.SplitSeq(parameters, ";") {
		p = strings.TrimLeft(p, " \t")
		if len(p) < 4 || lower(p[:4]) != "for=" {
			continue
		}
		l.Lasts = 0
		if m := labelLasts.FindStringSubmatch(p); m != nil {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				n = mostLabelLasts
			}
			l.Lasts = min(mostLabelLasts, min(mostLabelLasts, n)*labelUnits[m[2]])
		}
	}
	return l
}

// latin1 makes a character of each byte.
func latin1(b []byte) []byte {
	var text []rune
	for _, c := range b {
		text = append(text, rune(c))
	}
	return []byte(string(text))
}
