// SPDX-License-Identifier: Apache-2.0

package httphead

import (
	"fmt"
	"strings"
)

// readTarget reads a request's target (RFC 9112, 3.2): the path, and the host if it is there.
func (q *Request) readTarget(target string) error {
	var err error
	switch {
	case target[0] == '/':
		q.Path, err = Path(target)
		return err
	case target == "*":
		q.Path = "*"
		return nil
	case q.Method == "CONNECT":
		q.Host, err = authority(target)
		return err
	}
	rest, ok := cutScheme(target)
	if !ok {
		return Refused("a target that is neither a path nor a URL of http or https")
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	if q.Host, err = authority(rest[:end]); err != nil {
		return err
	}
	q.Path, err = Path(rest[end:])
	return err
}

func cutScheme(target string) (string, bool) {
	scheme, rest, ok := strings.Cut(target, "://")
	scheme = lower(scheme)
	return rest, ok && (scheme == "http" || scheme == "https")
}

func authority(s string) (string, error) {
	if s == "" {
		return "", Refused("a target without a host")
	}
	return Host(s)
}

// Host returns a host as rules compare it, of the value of a Host header or of a URL: in lower
// case, without port and the dot at its end.
func Host(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	const refused = Refused("a host that is none")
	name := lower(s)
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
func ServerName(sni string) string { return strings.TrimSuffix(lower(sni), ".") }

// maxPath bounds the bytes of a path, also while what a ".." takes back is still there.
const maxPath = 16384

// Path returns a path as rules compare it: up to the query or fragment, with every %XX decoded
// once, slashes merged, what begins with ";" cut from segments, and dot segments removed. All
// readings of a path by common servers lead to one.
func Path(raw string) (string, error) {
	if end := strings.IndexAny(raw, "?#"); end >= 0 {
		raw = raw[:end]
	}
	decoded, err := decode(raw)
	if err != nil {
		return "", err
	}
	var kept []string
	last, open := "", true // the last segment has vanished
	length := 0            // of those kept, with the slashes before them
	for segment := range strings.SplitSeq(decoded, "/") {
		segment, _, _ = strings.Cut(segment, ";")
		last = segment
		open = segment == "" || segment == "." || segment == ".."
		if length+1+len(segment) > maxPath {
			return "", Refused(fmt.Sprintf("a path of more than %d bytes", maxPath))
		}
		switch {
		case !open:
			kept = append(kept, segment)
			length += 1 + len(segment)
		case segment == ".." && len(kept) > 0:
			length -= 1 + len(kept[len(kept)-1])
			kept = kept[:len(kept)-1]
		}
	}
	if last == "." || last == ".." {
		return "", Refused("dots at the end of the path, which servers read with a slash behind them and without")
	}
	path := "/" + strings.Join(kept, "/")
	if open && len(kept) > 0 {
		path += "/"
	}
	return path, nil
}

// decode decodes each %XX once.
func decode(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if len(s)-i < 3 || digit(s[i+1]) < 0 || digit(s[i+2]) < 0 {
			return "", Refused("an invalid escape in the path")
		}
		c := digit(s[i+1])<<4 | digit(s[i+2])
		if c == 0 {
			return "", Refused("NUL in the path")
		}
		b.WriteByte(byte(c))
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
