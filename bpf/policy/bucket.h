/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Token buckets as a generic cell rate algorithm (ITU-T I.371): the state is one time,
 * the theoretical arrival time, at which the bucket will be full again. */
#pragma once
#include "abi/config.h"
#include "parse/packet.h"
#include "policy/siphash.h"

/* Key: see bucket_index(). Value: theoretical arrival time. Written by compare-and-swap; user
 * space writes one only while no published rule names it. Two for each slot of
 * rule_counts, of which one is in use. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u64);
} rule_buckets SEC(".maps");

/* Key: rule.slot. Written by user space while a paced rule has the slot; a reader that finds one half
 * written takes one token by a mixture of two paces. Sized like rule_counts. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct pace);
} rule_paces SEC(".maps");

/* Per-source buckets: a set-associative cache. Key: low bits of the tag. It is always
 * full: a newcomer takes over the way whose theoretical arrival time is the earliest and
 * goes on from that time. As times only grow, a source that was evicted finds a bucket no
 * fuller than it left it: eviction gives nobody a token. (The replacement is that of
 * Space-Saving, Metwally et al., ICDT 2005.) When more sources are in debt than there are
 * ways, they share debts and so tokens, the strict side to err on. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __uint(map_flags, BPF_F_MMAPABLE);
  __type(key, __u32);
  __type(value, struct source_set);
} source_sets SEC(".maps");

/* Key 0; written once when the instance is loaded. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct secret);
} source_secret SEC(".maps");

/* Where the bucket of a rule is that has one for all. */
static __always_inline __u32 bucket_index(const struct rule *r) { return r->slot << 1 | (r->id & 1); }

/* Attempts before a CPU gives up: each that fails means that another CPU took a token. */
#define TAKE_ATTEMPTS 16

/* The same to give one back: it is lost then, the strict side to err on. */
#define GIVE_ATTEMPTS 4

enum taken { TAKEN, EMPTY, CONTENDED, CROWDED, FAULT };

static __always_inline bool is_empty(__u64 time, __u64 tolerance, __u64 now) {
  return (__s64)(time - now) > (__s64)tolerance;
}

/* Takes a token of a bucket from which another CPU may have just taken one. That is rare enough for a call,
 * which the verifier follows once and not in every context in which a token is taken. */
__noinline int take_again(__u64 *time, __u64 interval, __u64 tolerance, __u64 now) {
  if (!time)
    return FAULT;
  __u64 seen = *(volatile __u64 *)time;
  for (int i = 1; i < TAKE_ATTEMPTS; i++) {
    if (is_empty(seen, tolerance, now))
      return EMPTY;
    __u64 found = __sync_val_compare_and_swap(time, seen, (seen > now ? seen : now) + interval);
    if (found == seen)
      return TAKEN;
    seen = found;
  }
  return CONTENDED;
}

static __always_inline int take(__u64 *time, const struct rule *r, __u64 now) {
  __u64 seen = *(volatile __u64 *)time;
  if (is_empty(seen, r->tolerance, now))
    return EMPTY;
  if (__sync_val_compare_and_swap(time, seen, (seen > now ? seen : now) + r->interval) == seen)
    return TAKEN;
  return take_again(time, r->interval, r->tolerance, now);
}

static __always_inline __u64 mask_high(__u32 bits) {
  return bits == 0 ? 0 : bits >= 64 ? ~0ULL : ~0ULL << (64 - bits);
}

/* A hash of what it is for and of a value that a request has, a hash; 0: of the packet's source prefix. */
static __always_inline __u64 key_hash(const struct secret *secret, __u64 id, const struct packet *p,
                                      __u32 bits_v4, __u32 bits_v6, __u64 value) {
  __u32 bits = p->v6 ? bits_v6 : bits_v4;
  __u64 high = p->src[0] & mask_high(bits);
  /* An IPv4 source is told from an IPv6 prefix by a lower half that no prefix of up to
   * 64 bits has. */
  __u64 low = p->v6 ? p->src[1] & mask_high(bits > 64 ? bits - 64 : 0) : ~0ULL;
  /* What goes by values has such prefixes only. */
  return siphash13(secret->key, id, value ?: high, value ? 1 : low);
}

/* The tag of the bucket under the rule for a value, or for the packet's source prefix; never 0. */
static __always_inline __u64 source_tag(const struct rule *r, const struct packet *p, __u64 value,
                                        const struct secret *secret) {
  return key_hash(secret, r->id, p, r->bits_v4, r->bits_v6, value) | 1;
}

/* The way of the source: its own, else the one with the fullest bucket. A time is read once
 * and before its tag: a CPU that charges a way has written its tag first, so that who sees
 * the charge sees the tag, and the same newcomer on two CPUs goes to one way. */
