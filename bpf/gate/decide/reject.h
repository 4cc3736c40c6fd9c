/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ways in which a request is rejected, or its connection closed. */
#pragma once
#include "gate/decide/admission.h"
#include "gate/decide/answer.h"
#include "gate/decide/upgrade.h"
#include "gate/socket.h"
#include "gate/step.h"

/* Whether the client knows of less than the server has sent. */
static __always_inline bool is_in_answer(const struct work *w) { return before(w->s.ack, w->flow.sent); }

/* Answers the packet's request as rejected, behind choose_answer(). The stack has the client's bytes up to a
 * sequence number. */
static __always_inline int reject_chosen(struct __sk_buff *skb, struct work *w, __u32 has) {
  struct rejected *r = note_rejected(skb, w);
  r->seq = has;
  say_chosen(w, r, is_in_answer(w));
  return answer(skb, w);
}

static __always_inline void choose_in_packet(struct __sk_buff *skb, struct work *w) {
  w->reading.at = w->s.data;
  w->reading.left = w->s.length;
  choose_answer(skb, w, 0);
}

/* The same for a request that begins with the packet. */
__noinline int reject_request(struct __sk_buff *skb, struct work *w, __u32 has) {
  if (!w)
    return TCX_DROP;
  choose_in_packet(skb, w);
  return reject_chosen(skb, w, has);
}

/* Ends a connection as a server closes an idle one; in the midst of an answer by a reset, of
 * which nobody thinks that it is the answer's end. */
static __always_inline int close_connection(struct __sk_buff *skb, struct work *w) {
  note_rejected(skb, w)->reset = is_in_answer(w);
  return answer(skb, w);
}

/* The same for what the packet's data say, provided that they are what its client sent. */
__noinline int close_checked(struct __sk_buff *skb, struct work *w, __u32 reason) {
  struct flow *f = w ? find_by_key(&flows, &w->key) : NULL;
  if (!w || !checksum_holds(skb, w))
    return drop(REASON_CHECKSUM);
  if (!f || !delete_flow(&w->key, f, &w->flow, w->flow.id, bpf_ktime_get_ns()))
    return drop(REASON_RACE);
  count_reason(reason, true, false);
  return close_connection(skb, w);
}

/* Tells the client that its request is none for the server. The stack has the client's bytes
 * up to a sequence number. */
__noinline int reject_unreadable(struct __sk_buff *skb, struct work *w, __u32 why, __u32 has) {
  struct scene sc;
  if (!w || !set_flow_scene(&sc, w))
    return drop(REASON_RACE);
  bool holds = checksum_holds(skb, w), mine = true;
  if (holds || w->flow.flags & FLOW_NEW)
    mine = delete_flow(&w->key, sc.flow, &w->flow, w->flow.id, w->now);
  if (!holds || !mine) /* it is not what the client sent */
    return drop(holds ? REASON_RACE : REASON_CHECKSUM);
  note_rejection(sc.room, w, why, false);
  w->row = why == REJECT_TOO_LARGE ? ROW_TOO_LARGE : ROW_MALFORMED;
  choose_in_packet(skb, w);
  return reject_chosen(skb, w, has);
}

/* Whether the request, whose head is in the segment or in the node's slot, leads to HTTP/2. */
static __always_inline bool leads_to_h2c(struct __sk_buff *skb, const struct scene *sc, __u32 node) {
  struct flow *f = &sc->w->flow;
  if (!(f->head.seen & HTTP_SEEN_H2C) || sc->config->h2c == H2C_PASS)
    return false;
  if (!(f->head.flags & HTTP_H2C) || sc->config->h2c == H2C_REJECT || !ignore_upgrade(skb, sc->w, node))
    return true;
  count_reason(REASON_H2C_IGNORED, false, false);
  return false;
}

/* Why the request that has been read so far is none for the server; 0: it may be one. */
static __always_inline __u32 why_unreadable(struct __sk_buff *skb, const struct scene *sc, int step,
                                            __u32 node) {
  struct flow *f = &sc->w->flow;
  if (f->protocol != PROTOCOL_HTTP || step == HTTP_MORE)
    return 0;
  if (leads_to_h2c(skb, sc, node))
    return REJECT_H2C;
  if (step != HTTP_LOST)
    return 0;
  if (!http_is_preface(&f->head))
    return REJECT_MALFORMED;
  f->flags |= FLOW_TUNNEL;
  return 0;
}
