/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Flows in short form, and the places of their requests: taken and given back without the room's lock. */
#pragma once
#include "room/flow.h"

/* Connections whose flow is in short form, until their socket ends. Written and read by the programs. When
 * full, further connections get flows in long form. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1);
  __type(key, struct flow_key);
  __type(value, struct brief_flow);
} brief_flows SEC(".maps");

/* The flow in short form of a connection; NULL: it has none. */
static __always_inline struct brief_flow *find_brief(const struct flow_key *key) {
  const struct pool *p = the_pool();
  return p && p->briefs ? find_by_key(&brief_flows, key) : NULL;
}

/* Requests that may be in service for another to enter without the lock: half the limit, and less by more
 * than can enter at the same moment by the lock and without it. Without a limit as many as like. */
static __always_inline __u32 brief_bound(__u32 limit) {
  __u32 half = limit / 2, margin = cpu_count + 1;
  if (!limit)
    return ~0U;
  return limit < half + margin ? (limit > margin ? limit - margin : 0) : half;
}

/* Whether there are so few flows that more may have the short form: those of the long form give way to
 * others, and the short ones must find a place when they take that. */
static __always_inline bool may_begin_brief(const struct pool *p) {
  return p->flows + p->briefs < flow_count / 2;
}

/* Gives a place back. A room that was made another service's meanwhile has none to be given back. */
static __always_inline void leave_brief(struct room *r) {
  if (!__sync_fetch_and_add(&r->brief, -1))
    __sync_fetch_and_add(&r->brief, 1);
}

/* Takes a place without the lock. False: places are scarce, somebody waits, or the server is asked by the
 * request to close the connection. */
static __always_inline bool enter_brief(struct room *r, const struct room_config *c, __u64 now) {
  if (closes_each(r, now))
    return false;
  __u32 bound = brief_bound(limit_of(r, c, now)), others = __sync_fetch_and_add(&r->brief, 1);
  if (r->in_service + others < bound && !r->waiting)
    return true;
  leave_brief(r);
  return false;
}

/* Ends the service of a request that is in service since then: `to` is 0, or BRIEF_GONE if the flow is to be
 * deleted. False: another CPU was faster. */
static __always_inline bool end_brief(struct room *r, struct brief_flow *b, __u64 since, __u64 to) {
  if (__sync_val_compare_and_swap(&b->since, since, to) != since)
    return false;
  __u64 now = bpf_ktime_get_ns();
  struct brief_counts *c = &class_of(r, b->class)->brief;
  __u64 took = elapsed(since, now);
  __sync_fetch_and_add(&c->served, 1);
  __sync_fetch_and_add(&c->service_sum, took);
  __sync_fetch_and_add(&c->service[bucket_of(took)], 1);
  leave_brief(r);
  return true;
}

/* Makes the short form one that is being deleted, which was last seen with `since`. False: it has changed. */
static __always_inline bool claim_brief(struct brief_flow *b, __u64 since) {
  return since != BRIEF_GONE && __sync_val_compare_and_swap(&b->since, since, BRIEF_GONE) == since;
}

/* Deletes a short form that was claimed. */
static __always_inline void delete_brief(struct pool *p, const struct flow_key *key) {
  if (!delete_by_key(&brief_flows, key))
    __sync_fetch_and_add(&p->briefs, -1);
}

/* Makes a request that has entered without the lock one that has entered by it. Under the lock. */
static __always_inline __u32 enter_from_brief(struct room *r, __u32 class) {
  struct class_room *c = class_of(r, class);
  c->arrived++;
  c->admitted++;
  return enter(r, class);
}

/* The other half of that, behind it: meanwhile it is counted twice. */
static __always_inline void forget_brief(struct room *r, __u32 class) {
  __sync_fetch_and_add(&class_of(r, class)->brief.begun, -1);
  leave_brief(r);
}
