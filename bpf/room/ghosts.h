/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Requests in service whose client has reset the connection: the server still works on them. */
#pragma once
#include "room/places.h"
#include "room/epochs.h"

/* Key: cookie of the server's socket. Written when the socket is reset, deleted when the socket ends, its
 * process having closed it. When full, a request stays counted until max_service. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 16384);
  __type(key, __u64);
  __type(value, struct ghost);
} ghosts SEC(".maps");

/* Ends a ghost's service, if max_service has not. How long the server worked on it is not known; its source
 * pays for the place. */
static __always_inline void end_ghost(const struct ghost *g) {
  struct room *r = room_of(g->room);
  struct pool *p = the_pool();
  __u64 now = bpf_ktime_get_ns();
  if (!r)
    return;
  bpf_spin_lock(&r->lock);
  if (leave(r, g->class, g->epoch))
    class_of(r, g->class)->served++;
  charge(class_of(r, g->class), p, g->line, g->owner, elapsed(g->since, now));
  bpf_spin_unlock(&r->lock);
  leave_places(p, g->places);
}
