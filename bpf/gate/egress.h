/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The gate where segments go out (tcx): sees requests leave service, and makes of the clones
 * that it is kicked with what is due. */
#pragma once
#include "gate/ingress.h"
#include "gate/recognise/response.h"
#include "gate/pools.h"
#include "gate/recognise/brief_answer.h"
#include "gate/window.h"

/* A segment of a flow in the table. */
__noinline int on_flow_out(struct __sk_buff *skb, struct work *w) {
  struct scene sc = {.w = w};
  struct flow *f = w ? find_by_key(&flows, &w->key) : NULL;
  return f ? on_answer(skb, &sc, f) : TCX_NEXT;
}

/* Looks at a segment from a port of the gate. */
__noinline int watch_segment(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return TCX_NEXT;
  outgoing_key(&w->key, &w->s.p);
  w->says = 0;
  w->flow.room = MAX_SERVICES;
  w->flow.id = 0;
  struct brief_flow *b = find_brief(&w->key);
  int verdict = b && on_brief_out(skb, w, b) ? TCX_NEXT : on_flow_out(skb, w);
  if (verdict == STEP_STALE) /* the segment must not go unnoticed */
    verdict = on_flow_out(skb, w);
  w->due = what_is_needed(w->flow.room);
  return verdict == STEP_STALE ? TCX_NEXT : verdict;
}

static __always_inline int gate_kicked(struct __sk_buff *skb) {
  __u32 room = skb->mark & MARK_ROOM;
  __u32 ifindex = (skb->mark & ~MARK_ROOM) == MARK_KICK ? skb->ifindex : 0;
  struct work *w = enter_run();
  if (!w)
    return drop(REASON_NESTING);
  return end_run(w, serve_due(skb, w, room, ifindex));
}

/* Looks at flows that came on this interface, for a packet of another. */
static __always_inline int gate_looks(struct __sk_buff *skb) {
  struct work *w = enter_run();
  if (!w)
    return drop(REASON_NESTING);
  look_round(skb, w);
  leave_run();
  return TCX_DROP;
}

/* A segment from a port of the gate. */
static __always_inline int segment_out(struct __sk_buff *skb, struct work *w) {
  if (w->s.flags & TCP_SYN)
    return on_syn_ack(skb, w);
  if (!w->s.length && !(w->s.flags & (TCP_FIN | TCP_RST)))
    return on_bare_ack_out(w);
  return watch_segment(skb, w);
}

static __always_inline int gate_egress(struct __sk_buff *skb) {
  __u32 kind = skb->mark & ~MARK_ROOM;
  if (kind == MARK_KICK || kind == MARK_ELSEWHERE)
    return gate_kicked(skb);
  if (skb->mark == MARK_LOOK)
    return gate_looks(skb);
  struct work *w = enter_run();
  if (!w)
    return let_pass(REASON_NESTING);
  w->due = 0;
  int verdict = TCX_NEXT;
  if (read_segment(skb, &w->s) == PARSED_SYN && is_gate_port(w->s.p.sport))
    verdict = segment_out(skb, w);
  return finish(skb, w, verdict);
}
