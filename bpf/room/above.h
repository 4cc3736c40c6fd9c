/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Rooms in pools. A pool has a room of its own above those of its members, which counts what they have. Two
 * locks are never held together: what has changed in a room is noted there, and told above a moment later. A
 * place is taken above first, and given back there last, so that there are never more in use than it has. */
#pragma once
#include "room/order.h"

static __always_inline struct room *room_above(__u32 above) { return room_of(above - 1); }

/* Whether somebody waits for a place of the room, or of what it shares places with. */
static __always_inline bool is_waited_for(const struct room *r) {
  const struct room *a = r->above ? room_above(r->above) : NULL;
  const struct room *top = a && a->above ? room_above(a->above) : NULL;
  return r->waiting || (a && a->waiting) || (top && top->waiting);
}

/* Accounts for the places that were in use until now. Under the lock. */
static __always_inline void account_places(struct room *r, __u64 now) {
  __u64 passed = now - r->accounted;
  if ((__s64)passed <= 0) /* another CPU read the clock later, and had the lock first */
    return;
  r->accounted = now;
  __u64 used = passed * r->charged;
  r->used += used;
  r->took += used;
  r->due += used / (r->weight ?: 1);
}

/* Requests that the mean time in service is of: half as many are forgotten at once. */
#define MOST_LEFT 64

/* Places that the charge has grown by. Under the lock. */
static __always_inline void charge_places(struct room *r, __u32 places) {
  r->charged += places;
  if ((__s32)places < 0)
    r->left -= places;
  if (r->left < MOST_LEFT)
    return;
  r->left /= 2;
  r->took /= 2;
}

/* How far behind the others a member may be that has had nothing to do, ns of place. */
#define MOST_BEHIND 50000000ULL

/* Waiting requests that the room above is told of. Who has had nothing to do is not owed anything for it.
 * Under the lock. */
static __always_inline void note_told(struct room *r, __u32 waiting, __u64 at) {
  __u64 least = at - MOST_BEHIND;
  if (!r->told && (__s64)(least - r->due) > 0)
    r->due = least;
  r->told += waiting;
}

/* The sum, 0 if it would be less. Without branches, which the verifier would have to follow all. */
static __always_inline __u32 plus(__u32 count, __u32 change) {
  __s32 sum = count + change;
  return sum & ~(sum >> 31);
}

/* Counts what a member has begun or ended of a class. Under the lock. */
static __always_inline void count_below(struct room *a, __u32 class, __u32 in_service, __u32 waiting) {
  struct class_room *q = class_of(a, class);
  a->untold |= bit_of(class);
  a->in_service = plus(a->in_service, in_service);
  q->in_service = plus(q->in_service, in_service);
  a->waiting = plus(a->waiting, waiting);
  q->waiting = plus(q->waiting, waiting);
  __u32 any = -any_of(q->waiting);
  a->waiting_classes = (a->waiting_classes & ~bit_of(class)) | (bit_of(class) & any);
  a->due_classes &= a->waiting_classes;
  q->credit &= any;
}

/* Tells the room above what has changed in a room of a class. If it is another one than before, that one
 * first, which has nothing of it from then on. */
__noinline int tell_class(__u32 slot, __u32 class) {
  struct room *r = room_of(slot);
  if (!r)
    return 0;
  struct class_room *q = class_of(r, class);
  __u32 was = q->above ?: r->above, in_service = 0, waiting = 0;
  struct room *a = room_above(was);
  __u64 at = a ? a->at : 0, now = bpf_ktime_get_ns();
  bpf_spin_lock(&r->lock);
  bool stays = was == r->above;
  __u32 is = q->above ?: r->above;
  if (is == was) {
    in_service = (stays ? q->in_service : 0) - q->charged;
    waiting = (stays ? q->waiting : 0) - q->told;
    if (!a) /* there is nobody to be told */
      in_service = waiting = 0;
    q->charged += in_service;
    q->told += waiting;
    q->above = r->above;
    if (stays)
      r->untold &= ~bit_of(class);
    account_places(r, now);
    charge_places(r, in_service);
    note_told(r, waiting, at);
  }
  bpf_spin_unlock(&r->lock);
  if (!a || !(in_service | waiting))
    return 0;
  bpf_spin_lock(&a->lock);
  count_below(a, class, in_service, waiting);
  bpf_spin_unlock(&a->lock);
  return 0;
}

/* Classes that are told of at once; of others later. */
#define MOST_TELLS 8

/* The same of all that has changed in the room. */
__noinline int tell_room(__u32 slot) {
  struct room *r = room_of(slot);
  if (!r)
    return 0;
  for (int i = 0; i < MOST_TELLS && r->untold; i++)
    tell_class(slot, class_slot(r->untold));
  if (!r->above && !r->untold)
    r->pooled = 0;
  return 0;
}

/* The same, if there is anybody to be told. */
static __always_inline void tell_above(__u32 slot) {
  struct room *r = room_of(slot);
  if (r && r->pooled)
    tell_room(slot);
}

/* Gives a place back that was held. */
__noinline int give_place_back(__u32 above, __u32 class) {
  struct room *a = room_above(above);
  if (!a)
    return 0;
  bpf_spin_lock(&a->lock);
  count_below(a, class, -1, 0);
  bpf_spin_unlock(&a->lock);
  return 0;
}
