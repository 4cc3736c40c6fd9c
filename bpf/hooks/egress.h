/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The gate where segments go out (tcx): sees requests leave service, and makes of the clones
 * that it is kicked with the requests that are next. */
#pragma once
#include "ingress.h"

/* Interim answers (1xx) that are read in one segment. */
#define MAX_INTERIMS 4

/* What serve() is to do. */
enum task { TASK_NONE, TASK_RELEASE, TASK_REJECT };

struct pick {
  enum task task;
  __u32 node;
  __u32 epoch; /* of a release that has entered service */
  __u8 class;
};

/* Takes what is due out of the room's lists. */
static __always_inline void pick_next(struct scene *sc, struct pick *k) {
  struct room *r = sc->room;
  struct pool *p = sc->pool;
  __u64 now = sc->w->now;
  k->task = TASK_NONE;
  bpf_spin_lock(&r->lock);
  advance(r, sc->config, now);
  reap_ghosts(r, now);
  __u32 overdue = r->doomed_head ? 0 : overdue_node(r, p, sc->config, now);
  if (overdue && !link_of(p, overdue)->busy)
    doom(r, p, overdue, REJECT_MAX_WAIT);
  k->node = r->doomed_head;
  if (k->node) {
    k->task = TASK_REJECT;
  } else {
    k->node = next_node(r, sc->config);
    k->task = k->node ? TASK_RELEASE : TASK_NONE;
  }
  struct node_link *l = link_of(p, k->node);
  if (k->task == TASK_NONE || l->busy) {
    k->task = TASK_NONE;
  } else if (k->task == TASK_REJECT) {
    withdraw(r, p, k->node);
  } else {
    credit(r, sc->config, l->class);
    unqueue(r, p, k->node);
    k->epoch = enter(r, l->class);
  }
  k->class = l->class;
  bpf_spin_unlock(&r->lock);
}

/* Takes the release back: the request waits again, before all others of its class. */
static __always_inline void put_back(struct scene *sc, const struct pick *k) {
  struct room *r = sc->room;
  __u32 now = bpf_jiffies64();
  bpf_spin_lock(&r->lock);
  struct class_room *q = class_of(r, k->class);
  leave(r, k->class, k->epoch);
  prepend(sc->pool, &q->head, &q->tail, k->node);
  count_waiting(r, link_of(sc->pool, k->node));
  r->stuck = now;
  bpf_spin_unlock(&r->lock);
}

/* Takes the release back for good. */
static __always_inline void withdraw_release(struct scene *sc, const struct pick *k) {
  bpf_spin_lock(&sc->room->lock);
  leave(sc->room, k->class, k->epoch);
  bpf_spin_unlock(&sc->room->lock);
}

/* Makes the release the flow's. False: the flow has ended meanwhile. */
static __always_inline bool commit_release(struct scene *sc, const struct pick *k, struct flow *f, __u64 id) {
  struct room *r = sc->room;
  __u64 now = sc->w->now;
  bool live = false;
  bpf_spin_lock(&r->lock);
  if (f && f->id == id && f->state == FLOW_HELD && f->node == k->node) {
    struct class_room *q = class_of(r, k->class);
    __u64 waited = now - f->since;
    q->released++;
    q->wait_sum += waited;
    q->wait[bucket_of(waited)]++;
    f->state = FLOW_SERVED;
    f->since = now;
    f->node = 0;
    f->epoch = k->epoch;
    f->flags &= ~(FLOW_NEW | FLOW_ANSWERED);
    live = true;
  } else {
    leave(r, k->class, k->epoch);
  }
  bpf_spin_unlock(&r->lock);
  return live;
}

/* Makes the packet the request, which has entered service, and puts it before the stack. */
static __always_inline int send_in(struct __sk_buff *skb, struct scene *sc, const struct pick *k,
                                   const struct slot *slot) {
  __u32 ifindex = slot->ifindex, tags = slot->vlan_tags;
  __be16 proto = slot->vlan_proto;
  __u16 tci = slot->vlan_tci;
  bool failed = restore(skb, sc->w, k->node) || (tags && bpf_skb_vlan_push(skb, proto, tci));
  free_node(sc->pool, k->node);
  if (failed) /* the client will send it again, and it will pass */
    return drop(REASON_CLONE_FAULT);
  skb->mark = MARK_OURS;
  return send_out(sc->w, ifindex, BPF_F_INGRESS);
}

