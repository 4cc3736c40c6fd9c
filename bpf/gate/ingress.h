/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The gate where segments come in (tcx): what belongs to which connection, and what is to be
 * done with it; bpf/gate/ has how. */
#pragma once
#include "gate/brief.h"
#include "gate/decide/rules.h"
#include "gate/fingerprint.h"
#include "gate/next.h"
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
static __always_inline int http_step(struct __sk_buff *skb, struct work *w) {
  const struct flow *f = &w->flow;
  __u32 end = w->s.seq + w->s.length;
  if (is_far(f->start, w->s.seq))
    leave_behind(skb, w);
  if (f->state == FLOW_PAUSED)
    return STEP_PAUSED;
  return before(w->s.seq, f->body) && before(f->start, end) ? STEP_AGAIN : STEP_BODY;
}

/* What a segment of a flow in the table is, which w->flow is a copy of the entry of. */
static __always_inline int flow_step(struct __sk_buff *skb, struct work *w, struct flow *entry) {
  const struct flow *f = &w->flow;
  if (!f->id) /* it is being deleted */
    return w->s.length ? drop(REASON_RACE) : TCX_NEXT;
  if (f->state == FLOW_HELD || f->state == FLOW_GATHERING)
    return STEP_WAITING;
  if (w->s.flags & TCP_FIN && is_stray_end(skb, w))
    return drop(REASON_GAP);
  if (!w->s.length || w->s.flags & TCP_RST || f->flags & FLOW_TUNNEL)
    return TCX_NEXT; /* a reset is the stack's business, which says so when it takes it */
  if (f->protocol == PROTOCOL_HTTP)
    return http_step(skb, w);
  if (f->protocol == PROTOCOL_TLS && before(w->s.seq, f->next) && is_hello_again(skb, w))
    return drop(REASON_RACE);
  if (f->state != FLOW_SERVED || f->flags & FLOW_ANSWERED)
    return STEP_STREAM;
  return f->flags & FLOW_COOKIE || before(w->s.seq, f->next) ? on_body(skb, w, entry) : TCX_NEXT;
}

/* Bytes of the request in service are watched while the stack may lack some. */
static __always_inline int body_step(struct __sk_buff *skb, struct work *w, struct flow *f) {
  return w->flow.state == FLOW_SERVED && w->flow.watched ? on_body(skb, w, f) : TCX_NEXT;
}

/* What is behind the bytes of the last request. */
static __always_inline int behind_step(const struct work *w) {
  if (!before(w->flow.next, w->s.seq + w->s.length))
    return TCX_NEXT;
  return w->flow.state == FLOW_SERVED ? STEP_SERVED : STEP_IDLE;
}

__noinline int on_syn(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  if (!w)
    return TCX_NEXT;
  struct image im;
  const struct header *h = open_image(&im);
  if (!h)
    return TCX_NEXT;
  bool gated = open_scene(&sc, gate_slot(skb, w)), lenient = !gated || is_lenient(&sc);
  bool known = gated && forget_old(skb, w);
  if (lenient && !h->bounds)
    return TCX_NEXT;
  int verdict = lenient ? TCX_NEXT : keep_waiting(skb, w, known);
  if (verdict != TCX_NEXT)
    return verdict;
  strip_syn(skb, w);
  return TCX_NEXT;
}

/* Makes an ordinary byte of one that is marked as urgent (RFC 9293, 3.8.5): stacks leave those out of what
 * servers read, which then would not be what was decided on. */
