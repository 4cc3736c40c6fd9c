/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define ONLY_VALUE(type, map) ((type *)bpf_map_lookup_elem(&(map), &(__u32){0}))
#include "native.h"

/* Constants to the verifier, but variables here: so small a table is nowhere but in tests. */
static __u32 test_mask, test_ways;
#define source_set_mask as_shipped
#include "abi/config.h"
#undef source_set_mask
#define source_set_mask test_mask
#undef SOURCE_WAYS
#define SOURCE_WAYS ((int)test_ways)

#include "policy/limits.h"

static __u64 rule_times[2 * (TEST_LIMITS + 1)];
static __u64 clock;
static struct counts refused[TEST_LIMITS];
static struct page limits_page;
static int limits_image; /* by its address */
static struct secret secret;
static struct pool places_pool;
static struct source_set sets[TEST_SETS];

static __u64 test_clock(void) { return clock; }

static long no_lock(struct bpf_spin_lock *lock) { return !lock; }

static void *test_lookup(void *map, const void *key) {
  __u32 index = *(const __u32 *)key;
  if (map == (void *)&source_secret)
    return index == 0 ? &secret : NULL;
  if (map == (void *)&source_sets)
    return index <= test_mask ? &sets[index] : NULL;
  if (map == (void *)&rule_buckets)
    return index < 2 * (TEST_LIMITS + 1) ? &rule_times[index] : NULL;
  if (map == (void *)&pool)
    return &places_pool;
  if (map == (void *)&policy_image)
    return &limits_image;
  if (map == (void *)&limits_image)
    return index == 0 ? &limits_page : NULL;
  if (map == (void *)&rule_counts)
    return index < TEST_LIMITS ? &refused[index] : NULL;
  return NULL;
}

int native_parse(const void *data, const void *end, struct packet *out) {
  struct view v = {data, end};
  return parse(&v, out);
}

__u64 native_siphash13(__u64 key0, __u64 key1, __u64 a, __u64 b, __u64 c) {
  __u64 key[2] = {key0, key1};
  return siphash13(key, a, b, c);
}

void native_buckets_reset(__u32 n, __u32 ways, __u64 key0, __u64 key1) {
  bpf_map_lookup_elem = test_lookup;
  test_mask = n - 1;
  test_ways = ways;
  bpf_ktime_get_ns = test_clock;
  bpf_spin_lock = bpf_spin_unlock = no_lock;
  __builtin_memset(places_pool.place, 0, sizeof(places_pool.place));
  __builtin_memset(rule_times, 0, sizeof(rule_times));
  __builtin_memset(refused, 0, sizeof(refused));
  secret = (struct secret){{key0, key1}};
  __builtin_memset(sets, 0, sizeof(sets));
}

int native_police(const struct rule *r, const struct packet *p, __u64 now) {
  return police(r, p, 0, now) == TAKEN;
}

int native_take_limits(const struct rule *limits, __u32 n, const struct packet *p, __u64 now, __u64 *places) {
  clock = now;
  limits_page.cell[0].header.generation = 1;
  for (__u32 i = 0; i < n; i++) {
    limits_page.cell[i + 1].rule = limits[i];
    limits_page.cell[i + 1].rule.limits = i + 1 < n ? i + 2 : 0;
  }
  *places = 0;
  if (take_tokens(p, NULL, 1, 1, now, places) == TAKEN)
    return 1;
  leave_places(&places_pool, *places);
  return 0;
}

void native_leave_places(__u64 places) { leave_places(&places_pool, places); }

__u64 native_refused(__u32 limit) { return refused[limit].dropped; }

__u64 native_source_tag(const struct rule *r, const struct packet *p) { return source_tag(r, p, 0, &secret); }

struct source_set *native_source_set(__u64 tag) { return &sets[tag >> 32 & test_mask]; }
