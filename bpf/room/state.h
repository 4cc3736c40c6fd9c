/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state of the waiting rooms, which each room's lock guards. */
#pragma once
#include "abi/config.h"
#include "abi/room.h"
#include "compat/verifier.h"

/* Key: slot of a service. Written by the programs under its lock; user space reads. Sized
 * for the services of the policy; user space refuses more. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct room);
} rooms SEC(".maps");

/* Key 0. The nodes of all rooms. When there is no free one the request is rejected. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct pool);
} pool SEC(".maps");

static __always_inline struct room *room_of(__u32 slot) { return bpf_map_lookup_elem(&rooms, &slot); }

static __always_inline struct pool *the_pool(void) { return ONLY_VALUE(struct pool, pool); }

static __always_inline struct node_link *link_of(struct pool *p, __u32 node) {
  return &p->link[node & MAX_SLOTS];
}

static __always_inline struct class_room *class_of(struct room *r, __u32 class) {
  return &r->class[class & (CLASS_SLOTS - 1)];
}

/* 1, if any of these bits is set, of which the highest is not, or 0. Without branches, which the verifier
 * would have to follow all. */
static __always_inline __u32 any_of(__u64 bits) {
  __u64 negative = -bits;
  asm volatile("" : "+r"(negative)); /* so that clang does not make a branch of it */
  return negative >> 63;
}

/* The bit of a class slot. */
static __always_inline __u32 bit_of(__u32 class) { return 1U << (class & (CLASS_SLOTS - 1)); }

/* Whether what user space has decided still holds: it renews that for as long as it lives. */
static __always_inline bool is_steered(const struct room *r, __u64 now) {
  return (__s64)(r->control.until - now) > 0;
}

/* Whether the server is to be asked to close each connection behind its answer. */
static __always_inline bool closes_each(const struct room *r, __u64 now) {
  return r->control.marks & CONTROL_CLOSES && is_steered(r, now);
}

/* Requests in service at once; 0: unlimited. A limit of the policy is exceeded only by those that wait for
 * workers which stay with connections. */
static __always_inline __u32 limit_of(const struct room *r, const struct room_config *c, __u64 now) {
  if (!c->adaptive)
    return c->limit && closes_each(r, now) && r->control.limit > c->limit ? r->control.limit : c->limit;
  return is_steered(r, now) ? r->control.limit : r->control.safe;
}

/* Puts a limit in force, and has what a class may have hold again if nobody says any more that it does not.
 * Under the lock. Without branches, which the verifier would have to follow all. */
static __always_inline void put_limit(struct room *r, __u32 limit, __u64 now) {
  __u64 steered = (now - r->control.until) >> 63;
  r->limit = limit;
  r->control.marks &= ~CONTROL_GIVEN_UP | steered * CONTROL_GIVEN_UP;
}

/* Whether the rule is enforced at this moment for the service in a slot. */
static __always_inline bool is_enforced(const struct rule *rule, __u32 slot, __u64 now) {
  if (rule->when == WHEN_ALWAYS)
    return true;
  const struct room *r = room_of(slot);
  return r && r->control.level >= rule->when && is_steered(r, now);
}

static __always_inline bool has_room(const struct room *r) {
  return !r->limit || r->in_service + r->brief < r->limit;
}

/* Whether there is a limit that counts. A provisional one does from when it is reached, or somebody waits:
 * until then a server of which nothing is known yet is left alone, as without a limit. */
static __always_inline bool has_limit(const struct room *r) {
  return r->limit && (!(r->control.marks & CONTROL_PROVISIONAL) || r->waiting || !has_room(r));
}

/* Whether requests may have to wait. Where the limit adapts, once there is one: nothing but requests brings
 * that about, so that what is no HTTP is left alone. */
static __always_inline bool is_strict(const struct room_config *c, const struct room *r) {
  return c->strict || (c->adaptive && has_limit(r));
}

/* log2 of a duration in microseconds, at most HISTOGRAM − 1. Without branches, as above. */
static __always_inline __u32 bucket_of(__u64 ns) {
  __u64 us = ns / 1000;
  __u32 log = 0;
  for (int step = 16; step; step /= 2) {
    __u32 shift = any_of(us >> step) * step;
    us >>= shift & 63;
    log += ADDED(shift);
  }
  asm volatile("" : "+r"(log)); /* so that clang keeps the mask, which is for the verifier */
  return log & (HISTOGRAM - 1);
}
