// SPDX-License-Identifier: Apache-2.0

// Package reading asks six real servers how they read heads of requests, and compares that with
// how the data path's source, compiled natively, does: where a request ends, whether the
// connection outlives it, and what it asks for.
package reading

import (
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"narthex/internal/lab"
)

// Seen is what a server says of a request that it serves.
type Seen struct {
	Method string
	Host   string
	Rule   string // the header X-Rule, several of them joined
	Path   string // decoded, for the servers that decode it
	Target string // as it came, for the others
}

// Server is one of the six.
type Server struct {
	Name  string
	at    netip.AddrPort
	start func(*lab.Namespace, netip.AddrPort) error
	read  func(*http.Response, []byte) (Seen, error)
}

// address is where a server listens, in a namespace of its own.
func address(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
}

// Servers are the six.
func Servers() []*Server {
	all := []*Server{
		{Name: "nginx", start: startNginx, read: readLines},
		{Name: "apache", start: startApache, read: readBase64},
		{Name: "haproxy", start: startHAProxy, read: readHex},
		{Name: "go", start: startGo, read: readHex},
		{Name: "node", start: startNode, read: readHex},
		{Name: "gunicorn", start: startGunicorn, read: readHex},
	}
	for i, s := range all {
		s.at = address(uint16(8001 + i))
	}
	return all
}

// fields are what servers say, in this order.
func (s *Seen) fields() []*string {
	return []*string{&s.Method, &s.Host, &s.Rule, &s.Path, &s.Target}
}

func startNginx(ns *lab.Namespace, at netip.AddrPort) error {
	_, err := ns.StartNginx(lab.NginxConfig{
		Listen: []netip.AddrPort{at},
		HTTP:   "large_client_header_buffers 8 32k;",
		Server: `server_name ""; location / { return 200 "$request_method\n$host\n$http_x_rule\n$uri"; }`,
	})
	return err
}

// readLines reads lines, of which the last, the path, may have line ends in it.
func readLines(_ *http.Response, body []byte) (seen Seen, err error) {
	parts := strings.SplitN(string(body), "\n", 4)
	if len(parts) != 4 {
		return seen, fmt.Errorf("%q is no answer of ours", body)
	}
	return Seen{Method: parts[0], Host: parts[1], Rule: parts[2], Path: parts[3]}, nil
}

// apacheDirectives answer everything with one file.
const apacheDirectives = `
LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so
LoadModule headers_module /usr/lib/apache2/modules/mod_headers.so
AliasMatch "^" "%s"
<Directory "%s">
	Require all granted
</Directory>
AllowEncodedSlashes On
LimitRequestLine 16000
LimitRequestFieldSize 16000
LimitRequestFields 0
Header always set X-Seen "expr=%%{base64:%%{REQUEST_METHOD}}.%%{base64:%%{HTTP_HOST}}.%%{base64:%%{HTTP:X-Rule}}.%%{base64:%%{REQUEST_URI}}"
`

func startApache(ns *lab.Namespace, at netip.AddrPort) error {
	dir, err := ns.TempDir("apache-file")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "answer")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(file, []byte("served\n"), 0o644)); err != nil {
		return err
	}
	_, err = ns.StartApache(lab.ApacheConfig{Listen: []netip.AddrPort{at}, Workers: 64, Directives: fmt.Sprintf(apacheDirectives, file, dir)})
	return err
}

// readBase64 reads Apache's header.
func readBase64(resp *http.Response, _ []byte) (seen Seen, err error) {
	return seen, seen.decode(resp.Header.Get("X-Seen"), base64.StdEncoding.DecodeString)
}

// readHex reads fields of the body.
func readHex(_ *http.Response, body []byte) (seen Seen, err error) {
	return seen, seen.decode(string(body), hex.DecodeString)
}

func (s *Seen) decode(text string, decode func(string) ([]byte, error)) error {
	parts := strings.Split(text, ".")
	if len(parts) < 4 {
		return fmt.Errorf("%q is no answer of ours", text)
	}
	for i, field := range s.fields()[:len(parts)] {
		b, err := decode(parts[i])
		if err != nil {
			return err
		}
		*field = string(b)
	}
	return nil
}

func startHAProxy(ns *lab.Namespace, at netip.AddrPort) error {
	_, err := ns.StartHAProxy(lab.HAProxyConfig{
		Listen:   []netip.AddrPort{at},
		Frontend: `http-request return status 200 content-type text/plain lf-string "%[method,hex].%[req.hdr(host),hex].%[req.fhdr(x-rule),hex]..%[url,hex]"`,
	})
	return err
}

// inHex is what readHex reads.
func (s *Seen) inHex() string {
	var parts []string
	for _, f := range s.fields() {
		parts = append(parts, hex.EncodeToString([]byte(*f)))
	}
	return strings.Join(parts, ".")
}

func startGo(ns *lab.Namespace, at netip.AddrPort) error {
	var l net.Listener
	err := ns.Do(func() (err error) {
		l, err = net.Listen("tcp", at.String())
		return err
	})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(serveGo)}
	ns.OnClose(server.Close)
	go func() { _ = server.Serve(l) }()
	return nil
}

func serveGo(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if r.URL.Path == "/empty" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	seen := Seen{Method: r.Method, Host: r.Host, Rule: strings.Join(r.Header["X-Rule"], ","), Path: r.URL.Path}
	if r.URL.Path == "" { // the authority of CONNECT, or nothing behind that of a URL
		seen.Target = r.RequestURI
	}
	_, _ = io.WriteString(w, seen.inHex())
}

//go:embed server.js
var nodeServer string

func startNode(ns *lab.Namespace, at netip.AddrPort) error {
	return serve(ns, at, "node", "nodejs", "-e", nodeServer, at.Addr().String(), strconv.Itoa(int(at.Port())))
}

//go:embed server.py
var gunicornServer string

func startGunicorn(ns *lab.Namespace, at netip.AddrPort) error {
	dir, err := ns.TempDir("gunicorn")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "reading.py"), []byte(gunicornServer), 0o600); err != nil {
		return err
	}
	return serve(ns, at, "/usr/bin/gunicorn", "gunicorn", "--chdir", dir, "--bind", at.String(), "--worker-class", "gthread", "--threads", "16",
		"--log-level", "critical", "--limit-request-line", "8190", "reading:serve")
}

func serve(ns *lab.Namespace, at netip.AddrPort, program, pkg string, args ...string) error {
	if _, err := ns.Serve(ns.Command(program, args...), at); err != nil {
		return fmt.Errorf("start %s, of the package %s: %w", program, pkg, err)
	}
	return nil
}
