// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"narthex/internal/datapath"
)

// Proxies at the addresses of gold clients are trusted to say who asks.
const proxiesPolicy = `
version: 1
services:
  - {name: go, listen: ["*:80"], concurrency: 16, trusted_proxies: [10.77.2.0/24, "fd77::2:0/112"]}
  - {name: nginx, listen: ["*:8080"], concurrency: 16, trusted_proxies: [10.77.2.0/24, "fd77::2:0/112"]}
classes:
  - {name: gold, priority: 1}
  - {name: bronze, priority: 2}
connections:
  - {name: partner, from: [203.0.113.0/24, "2001:db8:7::/48"], class: gold}
requests:
  - {name: noaccess, path: /noaccess, action: drop}
  - {name: each, path: "/each*", rate: 1/m, burst: 1, per: source}
  - {name: cgi, path: "/cgi", rate: 1/m, burst: 1, per: source, block: 1h}
`

// forwarded asks on the connection for somebody else.
func (v *visitor) forwarded(path, from string, want fate) {
	v.t.Helper()
	if got := v.meets(v.tries(to(path, "X-Forwarded-For: "+from))); got != want {
		v.t.Errorf("%s for %s: %s, want %s", path, from, got, want)
	}
}

// Each request of a trusted proxy's connection is its client's: buckets, classes and blocks are. Nobody
// else is believed.
func TestRulesForwarded(t *testing.T) {
	t.Parallel()
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6=%v", v6), func(t *testing.T) {
			t.Parallel()
			r := newRuled(t, map[string]uint16{"go": 80, "nginx": 8080}, "go")
			r.enforce(proxiesPolicy)
			l := r.opened()
			s := r.at(t, "go", v6)
			v := s.visit(gold)
			for _, from := range []string{"192.0.2.1", "192.0.2.2", "2001:db8::1", "198.51.100.7, 192.0.2.3"} {
				v.forwarded("/each", from, reached)
			}
			v.forwarded("/each", "192.0.2.1", turned)
			for _, from := range []string{"192.0.2.3", "192.0.2.3, 10.77.2.9", "2001:db8::2", "::ffff:192.0.2.2"} {
				s.visit(gold).forwarded("/each", from, turned)
			}
			s.visit(gold).forwarded("/noaccess", "192.0.2.1", turned) // as the connection is the proxy's
			v = s.visit(gold)
			v.forwarded("/plain", "203.0.113.5", reached)
			v.forwarded("/plain", "2001:db8:7::1", reached)
			v.forwarded("/plain", "192.0.2.1", reached)
			v.forwarded("/cgi", "192.0.2.5", reached)
			v.forwarded("/cgi", "192.0.2.5", turned)
			if !s.connects(gold) {
				t.Error("the proxy is blocked for its client")
			}
			s.visit(gold).forwarded("/plain", "192.0.2.5", turned) // blocked
			v = s.visit(bronze)
			v.forwarded("/each", "192.0.2.101", reached)
			v.forwarded("/plain", "203.0.113.5", reached)
			v.forwarded("/each", "192.0.2.102", turned)
			l.counts("each", datapath.Counts{Passed: 5, Dropped: 6})
			l.counts("noaccess", datapath.Counts{Dropped: 1})
			l.counts("cgi", datapath.Counts{Passed: 1, Dropped: 1})
			l.arrives("go", "gold", 2)
			l.arrives("go", "bronze", 4+1+1+2)
			r.agrees(t, l)
		})
	}
}

const placesPolicy = `
version: 1
services:
  - {name: go, listen: ["*:80"], concurrency: 16, trusted_proxies: [10.77.2.0/24, "fd77::2:0/112"]}
  - {name: nginx, listen: ["*:8080"], concurrency: 16}
classes:
  - {name: gold, priority: 1}
  - {name: bronze, priority: 2}
requests:
  - {name: crawlers, from: [203.0.113.0/24, "2001:db8:7::/48"], path: "/each*", action: reject}
  - {name: all-but, from: [203.0.113.8/29, 198.51.100.1-198.51.100.9], action: reject}
  - {name: bronzes, from: [10.77.3.0/24, "fd77::3:0/112"], to: go, path: "/plain", action: reject}
  - {name: nginx, to: "*:8080", path: "/cgi", action: reject}
  - {name: elsewhere, to: ["10.99.0.0/16:80", "[fd99::/32]:80"], action: reject}
`

