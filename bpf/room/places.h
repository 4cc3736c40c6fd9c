/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Places of limits that bound how many there are at once of a rule, a source or a value. */
#pragma once
#include "room/lines.h"

static __always_inline __u64 *place_at(struct pool *p, __u32 number) {
  return &((__u64 *)p->place)[number & (PLACES - 1)];
}

/* The number of the way in a set that is of a tag, or free; 0: there is none. */
static __always_inline __u32 find_place(struct pool *p, __u64 tag, bool is_free) {
  __u32 first = (tag >> 32 & (PLACE_SETS - 1)) * LINE_WAYS, found = 0;
  for (__u32 i = 0; i < LINE_WAYS; i++) {
    __u64 way = *place_at(p, first + i);
    if (is_free ? !(way & LINE_USE) : !((way ^ tag) & ~(__u64)LINE_USE))
      found = first + i;
  }
  return forget(found, tag);
}

/* What take_place() returns where there is none. */
#define PLACE_NONE (-1)    /* as many are taken as may be */
#define PLACE_CROWDED (-2) /* others have all that there is memory for */

/* Takes a place of those that a tag has, of which there may be `most` at once. Only who has the pool's lock
 * takes one, so that a way of nobody's stays that. */
__noinline int take_place(__u64 tag, __u64 most) {
  struct pool *p = the_pool();
  int taken = PLACE_CROWDED;
  bpf_spin_lock(&p->lock);
  __u32 number = find_place(p, tag, false);
  if (number) {
    __u64 *way = place_at(p, number);
    taken = PLACE_NONE;
    if ((*way & LINE_USE) < most) {
      __sync_fetch_and_add(way, 1);
      taken = number;
    }
  } else if ((number = find_place(p, tag, true))) {
    *place_at(p, number) = (tag & ~(__u64)LINE_USE) | 1;
    taken = number;
  }
  bpf_spin_unlock(&p->lock);
  return taken;
}

/* Whether take_place() would find one at the moment: 0, or why not. */
__noinline int look_for_place(__u64 tag, __u64 most) {
  struct pool *p = the_pool();
  __u32 number = find_place(p, tag, false);
  if (number)
    return (*place_at(p, number) & LINE_USE) < most ? 0 : PLACE_NONE;
  return find_place(p, tag, true) ? 0 : PLACE_CROWDED;
}

/* Bits of the number of a place. */
#define PLACE_BITS 16

/* Gives places back: numbers in one word, the last taken lowest. Needs no lock, and may be under any. */
static __always_inline void leave_places(struct pool *p, __u64 places) {
  for (int i = 0; i < MAX_PLACES && places; i++, places >>= PLACE_BITS)
    __sync_fetch_and_add(place_at(p, places), -1);
}
