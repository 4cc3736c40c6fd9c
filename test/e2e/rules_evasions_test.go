// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// The protected are /noaccess, secret.example, and what has the header X-Blocked: yes.
const evasionPolicy = `
version: 1
services:
  - {name: nginx, listen: ["*:80"], concurrency: unlimited}
  - {name: go, listen: ["*:8000"], concurrency: 64}
requests:
  - {name: noaccess, path: /noaccess, action: drop}
  - {name: secret, host: secret.example, action: drop}
  - {name: blocked, header: {x-blocked: "yes"}, action: drop}
`

// evasion is a way to ask for the protected that a rule might not see. Those of one name say
// what docs/evasions.md says in one row.
type evasion struct {
	name     string
	fate     fate
	requests []string
	behind   bool // the first answer is to what comes before
}

// tos are requests for targets.
func tos(targets ...string) (requests []string) {
	for _, t := range targets {
		requests = append(requests, to(t))
	}
	return requests
}

// hosts are requests with headers in place of a Host.
func hosts(headers ...string) (requests []string) {
	for _, h := range headers {
		requests = append(requests, "GET /h HTTP/1.1\r\n"+h+"\r\n\r\n")
	}
	return requests
}

// begun are requests that begin with a line and go on as usual.
func begun(lines ...string) (requests []string) {
	for _, l := range lines {
		requests = append(requests, l+"\r\nHost: x\r\n\r\n")
	}
	return requests
}

// with are requests with headers.
func with(headers ...string) (requests []string) {
	for _, h := range headers {
		requests = append(requests, to("/h", h))
	}
	return requests
}

