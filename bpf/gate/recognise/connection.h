/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Connections of rules that bound how many there are at once: each takes its places with the first segment of
 * which the stack could make a socket, before the gate holds anything of it. */
#pragma once
#include "gate/decide/turn.h"
#include "policy/limits.h"
#include "room/connections.h"

/* Takes the places that the limits from a cell on give to a connection, which are the caller's. */
__noinline int take_places(const struct packet *p, __u32 cell, __u32 generation, __u64 *places) {
  struct image im;
  if (!p || !places || !open_image(&im) || im.generation != generation)
    return FAULT;
  int taken = TAKEN;
  for (int i = 0; i < MAX_LIMITS && cell; i++) {
    const struct rule *r = rule_at(&im, cell);
    if (!r)
      break;
    __u32 slot = r->slot;
    if (r->by == BY_PLACES)
      taken = take_limit(r, p, 0, 0, places);
    if (is_refused(taken)) {
      count(bpf_map_lookup_elem(&rule_counts, &slot), true, false);
      break;
    }
    cell = forget(r->limits, generation);
  }
  return taken;
}

/* What the policy says of the segment's connection: the cell of the first limit of its rule, if that is in
 * force; 0: none. */
static __always_inline __u32 limits_of(struct image *im, const struct header *h, struct work *w,
                                       __u32 ifindex, bool *shadow) {
  const struct packet *p = &w->s.p;
  const struct service *s = find_service(im, h, p);
  if (!s || !on_interface(s, ifindex))
    return 0;
  __u32 slot = s->slot;
  *shadow = s->shadow;
  const struct room_config *c = room_config(im, h, slot);
  const struct rule *rule = find_rule(im, s, c, p, listed_in(h, p));
  if (!rule || !is_enforced(rule, slot, bpf_ktime_get_ns()))
    return 0;
  return rule->limits;
}

/* Whether the connection of the segment has places already. */
static __always_inline bool has_places(const struct opening *o, const struct work *w) {
  return o && o->places && o->answer == w->s.ack;
}

/* Notes that the connection has the places. Where another CPU was faster it has those already, where there is
 * no memory it has none: these are given back then. */
__noinline int open_connection(struct __sk_buff *skb, struct work *w, __u64 places) {
  if (!w)
    return 0;
  struct opening o = {
      .places = places, .since = bpf_ktime_get_ns(), .answer = w->s.ack, .ifindex = skb->ifindex};
  struct opening *old = find_by_key(&openings, &w->key);
  if (old && !has_places(old, w)) /* of an earlier connection */
    end_opening(&w->key, old);
  if (!put_by_key(&openings, &w->key, &o, BPF_NOEXIST))
    return true;
  leave_places(the_pool(), places);
  return has_places(find_by_key(&openings, &w->key), w);
}

/* Whether the stack could make a socket of the segment. */
static __always_inline bool ends_handshake(struct __sk_buff *skb, struct work *w) {
  if ((w->s.flags & (TCP_ACK | TCP_RST | TCP_SYN)) != TCP_ACK)
    return false;
  int state = find_socket(skb, &w->key, &w->socket);
  if (state == BPF_TCP_NEW_SYN_RECV)
    return w->s.ack == w->socket.answer;
  return state == BPF_TCP_LISTEN && is_cookie(skb, w);
}

/* Whether the connection of a segment that is of no flow has its places, or gets them, or needs none. */
__noinline int may_connect(struct __sk_buff *skb, struct work *w) {
  struct image im;
  bool shadow = false;
  const struct header *h = open_image(&im);
  if (!w || !h || !h->bounds || !ends_handshake(skb, w))
    return 1;
  if (has_places(find_by_key(&openings, &w->key), w))
    return 1;
  __u32 limits = limits_of(&im, h, w, skb->ifindex, &shadow);
  if (!limits)
    return 1;
  w->places = 0;
  int taken = take_places(&w->s.p, limits, im.generation, &w->places);
  if (is_refused(taken)) {
    leave_places(the_pool(), w->places);
  } else if (!w->places || open_connection(skb, w, w->places)) {
    return 1;
  }
  count_reason(REASON_AT_ONCE, true, shadow);
  return shadow;
}