/* Answers the request in the slot as rejected. */
static __always_inline int send_rejection(struct __sk_buff *skb, struct scene *sc, const struct pick *k,
                                          struct slot *slot, bool cookie) {
  struct rejected *r = &sc->w->rejected;
  r->key = slot->key;
  r->times.option = 0;
  r->l3 = slot->l3;
  r->seq = slot->sequence;
  r->end = slot->sequence + slot->length - slot->data;
  r->ack = slot->acknowledged;
  r->ifindex = slot->ifindex;
  r->room = link_of(sc->pool, k->node)->room;
  r->silent = 0;
  r->no_peer = cookie;
  struct timestamps *t = slot_timestamps(slot);
  if (t)
    r->times = *t;
  __u32 tags = slot->vlan_tags;
  __be16 proto = slot->vlan_proto;
  __u16 tci = slot->vlan_tci;
  bool failed = restore(skb, sc->w, k->node) || (tags && bpf_skb_vlan_push(skb, proto, tci));
  free_node(sc->pool, k->node);
  return failed ? drop(REASON_CLONE_FAULT) : answer(skb, sc->w, sc->config->answer_length);
}

/* Rejects the request in a node that is in no list any more. */
static __always_inline int reject_node(struct __sk_buff *skb, struct scene *sc, const struct pick *k,
                                       __u32 why) {
  struct slot *slot = slot_of(k->node);
  if (!slot)
    return TCX_DROP;
  struct work *w = sc->w;
  struct flow *f = bpf_map_lookup_elem(&flows, &slot->key);
  __u64 id = slot->flow;
  if (!f || f->id != id) { /* its client has gone */
    free_node(sc->pool, k->node);
    return TCX_DROP;
  }
  bool cookie = f->flags & FLOW_COOKIE;
  w->key = slot->key;
  count_rejected(sc->room, k->class, why);
  delete_flow(&w->key, f, id, w->now);
  return send_rejection(skb, sc, k, slot, cookie);
}

/* Whether the server can take the request now. */
static __always_inline bool is_ready(const struct endpoint *s, const struct flow *f) {
  if (s->state == BPF_TCP_LISTEN)
    return f->flags & FLOW_COOKIE;
  if (s->state == BPF_TCP_NEW_SYN_RECV)
    return !s->orphaned;
  return s->state == BPF_TCP_ESTABLISHED || s->state == BPF_TCP_CLOSE_WAIT;
}

static __always_inline int release_node(struct __sk_buff *skb, struct scene *sc, const struct pick *k) {
  struct slot *slot = slot_of(k->node);
  if (!slot)
    return TCX_DROP;
  __u64 id = slot->flow;
  struct flow *f = bpf_map_lookup_elem(&flows, &slot->key);
  struct endpoint sock = {};
  find_socket(skb, &slot->key, &sock);
  if (f && f->id == id && f->flags & FLOW_NEW && sock.crowded) {
    put_back(sc, k);
    return drop(REASON_ACCEPT_QUEUE);
  }
  bool ready = f && is_ready(&sock, f);
  if (ready && commit_release(sc, k, f, id))
    return send_in(skb, sc, k, slot);
  if (!ready)
    withdraw_release(sc, k);
  if (f && f->id == id && !ready)
    return reject_node(skb, sc, k, REJECT_NO_SERVER);
  free_node(sc->pool, k->node);
  return TCX_DROP;
}

/* Does one thing that is due in a room, with a packet that can be made anything of. */
__noinline int serve(struct __sk_buff *skb, struct work *w, __u32 room) {
  struct scene sc = {.w = w};
  struct pick k;
  if (!w)
    return TCX_DROP;
  sc.header = open_image(&sc.im);
  if (!sc.header || !set_scene(&sc, room))
    return TCX_DROP;
  w->now = bpf_ktime_get_ns();
  pick_next(&sc, &k);
  if (k.task == TASK_RELEASE)
    return release_node(skb, &sc, &k);
  if (k.task == TASK_REJECT)
    return reject_node(skb, &sc, &k, link_of(sc.pool, k.node)->reject);
  return TCX_DROP;
}

