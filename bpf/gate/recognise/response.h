/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the server's segments mean for requests. */
#pragma once
#include "gate/decide/turn.h"
#include "gate/recognise/label.h"
#include "policy/known.h"

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
  NEWS_READ,   /* the answer was read on, and says nothing of that yet */
  NEWS_TUNNEL, /* what follows belongs to this request, until the connection closes */
  NEWS_BEGUN,  /* the answer has begun, and its end ends the service */
  NEWS_OVER,   /* the request leaves service */
};

/* Pieces of a segment that are read of an answer at most, each a part of a head or what is at the beginning
 * of a chunk. An answer that has more is lost. */
#define MAX_ANSWER_READS 64

/* The sequence number up to which the segment's data have been read. */
static __always_inline __u32 read_up_to(const struct work *w) { return w->s.seq + w->reading.at - w->s.data; }

/* Reads a piece at w->reading of the answer. With its place in memory, as follow_piece(). */
__noinline int answer_piece(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return HTTP_LOST;
  struct http_answer *a = &w->flow.reply;
  __u32 left = w->reading.left, at = w->reading.at, used = 0;
  __u32 skipped = http_skip(&a->head, left);
  at += skipped;
  left -= skipped;
  w->reading.at = at;
  w->reading.left = left;
  __u32 n = BOUND(left, HTTP_CHUNK);
  if (n == 0)
    return HTTP_MORE;
  if (bpf_skb_load_bytes(skb, at, &w->chunk, AMOUNT(n, HTTP_CHUNK)))
    return HTTP_LOST;
  int step = answer_scan(a, &w->chunk, n, &used);
  w->reading.at = at + used;
  w->reading.left = left - used;
  if (step == HTTP_END && answer_is_interim(a)) {
    w->flow.answer = read_up_to(w);
    *a = (struct http_answer){.state = ANSWER_HEAD, .head.labels = a->head.labels};
    step = HTTP_MORE;
  }
  return step == HTTP_MORE && left > used ? HTTP_ON : step;
}

/* Whether the head of the answer has been read. */
static __always_inline bool has_head(const struct http_answer *a, int step) {
  return step == HTTP_END || a->head.flags & HTTP_CHUNKED;
}

/* Notes in w->flow.reply what the segment's bytes have said. */
static __always_inline void note_answer(struct work *w, int step) {
  struct http_answer *a = &w->flow.reply;
  bool bare = w->flow.head.flags & HTTP_HEAD_METHOD || a->status == 204 || a->status == 304;
  a->read = read_up_to(w);
  bool lost = step == HTTP_LOST || step == HTTP_ON;
  if (lost && !has_head(a, step)) /* the server has ways of its own, which its client has no say in */
    a->state = ANSWER_UNKNOWN;
  else if (lost)
    a->state = ANSWER_LOST;
  else if (!has_head(a, step))
    a->state = ANSWER_HEAD;
  else if (bare)
    a->state = ANSWER_ENDS;
  else if (a->head.flags & HTTP_CHUNKED)
    a->state = step == HTTP_END ? ANSWER_ENDS : ANSWER_CHUNKS;
  else if (!(a->head.seen & HTTP_SEEN_LENGTH))
    a->state = ANSWER_CLOSES;
  else if (a->head.flags & HTTP_ENDLESS)
    a->state = ANSWER_LOST;
  else
    a->state = ANSWER_ENDS;
  if (a->state == ANSWER_ENDS && !bare && !(a->head.flags & HTTP_CHUNKED))
    a->read += a->head.length;
}

/* Reads on in the answer, which goes on in the segment. */
__noinline int follow_answer(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return 0;
  __u32 known = w->flow.reply.read - w->s.seq;
  w->reading.at = w->s.data + known;
  w->reading.left = w->s.length - known;
  int step = HTTP_ON;
  for (int i = 0; i < MAX_ANSWER_READS && step == HTTP_ON; i++)
    step = answer_piece(skb, w);
  note_answer(w, step);
  return 0;
}

