// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	maxPatternBytes = MaxLiteral
	// maxStarry bounds the patterns with more than two stars: an automaton for many of
	// them together grows exponentially.
	maxStarry = 64
)

// patterns decodes a list of globs.
func (d *decoder) patterns(n *yaml.Node, what string, parse func(string) (string, error)) []string {
	nodes := d.list(n, what)
	out := make([]string, 0, len(nodes))
	for _, e := range nodes {
		var p string
		scalar(d, e, what, &p, parse)
		if p == "" {
			continue
		}
		out = append(out, p)
		d.countStars(e, what, p)
		d.noteBrackets(e, what, p)
		switch what {
		case "path":
			d.pathCanMatch(e, p)
		case "host":
			d.hostCanMatch(e, p)
		}
	}
	return out
}

var starRun = regexp.MustCompile(`\*+`)

func (d *decoder) countStars(n *yaml.Node, what, p string) {
	if len(starRun.FindAllStringIndex(p, 4)) <= 2 {
		return
	}
	d.starry++
	if d.starry > maxStarry {
		d.errorAt(n, "%s: %s is the %dth pattern with more than two stars; there can be at most %d: use fewer stars", what, quote(p), d.starry, maxStarry)
	}
}

// pathCanMatch warns of a pattern that no path matches after it has been decoded and
// cleaned.
func (d *decoder) pathCanMatch(n *yaml.Node, p string) {
	switch {
	case escape.MatchString(p):
		d.warnf(position(n), "path: %s holds an escape, but paths match after decoding; write the character itself", quote(p))
	case strings.Contains(p, "//"):
		d.warnf(position(n), "path: %s can match nothing: paths match after // has become /", quote(p))
	case strings.Contains(p, "/./") || strings.Contains(p, "/../") || strings.HasSuffix(p, "/.") || strings.HasSuffix(p, "/.."):
		d.warnf(position(n), "path: %s can match nothing: paths match after . and .. are removed", quote(p))
	case strings.Contains(p, ";"):
		d.warnf(position(n), "path: %s can match nothing: paths match after ;… is cut from segments", quote(p))
	}
}

// hostCanMatch warns of a pattern that no host matches.
func (d *decoder) hostCanMatch(n *yaml.Node, p string) {
	list, _ := elements(p) // they have been checked
	address := (strings.HasPrefix(p, `\[`) || p[0] == '*') && strings.ContainsAny(p[len(p)-1:], "]*")
	for _, e := range list {
		switch {
		case e.star || strings.ContainsAny(e.set, "abcdefghijklmnopqrstuvwxyz0123456789-._"):
			continue
		case !address && e.set == ":":
			d.warnf(position(n), "host: %s can match nothing: hosts match without their port; write %s", quote(p), quote(p[:strings.IndexByte(p, ':')]))
			return
		case !strings.ContainsAny(e.set, "[]:%"):
			d.warnf(position(n), "host: %s can match nothing: a host has letters of ASCII, digits, - . and _; write one with others as it stands in a request, as xn--…", quote(p))
			return
		}
	}
}

var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// parseGlob checks what holds for every pattern.
func parseGlob(s string) (string, error) {
	if len(s) > maxPatternBytes {
		return "", fmt.Errorf("%s has %d bytes; a pattern has at most %d", quote(s), len(s), maxPatternBytes)
	}
	if at := strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }); at >= 0 {
		return "", fmt.Errorf("%s has a control character at byte %d, which no request carries; remove it", quote(s), at+1)
	}
	return s, checkGlob(s)
}

func parsePath(s string) (string, error) {
	switch {
	case s[0] != '/' && s[0] != '*':
		return "", fmt.Errorf("%s matches no path; begin it with / or *, as %s", quote(s), quote("/"+withoutQuery(s)))
	case strings.ContainsAny(s, "?#"):
		return "", fmt.Errorf("%s has a query or fragment, and paths match without them; write %s", quote(s), quote(withoutQuery(s)))
	}
	return parseGlob(s)
}

func withoutQuery(s string) string {
	if at := strings.IndexAny(s, "?#"); at >= 0 {
		return s[:at]
	}
	return s
}

var hostForm = regexp.MustCompile(`^[^\s/@?#]+$`)

