/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Segments of HTTP connections whose request is in service, over, or has paused. */
#pragma once
#include "gate/brief.h"
#include "gate/recognise/marks.h"

/* Makes what w->flow says of the request the flow's, if nothing has changed. */
static __always_inline bool note_read(struct scene *sc, __u32 next) {
  struct flow *f = sc->flow;
  bpf_spin_lock(&sc->room->lock);
  bool mine =
      f->id == sc->w->flow.id && f->state == sc->w->flow.state && f->next == next && f->flags == sc->w->flags;
  if (mine) {
    note_request(f, &sc->w->flow);
    f->moves = 1;
  }
  bpf_spin_unlock(&sc->room->lock);
  return mine;
}

/* Whether the stack has bytes behind those that were read: they came while no gate was there. */
static __always_inline bool was_passed_by(struct __sk_buff *skb, struct work *w) {
  find_socket(skb, &w->key, &w->socket);
  return w->socket.state == BPF_TCP_ESTABLISHED && before(w->flow.next, w->socket.sequence) &&
         w->socket.sequence == w->s.seq;
}

/* Whether the bytes between those that were read and the segment are data of one chunk: they frame nothing,
 * so what is behind them can be read before they have come. The stack must keep it. */
static __always_inline bool may_leap(const struct work *w) {
  const struct endpoint *sock = &w->socket;
  const struct http_head *h = &w->flow.head;
  __u32 end = w->s.seq + w->s.length;
  bool framed =
      w->flow.flags & FLOW_CHUNKS && h->place == HTTP_AT_DATA && h->length >= w->s.seq - w->flow.next;
  bool kept = sock->state == BPF_TCP_ESTABLISHED && !before(sock->sequence + sock->window, end);
  return framed && kept && !before(w->s.ack, w->flow.answer) && !before(last_sent(w), w->s.ack);
}

/* A segment came before others that are to be read first. */
static __always_inline int leap(struct __sk_buff *skb, struct work *w) {
  if (was_passed_by(skb, w)) /* the stack has them, as they were when no gate was there */
    return STEP_UNFOLLOWED;
  if (!may_leap(w))
    return STEP_GAP;
  w->flow.head.read_at = unread_time();
  set_gap(w, w->flow.next);
  http_skip(&w->flow.head, w->s.seq - w->flow.next);
  return STEP_BODY;
}

/* Goes on reading where the last segment ended, in the head or the chunks of the request in
 * service, or of one that was answered before it had ended. */
static __always_inline int read_on(struct __sk_buff *skb, struct scene *sc) {
  struct work *w = sc->w;
  __u32 next = w->flow.next, from = next;
  if (before(next, w->s.seq)) {
    int verdict = leap(skb, w);
    if (verdict != STEP_BODY)
      return verdict;
    from = w->s.seq;
  }
  if (w->flow.flags & FLOW_CHUNKS)
    set_mark(w, from);
  int step = read_request(skb, w, from);
  w->flow.head.read_at = unread_time();
  if (is_lenient(sc)) {
    note_read(sc, next);
    return TCX_NEXT;
  }
  if (step == HTTP_LOST) {
    w->now = bpf_ktime_get_ns();
    return reject_unreadable(skb, w, REJECT_MALFORMED, next);
  }
  if (!note_read(sc, next))
    return drop(REASON_RACE);
  return exceeds(w) ? pass_until(skb, w, w->flow.next) : TCX_NEXT;
}

/* Passes what is not followed, and notes how far it went. */
static __always_inline int pass_on(struct scene *sc) {
  struct work *w = sc->w;
  __u32 next = w->flow.next;
  w->flow.flags = (w->flow.flags & ~(FLOW_HEAD | FLOW_CHUNKS)) | FLOW_LOST;
  w->flow.next = w->s.seq + w->s.length;
  return note_read(sc, next) || is_lenient(sc) ? TCX_NEXT : drop(REASON_RACE);
}

/* Bytes that the stack has not got of a request in service that is watched. Those beyond others would have it
 * make a socket without these, if it has not made one when they must have come. */
