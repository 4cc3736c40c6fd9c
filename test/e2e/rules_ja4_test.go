// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"narthex/internal/datapath"
	"narthex/internal/ja4"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// tlsClient is a program that speaks TLS. It asks for a path, and returns whether it has had an answer.
type tlsClient struct {
	name string
	asks func(s *scene, path string) (answered bool)
}

// run has a command speak for a client in its namespace.
func (s *scene) run(name string, args ...string) bool {
	s.t.Helper()
	out, err := s.client.Command(name, args...).CombinedOutput()
	if err != nil {
		s.t.Logf("%s: %v: %.200s", name, err, out)
	}
	return err == nil
}

func curlTLS(more ...string) func(*scene, string) bool {
	return func(s *scene, path string) bool {
		host := fmt.Sprintf("www.example:%d", s.to.Port())
		return s.run("curl", append([]string{"-sSfk", "-o", "/dev/null", "--max-time", "20", "--interface", s.addr(bronze).String(),
			"--connect-to", host + ":" + s.to.String(), "https://" + host + path}, more...)...)
	}
}

func opensslTLS(more ...string) func(*scene, string) bool {
	return func(s *scene, path string) bool {
		args := append([]string{"openssl", "s_client", "-quiet", "-servername", "www.example", "-connect", s.to.String()}, more...)
		// It sees the end of its own input before the answer.
		script := fmt.Sprintf(`{ printf 'GET %s HTTP/1.0\r\nHost: x\r\n\r\n'; sleep 1; } | timeout 20 %s 2>/dev/null | grep -q '^HTTP/1'`, path, strings.Join(args, " "))
		return s.run("sh", "-c", script)
	}
}

func goTLS(change func(*tls.Config)) func(*scene, string) bool {
	return func(s *scene, path string) bool {
		v := s.visit(bronze)
		defer v.conn.Close()
		v.secure(func(cfg *tls.Config) { cfg.ServerName = "www.example" }, change)
		return v.meets(v.tries(to(path))) == reached
	}
}

// tlsClients have a fingerprint of their own each.
var tlsClients = []tlsClient{
	{"curl", curlTLS()},
	{"curl-http1", curlTLS("--http1.1")},
	{"curl-no-alpn", curlTLS("--no-alpn")},
	{"curl-tls12", curlTLS("--tls-max", "1.2")},
	{"openssl", opensslTLS()},
	{"openssl-tls12", opensslTLS("-tls1_2")},
	{"openssl-ciphers", opensslTLS("-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256")},
	{"openssl-alpn", opensslTLS("-alpn", "x")},
	{"go", goTLS(func(*tls.Config) {})},
	{"go-h2", goTLS(func(cfg *tls.Config) {
		cfg.NextProtos = []string{"http/1.1", "h2", "h3"}
		cfg.MaxVersion = tls.VersionTLS12
	})},
	{"go-no-name", goTLS(func(cfg *tls.Config) { cfg.ServerName = "" })},
}

// overhears returns the fingerprint of a client, by plain Go on what it says to a listener that does not answer.
func (s *scene) overhears(c tlsClient) string {
	s.t.Helper()
	var plain net.ListenConfig
	plain.SetMultipathTCP(false) // whose port is free some time after Close only
	var l net.Listener
	var failed error
	within(patience, func() bool { // what another test has just begun to run has the last listener until it is executed
		failed = s.server.Do(func() (err error) {
			l, err = plain.Listen(s.t.Context(), "tcp", s.to.String())
			return err
		})
		return !errors.Is(failed, syscall.EADDRINUSE)
	})
	nettest.Check(s.t, failed)
	defer l.Close()
	said := make(chan string, 1)
	go func() {
		defer close(said)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		var all []byte
		for b := make([]byte, 1<<14); ; {
			n, err := conn.Read(b)
			all = append(all, b[:n]...)
			if p, ok := ja4.Of(all); ok {
				said <- p
				return
			}
			if err != nil {
				return
			}
		}
	}()
	if c.asks(s, "/") {
		s.t.Fatalf("%s has had an answer of a server that gives none", c.name)
	}
	print := <-said
	if print == "" {
		s.t.Fatalf("%s: no fingerprint", c.name)
	}
	return print
}