/* Whether the answer says that the connection is not HTTP/1 from here on. A 2xx to CONNECT does so if it
 * says nothing of a body (RFC 9110, 9.3.6): servers that know no such method say how long one is, or by 204
 * that there is none, and go on in HTTP/1. */
static __always_inline bool opens_tunnel(const struct work *w) {
  const struct http_answer *a = &w->flow.reply;
  bool connects = a->status < 300 && w->flow.head.seen & HTTP_SEEN_CONNECT;
  return (a->status == 101 && a->at == STATUS_SIZE) || (connects && a->state == ANSWER_CLOSES);
}

/* Whether the server closes the connection behind the answer: what it says of that counts first, for servers
 * differ in what they take a request to ask for that says both. */
static __always_inline bool server_closes(const struct work *w) {
  const struct http_answer *a = &w->flow.reply;
  return answer_closes(a) || (w->flow.flags & FLOW_CLOSES && !answer_keeps(a));
}

/* Whether the server has written all of the answer. What of that its client has taken is the client's affair.
 */
static __always_inline bool is_written(struct __sk_buff *skb, struct work *w) {
  const struct http_answer *a = &w->flow.reply;
  if (a->state != ANSWER_ENDS)
    return false;
  if (!before(w->s.seq + w->s.length, a->read))
    return true;
  struct tcp_sock *sender = sender_of(skb);
  if (sender)
    return !before(sender->write_seq, a->read);
  find_socket(skb, &w->key, &w->socket);
  return takes_data(&w->socket) && !before(w->socket.written, a->read);
}

/* What the answer means that has been read so far. */
static __always_inline int answer_news(struct __sk_buff *skb, struct work *w) {
  const struct http_answer *a = &w->flow.reply;
  __u32 ends = w->flow.ends;
  if (opens_tunnel(w))
    return NEWS_TUNNEL;
  if (a->state == ANSWER_HEAD && (a->at < STATUS_SIZE || answer_is_interim(a)))
    return NEWS_READ;
  if (a->state == ANSWER_HEAD && ends != END_FIRST_BYTE)
    return ends == END_LAST_BYTE ? NEWS_BEGUN : NEWS_READ;
  if (ends == END_CLOSE)
    return w->flow.flags & FLOW_CLOSES ? NEWS_BEGUN : NEWS_TUNNEL;
  if (ends == END_FIRST_BYTE || (ends == END_AUTO && !server_closes(w)))
    return NEWS_OVER;
  return is_written(skb, w) ? NEWS_OVER : NEWS_BEGUN;
}

/* The same of an answer whose beginning was not seen. It has begun all the same. */
static __always_inline int unread_news(struct work *w) {
  bool whole = w->flow.ends == END_LAST_BYTE || w->flow.ends == END_CLOSE;
  w->flow.reply.state = ANSWER_UNKNOWN;
  return whole ? NEWS_BEGUN : NEWS_OVER;
}

static __always_inline int http_news(struct __sk_buff *skb, struct work *w) {
  const struct segment *s = &w->s;
  const struct http_answer *a = &w->flow.reply;
  __u32 end = s->seq + s->length;
  bool begun = w->flow.flags & FLOW_ANSWERED;
  if (!before(is_read_on(a) ? a->read : w->flow.answer, end))
    return NEWS_NONE; /* sent again */
  if (a->state == ANSWER_UNKNOWN || (is_read_on(a) && before(a->read, s->seq)))
    return begun ? NEWS_NONE : unread_news(w);
  if (is_read_on(a))
    follow_answer(skb, w);
  else if (begun && a->state != ANSWER_ENDS)
    return NEWS_NONE;
  return answer_news(skb, w);
}

static __always_inline int read_news(struct __sk_buff *skb, struct work *w) {
  if (w->s.flags & (TCP_FIN | TCP_RST))
    return NEWS_OVER;
  if (w->flow.flags & FLOW_TUNNEL)
    return NEWS_NONE;
  if (w->flow.protocol == PROTOCOL_HTTP)
    return http_news(skb, w);
  return w->says && !(w->flow.flags & FLOW_ANSWERED) ? NEWS_BEGUN : NEWS_NONE;
}

