// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"narthex/internal/datapath"
)

// rules makes a policy of rules with a bucket each, numbered from first, and of no waiting
// room.
func rules(first, n int, rate string) string {
	var b strings.Builder
	fmt.Fprintln(&b, "version: 1\nservices: [{name: shop, listen: [\"*:80\"], protocol: tcp}]\nconnections:")
	for i := first; i < first+n; i++ {
		fmt.Fprintf(&b, "  - {name: rule-%d, from: [10.%d.%d.%d], rate: %s, burst: 5}\n", i, i>>16, i>>8&255, i&255, rate)
	}
	return b.String()
}

func source(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255) }

func TestReloadKeepsLevelsAndCounters(t *testing.T) {
	s := share(t, rules(0, 3, "1/m"))
	h := &s.hooks[0]
	for i := range 3 {
		passes(t, h, source(i), 4)
	}
	s.apply(t, rules(1, 5, "1/m")) // rule-0 goes, 3 to 5 come
	s.apply(t, rules(0, 5, "1/m")) // rule-0 is new again, rule-5 goes
	for i, want := range []int{5, 1, 1, 5, 5} {
		if got := passes(t, h, source(i), 10); got != want {
			t.Errorf("rule-%d: %d passed, want %d", i, got, want)
		}
	}
	c := s.counters(t)
	for i, want := range []datapath.Counts{{Passed: 5, Dropped: 5}, {Passed: 5, Dropped: 9}} {
		if got := c[fmt.Sprintf("rule rule-%d", i)]; got != want {
			t.Errorf("rule-%d: %+v, want %+v", i, got, want)
		}
	}
}

func TestNewFormOfABucket(t *testing.T) {
	s := share(t, bucketPolicy("rate: 1/m, burst: 10"))
	h := &s.hooks[0]
	passes(t, h, "203.0.113.1", 4)
	for _, c := range []struct {
		form string
		want int // pass
		why  string
	}{
		{"rate: 2/m, burst: 8", 6, "the six tokens that were left"},
		{"rate: 2/m, burst: 4, per: source", 4, "a source's new bucket of 4"},
		{"rate: 1/m, burst: 4, per: source", 2, "half the rate: two minutes of debt are two tokens of four"},
		{"rate: 1/m, burst: 6, per: source", 2, "a burst of two more"},
		{"rate: 1/m, burst: 3, per: source", 0, "a burst of half"},
		{"rate: 3/m, burst: 5, per: source", 5, "a new bucket of 5 at a higher rate"},
	} {
		s.apply(t, bucketPolicy(c.form))
		if got := passes(t, h, "203.0.113.1", 20); got != c.want {
			t.Errorf("%s: %d passed, want %d: %s", c.form, got, c.want, c.why)
		}
	}
}

// More rules than the instance has room for, several times over.
func TestGrowth(t *testing.T) {
	t.Parallel()
	s := load(t, rules(0, 10, "1/m"))
	for i := range 10 {
		passes(t, &s.hooks[0], source(i), 4)
	}
	for _, n := range []int{1000, 3000, 20000} {
		s.apply(t, rules(0, n, "1/m"))
	}
	s.reopenHooks(t)
	h := &s.hooks[0]
	for i := range 10 {
		if got := passes(t, h, source(i), 10); got != 1 {
			t.Errorf("rule-%d: %d passed, want the one token left", i, got)
		}
	}
	if got := passes(t, h, source(19999), 10); got != 5 {
		t.Errorf("the last rule: %d passed, want 5", got)
	}
	if got, want := s.counters(t)["rule rule-3"], (datapath.Counts{Passed: 5, Dropped: 9}); got != want {
		t.Errorf("counters of rule-3: %+v, want %+v", got, want)
	}
}

func TestAdoption(t *testing.T) {
	t.Parallel()
	text := `
version: 1
services: [{name: shop, listen: ["*:80"]}]
connections:
  - {name: one, from: [10.0.0.0/8], rate: 1/m, burst: 5}
  - {name: each, rate: 1/m, burst: 5, per: source}
`
	s := load(t, text)
	h := &s.hooks[0]
	passes(t, h, "10.1.1.1", 3)
	passes(t, h, "203.0.113.1", 3)
	passes(t, h, "2001:db8::1", 3)
	if err := s.Record("connections.one.rate", "2/m"); err != nil {
		t.Fatal(err)
	}
	journal, err := s.Journal()
	if err != nil || journal["connections.one.rate"] != "2/m" {
		t.Fatalf("journal %v, %v", journal, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	in, err := datapath.Open(datapath.Config{Root: root, Instance: s.name, Sources: 64}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if !in.Adopted() {
		t.Error("nothing was adopted")
	}
	if notes := in.Notes(); len(notes) > 0 {
		t.Errorf("something was reset: %q", notes)
	}
	if j, err := in.Journal(); err != nil || !maps.Equal(j, journal) {
		t.Errorf("journal %v, %v, before %v", j, err, journal)
	}
	again := &subject{Instance: in, name: s.name}
	again.apply(t, text)
	again.reopenHooks(t)
	h = &again.hooks[0]
	for _, from := range []string{"10.1.1.1", "203.0.113.1", "2001:db8::1"} {
		if got := passes(t, h, from, 10); got != 2 {
			t.Errorf("%s: %d passed, want the two tokens left", from, got)
		}
	}
	if got, want := again.counters(t)["rule one"], (datapath.Counts{Passed: 5, Dropped: 8}); got != want {
		t.Errorf("counters: %+v, want %+v", got, want)
	}
	if u, err := in.Sources(); err != nil || u.Size != 64 || u.Used != 2 {
		t.Errorf("sources: %+v, %v", u, err)
	}
}

// Services that name interfaces hold there alone.
func TestInterfacesOfAService(t *testing.T) {
	text := `
version: 1
services:
  - {name: here, listen: ["*:80"], interfaces: [lo]}
  - {name: there, listen: ["*:81"], interfaces: [eth9]}
connections: [{name: nobody, action: drop}]
`
	s := share(t, text)
	for _, h := range s.hooks {
		for port, want := range map[int]bool{80: false, 81: false} {
			to := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(port)).String()
			if got := h.send(t, syn("203.0.113.1:1", to).bytes(t)); got != want {
				t.Errorf("%s, port %d, on an interface of no service: dropped %v", h.name, port, got)
			}
		}
	}
	// Test runs are on lo, which is interface 1. The images take turns with the two
	// halves of the groups, so once more.
	for range 3 {
		s.apply(t, text, datapath.Target{Name: "lo", Index: 1, XDP: "off", Services: []int{0}})
		for _, h := range s.hooks {
			for port, want := range map[int]bool{80: true, 81: false} {
				to := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(port)).String()
				if got := h.send(t, syn("203.0.113.1:1", to).bytes(t)); got != want {
					t.Errorf("%s, port %d, with lo for one of two services: dropped %v", h.name, port, got)
				}
			}
		}
	}
}