__noinline int on_body(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct scene sc;
  if (!w || !open_flow_scene(&sc, w, f))
    return TCX_NEXT;
  __u32 end = w->s.seq + w->s.length;
  find_socket(skb, &w->key, &w->socket);
  __u32 has = w->socket.sequence;
  bool arrives = w->socket.state == BPF_TCP_LISTEN && w->flow.flags & FLOW_COOKIE;
  if (!arrives && (!takes_data(&w->socket) || !before(has, end)))
    return TCX_NEXT;
  if (w->socket.state == BPF_TCP_NEW_SYN_RECV && before(has, w->s.seq) && !is_lenient(&sc) &&
      bpf_ktime_get_ns() - w->flow.since >= ON_ITS_WAY)
    return drop(REASON_GAP);
  return note_moves(&sc) || is_lenient(&sc) ? TCX_NEXT : drop(REASON_RACE);
}

/* The answer came while no gate was there. */
static __always_inline int on_missed(struct scene *sc) {
  struct work *w = sc->w;
  struct flow *f = sc->flow;
  w->now = bpf_ktime_get_ns();
  bpf_spin_lock(&sc->room->lock);
  if (is_as_seen(f, &w->flow))
    end_service(sc->room, sc->pool, f, w->now);
  f->reply.state = ANSWER_UNKNOWN;
  bpf_spin_unlock(&sc->room->lock);
  w->flow.state = FLOW_IDLE;
  w->flow.reply.state = ANSWER_UNKNOWN;
  return STEP_IDLE;
}

/* A request behind an answer that has begun. Where nobody knows where that ends, it is over when its client,
 * who has got all that was said of it, asks for something else. */
static __always_inline int on_early(struct __sk_buff *skb, struct scene *sc) {
  struct work *w = sc->w;
  __u32 state = w->flow.reply.state;
  bool endless = state == ANSWER_LOST || state == ANSWER_UNKNOWN;
  if (!endless || !(w->flow.flags & FLOW_ANSWERED) || w->flow.flags & FLOW_CLOSES)
    return drop_early(skb, w);
  find_socket(skb, &w->key, &w->socket);
  if (!takes_data(&w->socket) || before(w->s.ack, w->socket.written))
    return drop_early(skb, w);
  return state == ANSWER_LOST ? STEP_UNFOLLOWED : on_missed(sc);
}

/* Bytes behind those that are known of the request in service. */
__noinline int on_served(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct scene sc;
  if (!w || !open_followed_scene(&sc, w, f))
    return TCX_NEXT;
  __u32 next = w->flow.next, flags = w->flow.flags;
  bool gap = before(next, w->s.seq), lenient = is_lenient(&sc);
  bool forgotten = is_forgotten(sc.room, w->flow.epoch), begun = before(w->flow.answer, w->flow.sent);
  bool reading = flags & (FLOW_HEAD | FLOW_CHUNKS) && !(gap && lenient);
  /* But not over before it is answered; nor where the only copy of it is here, which the stack may lack. */
  if (forgotten && (begun || (lenient && !reading && !w->flow.node)))
    return STEP_IDLE;
  if (reading)
    return read_on(skb, &sc);
  if (lenient || (flags & FLOW_LOST && !gap))
    return pass_on(&sc);
  if (gap && was_passed_by(skb, w))
    return sc.flow->unread_since ? pass_on(&sc) : on_missed(&sc);
  if (flags & FLOW_LOST)
    return drop(REASON_GAP);
  if (!before(w->s.seq, next))
    return on_early(skb, &sc);
  return note_moves(&sc) ? pass_until(skb, w, next) : drop(REASON_RACE);
}

/* The stack has dropped a head that had come as one, and its client sends it in pieces now: it
 * takes its turn as if it had not come before. */
static __always_inline int begin_anew(struct __sk_buff *skb, struct scene *sc) {
  struct work *w = sc->w;
  struct room *r = sc->room;
  struct flow *f = sc->flow;
  bool half_open = w->socket.state != BPF_TCP_ESTABLISHED;
  bool on_its_way = bpf_ktime_get_ns() - w->flow.since < ON_ITS_WAY;
  if (w->socket.gap)
    return STEP_UNFOLLOWED;
  if (on_its_way || w->flow.flags & FLOW_ACKED || w->s.ack != w->flow.answer || !checksum_holds(skb, w))
    return drop(REASON_FORGED);
  bpf_spin_lock(&r->lock);
  if (is_as_seen(f, &w->flow) && f->state == FLOW_SERVED && f->next == w->next)
    retract(r, sc->pool, f, half_open);
  bpf_spin_unlock(&r->lock);
  return drop(REASON_RACE);
}

