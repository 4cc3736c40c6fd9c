// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"narthex/internal/policy"
	"narthex/test/nettest"
)

// What is remembered of clients is listed, added and forgotten by hand.
func TestRemembered(t *testing.T) {
	root := filepath.Join("/sys/fs/bpf", fmt.Sprintf("narthex-remembered-%d", os.Getpid()))
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	in, err := Open(Config{Root: root, Instance: "test", Sources: 64, Slots: 16, SlotSize: MinSlotSize, Flows: 64}, 0)
	nettest.Check(t, err)
	t.Cleanup(func() { _ = in.Close() })
	text := namesakes("{name: a, rate: 1/m, burst: 5, per: source}", "{name: a, path: /x, class: gold, learn: 1h}") + "classes: [{name: gold, priority: 1}, {name: last, priority: 2}]\n"
	applyText(t, in, text)
	blocks := func() uint8 {
		t.Helper()
		var first narthexPage
		nettest.Check(t, in.objects.image.Lookup(zero, &first))
		return headerOf(&first).Blocks
	}
	list := func(read func() ([]Remembered, error), want ...string) {
		t.Helper()
		all, err := read()
		nettest.Check(t, err)
		var got []string
		for _, r := range all {
			if r.Left <= 0 || r.Left > time.Hour {
				t.Errorf("%+v", r)
			}
			got = append(got, fmt.Sprint(r.Client, " ", r.Class))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if blocks() != 0 {
		t.Error("a policy that blocks nobody has the programs look for who is blocked")
	}
	list(in.Blocked)
	list(in.Learned)
	for _, from := range []string{"2001:db8:0:1::7", "192.0.2.7", "192.0.2.200", "198.51.100.1", "2001:db8:0:1::8"} {
		nettest.Check(t, in.Block(netip.MustParseAddr(from), time.Hour))
		nettest.Check(t, in.Learn(netip.MustParseAddr(from), 1, time.Hour))
	}
	list(in.Blocked, "192.0.2.7/32 -1", "192.0.2.200/32 -1", "198.51.100.1/32 -1", "2001:db8:0:1::/64 -1")
	list(in.Learned, "192.0.2.7/32 1", "192.0.2.200/32 1", "198.51.100.1/32 1", "2001:db8:0:1::/64 1")
	if blocks() != 1 {
		t.Error("the programs do not look for who is blocked")
	}
	applyText(t, in, text)
	if blocks() != 1 {
		t.Error("with the next policy the programs do not look for who is blocked")
	}
	if c, err := in.Client(netip.MustParseAddr("2001:db8:0:1:9::")); err != nil || c.Blocked == 0 || c.Class != 1 {
		t.Errorf("of a blocked and learned client: %+v, %v", c, err)
	}
	gone, err := in.Unblock([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("2001:db8:0:1::1234/128")})
	nettest.Check(t, err)
	if len(gone) != 2 {
		t.Errorf("unblocked %v", gone)
	}
	list(in.Blocked, "192.0.2.200/32 -1", "198.51.100.1/32 -1")
	gone, err = in.Unlearn([]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")})
	nettest.Check(t, err)
	if len(gone) != 3 {
		t.Errorf("unlearned %v", gone)
	}
	list(in.Learned, "2001:db8:0:1::/64 1")
	if err := in.Learn(netip.MustParseAddr("192.0.2.7"), policy.NotLearned, time.Hour); err == nil {
		t.Error("a client is learned in no class")
	}
}

// The bucket of a source is filled by hand, and no other of its set.
func TestFillBucket(t *testing.T) {
	root := filepath.Join("/sys/fs/bpf", fmt.Sprintf("narthex-fill-%d", os.Getpid()))
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	in, err := Open(Config{Root: root, Instance: "test", Sources: 8, Slots: 16, SlotSize: MinSlotSize, Flows: 64}, 0)
	nettest.Check(t, err)
	t.Cleanup(func() { _ = in.Close() })
	applyText(t, in, namesakes("{name: own, rate: 1/m, burst: 5, per: source}, {name: all, rate: 1/m, burst: 5}", "{name: a, path: /x, rate: 1/m, burst: 10}"))
	var secret narthexSecret
	nettest.Check(t, in.objects.SourceSecret.Lookup(zero, &secret))
	at, err := now()
	nettest.Check(t, err)
	one, two, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")
	cell := connectionCell(&in.applied.Tables.Rules[0], in.slots)
	var set narthexSourceSet // the only one
	for i, a := range []netip.Addr{one, two} {
		set.Way[3+i] = narthexSource{Tag: sourceTag(cell, a, "", secret.Key), Time: at + 5*cell.Interval}
	}
	nettest.Check(t, in.objects.SourceSets.Put(zero, &set))
	use(t, in, ruleKey{connectionRule, "all"}, 5)
	tokens := func(rule int, from netip.Addr, want float64) {
		t.Helper()
		b, err := in.Bucket(rule, RateOf, from)
		if err != nil || b.Tokens < want || b.Tokens > want+0.5 {
			t.Errorf("rule %d, %s: %+v, %v; want %g tokens", rule, from, b, err, want)
		}
	}
	fills := func(rule int, from netip.Addr, want bool) {
		t.Helper()
		if filled, err := in.FillBucket(rule, RateOf, from); err != nil || filled != want {
			t.Errorf("rule %d, %s: filled %v, %v; want %v", rule, from, filled, err, want)
		}
	}
	tokens(0, one, 0)
	tokens(0, two, 0)
	tokens(1, one, 0)
	fills(0, one, true)
	fills(0, other, false)
	tokens(0, one, 5)
	tokens(0, two, 0)
	fills(1, netip.Addr{}, true)
	tokens(1, one, 5)
	if filled, err := in.FillRequestBucket(0, RateOf, netip.Addr{}); err != nil || !filled {
		t.Errorf("a request rule's bucket: %v, %v", filled, err)
	}
	if _, err := in.FillBucket(9, RateOf, one); err == nil {
		t.Error("a rule that there is not has a bucket")
	}
}
