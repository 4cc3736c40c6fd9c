// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// bases are few, so that drawn prefixes nest, overlap and touch.
var bases = []netip.Addr{
	netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("10.1.128.0"), netip.MustParseAddr("10.2.0.0"),
	netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("255.255.255.255"), netip.MustParseAddr("192.0.2.77"),
	netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8:0:1::"), netip.MustParseAddr("2001:db8:0:1:8000::"),
	netip.MustParseAddr("::"), netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), netip.MustParseAddr("fe80::5:0"),
}

func drawRange(t *rapid.T) Range {
	base := rapid.SampledFrom(bases).Draw(t, "base")
	bits := rapid.IntRange(0, base.BitLen()).Draw(t, "bits")
	r := PrefixRange(netip.PrefixFrom(base, bits))
	if rapid.IntRange(0, 3).Draw(t, "form") > 0 {
		return r
	}
	// A range that is no prefix: it ends in another prefix, or one address further in.
	base = rapid.SampledFrom(bases).Draw(t, "end")
	end := PrefixRange(netip.PrefixFrom(base, rapid.IntRange(0, base.BitLen()).Draw(t, "end bits"))).Last
	if end.Is4() == r.First.Is4() && r.First.Less(end) {
		r.Last = end
	}
	if next := r.First.Next(); next.IsValid() && next.Less(r.Last) {
		r.First = next
	}
	return r
}

// drawSmallRange draws prefixes that often cover each other, with many bits that are 0.
func drawSmallRange(t *rapid.T) Range {
	base := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 15).Draw(t, "host") << 4)})
	if rapid.Bool().Draw(t, "v6") {
		base = netip.AddrFrom16([16]byte{0: 0x20, 8: base.As4()[3]})
	}
	return PrefixRange(netip.PrefixFrom(base, base.BitLen()-rapid.IntRange(0, base.BitLen()).Draw(t, "free bits")))
}

func drawPorts(t *rapid.T) PortRange {
	edge := rapid.SampledFrom([]uint16{0, 1, 15, 16, 80, 255, 256, 1023, 1024, 4095, 4096, 32768, 65534, 65535})
	a, b := edge.Draw(t, "first port"), edge.Draw(t, "last port")
	return PortRange{min(a, b), max(a, b)}
}

// listenSets are of each family and of both.
var listenSets = [][]Listen{
	{{Port: 80}},
	{{netip.MustParseAddr("192.0.2.1"), 80}},
	{{netip.MustParseAddr("fd00::1"), 80}, {netip.MustParseAddr("fd00::2"), 80}},
	{{netip.MustParseAddr("192.0.2.2"), 80}, {netip.MustParseAddr("fd00::3"), 80}},
}

// receives reports whether a service listens on the family of an address.
func receives(s *Service, from netip.Addr) bool {
	return slices.ContainsFunc(s.Listen, func(l Listen) bool {
		return !l.Addr.IsValid() || l.Addr.Is4() == from.Is4()
	})
}

// drawPolicy draws connection rules for up to four services.
func drawPolicy(t *rapid.T, from func(*rapid.T) Range) *Policy {
	p := &Policy{File: "drawn.yaml", Lists: make([]ListFile, 6), Classes: []Class{{Name: "gold", Priority: 1}, {Name: "silver", Priority: 2}, {Name: "bronze", Priority: 3}}}
	for i := range rapid.IntRange(1, 3).Draw(t, "services") {
		p.Services = append(p.Services, Service{Name: fmt.Sprint("s", i), Listen: rapid.SampledFrom(listenSets).Draw(t, "listen")})
	}
	for i := range rapid.IntRange(0, 20).Draw(t, "rules") {
		r := Connection{Name: fmt.Sprint("r", i), Pos: Pos{i + 1, 1}, Class: 0}
		for range rapid.IntRange(0, 3).Draw(t, "ranges") {
			r.From = append(r.From, from(t))
		}
		if rapid.IntRange(0, 5).Draw(t, "with lists") == 0 {
			r.FromLists = rapid.SampledFrom([][]int{{0}, {1}, {5}, {0, 1}, {1, 5}}).Draw(t, "lists")
		}
		if rapid.IntRange(0, 2).Draw(t, "with ports") == 0 {
			for range rapid.IntRange(1, 3).Draw(t, "port ranges") {
				r.FromPort = append(r.FromPort, drawPorts(t))
			}
		}
		for s := range p.Services {
			if rapid.IntRange(0, 3).Draw(t, "to") == 0 {
				r.To = append(r.To, s)
			}
		}
		if rapid.IntRange(0, 7).Draw(t, "learned") == 0 {
			r.Learned = rapid.SampledFrom([][]int{{0}, {1}, {1, 0}}).Draw(t, "in")
		}
		p.Connections = append(p.Connections, r)
	}
	return p
}

