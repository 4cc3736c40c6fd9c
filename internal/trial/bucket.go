// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"net/netip"
	"time"

	"narthex/internal/policy"
)

// buckets are token buckets as the data path has them: of each the time at which it is full
// again (GCRA). They begin full.
type buckets struct {
	rules   map[sourceKey]int64 // one for all of a rule, or limit
	sources *table[sourceKey, int64]
}

type sourceKey struct {
	rule  int // of connections from 0 up, of requests from -1 down
	from  netip.Prefix
	limit int    // from 1 up; 0: the rate
	value string // of what the rule's buckets go by; then there is no prefix
}

// bucket says which one, and how it fills.
type bucket struct {
	key       sourceKey // without a prefix: one for the rule
	interval  int64     // ns in which it gains a token
	tolerance int64     // ns that it may be from full and still give one
	exact     bool      // a copy stands for other sources, not for other arrivals of this one
}

func newBuckets() *buckets {
	return &buckets{rules: map[sourceKey]int64{}, sources: newTable[sourceKey, int64]()}
}

// connectionBuckets are all that a SYN takes a token of under a rule.
func connectionBuckets(rule int, c *policy.Connection, from netip.Addr) []bucket {
	all := []bucket{newBucket(sourceKey{rule: rule}, c.Rate.Rate, c.Burst, c.Per, from, "")}
	for i, l := range c.Limits { // of those at once the rate is none: when what arrives will end is not known
		all = append(all, newBucket(sourceKey{rule: rule, limit: i + 1}, l.Rate, l.Burst, l.Per, from, ""))
	}
	return all
}

// requestBuckets are all that a request takes a token of under a rule.
func requestBuckets(rule int, q *policy.Request, from netip.Addr, v *policy.RequestView) []bucket {
	rule = -1 - rule
	all := []bucket{newBucket(sourceKey{rule: rule}, q.Rate.Rate, q.Burst, q.Per, from, q.Per.Key.Value(v))}
	for i, l := range q.Limits {
		all = append(all, newBucket(sourceKey{rule: rule, limit: i + 1}, l.Rate, l.Burst, l.Per, from, l.Per.Key.Value(v)))
	}
	return all
}

// newBucket has one that never is empty for a rate that sets itself: what it would be is not known.
func newBucket(key sourceKey, rate policy.Rate, burst int, per policy.Per, from netip.Addr, value string) bucket {
	b := bucket{key: key, interval: int64(rate.Interval())}
	b.tolerance = b.interval * int64(max(burst, 1)-1)
	if per == policy.PerRule {
		return b
	}
	if value != "" {
		b.key.value, b.exact = value, per.Key.Kind == "cookie" // of one client, most likely
		return b
	}
	bits := per.V6
	if from.Is4() {
		bits = per.V4
	}
	b.key.from, _ = from.Prefix(bits) // the policy has checked the length
	b.exact = bits >= from.BitLen()/2 && (!from.Is4() || bits == from.BitLen())
	return b
}

// take takes a token of each if all have one, and so many more as a copy stands for arrivals of the
// same bucket.
func (s *buckets) take(all []bucket, now int64, weight int) bool {
	full := make([]int64, len(all))
	for i, b := range all {
		if b.isShared() {
			full[i] = s.rules[b.key]
		} else {
			full[i], _ = s.sources.get(b.key, now)
		}
		if full[i]-now > b.tolerance {
			return false
		}
	}
	for i, b := range all {
		n := int64(weight)
		if b.exact {
			n = 1
		}
		until := max(full[i], now) + n*b.interval
		if b.isShared() {
			s.rules[b.key] = until
		} else {
			s.sources.put(b.key, until, until, now)
		}
	}
	return true
}

// isShared reports whether the bucket is one for all.
func (b *bucket) isShared() bool { return b.key.from == netip.Prefix{} && b.key.value == "" }

// table remembers so many things, each until a time, and forgets none of them before.
type table[K comparable, V any] struct {
	entries map[K]entry[V]
	swept   int64
	lost    uint64 // things that there was no room for
}

type entry[V any] struct {
	value V
	until int64
}

// sweepEvery bounds how often a table that is full is looked through.
const sweepEvery = int64(time.Second)

func newTable[K comparable, V any]() *table[K, V] { return &table[K, V]{entries: map[K]entry[V]{}} }

func (t *table[K, V]) get(k K, now int64) (v V, ok bool) {
	e, ok := t.entries[k]
	if !ok || e.until <= now {
		return v, false
	}
	return e.value, true
}

func (t *table[K, V]) remove(k K) { delete(t.entries, k) }

func (t *table[K, V]) put(k K, v V, until, now int64) {
	if _, known := t.entries[k]; !known && len(t.entries) >= mostEntries && !t.sweep(now) {
		t.lost++
		return
	}
	t.entries[k] = entry[V]{v, until}
}

// sweep forgets what is over. False: there is no room nevertheless.
func (t *table[K, V]) sweep(now int64) bool {
	if now-t.swept < sweepEvery {
		return false
	}
	t.swept = now
	for k, e := range t.entries {
		if e.until <= now {
			delete(t.entries, k)
		}
	}
	return len(t.entries) < mostEntries
}