static __always_inline struct source *find_source(struct source_set *set, __u64 tag) {
  __u64 least = ~0ULL;
  __u64 way = 0;
  for (int i = 0; i < SOURCE_WAYS; i++) {
    struct source *s = &set->way[i];
    __u64 time = *(volatile __u64 *)&s->time;
    if (*(volatile __u64 *)&s->tag == tag) {
      way = i;
      break;
    }
    if (time < least) {
      least = time;
      way = i;
    }
  }
  way = forget(way, tag);
  return &set->way[way < (__u64)SOURCE_WAYS ? way : 0];
}

/* The way and the tag of the packet's source, or of a value, under the rule. NULL: it is our fault. */
static __always_inline struct source *source_of(const struct rule *r, const struct packet *p, __u64 value,
                                                __u64 *tag) {
  __u32 zero = 0;
  const struct secret *secret = bpf_map_lookup_elem(&source_secret, &zero);
  if (!secret)
    return NULL;
  *tag = source_tag(r, p, value, secret);
  __u32 index = *tag >> 32 & source_set_mask;
  struct source_set *set = bpf_map_lookup_elem(&source_sets, &index);
  return set ? find_source(set, *tag) : NULL;
}

static __always_inline int take_per_source(const struct rule *r, const struct packet *p, __u64 value,
                                           __u64 now) {
  __u64 tag;
  struct source *s = source_of(r, p, value, &tag);
  if (!s)
    return FAULT;
  if (s->tag == tag)
    return take(&s->time, r, now);
  if (is_empty(*(volatile __u64 *)&s->time, r->tolerance, now))
    return CROWDED;
  /* The tag first: see find_source(). If two newcomers take over one way both charge its
   * time, and the tag that is lost finds the minimum of the set when it comes again. */
  *(volatile __u64 *)&s->tag = tag;
  return take(&s->time, r, now);
}

/* How long until the bucket would be full that the packet's source or value takes from, ns; of one that has
 * none yet that of the one it would take over. */
__noinline __s64 debt_of(const struct rule *r, const struct packet *p, __u64 value, __u64 now) {
  if (!r || !p)
    return 0;
  __u32 index = bucket_index(r);
  __u64 tag;
  struct source *s = r->per_source ? source_of(r, p, value, &tag) : NULL;
  const __u64 *time = s ? &s->time : bpf_map_lookup_elem(&rule_buckets, &index);
  return time ? (__s64)(*(volatile __u64 *)time - now) : 0;
}

/* Gives a token back that was taken at `now`. Only while the bucket cannot have been full since, even without
 * it: from then on what others have taken is not on top of it, and would be given back in its place. So the
 * clock is read behind the bucket's time, which must not have changed when the token is back. */
__noinline int give_back(const struct rule *r, const struct packet *p, __u64 value, __u64 now) {
  if (!r || !p || r->by == BY_PLACES)
    return 0;
  __u32 index = bucket_index(r);
  __u64 tag = 0;
  struct source *s = r->per_source ? source_of(r, p, value, &tag) : NULL;
  __u64 *time = s ? &s->time : bpf_map_lookup_elem(&rule_buckets, &index);
  if (!time)
    return 0;
  for (int i = 0; i < GIVE_ATTEMPTS; i++) {
    __u64 seen = *(volatile __u64 *)time;
    if (s && *(volatile __u64 *)&s->tag != tag)
      return 0; /* it has been evicted, and its debt is another's */
    if (bpf_ktime_get_ns() - now >= r->interval)
      return 0;
    if (__sync_val_compare_and_swap(time, seen, seen - r->interval) == seen)
      return 1;
  }
  return 0;
}

/* Takes a token by the rule's pace. Where nobody keeps that up, it is our fault: all have one. */
__noinline int take_paced(const struct rule *r, __u64 now) {
  if (!r)
    return FAULT;
  __u32 slot = r->slot, index = bucket_index(r);
  const struct pace *pace = bpf_map_lookup_elem(&rule_paces, &slot);
  __u64 *time = bpf_map_lookup_elem(&rule_buckets, &index);
  if (!pace || !time)
    return FAULT;
  if ((__s64)(pace->until - now) <= 0)
    return TAKEN;
  return take_again(time, pace->interval, pace->tolerance, now);
}

/* Takes a token for the packet from the rule's bucket, or from that of its source or of a value. */
static __always_inline int police(const struct rule *r, const struct packet *p, __u64 value, __u64 now) {
  if (r->per_source)
    return take_per_source(r, p, value, now);
  if (r->by == BY_PACE)
    return take_paced(r, now);
  __u32 index = bucket_index(r);
  __u64 *time = bpf_map_lookup_elem(&rule_buckets, &index);
  return time ? take(time, r, now) : FAULT;
}
