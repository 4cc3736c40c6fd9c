// SPDX-License-Identifier: Apache-2.0

package httphead

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

func TestPath(t *testing.T) {
	for _, tt := range []struct{ raw, want string }{ // want "": refused
		{"/", "/"},
		{"/a", "/a"},
		{"/a/", "/a/"},
		{"/a/.", ""},
		{"/a/b/..", ""},
		{"/a/b/../", ""},
		{"/a/b/..;x", ""},
		{"/a/;x", "/a/"},
		{"/a;x", "/a"},
		{"/a;x/b;y=1;z/c", "/a/b/c"},
		{"/a/../", ""},
		{"/a/..b/", "/a/..b/"},
		{"/a//../b", ""},
		{"/..", ""},
		{"/../", "/"},
		{"/../../a", "/a"},
		{"//../a", "/a"},
		{"/a/../../b", ""},
		{"/a/..;x/b", ""},
		{"/..;x/b", ""},
		{"/a/.;/b", ""},
		{"/a/...", "/a/..."},
		{"/a/.b", "/a/.b"},
		{"//noaccess", "/noaccess"},
		{"/%2Fnoaccess", "/noaccess"},
		{"/%2fnoaccess", "/noaccess"},
		{"/x%2f..%2fnoaccess", ""},
		{"/x/%2e%2E/noaccess", ""},
		{"/%2e/noaccess", "/noaccess"},
		{"/noaccess#x", ""},
		{"/noaccess?/../x", "/noaccess"},
		{"/a%3fb", "/a?b"},
		{"/a%23b", "/a#b"},
		{"/a%3Bb/c", "/a/c"},
		{"/%2561", "/%61"},
		{"/a///b", "/a/b"},
		{"/a/%2e", ""},
		{`/a\b`, `/a\b`},
		{"/A", "/A"},
		{"/%ff%fe", "/\xff\xfe"},
		{"/\xff", ""},
		{"/a;\xc3\xa9", ""},
		{"/a?\xff", "/a"},
		{"/%0a%7f", "/\n\x7f"},
		{"", "/"},
		{"?a", "/"},
		{"/%", ""},
		{"/%4", ""},
		{"/%4g", ""},
		{"/%g4", ""},
		{"/%00", ""},
		{"/a%", ""},
		{"/a;%zz", ""},
		{"/a?%zz", "/a"},
		{"/a?#%00", "/a"},
		{"/%?41", ""},
	} {
		got, err := Path(tt.raw)
		checkText(t, tt.raw, got, err, tt.want)
	}
}

// checkText compares with a text, "" for what is refused.
func checkText(t *testing.T, raw, got string, err error, want string) {
	t.Helper()
	var refused Refused
	switch {
	case want == "" && !errors.As(err, &refused):
		t.Errorf("%q: got %q, %v, want it refused", raw, got, err)
	case want != "" && (err != nil || got != want):
		t.Errorf("%q: got %q, %v, want %q", raw, got, err, want)
	}
}

func TestHost(t *testing.T) {
	for _, tt := range []struct{ raw, want string }{
		{"example.com", "example.com"},
		{"EXAMPLE.com:8080", "example.com"},
		{"example.com:", "example.com"},
		{"example.com.", "example.com"},
		{"example.com.:80", "example.com"},
		{"example.com..", "example.com."},
		{"10.0.0.1:80", "10.0.0.1"},
		{"a_b-c.d", "a_b-c.d"},
		{"[::1]", "[::1]"},
		{"[::1]:80", "[::1]"},
		{"[FE80::1%25]:", "[fe80::1%25]"},
		{"[::1].", ""},
		{"[::1]x", ""},
		{"[::1", ""},
		{"::1", ""},
		{"a]", ""},
		{"a:b", ""},
		{"a:80:80", ""},
		{":80", ""},
		{".", ""},
		{"a b", ""},
		{"a/b", ""},
		{"user@a", ""},
		{"a%2eb", ""},
		{"é", ""},
		{"[g::]", ""},
	} {
		got, err := Host(tt.raw)
		checkText(t, tt.raw, got, err, tt.want)
	}
	if got, err := Host(""); got != "" || err != nil {
		t.Errorf(`Host("") = %q, %v`, got, err)
	}
}

func TestServerName(t *testing.T) {
	for sni, want := range map[string]string{"": "", "A.example": "a.example", "a.example.": "a.example", "a..": "a."} {
		if got := ServerName(sni); got != want {
			t.Errorf("ServerName(%q) = %q, want %q", sni, got, want)
		}
	}
}

