/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The gate where segments come in (tcx): what belongs to which connection, and what is to be
 * done with it; bpf/gate/ has how. */
#pragma once
#include "gate/decide/rules.h"
#include "gate/look.h"
#include "gate/mirror.h"
#include "gate/recognise/http.h"
#include "gate/recognise/stream.h"
#include "gate/recognise/syn.h"
#include "gate/recognise/untracked.h"
#include "gate/recognise/waiting.h"

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
  if (is_far(f->start, w->s.seq))
    leave_behind(skb, w);
  int verdict = before(f->next, end) ? ON_SERVED : TCX_NEXT;
  if (f->state == FLOW_PAUSED)
    verdict = on_paused(skb, w);
  else if (before(w->s.seq, f->body) && before(f->start, end))
    verdict = on_again(skb, w);
  bool passes = verdict == TCX_NEXT || verdict == ON_SERVED; /* some of it, perhaps */
  if (f->state == FLOW_SERVED && f->watched && passes && on_body(skb, w) != TCX_NEXT)
    verdict = TCX_DROP;
  if (f->state == FLOW_SERVED && verdict == ON_SERVED)
    verdict = on_served(skb, w);
  if (verdict == ON_IDLE || verdict == ON_SERVED)
    verdict = on_idle(skb, w);
  if (verdict == ON_NEXT)
    verdict = on_next(skb, w);
  if (verdict == ON_NEXT_REQUEST)
    verdict = on_next_request(skb, w);
  return verdict == ON_UNFOLLOWED ? on_unfollowed(skb, w) : verdict;
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
  if (f->protocol == PROTOCOL_TLS && before(w->s.seq, f->next) && is_hello_again(skb, w))
    return drop(REASON_RACE);
  if (f->state != FLOW_SERVED || f->flags & FLOW_ANSWERED)
    return on_speech(skb, w);
  return f->flags & FLOW_COOKIE || before(w->s.seq, f->next) ? on_body(skb, w) : TCX_NEXT;
}

__noinline int on_syn(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  if (!w)
    return TCX_NEXT;
  if (!open_scene(&sc, gate_slot(w, skb->ifindex)))
    return TCX_NEXT;
  forget_old(skb, w);
  if (is_lenient(&sc))
    return TCX_NEXT;
  if (would_end(skb, w))
    return drop(REASON_FORGED);
  strip_syn(skb, w);
  return TCX_NEXT;
}

/* Makes an ordinary byte of one that is marked as urgent (RFC 9293, 3.8.5): stacks leave those out of what
 * servers read, which then would not be what was decided on. */
__noinline int calm(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  if (!w)
    return 0;
  if (!open_scene(&sc, gate_slot(w, skb->ifindex)) || sc.config->protocol == PROTOCOL_TCP || is_lenient(&sc))
    return 0;
  __be16 was, now;
  __u32 at = w->s.l4 + 12, check = w->s.l4 + 16; /* the word with the flags, the checksum */
  if (bpf_skb_load_bytes(skb, at, &was, 2))
    return 0;
  now = was & bpf_htons((__u16)~TCP_URG);
  if (bpf_skb_store_bytes(skb, at, &now, 2, 0) || bpf_l4_csum_replace(skb, check, was, now, 2))
    count_reason(REASON_CLONE_FAULT, false, false);
  return 0;
}

/* A request begins, and all of its head is there: what its rule says. */
static __always_inline int on_fresh(struct __sk_buff *skb, struct work *w, int verdict) {
  __u32 why = verdict == ON_RULES ? read_rules(skb, w) : 0;
  __u32 level = run_level();
  bool copies = is_mirrored() && begin_mirror(skb, w, level);
  if (verdict == ON_RULES)
    verdict = on_rules(w, why);
  if (copies)
    end_mirror(w, level);
  return verdict == ON_REFUSED ? on_refused(skb, w) : verdict;
}

/* Decides on a segment to a port of the gate. */
static __always_inline int decide_segment(struct __sk_buff *skb, struct work *w) {
  incoming_key(&w->key, &w->s.p);
  begin_tale(w);
  w->crowded = 0;
  if ((w->s.flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
    return on_syn(skb, w);
  if (!(w->s.flags & (TCP_ACK | TCP_RST)))
    return TCX_NEXT; /* no stack takes it */
  if (w->s.flags & TCP_URG)
    calm(skb, w);
  struct flow *f = find_by_key(&flows, &w->key);
  int verdict = TCX_NEXT;
  if (f && !changes_anything(&w->s) && f->state != FLOW_HELD && f->state != FLOW_GATHERING) {
    w->flow.room = f->room;
    if (f->flags & FLOW_NEW) /* its first request is still to come: the server need not know it yet */
      verdict = drop(REASON_HANDSHAKE);
    else if (w->s.flags & TCP_RST && f->state == FLOW_SERVED)
      verdict = on_early_reset(skb, w);
    else if (f->state == FLOW_SERVED && f->watched && !(f->flags & FLOW_ANSWERED))
      verdict = on_early_ack(skb, w);
  } else if (f) {
    w->flow = *f;
    w->next = w->flow.next;
    w->flags = w->flow.flags;
    verdict = on_flow(skb, w);
  } else {
    verdict = ON_UNKNOWN;
  }
  if (verdict == ON_UNKNOWN)
    verdict = on_unknown(skb, w);
  if (verdict == ON_FIRST_REQUEST)
    verdict = on_first_request(skb, w);
  if (verdict == ON_GAVE_UP)
    verdict = on_gave_up(skb, w);
  if (verdict == ON_COMPARED)
    verdict = on_compared(skb, w, read_rules(skb, w));
  if (w->fresh)
    verdict = on_fresh(skb, w, verdict);
  if (verdict == ON_TURN)
    verdict = on_turn(skb, w);
  if (verdict == ON_WHOLE)
    verdict = on_whole(skb, w);
  if (verdict == ON_EXEMPT)
    verdict = on_exempt(skb, w);
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
