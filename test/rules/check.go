// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"narthex/internal/httphead"
	"narthex/internal/policy"
)

// Outcome says what was seen of a head.
type Outcome int

// Outcomes of a head.
const (
	Unframed Outcome = iota // the framing pass does not accept it: nobody reads it
	Refused
	Unmatched
	Matched
	Complex // more matches than there is room for
)

// Checker compares what the reader says of heads with what plain Go does.
type Checker struct {
	r         reader
	im        image
	policy    *policy.Policy
	rules     []policy.RequestRule
	asksHosts bool
	asksQuery bool
}

// Use puts a policy in force. The error is that it cannot be compiled.
func (c *Checker) Use(p *policy.Policy, seed uint64) error {
	tables, _, err := policy.CompileRequests(p, seed)
	if err != nil {
		return err
	}
	c.im.clear()
	c.im.fill(tables)
	c.r.use(&c.im)
	c.policy, c.rules, c.asksQuery = p, tables.Rules, tables.Query
	c.asksHosts = slices.ContainsFunc(p.Requests, func(r policy.Request) bool { return len(r.Host) > 0 || r.Per.Key.Kind == "host" })
	return nil
}

// Read reads all of a head with the data path's source. False: it is refused.
func (c *Checker) Read(head []byte) (*httphead.Request, bool) {
	q, ok := c.r.read(head, chunkSize, false)
	return (*httphead.Request)(q), ok
}

// Check reads what begins with a head in pieces of so many bytes, and finds its rule, in a packet
// or in a slot. The error says what is wrong.
func (c *Checker) Check(b []byte, piece int, slot bool, e ends) (Outcome, error) {
	n := frame(b, piece)
	if n == 0 || n > mostHead {
		return Unframed, nil
	}
	head := b[:n]
	want, refused, err := readPlainly(head)
	if err != nil {
		return 0, err
	}
	if err := c.checkValues(head, piece, want, refused); err != nil {
		return 0, err
	}
	return c.checkRule(head, slot, e, want, refused)
}

// mostHost is the longest text of a host that is read.
const mostHost = 255

// readPlainly reads a head in Go, or says why it is refused.
func readPlainly(head []byte) (*httphead.Request, httphead.Refused, error) {
	q, err := httphead.Read(head)
	if err == nil && hasOddHost(head, q) {
		return nil, "an odd host", nil
	}
	var refused httphead.Refused
	if err != nil && !errors.As(err, &refused) {
		return nil, "", fmt.Errorf("of the head is said: %w", err)
	}
	return q, refused, nil
}

// hasOddHost tells whether the Host header or the target of a head says a host that is too long, or the
// target one with an escape, which servers decode there, or a star.
func hasOddHost(head []byte, q *httphead.Request) bool {
	_, target, _ := strings.Cut(string(bytes.TrimLeft(head, "\r\n")), " ")
	target, _, _ = strings.Cut(target, " ")
	if _, rest, ok := strings.Cut(target, "://"); ok && target[0] != '/' {
		target = rest
	}
	target = target[:strings.IndexAny(target+"/", "/?#")]
	return len(target) > mostHost || strings.Contains(target, "%") || target == "*" && q.Method == "CONNECT" ||
		slices.ContainsFunc(q.Headers, func(f httphead.Field) bool { return f.Name == "host" && len(f.Value) > mostHost })
}

// checkValues compares what is read of a head.
func (c *Checker) checkValues(head []byte, piece int, want *httphead.Request, refused httphead.Refused) error {
	for _, cookies := range []bool{false, true} {
		got, ok := c.r.read(head, piece, cookies)
		if cookies && want != nil && want.Query.Refused != "" {
			want, refused = nil, want.Query.Refused
		}
		switch {
		case ok != (want != nil):
			return fmt.Errorf("read as %+v, %v, want %+v, %q", got, ok, want, refused)
		case ok && !got.equal(want, cookies):
			return fmt.Errorf("read as %+v, want %+v", got, want)
		}
	}
	return nil
}

