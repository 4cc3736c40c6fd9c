/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What becomes of a request when it arrives. */
#pragma once
#include "answer.h"
#include "reply.h"

enum fate {
  FATE_PASS,
  FATE_HELD,
  FATE_REJECT,
  FATE_LOST, /* it could not be held, or another CPU was faster: the client sends it again */
};

/* A packet for which a program runs, and what there is to decide it by. */
struct scene {
  struct image im;
  const struct header *header;
  const struct room_config *config;
  struct room *room;
  struct pool *pool;
  struct flow *flow; /* NULL: the packet is of none */
  struct work *w;
};

/* Gets together what concerns a room. False: a map is missing, which cannot be, or the image
 * says nothing of it. */
static __always_inline bool set_scene(struct scene *sc, __u32 slot) {
  sc->config = room_config(&sc->im, sc->header, slot);
  sc->room = room_of(slot);
  sc->pool = the_pool();
  return sc->config && sc->room && sc->pool;
}

/* Gets together what concerns w->flow. False: as above, or the flow has ended meanwhile. */
static __always_inline bool set_flow_scene(struct scene *sc, struct work *w) {
  sc->w = w;
  sc->header = open_image(&sc->im);
  if (!sc->header || !set_scene(sc, w->flow.room))
    return false;
  sc->flow = bpf_map_lookup_elem(&flows, &w->key);
  return sc->flow;
}

/* Whether what is not understood passes: nothing is held back here. */
static __always_inline bool is_lenient(const struct scene *sc) {
  return sc->config->shadow || !sc->config->strict;
}

/* Sends a clone of the packet to the egress program, which makes of it what is due in the
 * room. */
static __always_inline void kick(struct __sk_buff *skb, __u32 slot) {
  __u32 mark = skb->mark;
  skb->mark = MARK_KICK | (slot & MARK_ROOM);
  /* Above 0 it says that the clone was not sent: another CPU has done what was due. */
  if (bpf_clone_redirect(skb, skb->ifindex, 0) < 0)
    count_reason(REASON_CLONE_FAULT, true, false);
  skb->mark = mark;
}

/* Requests that one packet releases or rejects at most. */
#define MAX_KICKS 8

static __always_inline bool seems_free(const struct room *r) { return !r->limit || r->in_service < r->limit; }

/* Whether there is anything to do in the room, at a glance: without the lock, and for what
 * has waited for too long only once per tick of the clock. */
static __always_inline bool seems_due(struct room *r) {
  if (r->doomed_head)
    return true;
  if (!r->waiting)
    return false;
  __u32 now = bpf_jiffies64();
  if (seems_free(r) && r->stuck != now)
    return true;
  if (r->looked == now)
    return false;
  r->looked = now;
  return true;
}

/* What there is to do. */
enum due { DUE_NOTHING, DUE_NEXT, DUE_OVERDUE };

__noinline int what_is_due(__u32 slot) {
  struct scene sc;
  sc.header = open_image(&sc.im);
  if (!sc.header || !set_scene(&sc, slot))
    return DUE_NOTHING;
  struct room *r = sc.room;
  __u64 now = bpf_ktime_get_ns();
  __u32 jiffies = bpf_jiffies64();
  int due = DUE_NOTHING;
  bpf_spin_lock(&r->lock);
  advance(r, sc.config, now);
  reap_ghosts(r, now);
  if (overdue_node(r, sc.pool, sc.config, now))
    due = DUE_OVERDUE;
  else if (r->doomed_head || (r->stuck != jiffies && next_node(r, sc.config)))
    due = DUE_NEXT;
  bpf_spin_unlock(&r->lock);
  return due;
}

/* Does what is due in a room, by kicks. Whoever has a packet does it: nothing depends on the
 * daemon. Returns how many kicks it took. */
__noinline int attend(struct __sk_buff *skb, __u32 slot) {
  for (int i = 0; i < MAX_KICKS; i++) {
    int due = what_is_due(slot);
    if (due == DUE_NOTHING)
      return i;
    kick(skb, slot);
    struct room *r = room_of(slot);
    if (!r || (due == DUE_NEXT && !r->doomed_head && !(r->waiting && seems_free(r))))
      return i + 1;
  }
  return MAX_KICKS;
}

/* Global, so that the verifier looks at it once. */
__noinline int scan_head(struct http_head *h, const struct http_chunk *c, __u32 length, __u32 *used) {
  return h && c && used ? http_scan(h, c, length, used) : HTTP_LOST;
}

__noinline int read_answer(struct http_answer *a, const struct http_chunk *c, __u32 length) {
  if (a && c)
    read_response(a, c, length);
  return 0;
}

/* Reads on in the head of the request, which goes on in the frame's bytes from an offset.
 * Returns enum http_step; w->used: bytes up to the head's end. */
__noinline int follow(struct __sk_buff *skb, struct work *w, __u32 offset, __u32 length) {
  if (!w)
    return HTTP_LOST;
  w->used = 0;
  for (int i = 0; i < MAX_CHUNKS; i++) {
    if (!length)
      return HTTP_MORE;
    __u32 n = BOUND(length, HTTP_CHUNK), used = 0;
    if (n == 0 || bpf_skb_load_bytes(skb, offset, &w->chunk, n))
      return HTTP_LOST;
    int step = scan_head(&w->flow.head, &w->chunk, n, &used);
    w->used += used;
    if (step != HTTP_MORE)
      return step;
    offset += n;
    length -= n;
  }
  return HTTP_LOST;
}

