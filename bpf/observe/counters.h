/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counters. Each CPU writes its own copy, in softirq context, where no other program can
 * come between: plain additions are exact. */
#pragma once
#include "policy/maps.h"

/* Key: slot of a rule; written by every decision of a rule, read by user space. Its size
 * is the instance's capacity for rules; user space makes it larger before it publishes
 * more. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct counts);
} rule_counts SEC(".maps");

/* Key: slot of a service; written for every packet decided for it; sized like
 * rule_counts. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct counts);
} service_counts SEC(".maps");

/* Key: slot of a service with a waiting room; connections that were established with its servers, by others
 * than this machine. User space compares them with the SYNs that were decided on: more of them say that
 * connections come another way. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, MAX_SERVICES);
  __type(key, __u32);
  __type(value, __u64);
} connection_counts SEC(".maps");

/* Key: enum reason. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, REASON_LEN);
  __type(key, __u32);
  __type(value, struct counts);
} reason_counts SEC(".maps");

static __always_inline void count(struct counts *c, bool drop, bool shadow) {
  if (!c)
    return; /* cannot happen: slots are within the map before a policy names them */
  if (!drop)
    c->passed++;
  else if (shadow)
    c->would_drop++;
  else
    c->dropped++;
}

/* A function of its own: nearly 200 places count, and the kernel writes the look-up out in each. */
__noinline int count_reason(__u32 reason, bool drop, bool shadow) {
  count(bpf_map_lookup_elem(&reason_counts, &reason), drop, shadow);
  return 0;
}