/* Makes what was read of the answer the flow's. Under the lock. */
static __always_inline void keep_answer(struct flow *f, const struct flow *read) {
  f->answer = read->answer;
  f->reply = read->reply;
}

/* The beginning of an answer, or an interim one (100 Continue), to a request whose rest waits. */
static __always_inline int on_interim_while_held(struct scene *sc, struct flow *f) {
  bpf_spin_lock(&sc->room->lock);
  bool mine = is_as_seen(f, &sc->w->flow);
  if (mine)
    keep_answer(f, &sc->w->flow);
  bpf_spin_unlock(&sc->room->lock);
  return mine ? TCX_NEXT : STEP_STALE;
}

/* The answer has begun, and keeps the place of its request. Returns whether the flow is to be watched from
 * now on. Under the lock. */
static __always_inline bool begin_answer(struct flow *f, const struct work *w) {
  f->flags |= FLOW_ANSWERED;
  if (f->protocol == PROTOCOL_HTTP && w->flow.reply.state != ANSWER_HEAD && server_closes(w))
    f->flags |= FLOW_CLOSES;
  bool watch = !f->watched && wants_watch(f, f->next);
  f->watched |= watch;
  return watch;
}

/* Applies the news to the flow. Under the lock. */
static __always_inline void apply_news(struct scene *sc, struct flow *f, int news) {
  struct room *r = sc->room;
  struct work *w = sc->w;
  if (news == NEWS_TUNNEL)
    f->flags |= FLOW_TUNNEL | FLOW_ANSWERED;
  if (f->state == FLOW_IDLE || news == NEWS_READ)
    return;
  if (f->state == FLOW_PAUSED && news == NEWS_BEGUN && f->ends == END_LAST_BYTE)
    enter_again(r, f, w->now);
  if (f->state == FLOW_PAUSED)
    f->state = FLOW_IDLE;
  else if (news == NEWS_BEGUN)
    w->watch = begin_answer(f, w);
  else if (news == NEWS_OVER)
    end_service(r, sc->pool, f, w->now);
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
  bool rest = begin != sc->w->flow.start;
  int news = rest ? read_news(skb, sc->w) : NEWS_OVER;
  if (news <= NEWS_READ)
    return on_interim_while_held(sc, f);
  if (sc->w->flow.flags & FLOW_ACKED)
    return TCX_NEXT;
  sc->w->watch = 0;
  sc->w->now = bpf_ktime_get_ns();
  bpf_spin_lock(&r->lock);
  bool mine = is_as_seen(f, &sc->w->flow);
  struct node_link *l = link_of(sc->pool, f->node);
  if (mine && rest)
    keep_answer(f, &sc->w->flow);
  if (mine && l->state == NODE_WAITING && !l->busy) {
    node = part_node(r, sc->pool, f);
    take_back(r, f, begin);
    apply_news(sc, f, news);
  } else if (mine) { /* it is in another CPU's hands, which will see to it */
    f->flags |= FLOW_ANSWERED;
  }
  bpf_spin_unlock(&r->lock);
  if (node) {
    free_node(sc->pool, node);
    count_reason(REASON_PIPELINED, false, false);
    watch_flow(sc->w, sc->w->flow.next);
  }
  return mine ? TCX_NEXT : STEP_STALE;
}

/* Takes in what the segment says. False: the flow has gone on since it was copied. */
static __always_inline bool take_news(struct scene *sc, struct flow *f, int news) {
  struct work *w = sc->w;
  struct room *r = sc->room;
  __u32 node = 0;
  w->watch = 0;
  w->now = news >= NEWS_BEGUN ? bpf_ktime_get_ns() : 0;
  bpf_spin_lock(&r->lock);
  bool mine = f->id == w->flow.id && f->state == w->flow.state && f->since == w->flow.since;
  if (mine) {
    if (f->protocol == PROTOCOL_HTTP)
      keep_answer(f, &w->flow);
    if (w->labelled)
      f->home = w->labelled - 1;
    if (news != NEWS_READ && f->node)
      node = part_node(r, sc->pool, f); /* who answers has read it */
    apply_news(sc, f, news);
  }
  bpf_spin_unlock(&r->lock);
  if (node)
    free_node(sc->pool, node);
  watch_flow(w, w->flow.next);
  return mine;
}