// addressEdges returns the first and last address of every range and those beside them:
// where the outcome does not change there, it does not change between them. IPv4 addresses
// in IPv6 form are left out, because Lookup takes them for IPv4.
func addressEdges(p *Policy) []netip.Addr {
	out := slices.Clone(bases)
	for _, r := range p.Connections {
		for _, f := range r.From {
			out = append(out, f.First, f.Last, f.First.Prev(), f.Last.Next())
		}
	}
	return slices.DeleteFunc(out, func(a netip.Addr) bool { return !a.IsValid() || a.Is4In6() })
}

func portEdges(p *Policy) []uint16 {
	out := []uint16{0, 65535}
	for _, r := range p.Connections {
		for _, f := range r.FromPort {
			out = append(out, f.First, f.Last, f.First-1, f.Last+1)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// steps counts the nodes that a look-up visits.
func steps(t *Tables, service int, from netip.Addr, port uint16) int {
	e := t.Services[service].RootV6
	if from.Is4() {
		e = t.Services[service].RootV4
	}
	key := NewKey(from, port)
	for n := 0; ; n++ {
		i, ok := e.Node()
		if !ok {
			return n
		}
		node := t.Nodes[i]
		if (key[node.Word]^node.Key)&node.Mask != 0 {
			e = node.Miss
		} else {
			e = node.Child[key[node.Word]>>node.Shift&15]
		}
	}
}

func TestLookupMatchesOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t, drawRange)
		tables, _, err := Compile(p)
		if err != nil {
			t.Fatalf("compile: %v", err)
		}
		ports := portEdges(p)
		for service := range p.Services {
			for _, from := range addressEdges(p) {
				for _, port := range ports {
					checkLookups(t, p, tables, service, from, port)
				}
				if n := steps(tables, service, from, ports[0]); n > MaxSteps {
					t.Fatalf("service %d, %s: %d steps, at most %d", service, from, n, MaxSteps)
				}
			}
		}
	})
}

// listEdges returns in which of the lists that rules name a source can be.
func listEdges(p *Policy) []uint64 {
	out := []uint64{0}
	for list := range p.Lists {
		if slices.ContainsFunc(p.Connections, func(c Connection) bool { return slices.Contains(c.FromLists, list) }) {
			for _, in := range out {
				out = append(out, in|1<<list)
			}
		}
	}
	return out
}

// checkLookups looks up a source that is remembered in no class, or in any.
func checkLookups(t *rapid.T, p *Policy, tables *Tables, service int, from netip.Addr, port uint16) {
	for class := NotLearned; class < len(p.Classes); class++ {
		for _, lists := range listEdges(p) {
			if got, want := tables.lookupListed(service, class, from, port, lists), learnedOracle(p, service, class, from, port, lists); got != want {
				t.Fatalf("service %d, %s port %d, learned in %d, lists %b: tables say rule %d, the oracle %d", service, from, port, class, lists, got, want)
			}
		}
	}
}

