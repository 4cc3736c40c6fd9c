/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Flows in short form: when a flow may be one, and how it is made a struct flow. */
#pragma once
#include "gate/recognise/seats.h"
#include "observe/mirror.h"
#include "room/brief.h"

/* Whether the request of w->flow, of which the segment was read, is all in it, and nothing else is, so that
 * the next begins behind it once it is answered. */
static __always_inline bool is_brief(const struct work *w, int step) {
  const struct flow *f = &w->flow;
  const __u32 framed = HTTP_CHUNKED | HTTP_UPGRADE | HTTP_EXPECT | HTTP_H2C | HTTP_ENDLESS;
  const __u32 other = HTTP_SEEN_CONNECT | HTTP_SEEN_PRI | HTTP_SEEN_H2C;
  __u32 end = w->s.seq + w->s.length;
  return step == HTTP_END && f->next == end && f->body == end && !(f->head.flags & framed) &&
         !(f->head.seen & other) && !(w->s.flags & TCP_FIN);
}

/* Whether there is room in the ring: what is not looked at again keeps its place if the stack drops it. */
static __always_inline bool may_watch(void) {
  const struct watch_ring *ring = the_watches();
  return ring && ring->end - ring->first < MAX_WATCHES / 2;
}

/* Has the short form looked at again, whose request w->flow is. */
static __always_inline void watch_brief(struct work *w, __u64 since, __u32 ifindex, __u32 next) {
  w->watch = 1;
  w->flow.id = since;
  w->flow.ifindex = ifindex;
  watch_flow(w, next);
}

static __always_inline __u8 brief_flags(const struct flow *f, bool lenient) {
  return (f->flags & FLOW_CLOSES ? BRIEF_CLOSES : 0) | (f->head.flags & HTTP_HEAD_METHOD ? BRIEF_HEAD : 0) |
         (lenient ? BRIEF_UNREAD : 0);
}

/* Begins a connection's first request, which w->flow is, in short form. Returns a verdict, or
 * STEP_FIRST_REQUEST: it takes the long form. */
__noinline int begin_brief(struct work *w) {
  struct scene sc;
  struct work *own = w ? work_in_map(w) : NULL;
  if (!own || !open_scene(&sc, w->flow.room) || !sc.config->brief || w->crowded ||
      w->flow.flags & FLOW_COOKIE || is_mirrored() || !may_watch() || !may_begin_brief(sc.pool) ||
      !enter_brief(sc.room, sc.config, w->now))
    return STEP_FIRST_REQUEST;
  const struct flow *f = &w->flow;
  struct brief_flow *b = &w->brief;
  b->since = w->now;
  b->start = w->s.seq;
  b->next = f->next;
  b->answer = b->answer_end = b->sent = w->s.ack;
  b->got = w->s.seq;
  b->ifindex = f->ifindex;
  b->generation = f->generation;
  b->mark = f->mark;
  b->room = f->room;
  b->class = f->class;
  b->rank = f->rank;
  b->ends = f->ends;
  b->socket_priority = f->socket_priority;
  b->flags = brief_flags(f, is_lenient(&sc));
  b->watched = 1;
  b->asked_at = w->now >> 20;
  __sync_fetch_and_add(&sc.pool->briefs, 1); /* before: who counts none looks for none */
  if (bpf_map_update_elem(&brief_flows, &own->key, &own->brief, BPF_NOEXIST)) {
    __sync_fetch_and_add(&sc.pool->briefs, -1);
    leave_brief(sc.room);
    return find_by_key(&brief_flows, &w->key) ? drop(REASON_RACE) : STEP_FIRST_REQUEST;
  }
  __sync_fetch_and_add(&class_of(sc.room, f->class)->brief.begun, 1);
  watch_brief(w, w->now, f->ifindex, f->next);
  report(w, EVENT_ADMIT, 0, 0);
  return TCX_NEXT;
}

/* Makes w->flow what a short form says, whose request is in service since then, or over (0). */
static __always_inline void copy_brief(struct work *w, const struct brief_flow *b, __u64 since) {
  struct flow *f = &w->flow;
  bool answered = b->flags & BRIEF_ANSWERED || !since;
  *f = (struct flow){};
  f->id = w->now;
  f->since = since ?: w->now;
  f->state = since ? FLOW_SERVED : FLOW_IDLE;
  f->start = b->start;
  f->next = f->body = b->next;
  f->answer = b->answer;
  f->sent = b->sent;
  f->got = b->got;
  f->reply.state = answered ? ANSWER_ENDS : ANSWER_HEAD;
  f->reply.read = answered ? b->answer_end : b->answer;
  f->unread_since = b->flags & BRIEF_UNREAD ? b->asked_at | 1 : 0;
  f->flags = (b->flags & (BRIEF_CLOSES | BRIEF_ANSWERED) ? FLOW_CLOSES : 0) |
             (since && answered ? FLOW_ANSWERED : 0);
  f->head.flags = b->flags & BRIEF_HEAD ? HTTP_HEAD_METHOD : 0;
  f->ifindex = b->ifindex;
  f->generation = b->generation;
  f->mark = b->mark;
  f->room = b->room;
  f->class = b->class;
  f->rank = f->home = b->rank;
  f->ends = b->ends;
  f->socket_priority = b->socket_priority;
  f->asked = 1;
  f->watched = since != 0;
}

