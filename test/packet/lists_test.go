// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"narthex/internal/datapath"
	"narthex/internal/lists"
	"narthex/internal/policy"
)

const listsPolicy = `
version: 1
lists: {blocked: {file: a}, slow: {file: b}, friends: {file: c}, others: {file: d}, last: {file: e}}
services: [{name: shop, listen: ["*:80"]}]
connections:
  - {name: friends, from: ["@friends", 10.1.0.0/16], from_port: 1-999, action: pass}
  - {name: blocked, from: ["@blocked", "@last"], action: drop}
  - {name: net, from: [10.0.0.0/9, "2001:db8::/34"], action: drop}
  - {name: slow, from: "@slow", class: slow}
classes: [{name: rest, priority: 1}, {name: slow, priority: 2}]
`

// drawn returns a list that is dense in some networks, and has prefixes of all lengths.
func drawn(t testing.TB, random *rand.Rand) *lists.List {
	t.Helper()
	var b strings.Builder
	for range 2000 {
		a := near(random)
		p, _ := a.Prefix(a.BitLen() - max(0, random.IntN(40)-20)/(1+random.IntN(4)))
		fmt.Fprintln(&b, p)
	}
	l, err := lists.Parse("drawn", []byte(b.String()), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// near draws an address of one of a few networks.
func near(random *rand.Rand) netip.Addr {
	x := random.Uint32()
	if x%2 == 0 {
		return netip.AddrFrom4([4]byte{10, byte(random.IntN(2)) << 7, byte(x >> 24 & 7), byte(x >> 16)})
	}
	return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(random.IntN(2)) << 6, 7: byte(x >> 28), 14: byte(x >> 24 & 7), 15: byte(x >> 16)})
}

// listed is lists in the data path.
func (s *subject) listed(t testing.TB, all []*lists.List) *datapath.Lists {
	t.Helper()
	table, err := lists.Build(all)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.NewLists(table)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func bitsOf(all []*lists.List, a netip.Addr) (in uint64) {
	for i, l := range all {
		if l.Has(a) {
			in |= 1 << i
		}
	}
	return in
}

// Sources are found in lists as the lists say, and connection rules decide by them: before and after lists change,
// and under another policy.
func TestLists(t *testing.T) {
	s := load(t, nobody)
	random := rand.New(rand.NewPCG(3, 5))
	draw := func() (all []*lists.List) {
		for range 5 {
			all = append(all, drawn(t, random))
		}
		return all
	}
	p, _, err := policy.Parse("test.yaml", []byte(listsPolicy))
	if err != nil {
		t.Fatal(err)
	}
	if s.tables, _, err = policy.Compile(p); err != nil {
		t.Fatal(err)
	}
	apply := func(l *datapath.Lists) {
		t.Helper()
		if err := s.Apply(datapath.State{Tables: s.tables, Locals: locals, Lists: l}); err != nil {
			t.Fatal(err)
		}
		s.reopenHooks(t)
	}
	all := draw()
	first := s.listed(t, all)
	apply(first)
	s.decideByLists(t, all, random)
	apply(first) // as when an address comes
	s.decideByLists(t, all, random)
	all = draw()
	second := s.listed(t, all)
	if err := s.SwapLists(second); err != nil {
		t.Fatal(err)
	}
	first.Close()
	s.decideByLists(t, all, random)
	before, err := s.ListMatches()
	if err != nil {
		t.Fatal(err)
	}
	want := s.decideByLists(t, all, random)
	after, err := s.ListMatches()
	if err != nil {
		t.Fatal(err)
	}
	for i := range after {
		if got := after[i] - before[i]; got != want[i] {
			t.Errorf("list %d matched %d times, want %d", i, got, want[i])
		}
	}
	all = draw()
	third := s.listed(t, all)
	apply(third)
	second.Close()
	s.decideByLists(t, all, random)
	s.apply(t, nobody)
	third.Close()
}

// decideByLists sends SYNs and returns how many were from each list.
func (s *subject) decideByLists(t *testing.T, all []*lists.List, random *rand.Rand) (matches [policy.MaxLists]uint64) {
	t.Helper()
	s.tables.InLists = func(a netip.Addr) uint64 { return bitsOf(all, a) }
	drops := 0
	for n := range 3000 {
		from := netip.AddrPortFrom(near(random), uint16(900+random.IntN(200)))
		to := "10.0.0.1:80"
		if !from.Addr().Is4() {
			to = "[fd00::1]:80"
		}
		rule := s.tables.Lookup(0, from.Addr(), from.Port())
		want := rule >= 0 && s.tables.Rules[rule].Action == policy.ActionDrop
		h := &s.hooks[n%2]
		if got := h.send(t, syn(from.String(), to).bytes(t)); got != want {
			t.Fatalf("a SYN from %s, in lists %b, was dropped: %v; the tables say rule %d", from, bitsOf(all, from.Addr()), got, rule)
		}
		if want {
			drops++
		}
		for i := range matches {
			matches[i] += bitsOf(all, from.Addr()) >> i & 1
		}
	}
	if drops < 300 || drops > 2700 {
		t.Fatalf("%d of 3000 SYNs were dropped: what is drawn is not what it should be", drops)
	}
	return matches
}
