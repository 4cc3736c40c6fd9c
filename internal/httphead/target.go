// SPDX-License-Identifier: Apache-2.0

package httphead

import (
	"fmt"
	"slices"
	"strings"
)

// readTarget reads a request's target (RFC 9112, 3.2): the path, and the host if it is there.
func (q *Request) readTarget(target string) error {
	var err error
	switch {
	case target[0] == '/':
		q.Query = ReadQuery(target)
		q.Path, err = Path(target)
		return err
	case target == "*":
		q.Path = "*"
		return nil
	case q.Method == "CONNECT":
		if port := strings.LastIndexByte(target, ':'); port < 0 || strings.Trim(target[port+1:], "0123456789") != "" || port+1 == len(target) {
			return Refused("CONNECT to a host without a port, of which some servers make a path")
		}
		return q.readAuthority(target)
	}
	rest, ok := cutScheme(target)
	if !ok {
		return Refused("a target that is neither a path nor a URL of http or https")
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	if err := q.readAuthority(rest[:end]); err != nil {
		return err
	}
	q.Query = ReadQuery(rest[end:])
	q.Path, err = Path(rest[end:])
	return err
}

func cutScheme(target string) (string, bool) {
	scheme, rest, ok := strings.Cut(target, "://")
	scheme = Lower(scheme)
	return rest, ok && (scheme == "http" || scheme == "https")
}

// readAuthority reads the host in the target. Some servers go by it, others by the Host header, if there is one: both must
// say the same.
func (q *Request) readAuthority(s string) error {
	if s == "" {
		return Refused("a target without a host")
	}
	host, err := Host(s)
	if err != nil {
		return err
	}
	if host != q.Host && slices.ContainsFunc(q.Headers, func(f Field) bool { return f.Name == "host" }) {
		return Refused("a target of another host than the Host header's")
	}
	q.Host = host
	return nil
}

// Host returns a host as rules compare it, of the value of a Host header or of a URL: in lower
// case, without port and the dot at its end.
func Host(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	const refused = Refused("a host that is none")
	name := Lower(s)
	if colon := strings.LastIndexByte(name, ':'); colon >= 0 && strings.Trim(name[colon+1:], "0123456789") == "" {
		name = name[:colon]
	}
	if inner, ok := strings.CutPrefix(name, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if !ok || strings.Trim(inner, "0123456789abcdef:.%") != "" {
			return "", refused
		}
		return name, nil
	}
	name = strings.TrimSuffix(name, ".")
	if name == "" || strings.Trim(name, "0123456789abcdefghijklmnopqrstuvwxyz-._") != "" {
		return "", refused
	}
	return name, nil
}

// ServerName returns a name of TLS as rules compare it.
func ServerName(sni string) string { return strings.TrimSuffix(Lower(sni), ".") }

// maxPath bounds the bytes of a path.
const maxPath = 16384

// Path returns a path as rules compare it: up to the query, with every %XX decoded once, slashes merged, what begins with
// ";" cut from segments, and segments of dots removed. It is refused where that would lead common servers elsewhere.
func Path(raw string) (string, error) {
	raw, _, _ = strings.Cut(raw, "?")
	if strings.Contains(raw, "#") {
		return "", Refused("a fragment, which some servers cut off")
	}
	if strings.ContainsFunc(raw, func(r rune) bool { return r >= 0x80 }) {
		return "", Refused("a byte beyond ASCII in the path, of which some servers make two")
	}
	decoded, err := decode(raw)
	if err != nil {
		return "", err
	}
	var path []byte
	last, open := "", true // the last segment has vanished
	for whole := range strings.SplitSeq(decoded, "/") {
		segment, _, cut := strings.Cut(whole, ";")
		dots := segment == "." || segment == ".."
		switch {
		case len(path)+1+len(segment) > maxPath:
			return "", Refused(fmt.Sprintf("a path of more than %d bytes", maxPath))
		case dots && cut:
			return "", Refused("dots before a semicolon in the path, which are a name to some servers")
		case segment == ".." && len(path) > 0:
			return "", Refused("dots that take away a segment of the path, which not all servers do")
		}
		last, open = segment, segment == "" || dots
		if !open {
			path = append(append(path, '/'), segment...)
		}
	}
	if last == "." || last == ".." {
		return "", Refused("dots at the end of the path, which servers read with a slash behind them and without")
	}
	if open {
		path = append(path, '/')
	}
	return string(path), nil
}

// Query is what a target says behind its first "?".
type Query struct {
	Parameters []Field
	Refused    Refused // why it is refused where rules ask for queries; empty: it is not
}

// ReadQuery reads the query of a target: what stands between "&" is a parameter each, unless it is empty. What
// stands behind its first "=" is its value.
func ReadQuery(target string) (q Query) {
	_, query, _ := strings.Cut(target, "?")
	if strings.Contains(query, "#") {
		q.Refused = "a fragment, which some servers cut off"
	}
	for piece := range strings.SplitSeq(query, "&") {
		if piece == "" {
			continue
		}
		name, value, _ := strings.Cut(piece, "=")
		q.Parameters = append(q.Parameters, Field{q.text(name), q.text(value)})
	}
	return q
}

// text decodes a name or a value.
func (q *Query) text(s string) string {
	text, err := unescape(strings.ReplaceAll(s, "+", " "))
	if err != nil {
		q.Refused = "an invalid escape in the query"
	}
	return text
}

// decode decodes each %XX of a path once.
func decode(s string) (string, error) {
	text, err := unescape(s)
	if err == nil && strings.Contains(text, "\x00") {
		return "", Refused("NUL in the path")
	}
	return text, err
}

// unescape decodes each %XX once.
func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if len(s)-i < 3 || digit(s[i+1]) < 0 || digit(s[i+2]) < 0 {
			return "", Refused("an invalid escape in the path")
		}
		b.WriteByte(byte(digit(s[i+1])<<4 | digit(s[i+2])))
		i += 2
	}
	return b.String(), nil
}

// digit returns the value of a hexadecimal digit, -1 for any other byte.
func digit(c byte) int {
	if 'A' <= c && c <= 'F' {
		c += 'a' - 'A'
	}
	return strings.IndexByte("0123456789abcdef", c)
}