/* Notes in w->flow what the segment's bytes from a sequence number on say of the request. */
static __always_inline int read_request(struct __sk_buff *skb, struct work *w, __u32 from) {
  __u32 skip = from - w->s.seq;
  int step = follow(skb, w, w->s.data + skip, w->s.length - skip);
  struct flow *f = &w->flow;
  f->flags &= ~(FLOW_HEAD | FLOW_LOST);
  /* Chunks are not followed: what is sent again of them might say another thing. */
  f->body = f->head.flags & HTTP_CHUNKED ? f->start + f->head.size : from + w->used;
  if (step == HTTP_MORE && !http_in_body(&f->head)) {
    f->flags |= FLOW_HEAD;
    f->next = w->s.seq + w->s.length;
  } else if (step == HTTP_LOST || f->head.flags & HTTP_CHUNKED) {
    f->flags |= FLOW_LOST;
    f->next = w->s.seq + w->s.length;
  } else {
    f->next = from + w->used + (__u32)f->head.length;
    if (f->head.flags & HTTP_CLOSES)
      f->flags |= FLOW_CLOSES;
  }
  return step;
}

/* Makes what w->flow says of the request the flow's. Under the lock. */
static __always_inline void note_request(struct flow *f, const struct flow *read) {
  f->next = read->next;
  f->start = read->start;
  f->body = read->body;
  f->answer = read->answer;
  f->flags = read->flags;
  f->class = read->class;
  f->rank = read->rank;
  f->generation = read->generation;
  f->socket_priority = read->socket_priority;
  f->mark = read->mark;
  f->head = read->head;
}

/* Lets the request of w->flow into service at once. Under the lock. */
static __always_inline void enter_flow(struct room *r, const struct room_config *c, struct flow *f,
                                       const struct work *w) {
  note_request(f, &w->flow);
  credit(r, c, f->class);
  class_of(r, f->class)->admitted++;
  serve_flow(r, f, w->now);
}

/* A request arrives: lets it into service if that is possible at once. FATE_HELD: it has to
 * wait. */
static __always_inline int try_enter(struct scene *sc, struct flow *f) {
  struct work *w = sc->w;
  struct room *r = sc->room;
  const struct room_config *c = sc->config;
  int fate = FATE_LOST;
  bpf_spin_lock(&r->lock);
  if (f->id == w->flow.id && is_free(r, f)) {
    advance(r, c, w->now);
    reap_ghosts(r, w->now);
    struct class_room *q = class_of(r, w->flow.class);
    q->arrived++;
    bool may = may_enter(r, c, w->flow.rank);
    fate = FATE_HELD;
    if (!may && c->shadow)
      q->would_hold++;
    if (may || c->shadow) {
      enter_flow(r, c, f, w);
      fate = FATE_PASS;
    }
  }
  bpf_spin_unlock(&r->lock);
  return fate;
}

/* Puts a request, whose frame is in the node's slot, into the queue, or into service if that
 * has become possible. */
static __always_inline int try_wait(struct scene *sc, struct flow *f, __u32 node) {
  struct work *w = sc->w;
  struct room *r = sc->room;
  const struct room_config *c = sc->config;
  int fate = FATE_LOST;
  bpf_spin_lock(&r->lock);
  if (f->id == w->flow.id && is_free(r, f)) {
    struct class_room *q = class_of(r, w->flow.class);
    struct node_link *l = link_of(sc->pool, node);
    l->class = w->flow.class;
    l->room = w->flow.room;
    l->since = w->now;
    if (may_enter(r, c, w->flow.rank)) {
      enter_flow(r, c, f, w);
      fate = FATE_PASS;
    } else if (enqueue(r, sc->pool, c, node, w->flow.rank)) {
      q->held++;
      note_request(f, &w->flow);
      f->state = FLOW_HELD;
      f->node = node;
      f->since = w->now;
      fate = FATE_HELD;
    } else {
      q->rejected[REJECT_QUEUE_FULL]++;
      fate = FATE_REJECT;
    }
  }
  bpf_spin_unlock(&r->lock);
  return fate;
}

static __always_inline void count_rejected(struct room *r, __u32 class, __u32 why) {
  bpf_spin_lock(&r->lock);
  class_of(r, class)->rejected[why & 7]++;
  bpf_spin_unlock(&r->lock);
}

/* Reads the request as far as it is in its slot: the rest will come again, behind that. */
static __always_inline void note_kept(struct __sk_buff *skb, struct work *w) {
  __u32 length = w->s.length;
  if (w->kept == w->keep)
    return;
  w->flow.head = (struct http_head){};
  w->s.length = w->keep = w->kept;
  read_request(skb, w, w->s.seq);
  w->s.length = length;
}

/* Decides on the request of w->flow, of which the segment is the first. */
static __always_inline int admit(struct __sk_buff *skb, struct scene *sc) {
  int fate = try_enter(sc, sc->flow);
  if (fate == FATE_LOST)
    count_reason(REASON_RACE, true, false);
  if (fate != FATE_HELD)
    return fate;
  __u32 node = take_node(sc->pool);
  if (!node) {
    count_rejected(sc->room, sc->w->flow.class, REJECT_NO_SLOT);
    return FATE_REJECT;
  }
  if (fill_slot(skb, sc->w, node)) {
    count_reason(REASON_CHECKSUM, true, false);
    fate = FATE_LOST;
  } else {
    note_kept(skb, sc->w);
    fate = try_wait(sc, sc->flow, node);
  }
  if (fate != FATE_HELD)
    free_node(sc->pool, node);
  return fate;
}