/* Puts w->flow into the table without having another give way. False: there is no place. */
static __always_inline bool put_plainly(struct work *w, struct room *r, struct pool *p) {
  struct work *own = work_in_map(w);
  take_seat(w, free_seat(bpf_get_prandom_u32() & seat_mask & ~(SEAT_WAYS - 1U), SEAT_WAYS));
  if (!own || bpf_map_update_elem(&flows, &own->key, &own->flow, BPF_NOEXIST)) {
    leave_seat(w->flow.seat, w->flow.id);
    return false;
  }
  count_flow(r, p, 1);
  return true;
}

/* Makes the short form of w->key a struct flow. That is in the table before the other is claimed, so that no
 * answer finds neither; if the other has changed by then, it stays. Where there is no place for it, its
 * connection goes on as one that is older than the gate. False: another CPU writes or deletes it. */
__noinline int lengthen(struct work *w, struct brief_flow *b) {
  struct scene sc;
  if (!w || !b)
    return 0;
  __u64 since = b->since;
  __u32 class = b->class, slot = b->room;
  if (since == BRIEF_GONE || !open_scene(&sc, slot))
    return 0;
  w->now = bpf_ktime_get_ns();
  copy_brief(w, b, since);
  if (since) {
    lock_current(&sc, slot, w->now);
    w->flow.epoch = enter_from_brief(sc.room, class);
    bpf_spin_unlock(&sc.room->lock);
  }
  bool put = put_plainly(w, sc.room, sc.pool), mine = claim_brief(b, since);
  if (mine && since)
    forget_brief(sc.room, class);
  if (mine)
    delete_brief(sc.pool, &w->key);
  if (put && mine) {
    w->watch = since != 0;
    watch_flow(w, w->flow.next);
    return 1;
  }
  struct flow *f = put ? find_by_key(&flows, &w->key) : NULL;
  if (f)
    delete_flow(&w->key, f, NULL, w->flow.id, w->now);
  if (put || !since)
    return mine;
  bpf_spin_lock(&sc.room->lock);
  if (leave(sc.room, class, w->flow.epoch))
    class_of(sc.room, class)->paused++;
  bpf_spin_unlock(&sc.room->lock);
  return mine;
}

/* Reads the next request of a connection in short form. False: it is to be read by the long form. */
static __always_inline bool reads_briefly(struct __sk_buff *skb, struct work *w) {
  w->flow.protocol = PROTOCOL_HTTP;
  w->flow.flags = 0;
  w->flow.head = (struct http_head){};
  return is_brief(w, read_request(skb, w, w->s.seq));
}

/* A segment of a flow in short form that says something. Returns a verdict, or STEP_UNTRACKED: it has the
 * long form now, or none. */
static __always_inline int on_brief(struct __sk_buff *skb, struct work *w, struct brief_flow *b) {
  struct scene sc;
  const struct segment *s = &w->s;
  __u32 slot = b->room;
  w->flow.room = slot;
  bool next = !b->since && s->length && !(s->flags & TCP_RST) && s->seq == b->next &&
              s->ack == b->answer_end && s->ack == b->sent;
  w->now = bpf_ktime_get_ns();
  if (next && !checksum_holds(skb, w))
    return drop(REASON_CHECKSUM);
  if (!next || !open_scene(&sc, slot) || !sc.config->brief || sc.header->generation != b->generation ||
      is_mirrored() || !may_watch() || !reads_briefly(skb, w) || !enter_brief(sc.room, sc.config, w->now)) {
    if (lengthen(w, b))
      return STEP_UNTRACKED;
    return s->length ? drop(REASON_RACE) : TCX_NEXT;
  }
  if (!claim_brief(b, 0)) {
    leave_brief(sc.room);
    return drop(REASON_RACE);
  }
  b->start = s->seq;
  b->next = w->flow.next;
  b->answer = s->ack;
  b->flags = brief_flags(&w->flow, is_lenient(&sc));
  b->asked_at = w->now >> 20;
  __sync_fetch_and_add(&class_of(sc.room, b->class)->brief.begun, 1);
  __sync_lock_test_and_set(&b->since, w->now); /* last: who sees it sees the rest */
  if (!b->watched) {
    b->watched = 1;
    w->flow.answer = s->ack;
    watch_brief(w, w->now, b->ifindex, b->next);
  }
  w->flow.class = b->class;
  report(w, EVENT_ADMIT, 0, 0);
  return TCX_NEXT;
}

/* The same of any segment; STEP_UNTRACKED also where there is no short form. Segments that say no more than
 * that others have arrived pass between two requests, and while an answer is under way; so does the end of a
 * client that has asked for nothing since. */
__noinline int brief_step(struct __sk_buff *skb, struct work *w) {
  struct brief_flow *b = w ? find_brief(&w->key) : NULL;
  if (!b)
    return STEP_UNTRACKED;
  const struct segment *s = &w->s;
  bool quiet = !b->since || (b->flags & BRIEF_ANSWERED && b->since != BRIEF_GONE);
  if (s->length || !quiet || (s->flags & TCP_FIN && s->seq != b->next))
    return on_brief(skb, w, b);
  w->flow.room = b->room;
  return TCX_NEXT;
}

/* Looks again at the short form of w->look. What is in service for so long takes the long form, which is
 * looked at as any other. */
__noinline int look_at_brief(struct work *w) {
  if (!w)
    return 0;
  w->key = w->look.key;
  struct brief_flow *b = find_brief(&w->key);
  if (!b)
    return 0;
  b->watched = 0;
  __u64 since = __sync_fetch_and_add(&b->since, 0), now = bpf_ktime_get_ns();
  if (!since || since == BRIEF_GONE)
    return 0;
  if (now - since >= WATCH_PERIOD)
    return lengthen(w, b);
  b->watched = 1;
  w->look.id = since;
  push_watch(w, now);
  return 0;
}