__noinline int clear_urgent(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  if (!w)
    return 0;
  if (!open_scene(&sc, gate_slot(skb, w)) || sc.config->protocol == PROTOCOL_TCP || is_lenient(&sc))
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

/* A connection without a flow, or whose flow is to be made anew. */
static __always_inline int begin_flow(struct __sk_buff *skb, struct work *w, int step) {
  if (step == STEP_UNTRACKED)
    step = on_untracked(skb, w);
  if (step == STEP_UNDERWAY)
    return on_underway(skb, w);
  return step == STEP_FIRST_REQUEST ? on_first_request(skb, w) : step;
}

/* Finds out what the segment is. `f` is the entry of w->flow. */
static __always_inline int recognise_step(struct __sk_buff *skb, struct work *w, struct flow *f, int step) {
  switch (step) {
  case STEP_WAITING:
    return on_waiting(skb, w, f);
  case STEP_AGAIN:
    return on_again(skb, w, f);
  case STEP_BODY:
    step = body_step(skb, w, f);
    return step == TCX_NEXT ? behind_step(w) : step;
  case STEP_BODY_ALONE:
    return body_step(skb, w, f);
  case STEP_SERVED:
    return on_served(skb, w, f);
  case STEP_PAUSED:
    return on_paused(skb, w, f);
  case STEP_IDLE:
    return on_idle(skb, w, f);
  case STEP_NEXT:
    return on_next(skb, w, f);
  case STEP_NEXT_REQUEST:
    return on_next_request(skb, w, f);
  case STEP_UNFOLLOWED:
    return on_unfollowed(skb, w, f);
  case STEP_GAP:
    return tell_of_gap(skb, w);
  case STEP_STREAM:
    return on_stream(skb, w, f);
  }
  return step;
}

/* Whether the segment's bytes are about to be read, or its numbers to say where a request begins, and nobody
 * has looked whether it is as its client sent it. Later steps come from these; bodies are not read. */
static __always_inline bool is_unsound(struct __sk_buff *skb, struct work *w, int step) {
  bool reads = step == STEP_UNTRACKED || step == STEP_FIRST_REQUEST || step == STEP_AGAIN ||
               step == STEP_SERVED || step == STEP_PAUSED || step == STEP_IDLE;
  return reads && w->s.length && !checksum_holds(skb, w);
}

/* Goes from a step to one that decides, or to the verdict. */
static __always_inline int recognise(struct __sk_buff *skb, struct work *w, struct flow *f, int step) {
  for (int i = 0; i < LONGEST_WAY && is_recognising(step); i++) {
    if (is_unsound(skb, w, step))
      return drop(REASON_CHECKSUM);
    if (step > STEP_UNDERWAY) {
      step = f ? recognise_step(skb, w, f, step) : drop(REASON_RACE);
      continue;
    }
    step = begin_flow(skb, w, step);
    if (is_recognising(step))
      f = find_by_key(&flows, &w->key);
  }
  return is_recognising(step) ? TCX_NEXT : step;
}

/* Decides. `f` is the entry of w->flow. */
static __always_inline int decide_step(struct __sk_buff *skb, struct work *w, struct flow *f, int step) {
  switch (step) {
  case STEP_READ:
    w->why = read_rules(skb, w);
    w->read = 1;
    return on_judge(skb, w, f);
  case STEP_JUDGE:
    return on_judge(skb, w, f);
  case STEP_COMPARE:
    w->why = read_rules(skb, w);
    return on_compare(skb, w, f);
  case STEP_TURN:
    return on_turn(skb, w, f);
  case STEP_GATHER:
    return on_gather(skb, w, f);
  case STEP_GATHERED:
    return on_gathered(skb, w, f);
  case STEP_EXEMPT:
    return on_exempt(skb, w, f);
  case STEP_REJECT:
    return on_reject(skb, w, f);
  case STEP_GIVE_UP:
    return on_give_up(skb, w, f);
  }
  return step;
}

/* Goes from a step that decides to the verdict. */
static __always_inline int decide_request(struct __sk_buff *skb, struct work *w, int step) {
  struct flow *f = find_by_key(&flows, &w->key);
  if (!f)
    return drop(REASON_RACE);
  for (int i = 0; i < LONGEST_DECISION && step >= STEP_READ; i++)
    step = decide_step(skb, w, f, step);
  return step < STEP_UNTRACKED ? step : TCX_NEXT;
}

/* A segment that says no more than that others have arrived, or a reset, of a connection in the table whose
 * request does not wait. */
static __always_inline int bare_step(struct __sk_buff *skb, struct work *w, struct flow *f) {
  w->flow.room = f->room;
  if (f->flags & FLOW_NEW) /* its first request is still to come: the server need not know it yet */
    return w->s.flags & TCP_RST ? TCX_NEXT : drop(REASON_HANDSHAKE);
  if (w->s.flags & TCP_RST && f->state == FLOW_SERVED)
    return on_early_reset(skb, w, f);
  if (f->state == FLOW_SERVED && f->watched && !(f->flags & FLOW_ANSWERED))
    return on_early_ack(skb, w, f);
  return TCX_NEXT;
}

/* What a segment to a port of the gate is. *flow: the entry of its connection, if it is in the table. */
static __always_inline int first_step(struct __sk_buff *skb, struct work *w, struct flow **flow) {
  if (!(w->s.flags & (TCP_ACK | TCP_RST)))
    return TCX_NEXT; /* no stack takes it */
  if (w->s.flags & TCP_URG)
    clear_urgent(skb, w);
  int step = brief_step(skb, w);
  if (step != STEP_UNTRACKED)
    return step;
  struct flow *f = *flow = find_by_key(&flows, &w->key);
  if (!f)
    return STEP_UNTRACKED;
  if (f->early && recall_early(skb, w, f) != TCX_NEXT)
    return TCX_DROP;
  if (!changes_anything(&w->s) && f->state != FLOW_HELD && f->state != FLOW_GATHERING)
    return bare_step(skb, w, f);
  w->flow = *f;
  w->next = w->flow.next;
  w->flags = w->flow.flags;
  return flow_step(skb, w, f);
}

/* What is to be done with a segment to a port of the gate: a verdict, or a step that decides. w->due: what
 * else is to be done. */
static __always_inline int recognise_segment(struct __sk_buff *skb, struct work *w) {
  incoming_key(&w->key, &w->s.p);
  clear_attribution(w);
  w->crowded = 0;
  w->withheld = 0;
  w->told = 0;
  if ((w->s.flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
    return on_syn(skb, w);
  w->flow.room = MAX_SERVICES;
  struct flow *f = NULL;
  int step = first_step(skb, w, &f);
  step = recognise(skb, w, f, step);
  if (step < STEP_UNTRACKED)
    w->due = what_is_needed(w->flow.room);
  return step;
}

static __always_inline int gate_ingress(struct __sk_buff *skb) {
  if (skb->mark == MARK_OURS) {
    skb->mark = 0;
    return TCX_NEXT;
  }
  struct work *w = enter_run();
  if (!w)
    return let_pass(REASON_NESTING);
  w->due = 0;
  int step = TCX_NEXT;
  if (read_segment(skb, &w->s) == PARSED_SYN && is_gate_port(w->s.p.dport))
    step = recognise_segment(skb, w);
  if (step < STEP_UNTRACKED)
    return finish(skb, w, step);
  if (asks_fingerprint(w, step)) {
    w->step = step;
    bpf_tail_call(skb, &next_programs, NEXT_FINGERPRINT);
    /* That program is missing: rules are asked without a fingerprint, and the request keeps its slot and
     * turn. */
    let_pass(REASON_NO_PROGRAM);
  }
  return go_on(skb, w, NEXT_DECIDE, step, TCX_NEXT);
}

/* Goes on with the run that narthex_gate_in has begun. */
static __always_inline int gate_decide(struct __sk_buff *skb) {
  struct work *w = current_run();
  if (!w)
    return let_pass(REASON_NESTING);
  int verdict = decide_request(skb, w, w->step);
  w->due = what_is_needed(w->flow.room);
  return finish(skb, w, verdict);
}
