// SPDX-License-Identifier: Apache-2.0

package parser

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// bucket is a token bucket as in a textbook, with a token cut into as many parts as it takes
// nanoseconds to gain one, so that nothing is rounded.
type bucket struct {
	interval, burst uint64
	parts           uint64
	last            uint64 // time
}

func newBucket(p policer, now uint64) *bucket {
	return &bucket{p.Interval, p.Burst, p.Interval * p.Burst, now}
}

// take takes a token, if there is one.
func (b *bucket) take(now uint64) bool {
	if !b.has(now) {
		return false
	}
	b.parts -= b.interval
	return true
}

// has reports whether there is a token.
func (b *bucket) has(now uint64) bool {
	b.parts = min(b.parts+now-b.last, b.interval*b.burst)
	b.last = now
	return b.parts >= b.interval
}

// client is a source under a rule: what has a bucket.
type client struct {
	rule int
	addr netip.Addr
}

// load is a random sequence of SYNs.
type load struct {
	sets, ways int
	rules      []policer
	clients    []client
	now        uint64
}

// drawRules draws two rules, of which one is up to a billion times as fast as the other.
func drawRules(t *rapid.T) []policer {
	draw := func(id uint64, fastest, slowest uint64) policer {
		return policer{
			ID: id, PerSource: true, Bits4: 32, Bits6: rapid.SampledFrom([]int{64, 128, 56}).Draw(t, "bits"),
			Interval: rapid.Uint64Range(fastest, slowest).Draw(t, "interval"),
			Burst:    rapid.Uint64Range(1, 20).Draw(t, "burst"),
		}
	}
	return []policer{draw(1, 1, 1000), draw(2, 1, 1_000_000_000)}
}

// drawLoad makes a table, and clients that share it.
func drawLoad(t *rapid.T) *load {
	l := &load{
		sets:  rapid.SampledFrom([]int{1, 1, 2, testSets}).Draw(t, "sets"),
		ways:  rapid.IntRange(1, sourceWays).Draw(t, "ways"),
		rules: drawRules(t),
		now:   rapid.Uint64Range(0, 1<<62).Draw(t, "start"),
	}
	for i := range rapid.IntRange(1, 60).Draw(t, "sources") {
		addr := netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})
		if i%3 == 2 {
			addr = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, byte(i)})
		}
		for rule := range l.rules {
			l.clients = append(l.clients, client{rule, addr})
		}
	}
	resetBuckets(l.sets, l.ways, [2]uint64{rapid.Uint64().Draw(t, "key"), 2})
	return l
}

// next lets some time pass and draws who sends the next SYN; a few send most.
func (l *load) next(t *rapid.T) client {
	scale := l.rules[rapid.IntRange(0, len(l.rules)-1).Draw(t, "scale")].Interval
	switch rapid.IntRange(0, 7).Draw(t, "pause") {
	case 0:
		l.now += rapid.Uint64Range(0, 3*scale).Draw(t, "ns")
	case 1:
		l.now += rapid.Uint64Range(0, 30*scale).Draw(t, "ns")
	case 2, 3:
		l.now += scale / 4
	}
	among := len(l.clients)
	if rapid.Bool().Draw(t, "greedy") {
		among = min(among, 4)
	}
	return l.clients[rapid.IntRange(0, among-1).Draw(t, "client")]
}

// TestNobodyGetsMoreThanItsRate is the promise of docs/decisions/0002-source-buckets.md:
// over any window of time, whatever others do and however often its bucket is evicted, a
// source gets at most burst + window/interval tokens.
func TestNobodyGetsMoreThanItsRate(t *testing.T) {
	var taken, evictions int
	rapid.Check(t, func(t *rapid.T) {
		l := drawLoad(t)
		passed := map[client][]uint64{} // when
		for range rapid.IntRange(1, 400).Draw(t, "SYNs") {
			c := l.next(t)
			own, _ := way(sourceTag(l.rules[c.rule], c.addr), l.ways)
			if !police(l.rules[c.rule], c.addr, l.now) {
				continue
			}
			taken++
			if own == noTime && len(passed[c]) > 0 {
				evictions++
			}
			passed[c] = append(passed[c], l.now)
		}
		for c, times := range passed {
			checkWindows(t, l.rules[c.rule], times)
		}
	})
	t.Logf("%d tokens taken, %d of them by a source that had been evicted", taken, evictions)
	if evictions == 0 {
		t.Error("no source that was evicted came back: nothing was tested")
	}
}

// checkWindows counts in every window that begins and ends with a token taken.
func checkWindows(t *rapid.T, rule policer, times []uint64) {
	for i, begin := range times {
		for j, end := range times[i:] {
			if got, most := uint64(j+1), rule.Burst+(end-begin)/rule.Interval; got > most {
				t.Fatalf("%v: %d tokens within %d ns, of which at most %d are due", rule, got, end-begin, most)
			}
		}
	}
}