/* Whether the segment may say something of a request, or of the answer to one that is over. */
static __always_inline bool concerns_answer(const struct flow *f) {
  return f->id && (f->state != FLOW_IDLE || is_read_on(&f->reply));
}

/* Notes how far the server has sent, and counts it. Without the lock, as nobody else writes that but at the
 * connection's first request. */
static __always_inline void note_sent(struct flow *f, struct work *w) {
  __u32 end = w->s.seq + w->s.length;
  if (!f->id || !before(f->sent, end_of(&w->s)))
    return;
  struct room *r = room_of(f->room);
  if (r && w->s.length)
    count_bytes(class_of(r, f->class), &f->got, w->s.ack, before(f->sent, end) ? end - f->sent : 0);
  f->sent = end_of(&w->s);
  w->says = 1;
}

/* Makes the source of a request known whose answer, below 400, is all written: its last byte has passed, or
 * the end of the connection that ends it. Without the lock: at worst somebody earns it twice, or not at all.
 */
static __always_inline void note_earned(struct flow *f, const struct work *w) {
  const struct http_answer *a = &f->reply;
  __u64 earns = f->earns;
  bool ends = a->state == ANSWER_ENDS && !before(f->sent, a->read);
  if (!earns || !(ends || (a->state == ANSWER_CLOSES && w->s.flags & TCP_FIN)))
    return;
  f->earns = 0;
  if (a->status >= 200 && a->status < 400)
    make_known(earns);
}

/* Sends the last segment of an answer twice, where its client has sent more behind the request: what has come
 * twice is acknowledged at once, and what waits for that would wait for 40 ms else. The copy says nothing
 * new. */
static __always_inline void hasten(struct __sk_buff *skb, const struct flow *f, const struct work *w) {
  const struct http_answer *a = &f->reply;
  if (f->early && w->says && !skb->gso_size && a->state == ANSWER_ENDS && !before(f->sent, a->read))
    bpf_clone_redirect(skb, skb->ifindex, 0);
}

/* A segment with data or an end from the server. STEP_STALE: the flow went on meanwhile. */
static __always_inline int on_answer(struct __sk_buff *skb, struct scene *sc, struct flow *f) {
  struct work *w = sc->w;
  if (f->socket_priority)
    skb->priority = f->socket_priority;
  if (!concerns_answer(f) && !(w->s.flags & TCP_RST)) {
    w->flow.room = f->room;
    note_sent(f, w);
    note_earned(f, w);
    hasten(skb, f, w);
    return TCX_NEXT;
  }
  w->flow = *f;
  /* The stack also resets what does not fit a socket, which is not that socket's end; and the listener what
   * is no SYN cookie, while one is on its way to it. */
  if (w->s.flags & TCP_RST && (w->s.seq != w->flow.sent || w->flow.flags & FLOW_COOKIE))
    return TCX_NEXT;
  if (f->id == w->flow.id)
    note_sent(f, w);
  if (!concerns_answer(&w->flow) || !open_scene(sc, w->flow.room))
    return TCX_NEXT;
  if (w->flow.state == FLOW_HELD || w->flow.state == FLOW_GATHERING) {
    bool old = !before(w->flow.answer, end_of(&w->s)) && !(w->s.flags & TCP_RST);
    if (old)
      return TCX_NEXT;
    return w->s.length ? on_answer_while_held(skb, sc, f) : on_closed_while_held(sc, f);
  }
  w->flow.reply.head.labels = sc->config->labels & LABELS_HEADER;
  int news = read_news(skb, w);
  w->labelled = 0;
  if (sc->config->labels && news != NEWS_NONE)
    read_labels(skb, w, f, sc->config->labels);
  if (news != NEWS_NONE && !take_news(sc, f, news))
    return STEP_STALE;
  note_earned(f, w);
  hasten(skb, f, w);
  return TCX_NEXT;
}