// parseHost reads a pattern of host names, in lower case.
func parseHost(s string) (string, error) {
	if _, rest, ok := strings.Cut(s, "://"); ok {
		host, _, _ := strings.Cut(withoutQuery(rest), "/")
		host = host[strings.LastIndexByte(host, '@')+1:]
		if !hostForm.MatchString(host) {
			host = "*.example.com"
		}
		return "", fmt.Errorf("%s is a URL; write the host alone, as %s", quote(s), quote(host))
	}
	if !hostForm.MatchString(s) {
		return "", fmt.Errorf("%s is not a pattern of host names; write one as %q", quote(s), "*.example.com")
	}
	return parseGlob(strings.ToLower(addressForm.ReplaceAllString(s, `\$1`)))
}

// addressForm is an address of IPv6 in brackets, which are no class.
var addressForm = regexp.MustCompile(`^(\[[0-9A-Fa-f.*]*:[0-9A-Fa-f:.*]*\])`)

var methodForm = regexp.MustCompile(`^[]A-Z0-9*!#$%&'+.^_` + "`" + `|~[\\-]+$`)

func parseMethod(s string) (string, error) {
	if methodForm.MatchString(s) {
		return parseGlob(s)
	}
	if upper := strings.ToUpper(s); methodForm.MatchString(upper) {
		return "", fmt.Errorf("%s is not a method; methods are in capital letters: write %s", quote(s), upper)
	}
	return "", fmt.Errorf("%s is not a method; write one as GET or POST", quote(s))
}

var (
	// ja4Letters are what patterns of JA4 fingerprints are made of, ja4Form is a whole fingerprint.
	ja4Letters = regexp.MustCompile(`^[]A-Za-z0-9_*[-]+$`)
	ja4Form    = regexp.MustCompile(`^t(1[0-3]|s3|00)[di][0-9]{4}[0-9A-Za-z]{2}_[0-9a-f]{12}_[0-9a-f]{12}$`)
)

// IsJA4 reports whether a text is a JA4 fingerprint of TLS over TCP.
func IsJA4(s string) bool { return ja4Form.MatchString(s) }

// parseJA4 reads a pattern of JA4 fingerprints of TLS over TCP.
func parseJA4(s string) (string, error) {
	const example = "t13d1516h2_8daaf6152771_*"
	switch {
	case strings.ContainsRune(s, ','):
		return "", fmt.Errorf("%s is not hashed (JA4_r); write the fingerprint itself, as %q", quote(s), example)
	case !ja4Letters.MatchString(s):
		return "", fmt.Errorf("%s is not a pattern of JA4 fingerprints; write one as %q", quote(s), example)
	case s[0] == 'q' || s[0] == 'd':
		return "", fmt.Errorf("%s is a fingerprint of QUIC or DTLS, which no service here speaks; one of TLS begins with t, as %q", quote(s), example)
	case strings.ContainsAny(s, "*[") || ja4Form.MatchString(s):
		return parseGlob(s)
	}
	if a, hashes, ok := strings.Cut(s, "_"); ok && ja4Form.MatchString(a+"_"+strings.ToLower(hashes)) {
		return "", fmt.Errorf("%s matches no fingerprint, whose hashes are in small letters; write %q", quote(s), a+"_"+strings.ToLower(hashes))
	}
	return "", fmt.Errorf("%s is not a whole JA4 fingerprint, and has no star; write one as %q", quote(s), example)
}

// tokenForm is a token of RFC 9110, section 5.6.2.
var tokenForm = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

func parseToken(s string) (string, error) {
	if len(s) > MaxLiteral {
		return "", fmt.Errorf("%s has %d bytes; a name has at most %d", quote(s), len(s), MaxLiteral)
	}
	if !tokenForm.MatchString(s) {
		return "", fmt.Errorf("%s cannot be a name here; use letters, digits and punctuation without separators", quote(s))
	}
	return s, nil
}

// parseHeaderName reads a header's name, in lower case and with hyphens for underscores, as names are compared.
func parseHeaderName(s string) (string, error) {
	s, err := parseToken(s) // before the case: ToLower makes letters of what is none of ASCII
	s = strings.ReplaceAll(strings.ToLower(s), "_", "-")
	switch {
	case err != nil:
		return "", err
	case s == "cookie":
		return "", fmt.Errorf("%q has a key of its own; write cookie: {NAME: PATTERN}", s)
	case s == "host":
		return "", fmt.Errorf("%q has a key of its own; write host: PATTERN", s)
	}
	return s, nil
}
