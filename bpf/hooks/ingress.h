/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The gate where segments come in (tcx): what belongs to which connection, and what is to be
 * done with it; bpf/gate/ has how. */
#pragma once
#include "../gate/first.h"
#include "../gate/look.h"
#include "../gate/next.h"
#include "../gate/open.h"
#include "../gate/speech.h"
#include "../gate/waiting.h"

/* Reads the frame's headers, pulling them together if need be. */
static __always_inline int read_segment(struct __sk_buff *skb, struct segment *s) {
  struct view v = {(void *)(long)skb->data, (void *)(long)skb->data_end};
  int parsed = parse_segment(&v, skb->len, s);
  if (parsed != PARSED_TRUNCATED || skb->len <= v.end - v.data)
    return parsed;
  __u32 length = skb->len < MAX_HEADERS ? skb->len : MAX_HEADERS;
  if (bpf_skb_pull_data(skb, length))
    return PARSED_PASS;
  v = (struct view){(void *)(long)skb->data, (void *)(long)skb->data_end};
  return parse_segment(&v, skb->len, s);
}

/* Whether the segment ends a connection behind bytes that have not come: the stack would keep
 * that for later, and nobody can tell whose it is. Its client sends it again. */
__noinline int is_stray_end(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return 0;
  find_socket(skb, &w->key, &w->socket);
  return takes_data(&w->socket) && before(w->socket.sequence, w->s.seq);
}

/* Whether the segment says more than that others have arrived. */
static __always_inline bool changes_anything(const struct segment *s) {
  return s->length || s->flags & TCP_FIN;
}

/* A segment of an HTTP connection whose request does not wait. */
static __always_inline int on_http(struct __sk_buff *skb, struct work *w) {
  const struct flow *f = &w->flow;
  __u32 end = w->s.seq + w->s.length;
  if (f->state == FLOW_PAUSED)
    return on_paused(skb, w);
  int verdict = before(f->next, end) ? ON_SERVED : TCX_NEXT;
  if (before(w->s.seq, f->body) && before(f->start, end))
    verdict = on_again(skb, w);
  if (f->state == FLOW_SERVED && f->watched && verdict == TCX_NEXT)
    verdict = on_body(skb, w);
  if (f->state == FLOW_SERVED && verdict == ON_SERVED)
    verdict = on_served(skb, w);
  return verdict == ON_IDLE || verdict == ON_SERVED ? on_idle(skb, w) : verdict;
}

/* A segment of a flow in the table, which w->flow is a copy of. */
static __always_inline int on_flow(struct __sk_buff *skb, struct work *w) {
  const struct flow *f = &w->flow;
  if (!f->id) /* it is being deleted */
    return w->s.length ? drop(REASON_RACE) : TCX_NEXT;
  if (f->state == FLOW_HELD)
    return on_held(skb, w);
  if (f->state == FLOW_GATHERING)
    return on_gathering(skb, w);
  if (w->s.flags & TCP_FIN && is_stray_end(skb, w))
    return drop(REASON_FORGED);
  if (!w->s.length || w->s.flags & TCP_RST || f->flags & FLOW_TUNNEL)
    return TCX_NEXT; /* a reset is the stack's business, which says so when it takes it */
  if (f->protocol == PROTOCOL_HTTP)
    return on_http(skb, w);
  return f->state == FLOW_SERVED && !(f->flags & FLOW_ANSWERED) ? TCX_NEXT : on_speech(skb, w);
}

__noinline int on_syn(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  if (!w)
    return TCX_NEXT;
  sc.header = open_image(&sc.im);
  if (!sc.header || !gate_service(&sc, w, skb->ifindex))
    return TCX_NEXT;
  forget_old(skb, w);
  if (is_lenient(&sc))
    return TCX_NEXT;
  if (would_end(skb, w))
    return drop(REASON_FORGED);
  strip_syn(skb, w);
  return TCX_NEXT;
}

/* Decides on a segment to a port of the gate. */
__noinline int decide_segment(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return TCX_NEXT;
  incoming_key(&w->key, &w->s.p);
  if ((w->s.flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
    return on_syn(skb, w);
  if (!(w->s.flags & (TCP_ACK | TCP_RST)))
    return TCX_NEXT; /* no stack takes it */
  struct flow *f = bpf_map_lookup_elem(&flows, &w->key);
  int verdict = TCX_NEXT;
  if (f && !changes_anything(&w->s) && f->state != FLOW_HELD && f->state != FLOW_GATHERING) {
    w->flow.room = f->room; /* changes nothing */
  } else if (f) {
    w->flow = *f;
    w->next = w->flow.next;
    verdict = on_flow(skb, w);
  } else {
    verdict = on_unknown(skb, w);
  }
  if (verdict == ON_FIRST_REQUEST)
    verdict = on_first_request(skb, w);
  if (verdict == ON_GAVE_UP)
    verdict = on_gave_up(skb, w);
  if (verdict == ON_TURN)
    verdict = on_turn(skb, w);
  if (verdict == ON_PIECE)
    verdict = on_piece(skb, w);
  see_to(skb, w, w->flow.room);
  return verdict;
}

static __always_inline int gate_ingress(struct __sk_buff *skb) {
  if (skb->mark == MARK_OURS) {
    skb->mark = 0;
    return TCX_NEXT;
  }
  struct work *w = enter_run();
  if (!w)
    return let_pass(REASON_NESTING);
  int verdict = TCX_NEXT;
  if (read_segment(skb, &w->s) == PARSED_SYN && is_gate_port(w->s.p.dport))
    verdict = decide_segment(skb, w);
  /* Last, because the kernel notes but one redirection at a time, and runs within this one
   * may have had theirs. */
  if (verdict == TCX_REDIRECT)
    verdict = bpf_redirect(w->out.ifindex, w->out.flags);
  leave_run();
  return verdict;
}