/* What was whole and ended where it ended must do so again; chunks and what has no end may come in other
 * pieces. */
static __always_inline bool is_another(const struct flow *f, __u32 next, __u32 flags, bool chunked) {
  if (chunked != !!(f->head.flags & HTTP_CHUNKED) || (flags ^ f->flags) & FLOW_LOST)
    return true;
  return !chunked && !(flags & FLOW_LOST) && f->next != next;
}

/* For how long what has passed may be on its way to the stack still, 2^20 ns. */
#define ON_ITS_WAY_TIME (ON_ITS_WAY >> 20)

static __always_inline bool is_same_place(const struct http_head *a, const struct http_head *b) {
  return a->length == b->length && a->place == b->place && a->at == b->at && a->seen == b->seen &&
         a->word == b->word && a->set == b->set;
}

/* Whether chunks that were read again up to a sequence number have led to where they led before, when they
 * ended in w->began at `body`. The stack may have what comes behind them, which would be read otherwise.
 * Returns a verdict or step; TCX_NEXT: they have. */
static __always_inline int check_place(struct work *w, __u32 at, __u32 body) {
  const struct http_head *known = at == body ? &w->began : mark_at(w, at);
  if (known)
    return is_same_place(&w->flow.head, known) ? TCX_NEXT : STEP_UNFOLLOWED;
  /* They come in other pieces than before: that is no matter where the stack has nothing behind them. */
  if (w->socket.gap)
    return STEP_UNFOLLOWED;
  bool released = bpf_ktime_get_ns() - w->flow.since < ON_ITS_WAY;
  bool on_its_way = released || unread_time() - w->began.read_at < ON_ITS_WAY_TIME;
  return on_its_way ? drop(REASON_RACE) : TCX_NEXT;
}

/* A request's head again, of which the stack has nothing. */
static __always_inline int read_again(struct __sk_buff *skb, struct scene *sc) {
  struct work *w = sc->w;
  __u32 next = w->flow.next, flags = w->flow.flags, body = w->flow.body;
  bool whole = !(flags & FLOW_HEAD), chunked = w->flow.head.flags & HTTP_CHUNKED;
  w->began = w->flow.head;
  w->flow.head = (struct http_head){};
  read_proxy_again(&w->flow);
  read_request(skb, w, w->flow.start);
  if (whole && w->flow.flags & FLOW_HEAD) /* less than before */
    return begin_anew(skb, sc);
  if (whole && (is_another(&w->flow, next, flags, chunked) || leads_to_h2c(skb, sc, 0)))
    return close_checked(skb, w, REASON_FORGED);
  int verdict = chunked ? check_place(w, w->flow.body, body) : TCX_NEXT;
  if (verdict != TCX_NEXT)
    return verdict;
  ask_if_due(skb, sc, HTTP_END, 0);
  w->grown = 0;
  if (whole && has_rules(sc, HTTP_END))
    return STEP_COMPARE;
  if (!note_read(sc, next))
    return drop(REASON_RACE);
  return exceeds(w) ? pass_until(skb, w, w->flow.next) : TCX_NEXT;
}

/* Chunks again of which the stack has nothing: they must lead to where they led before, and end where
 * they ended. */
static __always_inline int chunks_again(struct __sk_buff *skb, struct scene *sc, __u32 read) {
  struct work *w = sc->w;
  __u32 seq = w->s.seq, flags = w->flow.flags;
  if (find_beyond(skb, w) && before(w->socket.beyond, read)) /* the stack has the bytes from there on */
    read = w->socket.beyond;
  w->began = w->flow.head;
  if (!get_mark(w, seq)) {
    /* A request that was just released may not have got there. */
    bool on_its_way = bpf_ktime_get_ns() - w->flow.since < ON_ITS_WAY;
    return on_its_way ? drop(REASON_RACE) : STEP_UNFOLLOWED;
  }
  bool in_data = w->flow.head.place == HTTP_AT_DATA && w->flow.head.length >= read - seq;
  int step = follow(skb, w, w->s.data, read - seq);
  bool last = read == w->flow.body, ends = step == HTTP_END;
  if (step == HTTP_LOST || w->used != read - seq || (ends && (!last || flags & FLOW_CHUNKS)))
    return STEP_UNFOLLOWED;
  int verdict = in_data && !last ? TCX_NEXT : check_place(w, read, w->flow.body);
  if (verdict != TCX_NEXT)
    return verdict;
  if (in_data) /* what is behind may be missing as well */
    set_gap(w, read);
  else if (!ends)
    set_mark(w, read);
  return before(read, seq + w->s.length) ? pass_until(skb, w, read) : TCX_NEXT;
}