// TestBucketIsExact: a source whose bucket was not evicted since it was full gets what it
// would get from a token bucket of its own, and a newcomer that finds a way with a full
// bucket finds a full bucket. A newcomer that inherits a debt waits it off and no longer.
func TestBucketIsExact(t *testing.T) {
	var exact, inherited int
	rapid.Check(t, func(t *rapid.T) {
		l := drawLoad(t)
		buckets := map[client]*bucket{}
		for range rapid.IntRange(1, 400).Draw(t, "SYNs") {
			c := l.next(t)
			rule := l.rules[c.rule]
			tag := sourceTag(rule, c.addr)
			own, earliest := way(tag, l.ways)
			if own == noTime {
				delete(buckets, c)
				if earliest <= l.now {
					buckets[c] = newBucket(rule, l.now)
				}
			}
			got := police(rule, c.addr, l.now)
			if b := buckets[c]; b != nil {
				exact++
				if want := b.take(l.now); got != want {
					t.Fatalf("%v: %v gets a token: %v, from a bucket of its own: %v", rule, c.addr, got, want)
				}
				continue
			}
			inherited++
			if own != noTime {
				earliest = own
			}
			if want := earliest <= l.now+rule.Interval*(rule.Burst-1); got != want {
				t.Fatalf("%v: %v, in debt until %d at %d, gets a token: %v", rule, c.addr, earliest, l.now, got)
			}
		}
	})
	t.Logf("%d verdicts on buckets of one's own, %d on inherited debts", exact, inherited)
	if exact == 0 || inherited == 0 {
		t.Error("one of the two was not tested")
	}
}

// TestFewSourcesAreExact: while a table has a way for everybody, nobody notices the others.
// It looks at verdicts alone.
func TestFewSourcesAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLoad(t)
		l.ways = sourceWays
		resetBuckets(l.sets, l.ways, [2]uint64{1, 2})
		l.clients = l.clients[:min(len(l.clients), sourceWays)]
		buckets := map[client]*bucket{}
		for range rapid.IntRange(1, 400).Draw(t, "SYNs") {
			c := l.next(t)
			rule := l.rules[c.rule]
			if buckets[c] == nil {
				buckets[c] = newBucket(rule, l.now)
			}
			if got, want := police(rule, c.addr, l.now), buckets[c].take(l.now); got != want {
				t.Fatalf("%v: %v gets a token: %v, from a bucket of its own: %v", rule, c.addr, got, want)
			}
		}
	})
}

// TestRuleBucketIsExact: a rule's one bucket is a token bucket for all sources together,
// with the rates and bursts at the bounds of a policy and a clock at any time.
func TestRuleBucketIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &load{clients: []client{
			{addr: netip.MustParseAddr("192.0.2.1")}, {addr: netip.MustParseAddr("2001:db8::1")},
		}}
		rule := policer{
			ID:       1,
			Interval: rapid.SampledFrom([]uint64{1, 17, 1000, 10_000_000, 60_000_000_000}).Draw(t, "interval"),
			Burst:    rapid.SampledFrom([]uint64{1, 2, 5, 20, 1_000_000}).Draw(t, "burst"),
		}
		l.rules = []policer{rule}
		l.now = rapid.Uint64Range(0, 1<<62).Draw(t, "start")
		resetBuckets(1, 1, [2]uint64{})
		b := newBucket(rule, l.now)
		for range rapid.IntRange(1, 400).Draw(t, "SYNs") {
			c := l.next(t)
			if got, want := police(rule, c.addr, l.now), b.take(l.now); got != want {
				t.Fatalf("%v: a token taken: %v, from a token bucket: %v", rule, got, want)
			}
		}
	})
}

// TestSourcePrefix: sources share a bucket if, and only if, they are of one family and agree
// in the bits that the rule says.
func TestSourcePrefix(t *testing.T) {
	resetBuckets(1, sourceWays, [2]uint64{3, 4})
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) netip.Addr {
			if rapid.Bool().Draw(t, "v6") {
				return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.ByteRange(0, 1), 16, 16).Draw(t, name)))
			}
			return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.ByteRange(0, 1), 4, 4).Draw(t, name)))
		}
		a, b := draw("a"), draw("b")
		rule := policer{ID: 1, Interval: 1, Burst: 1, PerSource: true,
			Bits4: rapid.IntRange(0, 32).Draw(t, "bits4"), Bits6: rapid.IntRange(0, 128).Draw(t, "bits6")}
		bits := rule.Bits4
		if a.Is6() {
			bits = rule.Bits6
		}
		prefix := netip.PrefixFrom(a, bits)
		if got, want := sourceTag(rule, a) == sourceTag(rule, b), prefix.Contains(b); got != want {
			t.Fatalf("%v and %v share a bucket per /%d, /%d: %v", a, b, rule.Bits4, rule.Bits6, got)
		}
		other := rule
		other.ID = 2
		if sourceTag(rule, a) == sourceTag(other, a) {
			t.Fatal(fmt.Sprint("two rules share a bucket of ", a))
		}
	})
}
