/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Programs that the daemon runs, on no packet of anybody's. */
#pragma once
#include "gate/look.h"
#include "room/connections.h"

/* How often a tick attends to a room: as many requests as this times MAX_KICKS. */
#define TICK_ROUNDS 16

__noinline int attend_fully(struct __sk_buff *skb, __u32 slot) {
  for (int i = 0; i < TICK_ROUNDS; i++)
    if (attend(skb, slot) < MAX_KICKS)
      break;
  return attend_above(skb, slot);
}

/* Does what is due, in all rooms. */
static __always_inline int gate_tick(struct __sk_buff *skb) {
  struct image im;
  struct work *w = enter_run();
  if (w) {
    for (int i = 0; i < TICK_ROUNDS && look_round(skb, w) == MAX_LOOKS; i++)
      ;
    leave_run();
  }
  const struct header *h = open_image(&im);
  if (!h)
    return TCX_NEXT;
  for (__u32 slot = 0; slot < MAX_SERVICES && slot < h->room_count; slot++)
    attend_fully(skb, slot);
  return TCX_NEXT;
}

/* cb[0] is the slot of a service, cb[1] that of a class, which starts anew. */
static __always_inline int gate_reset(struct __sk_buff *skb) {
  struct room *r = room_of(skb->cb[0]);
  if (r)
    reset_class(r, skb->cb[1]);
  return TCX_NEXT;
}

/* Says in place of the frame's beginning how many nodes are in use, and how many connections are followed:
 * the pool that counts them is megabytes to read. */
static __always_inline int gate_use(struct __sk_buff *skb) {
  const struct pool *p = the_pool();
  __u32 use[2];
  if (!p)
    return TCX_NEXT;
  use[0] = p->used;
  use[1] = p->flows + p->briefs;
  return bpf_skb_store_bytes(skb, 0, use, sizeof(use), 0) ? TCX_DROP : TCX_NEXT;
}

/* In place of a frame there is a struct control; cb[0] is the slot of the service that it is for. */
static __always_inline int gate_steer(struct __sk_buff *skb) {
  struct control c;
  struct scene sc;
  if (!open_scene(&sc, skb->cb[0]) || bpf_skb_load_bytes(skb, 0, &c, sizeof(c)))
    return TCX_DROP;
  __u64 now = bpf_ktime_get_ns();
  bpf_spin_lock(&sc.room->lock);
  sc.room->control = c;
  put_limit(sc.room, limit_of(sc.room, sc.config, now), now);
  bpf_spin_unlock(&sc.room->lock);
  catch_up(skb->cb[0]);
  return TCX_NEXT;
}

/* Gives back the places of limits that a request has which is taken for lost. */
__noinline int forget_places(struct work *w) {
  struct scene sc;
  struct flow *f = w ? find_by_key(&flows, &w->key) : NULL;
  if (!f || !open_scene(&sc, f->room))
    return 0;
  __u64 now = bpf_ktime_get_ns(), longest = sc.config->epoch * EPOCHS;
  bpf_spin_lock(&sc.room->lock);
  if (f->id && f->state == FLOW_SERVED && elapsed(f->since, now) >= longest)
    return_places(sc.pool, f);
  bpf_spin_unlock(&sc.room->lock);
  return 0;
}

/* Gives back the places of a connection that has neither a socket nor a flow any more. */
__noinline int forget_opening(struct __sk_buff *skb, struct work *w) {
  struct opening *o = w ? find_by_key(&openings, &w->key) : NULL;
  if (!o)
    return 0;
  int state = find_socket(skb, &w->key, &w->socket);
  __u64 now = bpf_ktime_get_ns();
  bool gone = state == 0 || state == BPF_TCP_LISTEN || state == BPF_TCP_TIME_WAIT;
  if (!gone || find_by_key(&flows, &w->key))
    o->since = now;
  else if (elapsed(o->since, now) >= OPENING_AGE)
    end_opening(&w->key, o);
  return 0;
}

/* In place of a frame there is a flow's key: forgets the flow if its connection is no more. */
static __always_inline int gate_sweep(struct __sk_buff *skb) {
  struct work *w = enter_run();
  if (!w)
    return TCX_NEXT;
  if (!bpf_skb_load_bytes(skb, 0, &w->key, sizeof(w->key))) {
    forget_old(skb, w);
    forget_places(w);
    forget_opening(skb, w);
  }
  leave_run();
  return TCX_NEXT;
}