/* Sets w->flow.head to what had been read up to `from`. Returns whether that is known, and all bytes from
 * there up to `read` are data of one chunk. */
static __always_inline bool is_in_data(struct work *w, __u32 from, __u32 read) {
  return get_mark(w, from) && w->flow.head.place == HTTP_AT_DATA && w->flow.head.length >= read - from;
}

/* Chunks again behind others that the stack lacks. It may have the data of a chunk first, which frame
 * nothing. Returns a verdict or step. */
static __always_inline int chunks_beyond(struct __sk_buff *skb, struct work *w, __u32 has, __u32 read) {
  const struct endpoint *sock = &w->socket;
  __u32 from = w->s.seq;
  w->began = w->flow.head;
  if (sock->state != BPF_TCP_ESTABLISHED || before(has + sock->window, read))
    return drop(REASON_RACE);
  if (!is_in_data(w, from, read)) {
    from = has;
    if (!is_in_data(w, from, read))
      return drop(REASON_RACE);
  }
  http_skip(&w->flow.head, read - from);
  if (read == w->flow.body && !is_same_place(&w->flow.head, &w->began))
    return STEP_UNFOLLOWED;
  set_gap(w, read);
  return before(read, w->s.seq + w->s.length) ? pass_until(skb, w, read) : TCX_NEXT;
}

/* The request that has paused takes its turn again. Returns a step. */
static __always_inline int resume(struct scene *sc) {
  struct work *w = sc->w;
  forget_slot(sc);
  w->now = bpf_ktime_get_ns();
  w->flow.flags &= ~FLOW_ACKED;
  return STEP_TURN;
}

/* Bytes again that were read: of a head, or the chunks behind it. If the stack has not got them
 * before, for whatever reason, these are what the server will read, and must say the same. */
__noinline int on_again(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct scene sc;
  if (!w || !open_followed_scene(&sc, w, f) || is_lenient(&sc))
    return STEP_BODY_ALONE;
  find_socket(skb, &w->key, &w->socket);
  if (!takes_data(&w->socket) && w->socket.state != BPF_TCP_LISTEN)
    return STEP_BODY_ALONE;
  __u32 end = w->s.seq + w->s.length, start = w->flow.start;
  __u32 has = w->socket.state == BPF_TCP_LISTEN ? start : w->socket.sequence;
  __u32 read = before(end, w->flow.body) ? end : w->flow.body;
  if (!before(has, read))
    return STEP_BODY;
  bool whole = w->s.seq == start && has == start;
  if (!whole && !(w->flow.head.flags & HTTP_CHUNKED))
    return !before(has, w->s.seq) && sc.flow->unread_since ? STEP_UNFOLLOWED : drop(REASON_FORGED);
  int step;
  if (before(has, w->s.seq))
    step = chunks_beyond(skb, w, has, read);
  else if (whole)
    step = read_again(skb, &sc);
  else
    step = has == w->s.seq ? chunks_again(skb, &sc, read) : pass_until(skb, w, has);
  if (step != TCX_NEXT || w->flow.state != FLOW_PAUSED || w->flags & FLOW_CHUNKS)
    return step == TCX_NEXT ? STEP_BODY_ALONE : step;
  w->flow.head = w->began; /* the request was read to its end: it takes its turn with what comes */
  return resume(&sc);
}

/* Whether a body has gone on so far that its beginning could be taken for what comes: sequence numbers come
 * round after 4 GiB. */
static __always_inline bool is_far(__u32 start, __u32 seq) { return (seq - start) >> 30 == 1; }

/* Forgets where a request began whose body goes on for long. What the stack has of it nothing changes any
 * more; one byte of that stays, lest what comes be taken for the beginning. */
