// SPDX-License-Identifier: Apache-2.0

package starter

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"narthex/internal/policy"
)

var update = flag.Bool("update", false, "write the golden files anew")

// machines are what listens where, as PROGRAM ADDRESS:PORT; a dash is a program that cannot be seen.
var machines = map[string]string{
	"nothing":    "",
	"only-ssh":   "sshd 0.0.0.0:22, sshd [::]:22",
	"nginx":      "sshd 0.0.0.0:22, nginx 0.0.0.0:80, nginx [::]:80, nginx 0.0.0.0:443, nginx [::]:443, php-fpm8.2 127.0.0.1:9000, mariadbd 127.0.0.1:3306",
	"tls-proxy":  "nginx 0.0.0.0:80, nginx 0.0.0.0:443, nginx 127.0.0.1:8081, node 127.0.0.1:3000, python3.11 [::1]:8000, postgres 127.0.0.1:5432",
	"open-app":   "caddy [::]:443, caddy [::]:80, caddy 127.0.0.1:2019, node [::]:3000, node 127.0.0.1:9229",
	"plain":      "apache2 [::]:80, gunicorn 127.0.0.1:8000, redis-server 127.0.0.1:6379",
	"developer":  "node 127.0.0.1:3000, node 127.0.0.1:43211, postgres 127.0.0.1:5432",
	"addresses":  "nginx 192.0.2.1:80, nginx [2001:db8::1]:80, haproxy 192.0.2.2:80, hitch 192.0.2.2:443, varnishd 127.0.0.1:6081",
	"unseen":     "- 0.0.0.0:22, - 0.0.0.0:80, - 0.0.0.0:443, - 127.0.0.1:8080, - 127.0.0.1:9191",
	"containers": "docker-proxy 0.0.0.0:8080, docker-proxy [::]:8080, containerd 127.0.0.1:41001, nginx 0.0.0.0:80",
}

func listenersOf(t *testing.T, text string) (found []Listener) {
	t.Helper()
	pids := map[string]int{}
	for one := range strings.SplitSeq(text, ", ") {
		program, at, ok := strings.Cut(one, " ")
		if !ok {
			continue
		}
		l := Listener{At: netip.MustParseAddrPort(at)}
		if program != "-" {
			if pids[program] == 0 {
				pids[program] = 1000 + len(pids)
			}
			l.Program, l.PID = program, pids[program]
		}
		found = append(found, l)
	}
	return found
}

// TestPolicies compares what is written about some machines with golden files, and checks that
// the policies are valid, and raise no warnings, as they are and with what is commented out.
func TestPolicies(t *testing.T) {
	for name, text := range machines {
		t.Run(name, func(t *testing.T) {
			plan := Make(listenersOf(t, text))
			got := plan.Text(Options{File: "policy.yaml", Schema: "/usr/share/narthex/policy.schema.json"})
			valid(t, got, true)
			valid(t, uncommented(got), true)
			found, err := json.MarshalIndent(plan, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got += "\n---\n" + string(found) + "\n"
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v; run go test ./internal/starter -update", err)
			}
			if got != string(want) {
				t.Errorf("wrote:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// fataler is a test, or one of many that rapid makes.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// valid fails unless a policy is valid.
func valid(t fataler, text string, warnings bool) *policy.Policy {
	t.Helper()
	p, found, err := policy.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v, in\n%s", err, text)
	}
	_, more, err := policy.Compile(p)
	if err != nil {
		t.Fatalf("%v, in\n%s", err, text)
	}
	for _, w := range append(found, more...) {
		if warnings {
			t.Fatalf("warning: %s, in\n%s", w, text)
		}
	}
	return p
}

var suggested = regexp.MustCompile(`(?m)^( *)#(classes:|connections:|requests:|- \{|  - \{)`)

// uncommented removes the "#" of everything that is no sentence.
func uncommented(text string) string { return suggested.ReplaceAllString(text, "$1$2") }

// TestWhateverListens checks that the policy is valid whatever listens, that all services are
// in shadow mode, and that no listener is forgotten.
func TestWhateverListens(t *testing.T) {
	programs := rapid.OneOf(
		rapid.SampledFrom([]string{"", "nginx", "haproxy", "node", "python3", "sshd", "postgres", "hitch", "null", "true", "123", "-", "a b", "x\n  - {name: evil}", "\"", "#", "ü"}),
		rapid.String(),
	)
	addresses := rapid.SampledFrom([]string{"0.0.0.0", "::", "127.0.0.1", "127.0.0.53", "::1", "192.0.2.1", "192.0.2.2", "2001:db8::1", "fe80::1"})
	ports := rapid.OneOf(rapid.SampledFrom([]uint16{22, 80, 443, 3000, 8080, 8443, 9000, 40000}), rapid.Uint16Range(1, 65535))
	rapid.Check(t, func(t *rapid.T) {
		found := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Listener {
			return Listener{
				At:      netip.AddrPortFrom(netip.MustParseAddr(addresses.Draw(t, "address")), ports.Draw(t, "port")),
				Device:  rapid.SampledFrom([]string{"", "", "", "eth0", "lo", "vrf-a"}).Draw(t, "device"),
				Program: programs.Draw(t, "program"),
				PID:     rapid.IntRange(0, 2).Draw(t, "pid"),
			}
		}), 0, 30).Draw(t, "listeners")
		o := Options{
			File:   rapid.SampledFrom([]string{"policy.yaml", "a b.yaml", "x\ny"}).Draw(t, "file"),
			Schema: rapid.SampledFrom([]string{"", "/usr/share/narthex/policy.schema.json", "/a\nb"}).Draw(t, "schema"),
			NetNS:  rapid.SampledFrom([]string{"", "blue", "x\ny"}).Draw(t, "netns"),
		}
		plan := Make(found)
		text := plan.Text(o)
		p := valid(t, text, false)
		valid(t, uncommented(text), false)
		if len(p.Services) != len(plan.Services) {
			t.Fatalf("%d services in\n%s\nwant %d", len(p.Services), text, len(plan.Services))
		}
		for _, s := range p.Services {
			if !s.Shadow {
				t.Fatalf("service %s is enforced in\n%s", s.Name, text)
			}
		}
		for _, l := range found {
			if !mentioned(text, l) {
				t.Fatalf("%v is not to be found in\n%s", l.At, text)
			}
		}
	})
}

// mentioned reports whether an address and port, or its port at any address, is in a policy.
func mentioned(text string, l Listener) bool {
	return strings.Contains(text, l.At.String()) || strings.Contains(text, fmt.Sprintf("*:%d", l.At.Port()))
}

// TestManyListeners checks that there are not more services than a policy may have.
func TestManyListeners(t *testing.T) {
	var found []Listener
	for port := range uint16(3000) {
		found = append(found, Listener{At: netip.AddrPortFrom(netip.IPv4Unspecified(), 10_000+port), Program: "node", PID: 7})
	}
	plan := Make(found)
	if got := len(plan.Services) + len(plan.LeftOut); len(plan.Services) != maxServices || got != len(found) {
		t.Errorf("%d services and %d left out of %d", len(plan.Services), len(plan.LeftOut), len(found))
	}
	valid(t, plan.Text(Options{File: "p.yaml"}), true)
}
