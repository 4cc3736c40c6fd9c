/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Requests in service whose client has reset the connection: the server still works on them. Under the room's
 * lock, unless a function says otherwise. */
#pragma once
#include "room/epochs.h"

/* Requests in service whose client has reset the connection. Key: cookie of the server's
 * socket. Written when the socket is reset, deleted when the server closes it. The least
 * recently used is evicted: it leaves service at its deadline. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 4096);
  __type(key, __u64);
  __type(value, struct haunted);
} ghosts SEC(".maps");

/* 1: there were ghosts since this program was loaded. Sockets are closed all the time, on the
 * whole machine, and resets are rare. Those of an earlier load end at their deadline. */
__u64 haunted_sockets;

/* Ends a ghost's service. How long it took is not known. */
static __always_inline void end_ghost(struct room *r, struct ghost *g) {
  if (g->cookie && leave(r, g->class, g->epoch))
    class_of(r, g->class)->served++;
  g->cookie = 0;
}

#define MAX_REAPED 32

/* Whether the first ghost is to go. */
static __always_inline bool is_ghost_due(const struct room *r, __u64 now) {
  const struct ghost *g = &r->ghost[r->ghost_first % GHOSTS];
  return r->ghost_first != r->ghost_end && (!g->cookie || (__s64)(g->deadline - now) <= 0);
}

/* Lets ghosts go whose time has come, some at a time. */
static __always_inline void reap_ghosts(struct room *r, __u64 now) {
  for (int i = 0; i < MAX_REAPED; i++) {
    struct ghost *g = &r->ghost[r->ghost_first % GHOSTS];
    if (!is_ghost_due(r, now))
      return;
    end_ghost(r, g);
    r->ghost_first++;
  }
}

/* Whether there is something for catch_up() to do. Without the lock. */
static __always_inline bool is_behind(const struct room *r, const struct room_config *c, __u64 now) {
  return (c->epoch && (__s64)(now - r->epoch_began) >= (__s64)c->epoch) || is_ghost_due(r, now);
}

/* What a class for which nothing is known yet is taken to need. */
#define TYPICAL_UNKNOWN 1000000000ULL

/* Keeps a request in service whose client is gone, for the server does not know that yet:
 * until it closes its socket, or for as long as such a request usually takes. */
static __always_inline __u32 haunt(struct room *r, __u32 class, __u32 epoch, __u64 cookie, __u64 now) {
  struct class_room *c = class_of(r, class);
  if (r->ghost_end - r->ghost_first >= GHOSTS)
    end_ghost(r, &r->ghost[r->ghost_first++ % GHOSTS]);
  __u32 number = r->ghost_end++;
  struct ghost *g = &r->ghost[number % GHOSTS];
  g->deadline = now + (c->typical ?: TYPICAL_UNKNOWN);
  g->cookie = cookie;
  g->class = class;
  g->epoch = epoch;
  return number;
}
