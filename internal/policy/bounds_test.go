// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

// rulesOnly returns a policy of the given rules for as many services.
func rulesOnly(services int, rules []Connection) *Policy {
	p := &Policy{File: "bounds.yaml", Classes: []Class{{Name: implicitClass, Priority: 1}}, Connections: rules}
	for i := range services {
		p.Services = append(p.Services, Service{Name: fmt.Sprint("s", i), Listen: []Listen{{Port: 80}}})
	}
	for i := range rules {
		rules[i].Name = fmt.Sprint("r", i)
		rules[i].Pos = Pos{i + 1, 1}
	}
	return p
}

func TestCompileIsBounded(t *testing.T) {
	v4 := func(i, bits int) Range {
		return PrefixRange(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 11), byte(i >> 3), byte(i << 5)}), bits))
	}
	port := func(i int) []PortRange { return []PortRange{{uint16(i*7 + 1), uint16(i*7 + 3)}} }
	tests := []struct {
		name     string
		services int
		rules    func() []Connection
		wrong    string // part of the error, or empty if it compiles
	}{
		{"nested prefixes", 1, func() (r []Connection) {
			for i := range 5_000 {
				r = append(r, Connection{From: []Range{v4(i*3, 32-i%25)}})
			}
			return r
		}, ""},
		{"ports of anybody after prefixes", 1, func() (r []Connection) {
			for i := range 5_000 {
				r = append(r, Connection{From: []Range{v4(i, 27)}})
			}
			for i := range 5_000 {
				r = append(r, Connection{FromPort: port(i)})
			}
			return r
		}, ""},
		{"ports of anybody between prefixes", 1, func() (r []Connection) {
			for i := range 5_000 {
				r = append(r, Connection{FromPort: port(i)}, Connection{From: []Range{v4(i, 27)}})
			}
			return r
		}, `bounds.yaml:1:1: the tables would be too large: 5000 rules name "from_port" ("r0", "r2", "r4" and 4997 more)`},
		{"prefixes with ports over ports", 1, func() (r []Connection) {
			for i := range 5_000 {
				r = append(r, Connection{FromPort: port(i)}, Connection{From: []Range{v4(i, 27)}, FromPort: port(i * 3 % 5_000)})
			}
			return r
		}, ""},
		{"widest ranges", 1, func() (r []Connection) {
			first, last := netip.MustParseAddr("::1"), netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe")
			for range 10_000 {
				r = append(r, Connection{From: []Range{{first, last}}})
				first, last = first.Next(), last.Prev()
			}
			return r
		}, `the tables would be too large: rule "r`},
		{"services with rules of their own", 1024, func() (r []Connection) {
			for i := range 20_000 {
				r = append(r, Connection{From: []Range{v4(i, 27)}, To: []int{i % 1024, i * 7 % 1024}})
			}
			for i := range 40_000 {
				r = append(r, Connection{From: []Range{v4(i, 32)}})
			}
			return r
		}, `services have`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := rulesOnly(test.services, test.rules())
			tables, _, err := Compile(p)
			switch {
			case err == nil && test.wrong != "":
				t.Fatalf("compiled to %d nodes, want an error with %q", len(tables.Nodes), test.wrong)
			case err != nil && (test.wrong == "" || !strings.Contains(err.Error(), test.wrong)):
				t.Fatalf("error %q, want one with %q", err, test.wrong)
			}
			if err == nil {
				compareWithOracle(t, p, tables)
			}
		})
	}
}

// compareWithOracle looks up sources at the edges of rules, the same at every run.
func compareWithOracle(t *testing.T, p *Policy, tables *Tables) {
	t.Helper()
	addresses, ports := addressEdges(p), portEdges(p)
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 2_000 {
		from, port := addresses[rnd.IntN(len(addresses))], ports[rnd.IntN(len(ports))]
		if got, want := tables.Lookup(0, from, port), oracle(p, 0, from, port); got != want {
			t.Fatalf("%s port %d: tables say rule %d, the oracle %d", from, port, got, want)
		}
	}
}
