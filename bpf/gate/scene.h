/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What there is to decide a packet by. */
#pragma once
#include "gate/work.h"
#include "policy/image.h"

struct scene {
  const struct header *header;
  const struct room_config *config;
  struct room *room;
  struct pool *pool;
  struct flow *flow; /* NULL: the packet is of none */
  struct work *w;
};

/* What the policy in force says of a room. */
struct said {
  const struct header *header;
  const struct room_config *config;
};

/* A room, and what is said of it. NULL: nothing is. Written out once, for kernels take long to put look-ups
 * into large programs. */
static __attribute__((noinline, unused)) struct room *find_room(__u32 slot, struct said *said) {
  struct image im;
  said->header = open_image(&im);
  if (!said->header)
    return NULL;
  said->config = room_config(&im, said->header, slot);
  return said->config ? room_of(slot) : NULL;
}

/* Gets together what concerns a room. False: the image in force says nothing of it. */
static __always_inline bool open_scene(struct scene *sc, __u32 slot) {
  struct said said;
  sc->room = find_room(slot, &said);
  if (!sc->room)
    return false;
  sc->header = said.header;
  sc->config = said.config;
  sc->pool = the_pool();
  return true;
}

/* Whether what is not understood passes: nothing is held back here. */
static __always_inline bool is_lenient(const struct scene *sc) {
  return sc->config->shadow || !is_strict(sc->config, sc->room);
}

/* Gets together what concerns w->flow, of which this is the entry in the table, as it was found for the
 * segment: it may be another connection's by now, which its id tells under the lock. False: as above, or
 * there is none. */
static __always_inline bool open_flow_scene(struct scene *sc, struct work *w, struct flow *f) {
  sc->w = w;
  sc->flow = f;
  return f && open_scene(sc, w->flow.room);
}

/* The same, with a look-up. */
static __always_inline bool set_flow_scene(struct scene *sc, struct work *w) {
  return open_flow_scene(sc, w, find_by_key(&flows, &w->key));
}

/* A time for flow.unread_since, never 0. */
static __always_inline __u32 unread_time(void) { return (__u32)(bpf_ktime_get_ns() >> 20) | 1; }

/* The same, for bytes that have to be followed: they may not be, while nothing is held back. */
static __always_inline bool open_followed_scene(struct scene *sc, struct work *w, struct flow *f) {
  if (!open_flow_scene(sc, w, f))
    return false;
  if (is_lenient(sc) && f->id == w->flow.id)
    f->unread_since = unread_time();
  return true;
}