// TestUnreachableIsExact compares with every elementary region: between neighbouring edges
// of ranges nothing changes, so the first address of each region stands for all.
func TestUnreachableIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t, drawSmallRange)
		tables, warnings, err := Compile(p)
		if err != nil {
			t.Fatalf("compile: %v", err)
		}
		matches := map[int]bool{}
		for service := range p.Services {
			for _, from := range append(addressEdges(p), netip.IPv4Unspecified(), netip.IPv6Unspecified()) {
				if !receives(&p.Services[service], from) {
					continue
				}
				for _, port := range portEdges(p) {
					for class := NotLearned; class < len(p.Classes); class++ {
						for _, lists := range listEdges(p) {
							matches[learnedOracle(p, service, class, from, port, lists)] = true
						}
					}
				}
			}
		}
		var want []int
		for i := range p.Connections {
			if !matches[i] {
				want = append(want, i)
			}
		}
		if got := unreachable(p, tables); !slices.Equal(got, want) {
			t.Fatalf("unreachable rules %v, by trying all %v", got, want)
		}
		if len(want) <= maxReports && len(warnings) != len(want) {
			t.Fatalf("%d warnings for %d unreachable rules", len(warnings), len(want))
		}
	})
}

// TestCoverIsExact compares the rules that a warning names with those that win where the
// rule would match.
func TestCoverIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t, drawSmallRange)
		c := &compiler{policy: p, groups: groupServices(p)}
		tables, _, err := Compile(p)
		if err != nil {
			t.Fatalf("compile: %v", err)
		}
		for _, i := range unreachable(p, tables) {
			want := map[int]bool{}
			only := &Policy{Connections: []Connection{p.Connections[i]}}
			for service := range p.Services {
				for _, from := range addressEdges(p) {
					for _, port := range portEdges(p) {
						winners(p, only, service, from, port, want)
					}
				}
			}
			if got, want := c.coverOf(tables, i), whyNever(p, i, want); got != want {
				t.Fatalf("rule %d: %s; by trying all: %s", i, got, want)
			}
		}
	})
}

// winners adds the rules that match where the only rule of a policy would. A source that is
// not remembered is one where the rule does not ask.
func winners(p, only *Policy, service int, from netip.Addr, port uint16, into map[int]bool) {
	for class := NotLearned; class < len(p.Classes); class++ {
		asked := class != NotLearned
		if (len(only.Connections[0].Learned) > 0) != asked || !receives(&p.Services[service], from) {
			continue
		}
		for _, lists := range listEdges(p) {
			if learnedOracle(only, service, class, from, port, lists) == 0 {
				into[learnedOracle(p, service, class, from, port, lists)] = true
			}
		}
	}
}

// whyNever says why a rule never matches, from the rules that win where it would.
func whyNever(p *Policy, rule int, rules map[int]bool) string {
	var served families
	for s := range p.Services {
		if to := p.Connections[rule].To; len(to) == 0 || slices.Contains(to, s) {
			served.v4 = served.v4 || receives(&p.Services[s], netip.IPv4Unspecified())
			served.v6 = served.v6 || receives(&p.Services[s], netip.IPv6Unspecified())
		}
	}
	if s := familySentence(p, &p.Connections[rule], served, rules); s != "" {
		return s
	}
	return coverSentence(p.connectionAt, rules)
}

func TestTrustsMatchesRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t, drawRange)
		for i := range p.Services {
			for range rapid.IntRange(0, 4).Draw(t, "trusted") {
				p.Services[i].TrustedProxies = append(p.Services[i].TrustedProxies, drawRange(t))
			}
		}
		tables, _, err := Compile(p)
		if err != nil {
			t.Fatalf("compile: %v", err)
		}
		edges := addressEdges(p)
		for _, s := range p.Services {
			edges = append(edges, addressEdges(&Policy{Connections: []Connection{{From: s.TrustedProxies}}})...)
		}
		for i, s := range p.Services {
			for _, from := range edges {
				want := slices.ContainsFunc(s.TrustedProxies, func(r Range) bool {
					return r.First.Is4() == from.Is4() && r.First.Compare(from) <= 0 && from.Compare(r.Last) <= 0
				})
				if got := tables.Trusts(i, from); got != want {
					t.Fatalf("service %d trusts %s: %v, want %v", i, from, got, want)
				}
			}
		}
	})
}
