// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"net/netip"
	"testing"

	"narthex/internal/datapath"
)

// bucketPolicy has one rule. Its rate is so low that no token comes during a test.
func bucketPolicy(rule string) string {
	return fmt.Sprintf(`
version: 1
services: [{name: shop, listen: ["*:80"]}]
connections: [{name: everyone, %s}]
`, rule)
}

// passes sends SYNs from a source and returns how many passed.
func passes(t *testing.T, h *hook, from string, n int) int {
	t.Helper()
	to := "10.0.0.1:80"
	if !netip.MustParseAddr(from).Is4() {
		to = "[fd00::1]:80"
	}
	b := syn(netip.AddrPortFrom(netip.MustParseAddr(from), 4000).String(), to).bytes(t)
	passed := 0
	for range n {
		if !h.send(t, b) {
			passed++
		}
	}
	return passed
}

func TestBurst(t *testing.T) {
	for _, burst := range []int{1, 5, 100} {
		t.Run(fmt.Sprint(burst), func(t *testing.T) {
			s := share(t, bucketPolicy(fmt.Sprintf("rate: 1/m, burst: %d", burst)))
			h := &s.hooks[0]
			if got := passes(t, h, "203.0.113.1", burst); got != burst {
				t.Errorf("the first %d passed", got)
			}
			if got := passes(t, h, "203.0.113.2", 100); got != 0 {
				t.Errorf("%d more passed", got)
			}
			b, err := s.Bucket(0, datapath.RateOf, netip.MustParseAddr("203.0.113.3"))
			if err != nil || b.Tokens < 0 || b.Tokens >= 1 {
				t.Errorf("bucket %+v, %v; want less than a token", b, err)
			}
		})
	}
}

func TestWhoSharesABucket(t *testing.T) {
	const burst = 3
	for _, c := range []struct {
		per          string
		first, other string
		shared       bool
	}{
		{"rule", "203.0.113.1", "2001:db8::1", true},
		{"source", "203.0.113.1", "203.0.113.1", true},
		{"source", "203.0.113.1", "203.0.113.2", false},
		{"source", "2001:db8::1", "2001:db8::ffff:1", true},
		{"source", "2001:db8::1", "2001:db8:0:1::1", false},
		{"{v4: 24, v6: 56}", "203.0.113.1", "203.0.113.255", true},
		{"{v4: 24, v6: 56}", "203.0.113.1", "203.0.112.255", false},
		{"{v4: 24, v6: 56}", "2001:db8::1", "2001:db8:0:ff::1", true},
		{"{v4: 24, v6: 56}", "2001:db8::1", "2001:db8:0:100::1", false},
		{"{v4: 32, v6: 128}", "2001:db8::1", "2001:db8::2", false},
	} {
		t.Run(fmt.Sprintf("%s %s %s", c.per, c.first, c.other), func(t *testing.T) {
			s := share(t, bucketPolicy(fmt.Sprintf("rate: 1/m, burst: %d, per: %s", burst, c.per)))
			h := &s.hooks[0]
			if got := passes(t, h, c.first, 10); got != burst {
				t.Errorf("%d of the first source passed, want %d", got, burst)
			}
			want := burst
			if c.shared {
				want = 0
			}
			if got := passes(t, h, c.other, 10); got != want {
				t.Errorf("%d of the second source passed, want %d", got, want)
			}
			b, err := s.Bucket(0, datapath.RateOf, netip.MustParseAddr(c.other))
			if err != nil || !b.Known || b.Tokens >= 1 {
				t.Errorf("bucket %+v, %v; want an empty one", b, err)
			}
		})
	}
}

// A source whose bucket was evicted by others must not find it fuller when it is back.
func TestEvictionGivesNoTokens(t *testing.T) {
	t.Parallel()
	s := loadConfig(t, datapath.Config{Sources: 8}, bucketPolicy("rate: 1/m, burst: 4, per: source"))
	h := &s.hooks[0]
	if got := passes(t, h, "203.0.113.1", 10); got != 4 {
		t.Fatalf("%d passed at first, want 4", got)
	}
	admitted := 0
	for i := range 200 {
		admitted += passes(t, h, fmt.Sprintf("198.51.100.%d", i), 1)
	}
	if use, err := s.Sources(); err != nil || use.Size != 8 || use.Used != 8 || use.Debt != 8 {
		t.Errorf("use of the table: %+v, %v", use, err)
	}
	// Eight buckets of four tokens, less the four that are spent.
	if admitted != 28 {
		t.Errorf("%d of the crowd passed, want 28", admitted)
	}
	if got := s.counters(t)["reason sources"]; got.Dropped != 200-28 {
		t.Errorf("dropped for want of a bucket: %+v, want %d", got, 200-28)
	}
	if got := passes(t, h, "203.0.113.1", 10); got != 0 {
		t.Errorf("after its eviction %d more passed", got)
	}
}

// A rule with a long debt must not give tokens to sources of one with a short one.
func TestEvictionAcrossRules(t *testing.T) {
	t.Parallel()
	s := loadConfig(t, datapath.Config{Sources: 8}, `
version: 1
services: [{name: shop, listen: ["*:80"]}]
connections:
  - {name: slow, from: [203.0.113.0/24], rate: 1/m, burst: 2, per: source}
  - {name: fast, rate: 1000000/s, burst: 1000, per: source}
`)
	h := &s.hooks[0]
	slow := 0
	for round := range 3 {
		for i := range 8 {
			slow += passes(t, h, fmt.Sprintf("203.0.113.%d", i), 3)
		}
		for i := range 100 {
			passes(t, h, fmt.Sprintf("198.51.%d.%d", round, i), 1)
		}
	}
	if slow > 8*2 {
		t.Errorf("8 sources with 2 tokens each got %d through", slow)
	}
}