__noinline int leave_behind(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  if (!w || !set_flow_scene(&sc, w))
    return 0;
  find_socket(skb, &w->key, &w->socket);
  __u32 start = w->flow.start, has = w->socket.sequence;
  struct flow *f = sc.flow;
  if (!takes_data(&w->socket) || !is_far(start, has))
    return 0;
  bpf_spin_lock(&sc.room->lock);
  if (f->id == w->flow.id && f->start == start) {
    count_bytes(class_of(sc.room, f->class), &f->got, has, 0);
    f->start = has - 1;
    if (before(f->body, has))
      f->body = has;
    w->flow.start = f->start;
    w->flow.body = f->body;
  }
  bpf_spin_unlock(&sc.room->lock);
  return 0;
}

/* Empty lines between two requests, which mean nothing. */
static __always_inline int on_empty_lines(struct scene *sc, __u32 next) {
  struct work *w = sc->w;
  w->flow.flags = 0;
  w->flow.head = (struct http_head){};
  return note_read(sc, next) ? TCX_NEXT : drop(REASON_RACE);
}

/* The next request of a connection is to be answered. Where nothing is held back it may come before the end
 * of the answer to the last, of which then only is known where the next begins if it has said its length. */
static __always_inline void expect_answer(struct flow *f, __u32 ack) {
  const struct http_answer *last = &f->reply;
  bool follows = last->state == ANSWER_ENDS, lost = is_read_on(last) || last->state == ANSWER_CLOSES;
  f->answer = follows && before(ack, last->read) ? last->read : ack;
  f->reply = (struct http_answer){.state = lost ? ANSWER_UNKNOWN : ANSWER_HEAD, .read = f->answer};
}

/* Whether the connection has had as many requests as the policy allows, and the next is one that its client
 * repeats by itself on another connection: a GET or HEAD (RFC 9110, 9.2.2). Others are let in, for they would
 * be lost. */
static __always_inline bool has_asked_enough(struct __sk_buff *skb, const struct scene *sc) {
  const struct work *w = sc->w;
  __u32 most = sc->config->requests;
  __u8 first = 0;
  if (!most || w->flow.asked < most || w->flow.state != FLOW_IDLE)
    return false;
  return !bpf_skb_load_bytes(skb, w->s.data, &first, 1) && (first == 'G' || first == 'H');
}

/* Requests that a flow has in long form before it takes the short one. */
#define SHORTEN_AFTER 8

/* Whether a flow whose next request was read is to begin anew in short form: places are plenty, and have been
 * for a while. */
static __always_inline bool may_shorten(const struct scene *sc, int step) {
  const struct work *w = sc->w;
  const struct room *r = sc->room;
  return sc->config->brief && w->flow.asked >= SHORTEN_AFTER && is_brief(w, step) && !is_mirrored() &&
         !seems_contended() && !closes_each(r, w->now) &&
         r->in_service + r->brief < brief_bound(r->limit) / 2;
}

/* The next request of a connection. */
__noinline int on_next_request(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct scene sc;
  if (!w || !open_flow_scene(&sc, w, f))
    return TCX_NEXT;
  __u32 next = w->flow.next;
  if (has_moved(&sc))
    return move(&sc);
  if (has_asked_enough(skb, &sc)) {
    if (!sc.config->shadow)
      return close_checked(skb, w, REASON_REQUESTS);
    count_reason(REASON_REQUESTS, true, true);
  }
  if (!is_lenient(&sc) && f->id == w->flow.id)
    f->unread_since = 0; /* all is known again */
  forget_slot(&sc);
  w->now = bpf_ktime_get_ns();
  /* If it is the first, which has come twice at once, it is that still. */
  w->flow.flags &= w->flow.flags & FLOW_NEW ? FLOW_NEW | FLOW_COOKIE : 0;
  if (w->flow.flags & FLOW_NEW)
    read_proxy_again(&w->flow);
  else
    w->flow.named &= NAMED_CLIENT;
  w->flow.head = w->began = (struct http_head){};
  expect_answer(&w->flow, w->s.ack);
  w->flow.start = w->s.seq;
  int step = read_request(skb, w, w->s.seq);
  if (step == HTTP_MORE && w->flow.head.place == HTTP_AT_START && w->flow.state == FLOW_IDLE)
    return on_empty_lines(&sc, next);
  if (may_shorten(&sc, step)) {
    w->flow.asked = 0;
    return move(&sc);
  }
  return on_request(skb, &sc, step);
}

/* The next request of a connection, if it is one: who asks before he has the answer to what he asked before
 * has to ask again. A rejection could not be told from that answer, nor what the server has not said of it
 * from the next one. */