/* The server closes, or resets, a connection whose next request waits: the request is to be
 * rejected, and the close must not reach the client before that. */
static __always_inline int on_closed_while_held(struct scene *sc, struct flow *f) {
  struct room *r = sc->room;
  bpf_spin_lock(&r->lock);
  if (f->id == sc->w->flow.id && f->state == FLOW_HELD) {
    struct node_link *l = link_of(sc->pool, f->node);
    if (l->state == NODE_WAITING && !l->busy)
      doom(r, sc->pool, f->node, REJECT_CLOSED);
  }
  bpf_spin_unlock(&r->lock);
  return TCX_DROP;
}

/* The server goes on with its answer to the request before the one that waits, which so came
 * too early. A rejection would fall into that answer: the request is left to come again. */
static __always_inline int on_answer_while_held(struct scene *sc, struct flow *f) {
  struct room *r = sc->room;
  struct slot *slot = slot_of(sc->w->flow.node);
  __u32 node = 0;
  if (!slot)
    return TCX_NEXT;
  __u32 start = slot->sequence;
  bpf_spin_lock(&r->lock);
  if (f->id == sc->w->flow.id && f->state == FLOW_HELD && f->node == sc->w->flow.node) {
    struct node_link *l = link_of(sc->pool, f->node);
    if (l->state == NODE_WAITING && !l->busy) {
      node = f->node;
      withdraw(r, sc->pool, node);
      class_of(r, f->class)->gave_up++;
      f->state = FLOW_IDLE;
      f->next = start;
      f->flags = 0;
    }
  }
  bpf_spin_unlock(&r->lock);
  if (node)
    free_node(sc->pool, node);
  count_reason(REASON_PIPELINED, true, false);
  return TCX_NEXT;
}

/* What a segment from the server means for the request in service. */
enum news {
  NEWS_NONE,
  NEWS_INTERIM, /* a 1xx: the answer is still to come */
  NEWS_TUNNEL,  /* what follows belongs to this request, until the connection closes */
  NEWS_BEGUN,   /* the answer has begun, and its end ends the service */
  NEWS_OVER,    /* the request leaves service */
};

/* Where the head ends that begins in the chunk: behind its empty line. 0: not in these bytes. */
static __always_inline __u32 head_end(const struct http_chunk *c, __u32 n) {
  for (__u32 i = 0; i + 4 <= HTTP_CHUNK; i++) {
    if (i + 4 > n)
      break;
    if (c->byte[i] == '\r' && c->byte[i + 1] == '\n' && c->byte[i + 2] == '\r' && c->byte[i + 3] == '\n')
      return i + 4;
  }
  return 0;
}

/* Reads the head that begins at w->used in the segment's data; if it is an interim one, moves
 * on behind it. True: it was. */
__noinline int read_interim(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return 0;
  __u32 at = w->used;
  w->answer.status = 0;
  __u32 n = BOUND(w->s.length - at, HTTP_CHUNK);
  if (at >= w->s.length || n == 0 || bpf_skb_load_bytes(skb, w->s.data + at, &w->chunk, n))
    return 0;
  read_answer(&w->answer, &w->chunk, n);
  if (w->answer.status < 100 || w->answer.status >= 200 || w->answer.status == 101)
    return 0;
  __u32 end = head_end(&w->chunk, n);
  w->used = end ? at + end : w->s.length;
  return 1;
}

/* Reads the beginning of an answer. */
static __always_inline int read_first(struct __sk_buff *skb, struct work *w) {
  const struct http_answer *a = &w->answer;
  w->used = 0;
  for (int i = 0; i < MAX_INTERIMS && read_interim(skb, w); i++)
    ;
  __u32 interim = w->used;
  w->flow.answer += interim;
  if (a->status == 101)
    return NEWS_TUNNEL;
  if (interim && interim >= w->s.length)
    return NEWS_INTERIM;
  if (w->flow.ends == END_CLOSE)
    return w->flow.flags & FLOW_CLOSES ? NEWS_BEGUN : NEWS_TUNNEL;
  if (w->flow.ends == END_AUTO && (w->flow.flags & FLOW_CLOSES || a->closes))
    return NEWS_BEGUN;
  return NEWS_OVER;
}

