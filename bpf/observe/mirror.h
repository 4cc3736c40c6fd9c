/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Copies what is decided about to user space, which tries another policy on it. */
#pragma once
#include "compat/keys.h"
#include "observe/events.h"

/* Written by the programs, emptied by user space. When it is full copies are missed, and counted. */
struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 1 << 21);
} mirror_ring SEC(".maps");

/* Key 0. Written by user space; all zero: nothing is copied. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct mirror_control);
} mirror SEC(".maps");

#define MIRROR_RECORDS 5

/* What a CPU may still copy. Key 0. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct event_budget);
} mirror_budgets SEC(".maps");

/* Copies in the making. Key: depth of nesting, as of works; the last is for SYNs. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, MIRROR_RECORDS);
  __type(key, __u32);
  __type(value, struct mirrored);
} mirrored_records SEC(".maps");

/* So many a CPU copies at most in EVENT_PERIOD. */
#define MIRROR_BUDGET 250

/* The least is copied of all sources or of none: what a source may do depends on what it did. */
static __always_inline bool is_chosen(const struct mirror_control *m, const __u64 source[2]) {
  __u64 seed = m->seed | (__u64)m->seed << 32;
  __u64 x = (source[0] ^ source[0] >> 32 ^ source[1] ^ seed) * 0x9e3779b97f4a7c15ULL;
  x = (x ^ x >> 32) * 0xff51afd7ed558ccdULL;
  return !(x >> 32 & m->mask);
}

static __always_inline const struct mirror_control *the_mirror(void) {
  return ONLY_VALUE(const struct mirror_control, mirror);
}

/* Whether anything is copied. */
static __always_inline bool is_mirrored(void) { return the_mirror()->until; }

/* The control if what concerns the source is to be copied, NULL otherwise. An IPv6 source is its /64. */
static __always_inline const struct mirror_control *mirror_for(__u64 prefix, __u64 rest, bool v6) {
  const struct mirror_control *m = the_mirror();
  if (!m->until)
    return NULL;
  const __u64 source[2] = {prefix, v6 ? 0 : rest};
  return is_chosen(m, source) ? m : NULL;
}

static __always_inline bool may_copy(struct event_budget *b, __u64 now) {
  if (now - b->since >= EVENT_PERIOD) {
    b->since = now;
    b->told = 0;
  }
  if (b->told >= MIRROR_BUDGET) {
    b->missed++;
    return false;
  }
  b->told++;
  return true;
}

/* Where to put a copy; NULL: it is not to be made. */
static __always_inline struct mirrored *begin_copy(const struct mirror_control *m, __u32 level, __u64 now) {
  __u32 zero = 0;
  struct event_budget *b = bpf_map_lookup_elem(&mirror_budgets, &zero);
  if (!b || (__s64)(m->until - now) <= 0 || !may_copy(b, now))
    return NULL;
  struct mirrored *c = bpf_map_lookup_elem(&mirrored_records, &level);
  if (c)
    c->mask = m->mask;
  return c;
}

static __always_inline void end_copy(struct mirrored *c) {
  __u32 zero = 0, length = BOUND(c->length, MIRROR_HEAD);
  if (!bpf_ringbuf_output(&mirror_ring, c, offsetof(struct mirrored, head) + length, 0))
    return;
  struct event_budget *b = bpf_map_lookup_elem(&mirror_budgets, &zero);
  if (b)
    b->missed++;
}

/* Its reason and enum mirror_fate, as copy_syn() has them. */
#define FATE_SHIFT 16

/* Copies a SYN of which it was decided at `now`, ns, for it is chosen. */
__noinline int copy_syn(const struct packet *p, __u32 service, __u32 rule, __u32 verdict, __u64 now) {
  if (!p)
    return 0;
  const struct mirror_control *m = mirror_for(p->src[0], p->src[1], p->v6);
  struct mirrored *c = m ? begin_copy(m, MIRROR_RECORDS - 1, now) : NULL;
  if (!c)
    return 0;
  c->time = now;
  incoming_key(&c->key, p);
  c->fate = verdict >> FATE_SHIFT;
  c->class = NO_CLASS;
  c->syn = 1;
  c->service = service;
  c->rule = rule;
  c->reason = verdict & ((1 << FATE_SHIFT) - 1);
  c->proxied = 0;
  c->skip = 0;
  c->length = 0;
  end_copy(c);
  return 0;
}