static __always_inline int on_next_turn(struct __sk_buff *skb, struct scene *sc) {
  struct work *w = sc->w;
  find_socket(skb, &w->key, &w->socket);
  const struct endpoint *sock = &w->socket;
  bool known = takes_data(sock);
  __u32 sent = last_sent(w);
  if ((known && before(sent, sock->written)) ||
      (is_in_answer(w) && (!known || before(w->s.ack, sock->answer))) ||
      (known && is_owed(&w->flow.reply, sent)))
    return drop_early(skb, w);
  if (known && before(sent, w->s.ack))
    return drop(REASON_FORGED);
  if (is_outdated(skb, w))
    return drop(REASON_OUTDATED);
  w->told = sock->state == BPF_TCP_ESTABLISHED && sock->acked == w->s.ack && sock->written == w->s.ack;
  /* What the stack has beyond it was read as another request's, which was taken back. */
  bool hidden = w->flow.withheld && known && sock->gap && !before(sock->sequence, w->s.seq);
  return hidden || w->flow.reply.state == ANSWER_LOST ? STEP_UNFOLLOWED : STEP_NEXT_REQUEST;
}

/* Bytes behind those of the last request, which is over. */
__noinline int on_idle(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct scene sc;
  if (!w || !open_followed_scene(&sc, w, f))
    return TCX_NEXT;
  if (reclassify(skb, &sc))
    return STEP_NEXT;
  delete_flow(&w->key, sc.flow, &w->flow, w->flow.id, bpf_ktime_get_ns());
  return TCX_NEXT;
}

/* The next request of a connection begins, of the class that its connection has. */
__noinline int on_next(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct scene sc;
  if (!w || !open_flow_scene(&sc, w, f))
    return TCX_NEXT;
  __u32 next = w->flow.next, seq = w->s.seq;
  if (before(next, seq) && was_passed_by(skb, w))
    return sc.flow->unread_since ? STEP_UNFOLLOWED : STEP_NEXT_REQUEST;
  if (w->flow.flags & (FLOW_LOST | FLOW_HEAD))
    return STEP_UNFOLLOWED;
  if (w->flow.flags & FLOW_CHUNKS && !(is_lenient(&sc) && before(next, seq)))
    return read_on(skb, &sc);
  if (seq != next && is_lenient(&sc))
    return TCX_NEXT;
  if (seq != next)
    return before(next, seq) ? STEP_GAP : pass_until(skb, w, next);
  return is_lenient(&sc) ? STEP_NEXT_REQUEST : on_next_turn(skb, &sc);
}

/* The body goes on of a request that has paused: it takes its turn again. */
__noinline int on_paused(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct scene sc;
  if (!w || !open_followed_scene(&sc, w, f))
    return TCX_NEXT;
  __u32 seq = w->s.seq, end = seq + w->s.length;
  find_socket(skb, &w->key, &w->socket);
  __u32 has = w->socket.sequence;
  if (!takes_data(&w->socket) || !before(has, end))
    return TCX_NEXT;
  if (seq != has && is_lenient(&sc))
    return pass_on(&sc);
  if (before(last_sent(w), w->s.ack))
    return drop(REASON_FORGED);
  if (!is_lenient(&sc) && is_outdated(skb, w))
    return drop(REASON_OUTDATED);
  if (before(has, seq))
    return drop(REASON_GAP);
  if (before(seq, has))
    return pass_until(skb, w, has);
  if (before(has, w->flow.body)) { /* the stack lacks bytes that were read: of a head they may change */
    bool marked = w->flow.head.flags & HTTP_CHUNKED && before(w->flow.start, has);
    return marked ? STEP_AGAIN : STEP_UNFOLLOWED;
  }
  int turn = resume(&sc);
  w->began = w->flow.head;
  if (w->flow.flags & FLOW_LOST)
    w->flow.next = end;
  if (!(w->flow.flags & FLOW_CHUNKS))
    return turn;
  if (w->flow.next != seq)
    return STEP_UNFOLLOWED;
  set_mark(w, seq);
  int step = read_request(skb, w, seq);
  w->flow.head.read_at = unread_time();
  return step == HTTP_LOST && !is_lenient(&sc) ? reject_unreadable(skb, w, REJECT_MALFORMED, seq) : turn;
}
