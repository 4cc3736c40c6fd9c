/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What there is to decide a packet by. */
#pragma once
#include "gate/work.h"
#include "policy/image.h"

struct scene {
  struct image im;
  const struct header *header;
  const struct room_config *config;
  struct room *room;
  struct pool *pool;
  struct flow *flow; /* NULL: the packet is of none */
  struct work *w;
};

/* Gets together what concerns a room. False: a map is missing, which cannot be, or the image
 * says nothing of it. */
static __always_inline bool set_scene(struct scene *sc, __u32 slot) {
  sc->config = room_config(&sc->im, sc->header, slot);
  sc->room = room_of(slot);
  sc->pool = the_pool();
  return sc->config && sc->room && sc->pool;
}

/* The same of a slot, in the image in force. */
static __always_inline bool open_scene(struct scene *sc, __u32 slot) {
  sc->header = open_image(&sc->im);
  return sc->header && set_scene(sc, slot);
}

/* Whether requests may have to wait. Where the limit adapts, once there is one: nothing but requests brings
 * that about, so that what is no HTTP is left alone. */
static __always_inline bool is_strict(const struct room_config *c, const struct room *r) {
  return c->strict || (c->adaptive && r->limit);
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