// Rules ask whom a request is from, and where it is to. Behind a trusted proxy that is whom it names.
func TestRulesPlaces(t *testing.T) {
	t.Parallel()
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6=%v", v6), func(t *testing.T) {
			t.Parallel()
			r := newRuled(t, map[string]uint16{"go": 80, "nginx": 8080}, "go", "nginx")
			r.enforce(placesPolicy)
			l := r.opened()
			s := r.at(t, "go", v6)
			v := s.visit(gold)
			for _, from := range []string{"203.0.113.1", "2001:db8:7:1::1", "192.0.2.1, 203.0.113.7"} {
				v.forwarded("/plain", from, reached)
				s.visit(gold).forwarded("/each", from, turned)
			}
			for _, from := range []string{"203.0.113.9", "198.51.100.5", "198.51.100.9"} {
				s.visit(gold).forwarded("/plain", from, turned)
			}
			v.forwarded("/each", "192.0.2.1", reached)
			v.forwarded("/each", "203.0.113.1, 2001:db8:8::1", reached)
			v.forwarded("/plain", "198.51.100.10", reached)
			v = s.visit(bronze)
			v.forwarded("/each", "203.0.113.1", reached) // not believed
			v.asks("/cgi", reached)
			v.asks("/plain", turned)
			n := r.at(t, "nginx", v6)
			v = n.visit(bronze)
			v.asks("/plain", reached)
			v.asks("/cgi", turned)
			l.counts("crawlers", datapath.Counts{Dropped: 3})
			l.counts("all-but", datapath.Counts{Dropped: 3})
			l.counts("bronzes", datapath.Counts{Dropped: 1})
			l.counts("nginx", datapath.Counts{Dropped: 1})
			l.counts("elsewhere", datapath.Counts{})
			l.arrives("go", "bronze", 3+3+2)
			l.arrives("nginx", "bronze", 1)
			r.agrees(t, l)
		})
	}
}

// A PROXY header names the client of a whole connection.
func TestRulesProxyHeader(t *testing.T) {
	t.Parallel()
	r := newRuled(t, map[string]uint16{"go": 80, "nginx": 8080}, "go")
	confideNginx(t, r.v4.server, r.listen("nginx"), " proxy_protocol")
	r.enforce(proxiesPolicy)
	one := func(from string) string { return "PROXY TCP4 " + from + " 10.77.0.1 1234 80\r\n" }
	two := func(from string) string {
		a := netip.MustParseAddr(from).As4()
		return "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + string(a[:]) + "\x0a\x4d\x00\x01\x04\xd2\x00\x50"
	}
	for i, header := range []func(from string) string{one, two} {
		for _, v6 := range []bool{false, true} {
			n := 10*i + 4*map[bool]int{true: 1}[v6]
			s := r.at(t, "nginx", v6)
			ask := func(last int, path string, want fate, cuts ...int) *visitor {
				v := s.visit(gold)
				head := header(fmt.Sprintf("192.0.2.%d", last))
				for i := range cuts {
					if cuts[i] < 0 {
						cuts[i] = len(head)
					}
				}
				if got := v.meets(v.tries(head+to(path), cuts...)); got != want {
					t.Errorf("PROXY %d, %s: %s, want %s", i+1, path, got, want)
				}
				return v
			}
			v := ask(n, "/each", reached)
			v.asks("/plain", reached)
			v.asks("/each", turned)
			ask(n, "/each", turned, 5)
			ask(n+1, "/each", reached, -1)
			ask(n+1, "/each", turned, 3, -1)
			ask(n+2, "/noaccess", turned, -1)
		}
	}
}

const listedPolicy = `
version: 1
lists: {blocked: {file: %[1]s/blocked}, crawlers: {file: %[1]s/crawlers}, unused: {file: %[1]s/unused}}
services:
  - {name: go, listen: ["*:80"], concurrency: 16, trusted_proxies: [10.77.2.0/24, "fd77::2:0/112"]}
classes:
  - {name: gold, priority: 1}
  - {name: bronze, priority: 2}
connections:
  - {name: blocked, from: "@blocked", action: drop}
requests:
  - {name: both, from: ["@unused", "@crawlers", 203.0.113.0/24], path: "/each*", action: reject}
  - {name: listed, from: "@crawlers", class: gold}
`

// Rules find clients in lists, which change while they are in force.
func TestRulesLists(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	replace := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	replace("blocked", "# nobody\n")
	replace("unused", "# nobody\n")
	replace("crawlers", `{"prefixes": [{"ipv4Prefix": "192.0.2.0/27"}, {"ipv6Prefix": "2001:db8:7::/48"}]}`)
	r := newRuled(t, map[string]uint16{"go": 80}, "go")
	r.enforce(fmt.Sprintf(listedPolicy, dir))
	l := r.opened()
	s := r.at(t, "go", false)
	v := s.visit(gold)
	for from, want := range map[string]fate{"192.0.2.31": turned, "2001:db8:7::9": turned, "203.0.113.9": turned, "192.0.2.32": reached, "2001:db8:8::": reached} {
		s.visit(gold).forwarded("/each", from, want)
	}
	v.forwarded("/plain", "192.0.2.7", reached)
	v.forwarded("/plain", "203.0.113.7", reached)
	l.counts("both", datapath.Counts{Dropped: 3})
	l.counts("listed", datapath.Counts{Passed: 1})
	l.arrives("go", "gold", 1)
	l.arrives("go", "bronze", 3)
	r.agrees(t, l)

	replace("crawlers", "203.0.113.7\n")
	replace("blocked", "10.77.3.0/24\nfd77::3:0/112\n")
	eventually(t, "the lists are read anew", func() bool {
		all := r.instance.status().Lists
		return all[0].Reads > 1 && all[1].Reads > 1
	})
	if s.connects(bronze) {
		t.Error("who is blocked connects")
	}
	v = s.visit(gold)
	v.forwarded("/each", "192.0.2.31", reached)
	v.forwarded("/each", "203.0.113.7", turned)
	status := r.instance.status()
	if a, b := status.Lists[0].Matches, status.Lists[1].Matches; a < 1 || b != 3+1 {
		t.Errorf("matches of the lists: %d blocked, %d crawlers", a, b)
	}
}
