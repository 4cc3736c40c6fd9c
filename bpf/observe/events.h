/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tells user space of decisions, while it listens. */
#pragma once
#include "compat/verifier.h"
#include "policy/maps.h"

/* Written by the programs, emptied by user space. When it is full events are missed, and counted. */
struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 1 << 20);
} events SEC(".maps");

/* Key 0; value: ns until which user space listens, which it renews; 0: it does not. With the lowest bit it
 * listens to refusals alone. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u64);
} audience SEC(".maps");

/* What a CPU may still tell. */
struct event_budget {
  __u64 since; /* ns */
  __u64 told;  /* events since then */
  __u64 missed;
};

/* Key 0. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct event_budget);
} event_budgets SEC(".maps");

/* So many events a CPU tells at most in such a time, ns: a flood is not to be slowed by telling of it. */
#define EVENT_BUDGET 200
#define EVENT_PERIOD 50000000ULL

/* The time, ns, if anybody listens to such events; else 0. Reading the clock costs more than the rest. */
static __always_inline __u64 heard_at(bool refusal) {
  const __u64 *until = ONLY_VALUE(const __u64, audience);
  if (!*until || (!refusal && *until & 1))
    return 0;
  __u64 now = bpf_ktime_get_ns();
  return (__s64)(*until - now) > 0 ? now : 0;
}

static __always_inline bool may_tell(__u64 now) {
  __u32 zero = 0;
  struct event_budget *b = bpf_map_lookup_elem(&event_budgets, &zero);
  if (!b)
    return false;
  if (now - b->since >= EVENT_PERIOD) {
    b->since = now;
    b->told = 0;
  }
  if (b->told >= EVENT_BUDGET) {
    b->missed++;
    return false;
  }
  b->told++;
  return true;
}

/* Tells of an event. */
static __always_inline void tell(struct event *e) {
  __u32 zero = 0;
  struct event_budget *b;
  if (!may_tell(e->time) || !bpf_ringbuf_output(&events, e, sizeof(*e), 0))
    return;
  b = bpf_map_lookup_elem(&event_budgets, &zero);
  if (b)
    b->missed++;
}