// Each client is of the rule with its fingerprint, and a rule that rejects one rejects no other.
func TestRulesJA4(t *testing.T) {
	t.Parallel()
	r := newRuled(t, map[string]uint16{"limited": 443, "free": 8443})
	prints := map[string]string{}
	for _, c := range tlsClients {
		prints[c.name] = r.at(t, "limited", false).overhears(c)
		t.Log(c.name, prints[c.name])
	}
	_, err := origin.Start(r.v4.server, origin.Config{
		Listen:  append(r.listen("limited"), r.listen("free")...),
		Control: []netip.AddrPort{r.v4.tell}, TLS: true,
	})
	nettest.Check(t, err)
	policy := `
version: 1
services:
  - {name: limited, listen: ["*:443"], protocol: tls, concurrency: 16}
  - {name: free, listen: ["*:8443"], protocol: tls}
classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]
requests:
`
	rejected := []string{"curl-tls12", "openssl-alpn", "go-h2"}
	for _, c := range tlsClients {
		action := "class: gold"
		if slices.Contains(rejected, c.name) {
			action = "action: reject"
		}
		policy += fmt.Sprintf("  - {name: %s, ja4: %s, %s}\n", c.name, prints[c.name], action)
	}
	r.enforce(policy + "  - {name: other, ja4: \"*\", action: drop}\n")
	for _, v6 := range []bool{false, true} {
		for _, service := range []string{"limited", "free"} {
			l := r.opened()
			told := r.events(t, "--json", "--kind", "reject")
			for _, c := range tlsClients {
				s, m, want := r.at(t, service, v6), mark(), !slices.Contains(rejected, c.name)
				if got := c.asks(s, "/"+m); got != want || s.sawMark(m) != want {
					t.Errorf("%s, %s, v6=%v: answered: %v, want %v", service, c.name, v6, got, want)
				}
				if want {
					l.counts(c.name, datapath.Counts{Passed: 1})
					l.arrives(service, "gold", 1)
				} else {
					l.counts(c.name, datapath.Counts{Dropped: 1})
					if e := told.event(); e.JA4 != prints[c.name] || e.Rule != c.name {
						t.Errorf("%s: told is %+v, want the fingerprint %s", c.name, e, prints[c.name])
					}
				}
			}
			r.agrees(t, l)
		}
	}
}

// A client that a rule with a fingerprint has learned is of its class at the next SYN, and at a service of HTTP.
func TestRulesJA4Learns(t *testing.T) {
	t.Parallel()
	for _, v6 := range []bool{false, true} {
		r := newRuled(t, map[string]uint16{"go": 80, "tls": 443}, "go")
		print := r.at(t, "tls", false).overhears(tlsClients[0])
		_, err := origin.Start(r.v4.server, origin.Config{Listen: r.listen("tls"), TLS: true})
		nettest.Check(t, err)
		r.enforce(fmt.Sprintf(`
version: 1
services:
  - {name: go, listen: ["*:80"], concurrency: 8}
  - {name: tls, listen: ["*:443"], protocol: tls, concurrency: 8}
classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]
connections: [{name: members, learned: [gold], class: gold}]
requests: [{name: member, ja4: %s, class: gold, learn: 10m}]
`, print))
		s, private := r.at(t, "go", v6), r.at(t, "tls", v6)
		l := r.opened()
		s.visit(bronze).asks("/before", reached)
		if !goTLS(func(*tls.Config) {})(private, "/other") || !tlsClients[0].asks(private, "/member") {
			t.Error("a client has had no answer")
		}
		s.visit(bronze).asks("/behind", reached)
		l.counts("member", datapath.Counts{Passed: 1})
		l.arrives("go", "bronze", 1)
		l.arrives("tls", "bronze", 1)
		l.arrives("tls", "gold", 1)
		l.arrives("go", "gold", 1)
		r.agrees(t, l)
		if got := r.rule("members"); got.Passed != 1 {
			t.Errorf("members: %+v", got)
		}
	}
}
