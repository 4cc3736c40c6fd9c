// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

// randomRules are rules of random prefixes, many of them within others, some for a range
// of ports or one of two services only, that count what they match.
func randomRules(r *rand.Rand, n int) (text string, around []netip.Addr) {
	var t strings.Builder
	fmt.Fprintln(&t, `version: 1
services:
  - {name: one, listen: ["*:80"]}
  - {name: two, listen: ["10.0.0.1:81", "[fd00::1]:81"]}
connections:`)
	for i := range n {
		_, a := randomPrefix(r, i%2 == 0)
		if len(around) > 4 && r.IntN(2) == 0 {
			a = within(r, around[r.IntN(len(around)/2)*2+i%2], 8*(1+r.IntN(a.BitLen()/8-1)))
		}
		around = append(around, a)
		p := netip.PrefixFrom(a, 1+r.IntN(a.BitLen())).Masked()
		fmt.Fprintf(&t, "  - {name: r%d, from: [\"%s\"], action: pass", i, p)
		if r.IntN(4) == 0 {
			first := r.IntN(65_000)
			fmt.Fprintf(&t, ", from_port: %d-%d", first, first+1+r.IntN(500))
		}
		if r.IntN(4) == 0 {
			fmt.Fprintf(&t, ", to: [%s]", []string{"one", "two"}[r.IntN(2)])
		}
		fmt.Fprintln(&t, "}")
	}
	return t.String(), around
}

// The programs find the rule that the compiler's tables say, which its own tests hold
// against a plain matcher.
func TestLookupsAgreeWithTables(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 3, 10, 100, 400} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { lookups(t, r, n) })
	}
}

func lookups(t *testing.T, r *rand.Rand, n int) {
	text, around := randomRules(r, n)
	s := share(t, text)
	h := &s.hooks[n%2]
	for range 300 {
		a := around[r.IntN(len(around))]
		from := netip.AddrPortFrom(within(r, a, 8*r.IntN(a.BitLen()/8+1)), uint16(r.IntN(65_536)))
		service := r.IntN(2)
		to := fmt.Sprintf("10.0.0.1:%d", 80+service)
		if !a.Is4() {
			to = fmt.Sprintf("[fd00::1]:%d", 80+service)
		}
		before := s.counters(t)
		h.send(t, syn(from.String(), to).bytes(t))
		want := "reason no_rule"
		if rule := s.tables.Lookup(service, from.Addr(), from.Port()); rule >= 0 {
			want = "rule " + s.tables.Rules[rule].Name
		}
		got := s.counters(t).since(before)
		if _, ok := got[want]; !ok || len(got) != 2 {
			t.Fatalf("%s to %s among %d rules: counted %v, want %q", from, to, n, got, want)
		}
	}
}