func TestRead(t *testing.T) {
	for _, tt := range []struct {
		head string
		want *Request // nil: refused
	}{
		{"GET / HTTP/1.1\r\n\r\n", &Request{Method: "GET", Path: "/"}},
		{"\r\n\r\nGET / HTTP/1.0\r\n\r\nbody", &Request{Method: "GET", Path: "/"}},
		{
			"M-GET /a?b HTTP/1.1\r\nHost: \tA.example:80 \r\nX-Plan:  free\t\r\nx-PLAN:\r\n\r\n",
			&Request{Method: "M-GET", Path: "/a", Host: "a.example", Headers: []Field{{"host", "A.example:80"}, {"x-plan", "free"}, {"x-plan", ""}}, Query: Query{Parameters: []Field{{"b", ""}}}},
		},
		{
			"GET / HTTP/1.1\r\nCookie: a=1; b = \"x\" ;c;=d;e=;a=2=3\r\ncookie:f=g\r\n\r\n",
			&Request{
				Method: "GET", Path: "/",
				Headers: []Field{{"cookie", `a=1; b = "x" ;c;=d;e=;a=2=3`}, {"cookie", "f=g"}},
				Cookies: []Field{{"a", "1"}, {"b ", ` "x"`}, {"e", ""}, {"a", "2=3"}, {"f", "g"}},
			},
		},
		{"OPTIONS * HTTP/1.1\r\n\r\n", &Request{Method: "OPTIONS", Path: "*"}},
		{"CONNECT a.example:443 HTTP/1.1\r\n\r\n", &Request{Method: "CONNECT", Host: "a.example"}},
		{"CONNECT /a HTTP/1.1\r\n\r\n", &Request{Method: "CONNECT", Path: "/a"}},
		{
			"GET HTTP://B.example:8080 HTTP/1.1\r\nHost: b.EXAMPLE\r\nx_y: z\r\n\r\n",
			&Request{Method: "GET", Path: "/", Host: "b.example", Headers: []Field{{"host", "b.EXAMPLE"}, {"x-y", "z"}}},
		},
		{"GET https://b/x/./y?z HTTP/1.1\r\n\r\n", &Request{Method: "GET", Path: "/x/y", Host: "b", Query: Query{Parameters: []Field{{"z", ""}}}}},
		{"GET http://b?/x HTTP/1.1\r\n\r\n", &Request{Method: "GET", Path: "/", Host: "b", Query: Query{Parameters: []Field{{"/x", ""}}}}},
		{"GET / HTTP/1.1\r\nHost:\r\n\r\n", &Request{Method: "GET", Path: "/", Headers: []Field{{"host", ""}}}},

		{"GET http://b#/x HTTP/1.1\r\n\r\n", nil},
		{"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", nil},
		{"GET http://b/ HTTP/1.1\r\nHost:\r\n\r\n", nil},
		{"CONNECT b:1 HTTP/1.1\r\nHost: a\r\n\r\n", nil},
		{"CONNECT b HTTP/1.1\r\n\r\n", nil},
		{"CONNECT b: HTTP/1.1\r\n\r\n", nil},
		{"CONNECT [::1] HTTP/1.1\r\n\r\n", nil},
		{"GET http:///x HTTP/1.1\r\n\r\n", nil},
		{"GET http://u@b/ HTTP/1.1\r\n\r\n", nil},
		{"GET http://:80/ HTTP/1.1\r\n\r\n", nil},
		{"GET ftp://b/ HTTP/1.1\r\n\r\n", nil},
		{"GET http:/b HTTP/1.1\r\n\r\n", nil},
		{"GET b HTTP/1.1\r\n\r\n", nil},
		{"GET ** HTTP/1.1\r\n\r\n", nil},
		{"GET ?a HTTP/1.1\r\n\r\n", nil},
		{"GET a:443 HTTP/1.1\r\n\r\n", nil},
		{"CONNECT http://a/ HTTP/1.1\r\n\r\n", nil},
		{"CONNECT u@a:1 HTTP/1.1\r\n\r\n", nil},
		{"GET http://b/ HTTP/1.1\r\nHost: a/b\r\n\r\n", nil},
		{"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", nil},
		{"GET / HTTP/1.1\r\nHost : a\r\n\r\n", nil},
		{"GET / HTTP/1.1\r\n Host: a\r\n\r\n", nil},
		{"GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n", nil},
		{"GET / HTTP/1.1\r\nHost\r\n\r\n", nil},
		{"GET / HTTP/1.1\r\nX: \x00\r\n\r\n", nil},
		{"GET / HTTP/1.1\r\nX: a\rb\r\n\r\n", nil},
		{"GET / HTTP/1.1\n\n", nil},
		{"\nGET / HTTP/1.1\r\n\r\n", nil},
		{"GET / HTTP/1.1\r\nX: a\nY: b\r\n\r\n", nil},
		{"get / HTTP/1.1\r\n\r\n", nil},
		{"GET / HTTP/0.9\r\n\r\n", nil},
		{"GET /\r\n\r\n", nil},
		{"GET  / HTTP/1.1\r\n\r\n", nil},
		{" GET / HTTP/1.1\r\n\r\n", nil},
		{"G@T / HTTP/1.1\r\n\r\n", nil},
		{"GET /%00 HTTP/1.1\r\n\r\n", nil},
	} {
		got, err := Read([]byte(tt.head))
		var refused Refused
		switch {
		case tt.want == nil && !errors.As(err, &refused):
			t.Errorf("%q: got %+v, %v, want it refused", tt.head, got, err)
		case tt.want != nil && (err != nil || !reflect.DeepEqual(got, tt.want)):
			t.Errorf("%q: got %+v, %v, want %+v", tt.head, got, err, tt.want)
		}
	}
}

