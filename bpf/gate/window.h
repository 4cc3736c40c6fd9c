/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What clients are told of how far they are, and of how much they may send at once. Bytes behind those that a
 * slot takes would be lost while a connection's first request waits, and would come again only when their
 * client's timer has expired: so it is told to send no more at first than a slot takes. When the server has
 * the request, its stack says more. */
#pragma once
#include "gate/decide/turn.h"

#define OPTIONS_AT 20

/* Has a SYN-ACK say no larger window than a slot takes: it is never scaled. */
static __always_inline void narrow(struct __sk_buff *skb, const struct work *w) {
  __be16 was;
  if (!bpf_skb_load_bytes(skb, w->s.l4 + WINDOW_AT, &was, 2) && bpf_ntohs(was) > slot_room() &&
      !put_word(skb, w, WINDOW_AT, slot_room()))
    count_reason(REASON_CLONE_FAULT, false, false);
}

/* The MSS option, which Linux puts first: network byte order. */
struct mss_option {
  __u8 kind;
  __u8 length;
  __be16 mss;
};

#define NO_MSS 0x10000

static __always_inline __u32 read_mss(struct __sk_buff *skb, const struct work *w) {
  struct mss_option o;
  if (w->s.data < w->s.l4 + OPTIONS_AT + sizeof(o) ||
      bpf_skb_load_bytes(skb, w->s.l4 + OPTIONS_AT, &o, sizeof(o)))
    return NO_MSS;
  return o.kind == 2 && o.length == 4 ? bpf_ntohs(o.mss) : NO_MSS;
}

/* Segments that clients send at once at first (RFC 6928). */
#define FIRST_FLIGHT 10

/* Where segments can be larger than what a slot takes, which is on lo, has the SYN-ACK ask for smaller ones:
 * Linux does not send a part of a segment into a window that is smaller than the segment. */
static __always_inline void narrow_segments(struct __sk_buff *skb, const struct work *w, __u32 mss) {
  if (mss != NO_MSS && mss > slot_room() && !put_word(skb, w, OPTIONS_AT + 2, slot_room() / 2))
    count_reason(REASON_CLONE_FAULT, false, false);
}

/* Makes the server's packet one to the server. */
static __always_inline void turn_round(struct packet *p) {
  for (int i = 0; i < 2; i++) {
    __u64 src = p->src[i];
    p->src[i] = p->dst[i];
    p->dst[i] = src;
  }
  __u16 port = p->sport;
  p->sport = p->dport;
  p->dport = port;
}

/* The SYN-ACK of a connection whose first request may have to wait. Where nobody has to, and what its client
 * sends at once fits a slot, nothing need be said. */
__noinline int on_syn_ack(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  if (!w)
    return TCX_NEXT;
  __u32 mss = read_mss(skb, w);
  if (mss * FIRST_FLIGHT <= slot_room() && !seems_contended())
    return TCX_NEXT;
  turn_round(&w->s.p);
  if (!open_scene(&sc, gate_slot(skb, w)) || is_lenient(&sc))
    return TCX_NEXT;
  narrow(skb, w);
  narrow_segments(skb, w, mss);
  return TCX_NEXT;
}

/* A segment that says no more than what the server's stack has of what the client sent. Of a request of which
 * only the beginning waits it says that this is missing, and what it has behind: the client would take it for
 * lost. So it goes nowhere, which the stack takes for sent. */
static __always_inline int on_bare_ack_out(struct work *w) {
  if (!seems_contended())
    return TCX_NEXT;
  outgoing_key(&w->key, &w->s.p);
  const struct flow *f = find_by_key(&flows, &w->key);
  return f && f->withheld && f->state == FLOW_HELD ? send_out(w, 0, 0) : TCX_NEXT;
}
