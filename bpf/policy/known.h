/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sources that are known, and go ahead of others in overload. docs/decisions/0050 says what they have to do
 * for that. */
#pragma once
#include "abi/clients.h"
#include "compat/verifier.h"
#include "room/state.h"

/* Key: low bits of a hash of service, class and source. Written by the programs without a lock: of two that
 * write one at once, one is forgotten. It is always full: who becomes known takes the place of who has
 * nothing left, or else was answered longest ago. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, KNOWN_SETS);
  __type(key, __u32);
  __type(value, struct known_set);
} known_sources SEC(".maps");

static __always_inline struct known_set *known_set_of(__u64 hash) {
  __u32 key = hash & (KNOWN_SETS - 1);
  return bpf_map_lookup_elem(&known_sources, &key);
}

/* Time in 2^30 ns, of which the lower bits are kept. */
static __always_inline __u64 known_time(void) { return bpf_ktime_get_ns() >> 30 & KNOWN_TIMES; }

/* The way with a number, of which clang keeps the mask. */
static __always_inline __u64 *known_way(struct known_set *s, __u64 number) {
  asm volatile("" : "+r"(number));
  return &s->way[number & (KNOWN_WAYS - 1)];
}

/* How long ago the way's source was answered. */
static __always_inline __u64 known_age(__u64 way, __u64 now) {
  return (now - (way >> KNOWN_TIME_BITS)) & KNOWN_TIMES;
}

/* Whether the way is not of the source with that hash: 1 or 0. */
static __always_inline __u64 is_other(__u64 way, __u64 hash) { return any_of((way ^ hash) >> 32); }

/* Makes the source with that hash known as of now. */
__noinline int make_known(__u64 hash) {
  struct known_set *s = known_set_of(hash);
  if (!s)
    return 0;
  __u64 now = known_time(), most = 0, chosen = 0;
  for (__u64 i = 0; i < KNOWN_WAYS; i++) {
    __u64 way = *(volatile __u64 *)&s->way[i];
    __u64 mine = 1 - is_other(way, hash), spent = 1 - any_of(way & KNOWN_LEFT);
    __u64 age = 1 + known_age(way, now) + (spent << 30) + (mine << 31);
    __u64 more = (__u64)((__s64)(most - age) >> 63);
    most ^= (most ^ age) & more;
    chosen ^= (chosen ^ i) & more;
  }
  __u64 way = hash >> 32 << 32 | now << KNOWN_TIME_BITS | KNOWN_REQUESTS;
  *(volatile __u64 *)known_way(s, chosen) = way;
  return 1;
}

/* Attempts to count down what others count down as well. */
#define SPEND_ATTEMPTS 4

/* Whether the source with that hash, 0: none, was answered not longer ago than that, 2^30 ns, and has a
 * request left that goes ahead, which it has no more: 1 or 0. */
__noinline int spend_known(__u64 hash, __u32 known) {
  struct known_set *s = hash && known ? known_set_of(hash) : NULL;
  if (!s)
    return 0;
  __u64 chosen = 0;
  for (__u64 i = 0; i < KNOWN_WAYS; i++)
    chosen |= i & (is_other(*(volatile __u64 *)&s->way[i], hash) - 1);
  __u64 *way = known_way(s, chosen), now = known_time();
  for (int i = 0; i < SPEND_ATTEMPTS; i++) {
    __u64 was = *(volatile __u64 *)way;
    if (is_other(was, hash) || !(was & KNOWN_LEFT) || known_age(was, now) > known)
      return 0;
    if (__sync_val_compare_and_swap(way, was, was - 1) == was)
      return 1;
  }
  return 0;
}