var evasions = []evasion{
	{name: "as it is", fate: cutOff, requests: append(tos("/noaccess"), hosts("Host: secret.example")...)},
	{name: "query", fate: cutOff, requests: tos("/noaccess?", "/noaccess?a=/b", "/noaccess?%zz")},
	{name: "fragment", fate: ambiguous, requests: tos("/noaccess#", "/noaccess#/../x", "/x#/noaccess", "/#?/noaccess")},
	{name: "fragment behind a query", fate: cutOff, requests: tos("/noaccess?a#b", "/noaccess?#")},
	{name: "case of the path", fate: reached, requests: tos("/NOACCESS", "/Noaccess", "/%4eoaccess")},
	{name: "escapes", fate: cutOff, requests: tos("/%6eoaccess", "/%6E%6F%61%63%63%65%73%73", "/noacces%73?x")},
	{name: "escaped slashes", fate: cutOff, requests: tos("/%2fnoaccess", "/%2F/noaccess", "/..%2fnoaccess", "/.%2Fnoaccess")},
	{name: "escaped question mark or number sign", fate: cutOff, requests: tos("/noaccess;%3f", "/noaccess;%23")},
	{name: "question mark or number sign at the end, escaped", fate: reached, requests: tos("/noaccess%3f", "/noaccess%23")},
	{name: "escaped twice", fate: reached, requests: tos("/%256eoaccess", "/x%252f..%252fnoaccess", "/%252e%252e/noaccess")},
	{name: "overlong UTF-8", fate: reached, requests: tos("/%c1%aeoaccess", "/x%c0%af..%c0%afnoaccess", "/x/%c0%ae%c0%ae/noaccess", "/x/%e0%80%ae%e0%80%ae/noaccess")},
	{name: "other letters", fate: reached, requests: tos("/n%c3%b6access", "/%ef%bd%8eoaccess", "/noacce%C3%9F")},
	{name: "letters beyond ASCII, not escaped", fate: ambiguous, requests: tos("/n\xc3\xb6access", "/\xef\xbd\x8eoaccess", "/noaccess\xff", "/noaccess;\xe9")},
	{name: "dot segments", fate: cutOff, requests: tos("/./noaccess", "/../noaccess", "//.././noaccess", "/./.././noaccess")},
	{name: "dot segments behind others", fate: ambiguous, requests: tos("/x/../noaccess", "/noaccess/../x", "/noaccess//../x", "/x/./../noaccess", "/x/y/../../noaccess", "/x%2f..%2fnoaccess", "/%3f/../noaccess", "/x/.%2E/noaccess", "/x/%2e%2e/noaccess")},
	{name: "escaped dot segments", fate: cutOff, requests: tos("/%2e/noaccess", "/.%2E/noaccess", "/%2e%2e/%2E%2E/noaccess")},
	{name: "three dots", fate: reached, requests: tos("/.../noaccess", "/x/.../noaccess")},
	{name: "empty segments", fate: cutOff, requests: tos("//noaccess", "////noaccess", "/..//noaccess")},
	{name: "slash at the end", fate: reached, requests: tos("/noaccess/", "/noaccess//", "/noaccess%2f", "/noaccess/;x")},
	{name: "dot segment at the end", fate: ambiguous, requests: tos("/noaccess/.", "/noaccess/x/..", "/noaccess/%2e", "/noaccess/.;x", "/noaccess/x/..?a")},
	{name: "path parameters", fate: cutOff, requests: tos("/noaccess;", "/noaccess;a=b", "/noaccess%3ba", "/;/noaccess", "/;a/noaccess")},
	{name: "path parameters of dots", fate: ambiguous, requests: tos("/x/..;/noaccess", "/x/..;a/noaccess", "/.;/noaccess", "/noaccess/.;/../x", "/..;/noaccess")},
	{name: "backslashes", fate: reached, requests: tos("/\\noaccess", "/x\\..\\noaccess", "/x%5c..%5cnoaccess")},
	{name: "backslash or nothing before the path", fate: ambiguous, requests: tos("\\noaccess", "noaccess", "./noaccess", "?/noaccess", "%2fnoaccess", ";/noaccess")},
	{name: "NUL and control characters", fate: ambiguous, requests: tos("/noaccess%00", "/%00/../noaccess", "/noaccess\x00", "/noaccess\x01", "/\x00noaccess", "/noaccess%00.html")},
	{name: "invalid escapes", fate: ambiguous, requests: tos("/noaccess%", "/noaccess%6", "/%zz/../noaccess", "/%u006eoaccess", "/%6/../noaccess", "/%%36eoaccess")},
	{name: "bytes that are no text", fate: reached, requests: tos("/noaccess\x7f", "/noaccess%0a", "/noaccess%20", "/noaccess%ff")},
	{name: "blanks in the request line", fate: ambiguous, requests: begun("GET\t/noaccess HTTP/1.1", "GET /noaccess\tHTTP/1.1", "GET  /noaccess HTTP/1.1",
		"GET /noaccess  HTTP/1.1", "GET /noaccess HTTP/1.1 ", " GET /noaccess HTTP/1.1", "GET /x /noaccess HTTP/1.1", "GET /noaccess x HTTP/1.1", "GET\x0b/noaccess HTTP/1.1", "GET /noaccess\x0cHTTP/1.1")},
	{name: "empty lines before", fate: cutOff, requests: []string{"\r\nGET /noaccess HTTP/1.1\r\nHost: x\r\n\r\n", "\r\n\r\n\r\nGET /noaccess HTTP/1.1\r\nHost: x\r\n\r\n"}},
	{name: "line feed alone", fate: ambiguous, requests: []string{"GET /noaccess HTTP/1.1\nHost: x\n\n", "\nGET /noaccess HTTP/1.1\r\nHost: x\r\n\r\n", "GET /h HTTP/1.1\r\nHost: x\r\nX: y\nContent-Length: 40\r\n\r\n" + to("/noaccess"), "GET /noaccess HTTP/1.1\r\nHost: x\r\n\n"}},
	{name: "carriage return alone", fate: ambiguous, requests: []string{"GET /noaccess HTTP/1.1\rHost: x\r\n\r\n", "GET /noaccess\r HTTP/1.1\r\nHost: x\r\n\r\n", "GET /noaccess HTTP/1.1\r\r\nHost: x\r\n\r\n", "\rGET /noaccess HTTP/1.1\r\nHost: x\r\n\r\n"}},
	{name: "methods", fate: cutOff, requests: begun("HEAD /noaccess HTTP/1.1", "OPTIONS /noaccess HTTP/1.1", "POST /noaccess HTTP/1.1", "DELETE /noaccess HTTP/1.1", "TRACE /noaccess HTTP/1.1", "ANYTHING /noaccess HTTP/1.1", "CONNECT /noaccess HTTP/1.1")},
	{name: "methods in small letters", fate: ambiguous, requests: begun("get /noaccess HTTP/1.1", "Get /noaccess HTTP/1.1", "GEt /noaccess HTTP/1.1")},
	{name: "CONNECT", fate: ambiguous, requests: begun("CONNECT http://x/noaccess HTTP/1.1", "CONNECT x:80/noaccess HTTP/1.1", "CONNECT * HTTP/1.1", "CONNECT user@secret.example:80 HTTP/1.1", "CONNECT secret.example HTTP/1.1", "CONNECT noaccess HTTP/1.1", "CONNECT secret.example:80 HTTP/1.1")},
	{name: "CONNECT to the host", fate: cutOff, requests: []string{"CONNECT secret.example:80 HTTP/1.1\r\nHost: secret.example\r\n\r\n", "CONNECT secret.example:80 HTTP/1.1\r\n\r\n"}},
	{name: "no method", fate: ambiguous, requests: begun(" /noaccess HTTP/1.1", "/noaccess HTTP/1.1", "G@T /noaccess HTTP/1.1", "\"GET\" /noaccess HTTP/1.1")},
	{name: "HTTP/0.9", fate: ambiguous, requests: []string{"GET /noaccess\r\n", "GET /noaccess \r\n", "GET /noaccess HTTP/0.9\r\n\r\n"}},
	{name: "HTTP/1.0", fate: cutOff, requests: []string{"GET /noaccess HTTP/1.0\r\n\r\n", "GET http://secret.example HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\nHost: secret.example\r\n\r\n"}},
	{name: "other versions", fate: ambiguous, requests: begun("GET /noaccess HTTP/1.2", "GET /noaccess HTTP/2.0", "GET /noaccess http/1.1", "GET /noaccess HTTP/01.1", "GET /noaccess HTTP/1.10", "GET /noaccess HTTP/+1.1", "GET /noaccess XTTP/1.1")},
	{name: "HTTP/2", fate: ambiguous, requests: []string{preface}},
	{name: "an offer of HTTP/2", fate: cutOff, requests: []string{strings.Replace(h2c, "/h2c", "/noaccess", 1)}},
	{name: "absolute form", fate: cutOff, requests: tos("http://x/noaccess", "HTTP://X./noaccess", "https://x/noaccess", "http://x:8080/noaccess", "http://x//noaccess", "http://x/%6eoaccess", "http://x/./noaccess")},
	{name: "absolute form, not quite", fate: ambiguous, requests: tos("http:///noaccess", "http:/noaccess", "http:noaccess", "ftp://x/noaccess", "x://x/noaccess", "://x/noaccess", "http://user@x/noaccess", "http://user:word@secret.example/", "http://x\\/noaccess", "http://x%2fnoaccess", "http://x:8o/noaccess")},
	{name: "no path behind the host", fate: cutOff, requests: []string{"GET http://secret.example HTTP/1.1\r\nHost: secret.example\r\n\r\n", "GET http://secret.example?/x HTTP/1.1\r\nHost: secret.example:80\r\n\r\n"}},
	{name: "a target of another host than the Host", fate: ambiguous, requests: append(tos("http://secret.example/h", "http://SECRET.example:80/h", "http://secret.example?/x", "http://x.example/h"),
		"GET http://x/h HTTP/1.1\r\nHost: secret.example\r\n\r\n", "GET http://secret.example/h HTTP/1.1\r\nHost:\r\n\r\n")},
	{name: "forms of the host", fate: cutOff, requests: hosts("Host: SECRET.Example", "Host: secret.example:80", "Host: secret.example:", "Host: secret.example.", "Host: secret.example.:8000", "Host:secret.example", "Host: \t secret.example \t", "hOST: secret.example")},
	{name: "no host", fate: ambiguous, requests: hosts("Host: user@secret.example", "Host: secret.example/", "Host: secret.example#", "Host: secret.example?", "Host: secret%2eexample", "Host: secret.example:80:80", "Host: secret.example:8o",
		"Host: secret.example, x", "Host: secret.example x", "Host: secret\xe3\x80\x82example", "Host: [secret.example", "Host: http://secret.example")},
	{name: "two hosts", fate: ambiguous, requests: hosts("Host: x\r\nHost: secret.example", "Host: secret.example\r\nHost: x", "Host: secret.example\r\nHost: secret.example", "Host: x\r\nX: y\r\nhost: secret.example", "Host:\r\nHost: secret.example")},
	{name: "blanks and folds in the head", fate: ambiguous, requests: append(hosts("Host : secret.example", "Host\t: secret.example", "Host: x\r\n secret.example", "Host:\r\n secret.example", "Host: x\r\nX: y\r\n Host: secret.example", "Host: x\r\nX-Blocked: no\r\n\tyes", "Host: x\r\nX-Blocked : yes"),
		"GET /noaccess HTTP/1.1\r\n Host: x\r\n\r\n")},
	{name: "several headers of a name", fate: cutOff, requests: with("X-Blocked: no\r\nX-Blocked: yes", "X-Blocked: yes\r\nX-Blocked: no", "x-blocked: yes", "X-BLOCKED:\t yes\t", "X-Blocked:yes", "X_Blocked: yes")},
	{name: "another value, another name", fate: reached, requests: with("X-Blocked: Yes", "X-Blocked: yes, no", "XX-Blocked: yes", "X-Blocked: ")},
	{name: "names of the host that servers do not read", fate: reached, requests: with("X-Forwarded-Host: secret.example", "X-Original-URL: /noaccess", "X-Rewrite-URL: /noaccess", "Forwarded: host=secret.example")},
	{name: "two lengths", fate: ambiguous, requests: []string{
		"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 30\r\n\r\n" + to("/noaccess"),
		"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + to("/noaccess"),
		"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + to("/noaccess"),
		"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\nContent-Length: 30\r\n\r\n" + to("/noaccess"),
		"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: +0\r\n\r\n" + to("/noaccess")}},
	{name: "behind another request", fate: cutOff, behind: true, requests: []string{
		to("/x") + to("/noaccess"),
		to("/x", "Content-Length: 0") + "\r\n" + to("/noaccess"),
		"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello" + to("/noaccess"),
		"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\nX: y\r\n\r\n" + to("/noaccess"),
		to("/x", "Expect: 100-continue", "Content-Length: 0") + to("/noaccess")}},
	{name: "as a body", fate: reached, requests: []string{
		fmt.Sprintf("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(to("/noaccess")), to("/noaccess")),
		fmt.Sprintf("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n%s", len(to("/noaccess")), to("/noaccess")),
		fmt.Sprintf("POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(to("/noaccess")), to("/noaccess")),
		fmt.Sprintf("GET /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(to("/noaccess")), to("/noaccess"))}},
	{name: "long", fate: cutOff, requests: []string{to("/" + strings.Repeat("./", 3000) + "noaccess"), to("/noaccess?" + strings.Repeat("x", 7000)),
		to("/noaccess", strings.TrimSuffix(fill(14), "\r\n")), to("/"+strings.Repeat("/", 5000)+"noaccess", strings.TrimSuffix(fill(5), "\r\n")),
		to("/h", strings.TrimSuffix(fill(14), "\r\n"), "X-Blocked: yes"), to("/" + strings.Repeat("../", 2000) + "noaccess")}},
	{name: "too long", fate: tooLarge, requests: []string{to("/noaccess", strings.TrimSuffix(fill(17), "\r\n")), to("/noaccess?" + strings.Repeat("x", 17000))}},
}

// confidant is a server that knows whether it was asked for the protected.
type confidant struct {
	mu  sync.Mutex
	got map[string]bool // addresses of clients that have got it
}

// ServeHTTP reads requests as liberally as a server may: paths are cleaned.
func (c *confidant) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	clean := path.Clean("/" + r.URL.Path)
	if strings.HasSuffix(r.URL.Path, "/") {
		clean += "/"
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	if clean == "/noaccess" || strings.EqualFold(strings.TrimSuffix(host, "."), "secret.example") || slices.Contains(r.Header["X-Blocked"], "yes") {
		c.mu.Lock()
		c.got[r.RemoteAddr] = true
		c.mu.Unlock()
	}
	if clean == "/empty" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	fmt.Fprintln(w, "hello")
}

func (c *confidant) told(client string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got[client]
}

func (c *confidant) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.got)
}

// confide starts such a server in a namespace.
func confide(t *testing.T, ns *lab.Namespace, listen []netip.AddrPort) *confidant {
	t.Helper()
	c := &confidant{got: map[string]bool{}}
	server := &http.Server{Handler: c}
	for _, addr := range listen {
		var l net.Listener
		nettest.Check(t, ns.Do(func() (err error) {
			l, err = net.Listen("tcp", addr.String())
			return err
		}))
		go func() { _ = server.Serve(l) }()
	}
	t.Cleanup(func() { server.Close() })
	return c
}

// nginxConfidant logs the addresses of clients that were told what is protected.
const nginxConfidant = `
daemon off;
user root;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr crit;
events { worker_connections 1024; }
http {
	log_format told '$remote_addr:$remote_port $status';
	access_log %[1]s/told told;
	large_client_header_buffers 8 16k;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		%[2]s
		server_name _;
		location = /noaccess { return 299 "told\n"; }
		location / {
			if ($http_x_blocked ~ "^(.*, *)?yes$") { return 299 "told\n"; }
			return 200 "hello\n";
		}
	}
	server {
		%[2]s
		server_name secret.example;
		location / { return 299 "told\n"; }
	}
}
`

// confideNginx starts nginx so, with an option of its listeners, and returns the path of the log.
func confideNginx(t *testing.T, ns *lab.Namespace, listen []netip.AddrPort, option string) (log string) {
	t.Helper()
	dir, lines := t.TempDir(), ""
	for _, a := range listen {
		lines += fmt.Sprintf("listen %s%s;\n", a, option)
	}
	conf := filepath.Join(dir, "nginx.conf")
	nettest.Check(t, os.WriteFile(conf, fmt.Appendf(nil, nginxConfidant, dir, lines), 0o600))
	_, err := ns.Serve(ns.Command(lab.NginxBinary, "-p", dir, "-c", conf, "-e", "stderr"), listen...)
	nettest.Check(t, err)
	return filepath.Join(dir, "told")
}

func wasTold(t *testing.T, log, client string) bool {
	t.Helper()
	text, err := os.ReadFile(log)
	nettest.Check(t, err)
	return bytes.Contains(text, []byte(client+" 299\n"))
}

// evade sends a request in a way and returns what becomes of it, and the client's address.
func evade(s *scene, request string, kept, ahead, behind bool, cuts ...int) (got fate, client string) {
	s.t.Helper()
	v := s.visit(bronze)
	defer v.conn.Close()
	client = v.conn.LocalAddr().String()
	answers := 0
	if kept {
		v.send(to("/before"))
		if got := v.meets(nil); got != reached {
			return "before: " + got, client
		}
	}
	if ahead {
		request = to("/before") + request
		answers++
	}
	if behind {
		answers++
	}
	err := v.tries(request, cuts...)
	for range answers {
		if got := v.concluded(err); got != reached {
			return "before: " + got, client
		}
	}
	return v.concluded(err), client
}

// concluded is meets for who does not care for 100 (Continue).
func (v *visitor) concluded(err error) fate {
	got := v.meets(err)
	if got == "100 Continue" {
		got = v.meets(err)
	}
	return got
}

// evasionWays are how requests come.
var evasionWays = []struct {
	name               string
	kept, ahead, bytes bool
}{
	{name: "first"},
	{name: "kept", kept: true},
	{name: "pipelined", ahead: true},
	{name: "in bytes", bytes: true},
	{name: "in bytes, kept", kept: true, bytes: true},
}

// Nothing that clients try has a request for what is protected slip past the rules, whatever
// the server reads.
func TestRulesEvasions(t *testing.T) {
	t.Parallel()
	r := newRuled(t, map[string]uint16{"nginx": 80, "go": 8000})
	server := confide(t, r.v4.server, r.listen("go"))
	log := confideNginx(t, r.v4.server, r.listen("nginx"), "")
	told := func(t *testing.T, service, client string) bool {
		if service == "go" {
			return server.told(client)
		}
		return wasTold(t, log, client)
	}
	for _, service := range []string{"go", "nginx"} { // the servers do tell
		for _, request := range evasions[0].requests {
			s := r.at(t, service, false)
			_, client := evade(s, request, false, false, false)
			eventually(t, service+" is asked", func() bool { return told(t, service, client) })
		}
	}
	server.forget() // another client may have the port of one that was told
	nettest.Check(t, os.Truncate(log, 0))
	r.enforce(evasionPolicy)
	t.Run("behind CONNECT", func(t *testing.T) {
		t.Parallel()
		rulesBehindCONNECT(t, r.at(t, "go", false), server)
	})
	for _, service := range []string{"go", "nginx"} {
		for _, way := range evasionWays {
			t.Run(service+"/"+way.name, func(t *testing.T) {
				t.Parallel()
				s := r.at(t, service, way.kept)
				for _, e := range evasions {
					for i, request := range e.requests {
						if way.ahead && i > 0 { // each waits until the client sends it again
							break
						}
						var cuts []int
						if way.bytes && len(request) < 200 {
							cuts = everywhere(request)
						}
						got, client := evade(s, request, way.kept, way.ahead, e.behind, cuts...)
						if got != e.fate && !(way.ahead && e.fate != reached && got == cutOff) {
							t.Errorf("%s: %.80q: %s, want %s", e.name, request, got, e.fate)
						}
						if told(t, service, client) {
							t.Errorf("%s: %.80q: it REACHED the server", e.name, request)
						}
					}
				}
			})
		}
	}
}

// A server that answers CONNECT as it does other methods speaks HTTP/1 behind it, and rules hold.
func rulesBehindCONNECT(t *testing.T, s *scene, c *confidant) {
	for _, target := range []string{"/x", "/empty", "x:443"} {
		for _, bytes := range []bool{false, true} {
			v := s.visit(bronze)
			client := v.conn.LocalAddr().String()
			for range 2 {
				v.send("CONNECT " + target + " HTTP/1.1\r\nHost: x\r\n\r\n")
				if resp, _, err := v.answer(); err != nil || resp.StatusCode >= 300 {
					t.Fatalf("CONNECT %s: %v, %v", target, resp, err)
				}
			}
			var cuts []int
			if bytes {
				cuts = everywhere(to("/noaccess"))
			}
			if got := v.meets(v.tries(to("/noaccess"), cuts...)); got != cutOff || c.told(client) {
				t.Errorf("behind CONNECT %s: %s, told: %v; want %s", target, got, c.told(client), cutOff)
			}
			v.conn.Close()
		}
	}
}

// The documentation has a row for each evasion, with its outcome, and no others.
func TestRulesEvasionsAreListed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/evasions.md")
	nettest.Check(t, err)
	listed := map[string]string{}
	for _, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(line, " | ")
		if name, is := strings.CutPrefix(cells[0], "| "); is && name != "tried" {
			listed[name] = cells[len(cells)/2] // of four the outcome
		}
	}
	for _, e := range evasions {
		if listed[e.name] != string(e.fate) {
			t.Errorf("docs/evasions.md says of %q: %q, want %q", e.name, listed[e.name], e.fate)
		}
		delete(listed, e.name)
	}
	for _, e := range segmentEvasions {
		if listed[e.name] == "" {
			t.Errorf("docs/evasions.md does not list %q", e.name)
		}
		delete(listed, e.name)
	}
	for name := range listed {
		t.Errorf("docs/evasions.md lists %q, which is not tried", name)
	}
}
