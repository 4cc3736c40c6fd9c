/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Turns of services in pools: who gets a place that several of them could have. */
#pragma once
#include "gate/attend.h"
#include "room/above.h"

/* Whether members are to be asked for what they have not told yet: once per tick of the clock. */
static __always_inline bool seems_unheard(struct room *a) { return a->looked != (__u32)bpf_jiffies64(); }

/* The classes of which a pool has as many in service as may be. Without branches, which the verifier would
 * have to follow all. */
static __always_inline __u32 full_classes(const struct room *a, const struct room_config *c) {
  __u64 holds = what_holds(a);
  __u32 full = 0;
  for (__u32 i = 0; i < MAX_RANKS; i++) /* beyond those that there are, none has a max */
    full |= is_full(a, &c->rank[i], holds) << (c->rank[i].class & (CLASS_SLOTS - 1));
  return full;
}

/* The classes of the first so many ranks. Without branches, as above. */
static __always_inline __u32 first_classes(const struct room_config *c, __u32 ranks) {
  __u32 classes = 0;
  for (__u32 i = 0; i < MAX_RANKS; i++) {
    classes |= (i - ranks) >> 31 << (c->rank[i].class & (CLASS_SLOTS - 1));
    asm volatile("" : "+r"(classes)); /* one after the other: all at once would take stack */
  }
  return classes;
}

/* 1, if there is no limit, or fewer are in service. Without branches, as above. */
static __always_inline __u32 is_open(__u64 limit, __u64 in_service) {
  return ~any_of(limit) | (in_service - limit) >> 63;
}

/* The classes of which nobody may wait where one of a rank that has come just now takes a place; none, for
 * MAX_RANKS. Among shares it is all: whose turn it is is decided with all who wait. */
__noinline int preceding_classes(__u32 above, __u32 rank) {
  struct scene sc;
  if (rank >= MAX_RANKS || !open_scene(&sc, above - 1))
    return 0;
  if (sc.config->between == BETWEEN_SHARES)
    return -1;
  return sc.room->due_classes | first_classes(sc.config, rank + 1);
}

/* Holds a place of one pool for a request of a class, unless somebody waits of others. 0: there is none. */
__noinline int hold_in(__u32 above, __u32 class, __u32 others) {
  struct scene sc;
  if (!open_scene(&sc, above - 1))
    return 0;
  struct room *a = sc.room;
  __u64 now = bpf_ktime_get_ns();
  __u32 limit = forget(limit_of(a, sc.config, now), now);
  bpf_spin_lock(&a->lock);
  put_limit(a, limit, now);
  __u32 full = full_classes(a, sc.config);
  __u32 may = is_open(limit, a->in_service) & ~(full >> (class & (CLASS_SLOTS - 1))) &
              ~any_of(a->waiting_classes & others & ~full) & 1;
  count_below(a, class, may, 0);
  bpf_spin_unlock(&a->lock);
  if (may && sc.config->reserves)
    account_admission(above - 1, class);
  return may;
}

/* What hold_place() returns where there is no place. */
#define HOLD_NONE (-1)

/* Bits of the number of a room above. */
#define ABOVE_BITS 16

/* Holds a place of the pool, and of the one that it is in, for a request of a class; of a rank if it has
 * come just now, or MAX_RANKS. Returns what drop_hold() is to give back, once the request is in service or is
 * not to be. */
__noinline int hold_place(__u32 above, __u32 class, __u32 rank) {
  struct scene sc;
  if (!open_scene(&sc, above - 1))
    return 0;
  if (has_moved_up(sc.room, sc.config))
    next_epoch(above - 1);
  __u32 top = sc.config->above;
  if (top && !hold_in(top, class, preceding_classes(top, rank)))
    return HOLD_NONE;
  if (hold_in(above, class, preceding_classes(above, rank)))
    return above | top << ABOVE_BITS;
  if (top)
    give_place_back(top, class);
  return HOLD_NONE;
}

/* The same for a request that has come to a service just now. Where nobody has to wait nothing is held. */
static __always_inline int hold_turn(struct scene *sc, __u32 class, __u32 rank) {
  const struct room_config *c = sc->config;
  return c->above && is_strict(c, sc->room) ? hold_place(c->above, class, rank) : 0;
}

/* Gives back what was held, after what has begun in its place was told of. */
__noinline int drop_hold(__u32 slot, __u32 held, __u32 class) {
  __u32 above = held & ((1 << ABOVE_BITS) - 1), top = held >> ABOVE_BITS;
  tell_class(slot, class);
  give_place_back(above, class);
  if (!top)
    return 0;
  tell_class(above - 1, class);
  return give_place_back(top, class);
}

/* Does what is due in what a room shares places with, after telling what has changed in it: by kicks, of
 * which the egress program finds out for whom they are. */
__noinline int attend_above(struct __sk_buff *skb, __u32 slot) {
  struct room *r = room_of(slot);
  if (!r || !r->pooled)
    return 0;
  tell_room(slot);
  __u32 top = r->above;
  struct room *a = room_above(top);
  if (a && a->above) {
    tell_room(top - 1);
    top = a->above;
    a = room_above(top);
  }
  for (int i = 0; i < MAX_KICKS && a && a->waiting && (seems_free(a) || seems_unheard(a)); i++) {
    __u32 was = a->waiting;
    kick(skb, top - 1, 0);
    if (a->waiting == was)
      break;
  }
  return 0;
}
