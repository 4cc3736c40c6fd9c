/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What clients are told that they may send at once. Bytes behind those that a slot takes would be lost while
 * their request waits, and would come again only when their client's timer has expired: so it is told to send
 * no more at first than a slot takes. When the server has the request, its stack says more. */
#pragma once
#include "gate/decide/turn.h"

/* Bytes of a slot that are headers, or are left over where the last piece does not fit. */
#define SLOT_OVERHEAD 192

/* Bytes of data that a slot takes. */
static __always_inline __u32 slot_room(void) { return slot_size - SLOT_OVERHEAD; }

/* Writes two bytes of the TCP header at an offset in it. */
static __always_inline bool put_tcp_word(struct __sk_buff *skb, const struct work *w, __u32 at, __be16 was,
                                         __be16 now) {
  return !bpf_skb_store_bytes(skb, w->s.l4 + at, &now, 2, 0) &&
         !bpf_l4_csum_replace(skb, w->s.l4 + 16, was, now, 2);
}

#define WINDOW_AT 14
#define OPTIONS_AT 20

/* Has the segment say no larger window than a slot takes, which counts in units of 2^scale bytes. False: it
 * does say more. */
static __always_inline bool narrow(struct __sk_buff *skb, const struct work *w, __u32 scale) {
  __be16 was;
  __u32 most = slot_room() >> scale;
  if (bpf_skb_load_bytes(skb, w->s.l4 + WINDOW_AT, &was, 2))
    return false;
  if (bpf_ntohs(was) <= most)
    return true;
  if (most && put_tcp_word(skb, w, WINDOW_AT, was, bpf_htons(most)))
    return true;
  count_reason(REASON_CLONE_FAULT, false, false);
  return false;
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
  if (mss != NO_MSS && mss > slot_room() &&
      !put_tcp_word(skb, w, OPTIONS_AT + 2, bpf_htons(mss), bpf_htons(slot_room() / 2)))
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
  if (!open_scene(&sc, gate_slot(w, skb->ifindex)) || is_lenient(&sc))
    return TCX_NEXT;
  narrow(skb, w, 0); /* a SYN's window is never scaled */
  narrow_segments(skb, w, mss);
  return TCX_NEXT;
}

/* Whether somebody waits, or the next who comes may have to. Without the lock: it need not be exact. */
static __always_inline bool is_contended(const struct room *r) {
  if (r->waiting || (r->limit && r->in_service >= r->limit))
    return true;
  return r->looked && (__u32)bpf_jiffies64() - r->looked < CONTENDED_FOR;
}

/* Whether the segment says that the server's stack has all of the client's but its next request, which may
 * wait already. */
static __always_inline bool awaits_request(const struct flow *f, __u32 ack) {
  if (!f->id || f->protocol != PROTOCOL_HTTP)
    return false;
  if (f->state == FLOW_HELD || f->state == FLOW_GATHERING)
    return ack == f->start;
  return ack == f->next && !(f->flags & (FLOW_HEAD | FLOW_CHUNKS | FLOW_LOST | FLOW_TUNNEL));
}

/* The same of a segment of an established connection. */
static __always_inline bool narrow_established(struct __sk_buff *skb, const struct work *w) {
  struct tcp_sock *t = sender_of(skb);
  return t && narrow(skb, w, BPF_CORE_READ_BITFIELD_PROBED(t, rx_opt.rcv_wscale));
}

/* Notes what the client of w->flow was told. Without the lock, as nobody else writes it. */
static __always_inline void note_told(const struct work *w, bool told) {
  struct flow *f = w->flow.told != told ? find_by_key(&flows, &w->key) : NULL;
  if (f && f->id == w->flow.id)
    f->told = told;
}

/* A segment of the server's, on the connection of w->flow. */
__noinline int narrow_answer(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  if (!w || !awaits_request(&w->flow, w->s.ack) || !open_scene(&sc, w->flow.room))
    return 0;
  bool contended = !is_lenient(&sc) && is_contended(sc.room);
  if (contended)
    note_contention();
  note_told(w, contended && narrow_established(skb, w));
  return 0;
}

/* A segment that says no more than that the server's stack has what the client sent, where somebody may have
 * to wait. The answer behind it
 * does not make a window smaller that it has said: who acknowledges nothing new may only make it larger. */
static __always_inline int on_bare_ack_out(struct __sk_buff *skb, struct work *w) {
  if (!seems_contended())
    return TCX_NEXT;
  outgoing_key(&w->key, &w->s.p);
  const struct flow *f = find_by_key(&flows, &w->key);
  if (!f || !awaits_request(f, w->s.ack))
    return TCX_NEXT;
  w->flow = *f;
  narrow_answer(skb, w);
  return TCX_NEXT;
}
