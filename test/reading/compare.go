// SPDX-License-Identifier: Apache-2.0

package reading

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"narthex/internal/httphead"
	"narthex/internal/policy"
	scan "narthex/test/http"
	"narthex/test/rules"
)

// Gate is how the data path reads a stream.
type Gate struct {
	Refused string // why; "": it is let in
	framing scan.Framing
	end     int // of the request
	request *httphead.Request
	method  string
}

// Reader reads as the data path does. It is for one goroutine.
type Reader struct{ checker rules.Checker }

// NewReader prepares for reading.
func NewReader() (*Reader, error) {
	r := &Reader{}
	p := &policy.Policy{
		File: "reading.yaml", Classes: []policy.Class{{Name: "all", Priority: 1}}, Services: []policy.Service{{Name: "web"}},
		Requests: []policy.Request{{Name: "secret", Host: []string{"secret.example"}, Per: policy.PerRule}},
	}
	return r, r.checker.Use(p, 1)
}

// mostBody is the longest body that is sent.
const mostBody = 1 << 16

// mostHead is the longest head: longer ones are answered 431, whatever is in them.
const mostHead = 15_000

// Read says how the data path reads a stream. False: the comparison has nothing to say of it, for it is too long
// or does not end.
func (g *Reader) Read(stream []byte) (Gate, bool, error) {
	r, err := scan.Read(stream)
	gate := Gate{framing: r.Framing, end: r.Used}
	if line := bytes.TrimLeft(stream, "\r\n"); bytes.IndexByte(line, ' ') >= 0 {
		gate.method = string(line[:bytes.IndexByte(line, ' ')])
	}
	if err != nil || r.Step == scan.More || r.Head > mostHead || r.Framing.Endless {
		return gate, false, err
	}
	if r.Step == scan.Lost {
		gate.Refused = "framing"
		return gate, true, nil
	}
	var ok bool
	if gate.request, ok = g.checker.Read(stream[:r.Head]); !ok {
		gate.Refused = "request"
		return gate, true, nil
	}
	gate.end += int(r.Framing.Length)
	return gate, gate.end < mostBody, nil
}

// wire is what is sent: the request up to where the gate sees its end, with a body as long as it says.
func (g *Gate) wire(stream []byte) []byte {
	wire := slices.Clone(stream)
	if g.Refused == "" {
		for len(wire) < g.end {
			wire = append(wire, "GET /inner HTTP/1.1\r\nHost: inner\r\n\r\n"...)
		}
		wire = wire[:g.end]
	}
	return wire
}

// served tells whether the server has served the request itself.
func (e *Exchange) served() bool {
	return len(e.Answers) > 0 && e.Answers[0].Status < 300
}

// kept tells whether the server went on behind the request, with the marker.
func (e *Exchange) kept() bool {
	return len(e.Answers) == 2 && e.Answers[1].Seen != nil && e.Answers[1].Seen.isMarker()
}

func (s *Seen) isMarker() bool {
	return s.Method == "GET" && s.Host == "marker" && (s.Path == "/marker" || s.Path == "" && s.Target == "/marker")
}

// compare says in what a server reads a request otherwise than the gate, which has let it in; "" if in nothing.
func (g *Gate) compare(e *Exchange) string {
	if e.Err != "" {
		return "boundary: " + e.Err
	}
	if len(e.Answers) > 1 && !e.kept() {
		return "boundary: another request behind it"
	}
	if !e.served() {
		return "" // and whatever the server does next, it says so or goes on with the marker
	}
	a := &e.Answers[0]
	if g.keeps(a) != e.kept() && !(g.method == http.MethodConnect && !e.kept()) { // it may be the end of HTTP
		return fmt.Sprintf("connection: goes on %v, the gate takes it for %v", e.kept(), g.keeps(a))
	}
	if g.tunnels(a) && e.kept() {
		return "tunnel: there is none"
	}
	if a.Seen == nil {
		return ""
	}
	return g.compareSeen(a.Seen)
}

// agree tells whether all servers have served a request, and read it in the same way.
func agree(all []Exchange) bool {
	var first string
	for i, e := range all {
		if !e.served() || e.Err != "" || len(e.Answers) > 1 && !e.kept() {
			return false
		}
		seen := e.Answers[0].Seen
		if seen == nil { // HEAD, or TRACE: it cannot be known
			return false
		}
		path, host, err := seen.normalised()
		text := fmt.Sprintf("%q %q %q %q", seen.Method, path, host, seen.Rule)
		if err != nil || i > 0 && text != first {
			return false
		}
		first = text
	}
	return true
}

// keeps is what the gate makes of an answer: what that says of the connection counts first.
func (g *Gate) keeps(a *Answer) bool {
	return a.Said == "keep-alive" || a.Said == "" && !g.framing.Closes
}

// tunnels is likewise.
func (g *Gate) tunnels(a *Answer) bool {
	return a.Status == http.StatusSwitchingProtocols || g.method == http.MethodConnect && !a.Framed && a.Status != http.StatusNoContent
}

// compareSeen compares what a request asks for.
func (g *Gate) compareSeen(seen *Seen) string {
	q := g.request
	path, host, err := seen.normalised()
	switch {
	case err != nil:
		return "path: what the server has seen is refused: " + err.Error()
	case seen.Method != q.Method:
		return "method"
	case path != q.Path && !(q.Path == "" && !strings.HasPrefix(seen.Path, "/")): // of CONNECT some make a path that begins with no slash
		return fmt.Sprintf("path: %q for %q", path, q.Path)
	case host != q.Host && host != "": // some do not know of a host in the target
		return fmt.Sprintf("host: %q for %q", host, q.Host)
	case seen.Rule == "yes" && !slices.Contains(q.Headers, httphead.Field{Name: "x-rule", Value: "yes"}):
		return "header"
	}
	return ""
}

// normalised are path and host as rules would compare them, would they begin from what the server has.
func (s *Seen) normalised() (path, host string, err error) {
	if host, err = httphead.Host(strings.TrimRight(s.Host, " \t")); err != nil {
		return "", "", err
	}
	if s.Path == "*" || s.Target == "*" {
		return "*", host, nil
	}
	if s.Path != "" {
		path, err = httphead.Path(rules.Escaped(s.Path))
		return path, host, err
	}
	q, err := httphead.Read([]byte(s.Method + " " + s.Target + " HTTP/1.1\r\n\r\n"))
	if err != nil {
		return "", host, err
	}
	return q.Path, host, nil
}