static __always_inline int read_news(struct __sk_buff *skb, struct work *w) {
  const struct segment *s = &w->s;
  if (s->flags & (TCP_FIN | TCP_RST))
    return NEWS_OVER;
  if (!before(w->flow.answer, s->seq + s->length) || w->flow.flags & (FLOW_ANSWERED | FLOW_TUNNEL))
    return NEWS_NONE; /* sent again, or known */
  /* An answer whose beginning was not seen has begun all the same. */
  return s->seq == w->flow.answer ? read_first(skb, w) : NEWS_OVER;
}

/* Applies the news to the flow. */
static __always_inline void take_news(struct scene *sc, struct flow *f, int news) {
  struct work *w = sc->w;
  struct room *r = sc->room;
  w->now = news == NEWS_OVER ? bpf_ktime_get_ns() : 0;
  bpf_spin_lock(&r->lock);
  if (f->id == w->flow.id && f->state == FLOW_SERVED) {
    if (news == NEWS_OVER) {
      end_service(r, f, w->now);
    } else if (news == NEWS_INTERIM) {
      f->answer = w->flow.answer;
    } else {
      f->flags |= news == NEWS_TUNNEL ? FLOW_TUNNEL | FLOW_ANSWERED : FLOW_ANSWERED | FLOW_CLOSES;
    }
  }
  bpf_spin_unlock(&r->lock);
}

/* A segment with data or an end from the server. */
static __always_inline int on_answer(struct __sk_buff *skb, struct scene *sc, struct flow *f) {
  struct work *w = sc->w;
  w->flow = *f;
  if (w->flow.socket_priority)
    skb->priority = w->flow.socket_priority;
  /* Without the lock, as nobody else writes it but at the connection's first request. */
  if (w->flow.id && f->id == w->flow.id && before(f->sent, end_of(&w->s)))
    f->sent = end_of(&w->s);
  if (!w->flow.id || w->flow.state == FLOW_IDLE)
    return TCX_NEXT;
  sc->header = open_image(&sc->im);
  if (!sc->header || !set_scene(sc, w->flow.room))
    return TCX_NEXT;
  bool old = !before(w->flow.answer, end_of(&w->s)) && !(w->s.flags & TCP_RST);
  if (w->flow.state == FLOW_HELD && !old)
    return w->s.length ? on_answer_while_held(sc, f) : on_closed_while_held(sc, f);
  if (w->flow.state == FLOW_HELD)
    return TCX_NEXT;
  int news = read_news(skb, w);
  if (news != NEWS_NONE)
    take_news(sc, f, news);
  return TCX_NEXT;
}

/* Looks at a segment from a port of the gate. */
__noinline int watch_segment(struct __sk_buff *skb, struct work *w) {
  struct scene sc = {.w = w};
  if (!w)
    return TCX_NEXT;
  outgoing_key(&w->key, &w->s.p);
  struct flow *f = bpf_map_lookup_elem(&flows, &w->key);
  if (!f)
    return TCX_NEXT;
  int verdict = on_answer(skb, &sc, f);
  struct room *r = room_of(w->flow.room);
  if (r && seems_due(r))
    attend(skb, w->flow.room);
  return verdict;
}

static __always_inline int gate_kicked(struct __sk_buff *skb) {
  __u32 room = skb->mark & MARK_ROOM;
  struct work *w = enter_run();
  if (!w)
    return drop(REASON_NESTING);
  int verdict = serve(skb, w, room);
  if (verdict == TCX_REDIRECT)
    verdict = bpf_redirect(w->out.ifindex, w->out.flags);
  leave_run();
  return verdict;
}

/* Whether the segment may change anything: pure acknowledgements do not. */
static __always_inline bool is_news(const struct segment *s) {
  return is_gate_port(s->p.sport) && !(s->flags & TCP_SYN) && (s->length || s->flags & (TCP_FIN | TCP_RST));
}

static __always_inline int gate_egress(struct __sk_buff *skb) {
  if ((skb->mark & ~MARK_ROOM) == MARK_KICK)
    return gate_kicked(skb);
  struct work *w = enter_run();
  if (!w)
    return let_pass(REASON_NESTING);
  int verdict = TCX_NEXT;
  if (read_segment(skb, &w->s) == PARSED_SYN && is_news(&w->s))
    verdict = watch_segment(skb, w);
  leave_run();
  return verdict;
}
