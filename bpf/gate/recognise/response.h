/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the server's segments mean for requests. */
#pragma once
#include "gate/decide/turn.h"

/* Interim answers (1xx) that are read in one segment. */
#define MAX_INTERIMS 4

/* The server closes, or resets, a connection whose next request waits: the request is to be
 * rejected, and the close must not reach the client before that. */
static __always_inline int on_closed_while_held(struct scene *sc, struct flow *f) {
  struct room *r = sc->room;
  bpf_spin_lock(&r->lock);
  if (f->id == sc->w->flow.id && f->node == sc->w->flow.node) {
    struct node_link *l = link_of(sc->pool, f->node);
    if ((l->state == NODE_WAITING || l->state == NODE_GATHERING) && !l->busy)
      make_due(r, sc->pool, f->node, REJECT_CLOSED);
    f->sent = sc->w->s.seq; /* its client does not get it */
  }
  bpf_spin_unlock(&r->lock);
  return TCX_DROP;
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

__noinline int read_answer(struct http_answer *a, const struct http_chunk *c, __u32 length) {
  if (a && c)
    read_response(a, c, length);
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
  if (at >= w->s.length || n == 0 ||
      bpf_skb_load_bytes(skb, w->s.data + at, &w->chunk, AMOUNT(n, HTTP_CHUNK)))
    return 0;
  read_answer(&w->answer, &w->chunk, n);
  if (w->answer.status < 100 || w->answer.status >= 200 || w->answer.status == 101)
    return 0;
  __u32 end = head_end(&w->chunk, n);
  w->used = end ? at + end : w->s.length;
  return 1;
}

/* Whether the answer says that the connection is not HTTP/1 from here on. A 2xx to CONNECT does so if it
 * says nothing of a body (RFC 9110, 9.3.6): servers that know no such method say how long one is, or by 204
 * that there is none, and go on in HTTP/1. */
static __always_inline bool opens_tunnel(const struct work *w) {
  const struct http_answer *a = &w->answer;
  bool connects =
      a->status >= 200 && a->status < 300 && a->status != 204 && w->flow.head.seen & HTTP_SEEN_CONNECT;
  return a->status == 101 || (connects && a->ended && !a->framed);
}

/* Whether the server closes the connection behind the answer: what it says of that counts first, for servers
 * differ in what they take a request to ask for that says both. */
static __always_inline bool server_closes(const struct work *w) {
  return w->answer.closes || (w->flow.flags & FLOW_CLOSES && !w->answer.keeps);
}

/* Reads the beginning of an answer. */
static __always_inline int read_first(struct __sk_buff *skb, struct work *w) {
  w->used = 0;
  for (int i = 0; i < MAX_INTERIMS && read_interim(skb, w); i++)
    ;
  __u32 interim = w->used;
  w->flow.answer += interim;
  if (opens_tunnel(w))
    return NEWS_TUNNEL;
  if (interim && interim >= w->s.length)
    return NEWS_INTERIM;
  if (w->flow.ends == END_CLOSE)
    return w->flow.flags & FLOW_CLOSES ? NEWS_BEGUN : NEWS_TUNNEL;
  if (w->flow.ends == END_AUTO && server_closes(w))
    return NEWS_BEGUN;
  return NEWS_OVER;
}

static __always_inline int read_news(struct __sk_buff *skb, struct work *w) {
  const struct segment *s = &w->s;
  if (s->flags & (TCP_FIN | TCP_RST))
    return NEWS_OVER;
  if (w->flow.flags & (FLOW_ANSWERED | FLOW_TUNNEL))
    return NEWS_NONE; /* known */
  if (w->flow.protocol != PROTOCOL_HTTP)
    return w->says ? NEWS_BEGUN : NEWS_NONE;
  if (!before(w->flow.answer, s->seq + s->length))
    return NEWS_NONE; /* sent again */
  /* An answer whose beginning was not seen has begun all the same. */
  return s->seq == w->flow.answer ? read_first(skb, w) : NEWS_OVER;
}

/* An interim answer (100 Continue) to a request whose rest waits. */
static __always_inline int on_interim_while_held(struct scene *sc, struct flow *f) {
  bpf_spin_lock(&sc->room->lock);
  bool mine = is_as_seen(f, &sc->w->flow);
  if (mine)
    f->answer = sc->w->flow.answer;
  bpf_spin_unlock(&sc->room->lock);
  return mine ? TCX_NEXT : STEP_STALE;
}

/* The server goes on with its answer to the request before the one that waits, which so came
 * too early. A rejection would fall into that answer: the request is left to come again, unless
 * we have acknowledged it. If it is the rest of a request that has paused, this is its answer. */
static __always_inline int on_answer_while_held(struct __sk_buff *skb, struct scene *sc, struct flow *f) {
  struct room *r = sc->room;
  __u32 node = 0;
  struct slot *slot = slot_of(sc->w->flow.node);
  if (!slot || sc->w->flow.protocol != PROTOCOL_HTTP)
    return TCX_NEXT;
  __u32 begin = slot->sequence;
  if (begin != sc->w->flow.start && read_news(skb, sc->w) == NEWS_INTERIM)
    return on_interim_while_held(sc, f);
  if (sc->w->flow.flags & FLOW_ACKED)
    return TCX_NEXT;
  bpf_spin_lock(&r->lock);
  bool mine = is_as_seen(f, &sc->w->flow);
  struct node_link *l = link_of(sc->pool, f->node);
  if (mine && l->state == NODE_WAITING && !l->busy) {
    node = part_node(r, sc->pool, f);
    take_back(r, f, begin);
  } else if (mine) { /* it is in another CPU's hands, which will see to it */
    f->flags |= FLOW_ANSWERED;
  }
  bpf_spin_unlock(&r->lock);
  if (node) {
    free_node(sc->pool, node);
    count_reason(REASON_PIPELINED, false, false);
  }
  return mine ? TCX_NEXT : STEP_STALE;
}

/* Applies the news to the flow. False: it has gone on since it was copied. */
static __always_inline bool take_news(struct scene *sc, struct flow *f, int news) {
  struct work *w = sc->w;
  struct room *r = sc->room;
  __u32 node = 0;
  w->now = news == NEWS_OVER ? bpf_ktime_get_ns() : 0;
  bpf_spin_lock(&r->lock);
  bool mine = f->id == w->flow.id && f->state == w->flow.state && f->since == w->flow.since;
  if (mine) {
    if (news == NEWS_INTERIM)
      f->answer = w->flow.answer;
    else if (f->node)
      node = part_node(r, sc->pool, f); /* who answers has read it */
    if (f->state == FLOW_PAUSED && news != NEWS_INTERIM)
      f->state = FLOW_IDLE;
    else if (news == NEWS_OVER)
      end_service(r, f, w->now);
    else if (news != NEWS_INTERIM)
      f->flags |= news == NEWS_TUNNEL ? FLOW_TUNNEL | FLOW_ANSWERED : FLOW_ANSWERED | FLOW_CLOSES;
  }
  bpf_spin_unlock(&r->lock);
  if (node)
    free_node(sc->pool, node);
  return mine;
}

/* A segment with data or an end from the server. STEP_STALE: the flow went on meanwhile. */
static __always_inline int on_answer(struct __sk_buff *skb, struct scene *sc, struct flow *f) {
  struct work *w = sc->w;
  w->flow = *f;
  if (w->flow.socket_priority)
    skb->priority = w->flow.socket_priority;
  /* The stack also resets what does not fit a socket, which is not that socket's end; and the listener what
   * is no SYN cookie, while one is on its way to it. */
  if (w->s.flags & TCP_RST && (w->s.seq != w->flow.sent || w->flow.flags & FLOW_COOKIE))
    return TCX_NEXT;
  /* Without the lock, as nobody else writes it but at the connection's first request. */
  if (w->flow.id && f->id == w->flow.id && before(f->sent, end_of(&w->s))) {
    f->sent = end_of(&w->s);
    w->says = 1;
  }
  if (!w->flow.id || w->flow.state == FLOW_IDLE || !open_scene(sc, w->flow.room))
    return TCX_NEXT;
  if (w->flow.state == FLOW_HELD || w->flow.state == FLOW_GATHERING) {
    bool old = !before(w->flow.answer, end_of(&w->s)) && !(w->s.flags & TCP_RST);
    if (old)
      return TCX_NEXT;
    return w->s.length ? on_answer_while_held(skb, sc, f) : on_closed_while_held(sc, f);
  }
  int news = read_news(skb, w);
  return news == NEWS_NONE || take_news(sc, f, news) ? TCX_NEXT : STEP_STALE;
}
