/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who is in service, since which epoch. All under the room's lock. */
#pragma once
#include "room/lines.h"

/* Forgets what entered so long ago that its end must have been missed. */
static __always_inline void forget_epoch(struct room *r, __u32 epoch) {
  __u32 *entered = r->entered[epoch % EPOCHS];
  for (int i = 0; i < CLASS_SLOTS; i++) {
    __u32 n = entered[i];
    entered[i] = 0;
    r->untold |= any_of(n) << i;
    r->in_service -= n;
    r->class[i].in_service -= n;
    r->class[i].served += n;
    r->class[i].lost += n;
  }
}

/* Moves on to the next epoch if it has begun, or to that of this moment if nothing is in service. */
static __always_inline void advance(struct room *r, const struct room_config *c, __u64 now) {
  if ((__s64)(now - r->epoch_began) < (__s64)c->epoch)
    return;
  if (!r->in_service || !c->epoch) {
    r->epoch_began = now;
    return;
  }
  r->epoch_began += c->epoch;
  forget_epoch(r, ++r->epoch);
}

/* Counts a request in service. The epoch is to be kept for leave(). */
static __always_inline __u32 enter(struct room *r, __u32 class) {
  r->in_service++;
  r->untold |= bit_of(class);
  class_of(r, class)->in_service++;
  r->entered[r->epoch % EPOCHS][class & (CLASS_SLOTS - 1)]++;
  return r->epoch;
}

/* Whether what entered in that epoch has been given up. */
static __always_inline bool is_forgotten(const struct room *r, __u32 epoch) {
  return r->epoch - epoch >= EPOCHS;
}

/* Ends what enter() began. False: it has been given up before. */
static __always_inline bool leave(struct room *r, __u32 class, __u32 epoch) {
  if (is_forgotten(r, epoch))
    return false;
  r->in_service--;
  r->untold |= bit_of(class);
  class_of(r, class)->in_service--;
  r->entered[epoch % EPOCHS][class & (CLASS_SLOTS - 1)]--;
  return true;
}

/* Another CPU may have read the clock later, and had the lock first. */
static __always_inline __u64 elapsed(__u64 since, __u64 now) {
  return (__s64)(now - since) < 0 ? 0 : now - since;
}

/* Weight of a time in service in the mean, 2^−n. Little, for requests that take long end together: a mean
 * that they had just made large would make them cheap. */
#define MEAN_SHIFT 10

/* Counts a request's time in service, which is over. */
static __always_inline void count_service(struct class_room *c, __u64 took) {
  c->served++;
  c->service_sum += took;
  c->service[bucket_of(took)]++;
  c->mean += (__s64)(took - c->mean) >> MEAN_SHIFT * any_of(c->mean);
}