// nameless cookies are no cookies of any rule.
func nameless(f httphead.Field) bool { return f.Name == "" }

func (q *request) equal(want *httphead.Request, cookies bool) bool {
	var headers []httphead.Field
	for _, f := range want.Headers {
		if f.Name != "host" && (f.Name != "cookie" || !cookies) {
			headers = append(headers, f)
		}
	}
	return q.Method == want.Method && q.Path == want.Path && q.Host == want.Host && slices.Equal(q.Headers, headers) &&
		(!cookies || slices.Equal(slices.DeleteFunc(q.Cookies, nameless), want.Cookies) && slices.Equal(q.Query.Parameters, want.Query.Parameters))
}

// checkRule compares the rule that is found. Where no rule asks for hosts, the Host header need not be read.
func (c *Checker) checkRule(head []byte, slot bool, e ends, want *httphead.Request, refused httphead.Refused) (Outcome, error) {
	got := c.r.match(head, slot, e)
	if want == nil && !got.refused && !c.asksHosts {
		want, _, _ = readPlainly(withoutHost(head))
	}
	if want != nil && c.asksQuery && want.Query.Refused != "" {
		want, refused = nil, want.Query.Refused
	}
	switch {
	case got.refused != (want == nil):
		return 0, fmt.Errorf("found %+v, want %+v, %q", got, want, refused)
	case got.refused:
		return Refused, nil
	case got.complex:
		return Complex, nil
	}
	v := policy.ViewOf(want)
	v.From, v.To = e.from, e.to
	rule := c.policy.MatchRequest(v)
	if got.rule != rule {
		return 0, fmt.Errorf("found %+v, want rule %d", got, rule)
	}
	if rule == noRule {
		return Unmatched, nil
	}
	value := c.policy.Requests[rule].Per.Key.Value(policy.ViewOf(want))
	if key := c.r.key(c.rules[rule].Key); key != keyHash(value) {
		return 0, fmt.Errorf("found a bucket by %#x, want that of %q, %#x", key, value, keyHash(value))
	}
	return Matched, nil
}

// withoutHost takes Host headers out of a head.
func withoutHost(head []byte) []byte {
	var out []byte
	for line := range bytes.Lines(head) {
		if len(line) < 5 || !strings.EqualFold(string(line[:5]), "host:") {
			out = append(out, line...)
		}
	}
	return out
}

// CheckServer compares what is read with what net/http makes of the same bytes: whatever it accepts
// is the same method, path and host here, or refused.
func (c *Checker) CheckServer(b []byte, piece int) error {
	n := frame(b, piece)
	if n == 0 {
		return nil
	}
	got, ok := c.r.read(b[:n], piece, false)
	if !ok {
		return nil
	}
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
	if err != nil {
		return nil
	}
	path, host, err := served(r)
	if err != nil {
		return fmt.Errorf("read as %+v, and net/http's is refused: %w", got, err)
	}
	if got.Method != r.Method || got.Path != path || got.Host != host {
		return fmt.Errorf("read as %+v, net/http has %q %q %q, which is %q %q", got, r.Method, r.URL, r.Host, path, host)
	}
	return nil
}

// served returns path and host of a request of net/http as rules compare them.
func served(r *http.Request) (path, host string, err error) {
	host, err = httphead.Host(r.Host)
	if err != nil || r.Method == http.MethodConnect && !strings.HasPrefix(r.RequestURI, "/") && r.RequestURI != "*" {
		return "", host, err
	}
	if r.RequestURI == "*" {
		return "*", host, nil
	}
	path, err = httphead.Path(Escaped(r.URL.Path))
	return path, host, err
}

// Escaped escapes what has a meaning in a path and is to have none.
func Escaped(path string) string {
	var b strings.Builder
	for _, c := range []byte(path) {
		if c >= 0x80 || strings.IndexByte("%?#\x00", c) >= 0 {
			fmt.Fprintf(&b, "%%%02x", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