func TestReadQuery(t *testing.T) {
	for _, tt := range []struct {
		target string
		want   Query
	}{
		{"/a", Query{}},
		{"/a?", Query{}},
		{"/a?&&", Query{}},
		{"/a?b", Query{Parameters: []Field{{"b", ""}}}},
		{"?b=", Query{Parameters: []Field{{"b", ""}}}},
		{"/a?b=c=d&e+f=g%20+h&&b=%2B%C3%a4", Query{Parameters: []Field{{"b", "c=d"}, {"e f", "g  h"}, {"b", "+\xc3\xa4"}}}},
		{"/a??=x&=&a=?/", Query{Parameters: []Field{{"?", "x"}, {"", ""}, {"a", "?/"}}}},
		{"/a?b%00=\xff;c", Query{Parameters: []Field{{"b\x00", "\xff;c"}}}},
		{"/a?b=%4&c", Query{Parameters: []Field{{"b", ""}, {"c", ""}}, Refused: "an invalid escape in the query"}},
		{"/a?b=%", Query{Parameters: []Field{{"b", ""}}, Refused: "an invalid escape in the query"}},
		{"/a?b#c", Query{Parameters: []Field{{"b#c", ""}}, Refused: "a fragment, which some servers cut off"}},
	} {
		if got := ReadQuery(tt.target); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q: %+v, want %+v", tt.target, got, tt.want)
		}
	}
}

func TestReadHeadWithoutEnd(t *testing.T) {
	for _, head := range []string{"", "\r\n", "GET / HTTP/1.1", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nX: a\r\n\r"} {
		var refused Refused
		if q, err := Read([]byte(head)); err == nil || errors.As(err, &refused) {
			t.Errorf("%q: got %+v, %v, want that it does not end", head, q, err)
		}
	}
}

// FuzzPath checks what holds for every path: it is stable but for escapes, and no dot segment
// or parameter is left.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/a//b/./c;d/%2e/e?f#g", "/%25", "/..;/.;a/%3b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		path, err := Path("/" + raw)
		if err != nil || hasControl(raw) {
			return // no line has controls
		}
		if path[0] != '/' || strings.Contains(path, "//") || strings.Contains(path, ";") {
			t.Errorf("%q leads to %q", raw, path)
		}
		for segment := range strings.SplitSeq(path, "/") {
			if segment == "." || segment == ".." {
				t.Errorf("%q leads to %q", raw, path)
			}
		}
		var escaped string
		for _, b := range []byte(path) {
			escaped += fmt.Sprintf(map[bool]string{true: "%c", false: "%%%02x"}[b < 0x80 && !strings.ContainsRune("%?#", rune(b))], b)
		}
		if again, err := Path(escaped); err != nil || again != path {
			t.Errorf("%q leads to %q, and that to %q, %v", raw, path, again, err)
		}
	})
}

// FuzzRead checks that what net/http reads is read as the same method, host and raw path.
func FuzzRead(f *testing.F) {
	f.Add("GET /a/./b HTTP/1.1\r\nHost: A.example:80\r\nCookie: a=b\r\n\r\n")
	f.Add("GET http://b.example/%2e/c HTTP/1.1\r\nHost: b.example\r\n\r\n")
	f.Fuzz(func(t *testing.T, head string) {
		q, err := Read([]byte(head))
		if err != nil {
			return
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
		if err != nil {
			return
		}
		if r.Method != q.Method {
			t.Errorf("%q: method %q, net/http says %q", head, q.Method, r.Method)
		}
		if host, err := Host(r.Host); err != nil || host != q.Host {
			t.Errorf("%q: host %q, net/http says %q", head, q.Host, r.Host)
		}
		if r.Method == "CONNECT" || r.URL.Path == "*" || strings.Contains(r.RequestURI, "#") {
			return // net/http knows no fragments
		}
		if path, err := Path(r.URL.EscapedPath()); err != nil || path != q.Path {
			t.Errorf("%q: path %q, net/http says %q", head, q.Path, r.URL.Path)
		}
	})
}
