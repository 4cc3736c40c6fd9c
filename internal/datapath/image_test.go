// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"narthex/internal/policy"
)

// walk finds the cell that an entry leads to for a key, as walk() in bpf/policy/image.h does;
// 0: to none.
func walk(im *image, entry uint32, key policy.Key) uint32 {
	word := func(i uint8) uint64 { return append(key[:], 0)[i&3] }
	for range policy.MaxSteps + 1 {
		if entry == 0 {
			return 0
		}
		if entry&entryNode == 0 {
			g := at[narthexGuard](im, entry, 0)
			if (word(g.Word)^g.Key)&g.Mask == 0 {
				return entry
			}
			entry = g.Miss
			continue
		}
		n := at[narthexNode](im, entry&^entryNode, 0)
		if w := word(n.Word); (w^n.Key)&n.Mask != 0 {
			entry = n.Miss
		} else {
			entry = n.Child[w>>n.Shift&15]
		}
	}
	return 0
}

// learnedPolicy writes connection rules for learned sources between others, and services that
// trust proxies.
func learnedPolicy(rules int) string {
	r := rand.New(rand.NewPCG(3, 4))
	var b strings.Builder
	b.WriteString("version: 1\nservices:\n" +
		"  - {name: web, listen: \"*:80\", trusted_proxies: [10.0.0.0/9, 10.128.0.7-10.128.0.9, \"fd00::/64\"]}\n" +
		"  - {name: all, listen: \"*:81\", trusted_proxies: [0.0.0.0/0]}\n" +
		"  - {name: none, listen: \"*:82\"}\n" +
		"classes: [{name: gold, priority: 1}, {name: silver, priority: 2}, {name: bronze, priority: 3}]\nconnections:\n")
	learned := []string{"", "", "", ", learned: [gold]", ", learned: [silver, gold]"}
	to := []string{"", "", ", to: [web]", ", to: [none, all]"}
	for i := range rules {
		from := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(r.IntN(3)), byte(r.Uint32()), 0}), 8+r.IntN(17)).Masked().String()
		if i%3 == 2 {
			from = netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 7: byte(r.IntN(4)), 9: byte(r.Uint32())}), 8+r.IntN(80)).Masked().String()
		}
		fmt.Fprintf(&b, "  - {name: r%d, from: [\"%s\"], class: bronze%s%s}\n", i, from, learned[r.IntN(len(learned))], to[r.IntN(len(to))])
	}
	b.WriteString("  - {name: rest, learned: [silver], action: pass}\n")
	return b.String()
}

// Look-ups in the image find what the tables say, also of learned sources and trusted proxies.
func TestImageLookups(t *testing.T) {
	for _, rules := range []int{0, 1, 400} {
		text := learnedPolicy(rules)
		if rules == 0 {
			text, _, _ = strings.Cut(text, "connections:")
		}
		tables, s := requestTables(t, text)
		listens, err := policy.CompileListens(tables.Services, nil)
		if err != nil {
			t.Fatal(err)
		}
		groups := make([]uint32, len(tables.Services))
		im, l := buildImage(tables, nil, listens, s, groups, 1, 0, 0), newLayout(tables, listens, s, groups, 0)
		r := rand.New(rand.NewPCG(5, uint64(rules)))
		for range 3000 {
			from := netip.AddrFrom4([4]byte{10, byte(r.IntN(3)) * 64, byte(r.Uint32()), byte(r.IntN(12))})
			if r.IntN(3) == 0 {
				from = netip.AddrFrom16([16]byte{0: 0xfd, 7: byte(r.IntN(4)), 9: byte(r.Uint32()), 15: 1})
			}
			for service := range tables.Services {
				checkImageLookups(t, im, l, service, from)
			}
		}
	}
}

func checkImageLookups(t *testing.T, im *image, l *layout, service int, from netip.Addr) {
	t.Helper()
	key := policy.NewKey(from, 1024)
	of := func(v4, v6 uint32) uint32 {
		if from.Is4() {
			return v4
		}
		return v6
	}
	table := &l.tables.Services[service]
	entry := func(r policy.Roots) uint32 { return of(l.rules.entry(r.RootV4), l.rules.entry(r.RootV6)) }
	if got, want := walk(im, entry(table.Trusted), key) != 0, l.tables.Trusts(service, from); got != want {
		t.Fatalf("service %d trusts %s: %v, want %v", service, from, got, want)
	}
	cell := at[narthexService](im, uint32(l.services.outcomes+service), 0)
	if cell.TrustedV4 != l.rules.entry(table.Trusted.RootV4) || cell.TrustedV6 != l.rules.entry(table.Trusted.RootV6) ||
		cell.Learned != uint32(l.learned[service]) || (cell.Learned != 0) != (table.Learned != nil) {
		t.Fatalf("service %d: %+v", service, cell)
	}
	for class := policy.NotLearned; class < len(l.tables.Classes); class++ {
		root := entry(table.Roots)
		if class != policy.NotLearned && l.learned[service] != 0 {
			row := at[narthexRoots](im, uint32(l.learned[service]), uint32(class))
			root = of(row.V4, row.V6)
		}
		rule := -1
		if cell := walk(im, root, key); cell != 0 {
			slot := at[narthexRule](im, cell, 0).Slot
			for i := range l.tables.Rules {
				if l.slots.byRule[connectionKey(&l.tables.Rules[i])] == slot {
					rule = i
				}
			}
		}
		if want := l.tables.LookupLearned(service, class, from, 1024); rule != want {
			t.Fatalf("service %d, %s learned in %d: rule %d, want %d", service, from, class, rule, want)
		}
	}
}
