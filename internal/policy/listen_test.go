// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// plainListen is the oracle of ListenTables.Lookup.
func plainListen(services []ServiceTable, locals []netip.Prefix, to netip.AddrPort) int {
	for i, s := range services {
		for _, l := range s.Listen {
			if l.Addr.IsValid() && l.Addr == to.Addr() && l.Port == to.Port() {
				return i
			}
		}
	}
	local := false
	for _, p := range locals {
		local = local || p.Contains(to.Addr())
	}
	for i, s := range services {
		for _, l := range s.Listen {
			if local && !l.Addr.IsValid() && l.Port == to.Port() {
				return i
			}
		}
	}
	return -1
}

// plainAny is the oracle of ListenTables.LookupAny.
func plainAny(services []ServiceTable, locals []netip.Prefix, to netip.Addr) int {
	for _, shadow := range []bool{false, true} {
		for i, s := range services {
			for _, l := range s.Listen {
				only := []ServiceTable{{Listen: []Listen{l}}}
				if s.Shadow == shadow && plainListen(only, locals, netip.AddrPortFrom(to, l.Port)) == 0 {
					return i
				}
			}
		}
	}
	return -1
}

func TestListenTablesAgreeWithOracle(t *testing.T) {
	addresses := []netip.Addr{}
	for _, a := range []string{"10.0.0.1", "10.0.0.2", "10.0.1.1", "192.0.2.7", "127.0.0.1", "127.9.9.9",
		"fd00::1", "fd00::2", "fd00:1::1", "::1", "2001:db8::ffff"} {
		addresses = append(addresses, netip.MustParseAddr(a))
	}
	prefixes := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/31"),
		netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("fd00::/127")}
	for _, a := range addresses {
		prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
	}
	ports := []uint16{1, 79, 80, 81, 443, 8080, 65535}
	rapid.Check(t, func(t *rapid.T) {
		taken := map[Listen]bool{}
		services := make([]ServiceTable, rapid.IntRange(1, 5).Draw(t, "services"))
		for i := range services {
			services[i].Shadow = rapid.Bool().Draw(t, "shadow")
			for range rapid.IntRange(1, 4).Draw(t, "listens") {
				l := Listen{Port: rapid.SampledFrom(ports).Draw(t, "port")}
				if rapid.Bool().Draw(t, "specific") {
					l.Addr = rapid.SampledFrom(addresses).Draw(t, "address")
				}
				if !taken[l] {
					taken[l] = true
					services[i].Listen = append(services[i].Listen, l)
				}
			}
		}
		locals := rapid.SliceOfN(rapid.SampledFrom(prefixes), 0, 6).Draw(t, "locals")
		tables, err := CompileListens(services, locals)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addresses {
			if got, want := tables.LookupAny(a), plainAny(services, locals, a); got != want {
				t.Fatalf("%s: service %d, want %d (services %v, locals %v)", a, got, want, services, locals)
			}
			for _, p := range ports {
				to := netip.AddrPortFrom(a, p)
				if got, want := tables.Lookup(to), plainListen(services, locals, to); got != want {
					t.Fatalf("%s: service %d, want %d (services %v, locals %v)", to, got, want, services, locals)
				}
			}
		}
	})
}
