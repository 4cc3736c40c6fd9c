/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Segments of connections that are not in the table: their first requests, and what still
 * comes of those that were ended. */
#pragma once
#include "gate/decide/turn.h"
#include "gate/brief.h"
#include "gate/recognise/connection.h"

/* The first request of a connection. */
__noinline int on_first_request(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  if (!w)
    return TCX_NEXT;
  sc.w = w;
  if (!open_scene(&sc, w->flow.room))
    return TCX_NEXT;
  w->now = bpf_ktime_get_ns();
  w->flow.id = w->now;
  w->flow.ifindex = skb->ifindex;
  w->flow.answer = w->flow.sent = w->s.ack;
  w->flow.start = w->flow.got = w->s.seq;
  w->flow.unread_since = is_lenient(&sc) ? unread_time() : 0;
  w->began = (struct http_head){};
  if (w->flow.protocol == PROTOCOL_TLS && (w->flow.flags & FLOW_NEW || w->socket.silent))
    w->flow.flags |= FLOW_HEAD; /* its ClientHello is to be read */
  int step = read_request(skb, w, w->s.seq);
  if (step == HTTP_LOST && !is_strict(sc.config, sc.room))
    return let_pass(REASON_UNKNOWN_FLOW);
  if (is_brief(w, step)) {
    int verdict = begin_brief(w);
    if (verdict != STEP_FIRST_REQUEST)
      return verdict;
  }
  /* Until it is decided on, the request has not been seen: it may come again meanwhile. */
  __u32 next = w->flow.next, body = w->flow.body;
  w->flow.next = w->flow.body = w->next = w->s.seq;
  w->flow.reply = (struct http_answer){.state = ANSWER_ENDS, .read = w->s.ack};
  bool failed = !put_flow(skb, w, lacks_flows(sc.room, sc.pool, sc.config)) && !put_flow(skb, w, 1);
  w->flow.next = next;
  w->flow.body = body;
  w->flow.reply.state = ANSWER_HEAD;
  sc.flow = find_by_key(&flows, &w->key);
  if (!failed && sc.flow)
    return on_request(skb, &sc, step);
  if (sc.flow)
    return is_lenient(&sc) ? TCX_NEXT : drop(REASON_RACE);
  note_rejection(sc.room, w, REJECT_NO_FLOW, is_lenient(&sc));
  return is_lenient(&sc) ? TCX_NEXT : reject_request(skb, w, w->s.seq);
}

/* From where on a text goes to the client of a segment. What it sends again, or acknowledges again while more
 * was sent, says that something was lost: all is sent again from there, a segment at first. */
static __always_inline __u32 go_on_from(struct farewell *f, const struct segment *s) {
  __u32 end = end_of(s), got = s->ack;
  bool lost = f->reset || end != s->seq ? is_short(f) || !before(f->spoken, end)
                                        : f->heard == got && !f->repeated && before(got, f->sent);
  if (before(f->spoken, end))
    f->spoken = end;
  if (lost) {
    f->base = got - MAX_PIECE;
    f->heard = f->sent = got;
    f->repeated = 1;
    f->kept -= end != s->seq && f->kept > 1;
  } else if (before(f->heard, got)) {
    f->heard = got;
    f->repeated = 0;
  }
  return before(f->sent, got) ? got : f->sent;
}

/* The farewell that a segment belongs to; NULL: there is none, or it is of another connection. */
static __always_inline struct farewell *find_farewell(const struct work *w) {
  struct farewell *f = find_by_key(&farewells, &w->key);
  return f && !(w->s.flags & TCP_ACK && w->s.ack - f->seq > f->end - f->seq) ? f : NULL;
}

/* A client of a connection that we ended has not heard of it yet, or not of all, or says good-bye. The stack
 * may have to hear of it again, too. */
__noinline int answer_closed(struct __sk_buff *skb, struct work *w, __u32 stack) {
  struct farewell *f = w ? find_farewell(w) : NULL;
  if (!w || !f)
    return TCX_NEXT;
  if (!checksum_holds(skb, w))
    return drop(REASON_CHECKSUM);
  if (w->s.flags & TCP_RST) {
    if (w->s.seq + 1 - f->spoken <= 2 * MAX_SLOT_SIZE) /* else it is forged */
      delete_by_key(&farewells, &w->key);
    return drop(REASON_FAREWELL);
  }
  count_reason(REASON_FAREWELL, true, false);
  bool says = end_of(&w->s) != w->s.seq, ends = w->s.ack == f->end;
  if (!says && !f->reset && (ends || is_short(f)))
    return TCX_DROP;
  __u32 from = go_on_from(f, &w->s);
  plan_flight(f, from, w->s.ack, edge_of(skb, f, w->s.l4, w->s.ack));
  if (!says && !f->reset && f->sent == from)
    return TCX_DROP;
  w->farewell = *f;
  struct rejected *r = note_rejected(skb, w);
  if (stack && reset_stack(skb, w))
    return TCX_DROP;
  struct emission *e = &w->emission;
  set_acknowledgement(e, r);
  e->seq = from;
  e->text = w->farewell.text + (from - w->farewell.seq);
  return send_flight(skb, w, skb->ifindex);
}

/* A client ends a connection on which it has not asked for anything: the server need not
 * hear of it. */
static __always_inline int on_empty_close(struct __sk_buff *skb, struct work *w) {
  if (!checksum_holds(skb, w))
    return drop(REASON_CHECKSUM);
  count_reason(REASON_HANDSHAKE, true, false);
  return close_connection(skb, w);
}

/* A reset of a connection whose request was released, and which the stack has not made a socket of: it
 * dropped the request, and its client does not send it again. There is no socket whose end would say so. */
__noinline int on_early_reset(struct __sk_buff *skb, struct work *w, struct flow *f) {
  if (!w || !f)
    return TCX_NEXT;
  w->flow = *f;
  w->now = bpf_ktime_get_ns();
  find_socket(skb, &w->key, &w->socket);
  if (!is_opening(&w->socket, &w->flow))
    return TCX_NEXT;
  if (w->s.seq != (w->socket.state == BPF_TCP_LISTEN ? w->flow.start : w->socket.sequence))
    return drop(REASON_FORGED);
  if (w->now - w->flow.since < ON_ITS_WAY) /* it may have come right behind: a socket is made of it still */
    return drop(REASON_RACE);
  if (!checksum_holds(skb, w))
    return drop(REASON_CHECKSUM);
  delete_flow(&w->key, f, &w->flow, w->flow.id, w->now);
  return TCX_NEXT;
}

/* An acknowledgement on a connection whose request was let in and has not been answered. If the stack has not
 * made a socket of it, the request is what it is to make one of. */
__noinline int on_early_ack(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct scene sc;
  if (!w || !f)
    return TCX_NEXT;
  w->flow = *f;
  if (!open_flow_scene(&sc, w, f) || is_lenient(&sc))
    return TCX_NEXT;
  find_socket(skb, &w->key, &w->socket);
  if (!is_opening(&w->socket, &w->flow))
    return TCX_NEXT;
  bool is_request = w->flow.protocol == PROTOCOL_TCP && w->flow.next == w->flow.start;
  return is_request && note_moves(&sc) ? TCX_NEXT : drop(REASON_HANDSHAKE);
}

/* Whether a client that has not asked for anything may have its connection. While nothing is known of the
 * server only as long as it takes what is there: else such connections are all that it has to accept. */
static __always_inline bool may_open(const struct scene *sc, const struct endpoint *sock) {
  if (sc->config->shadow || !(sc->room->control.marks & CONTROL_PROVISIONAL) || !sock->queued)
    return true;
  return sc->w->s.flags & (TCP_FIN | TCP_RST) || !is_steered(sc->room, bpf_ktime_get_ns());
}

/* A segment for a connection that the server does not know of. */
static __always_inline int on_half_open(struct __sk_buff *skb, struct scene *sc, const struct endpoint *sock,
                                        bool cookie) {
  struct work *w = sc->w;
  const struct segment *s = &w->s;
  bool begins = s->length || (w->flow.protocol == PROTOCOL_TCP && !(s->flags & (TCP_FIN | TCP_RST)));
  if (is_lenient(sc) && !begins)
    return may_open(sc, sock) ? TCX_NEXT : drop(REASON_HANDSHAKE);
  if (is_lenient(sc))
    return STEP_FIRST_REQUEST;
  if (s->flags & TCP_RST)
    return TCX_NEXT;
  /* Of a connection with a cookie no socket tells that it was ended. */
  if (cookie || s->seq != sock->sequence || s->ack != sock->answer) {
    int verdict = answer_closed(skb, w, 0);
    if (verdict != TCX_NEXT || !cookie)
      return verdict == TCX_NEXT ? drop(REASON_FORGED) : verdict;
  }
  w->flow.flags |= FLOW_NEW | (cookie ? FLOW_COOKIE : 0);
  w->crowded = sock->crowded;
  if (begins)
    return is_outdated(skb, w) ? drop(REASON_OUTDATED) : STEP_FIRST_REQUEST;
  w->flow.sent = s->ack;
  return s->flags & TCP_FIN ? on_empty_close(skb, w) : drop(REASON_HANDSHAKE);
}

/* Whether the connection was ended here, and the stack has not heard of it: the reset is behind this packet,
 * or was lost. A farewell of another connection between the same ports is of other numbers. */
static __always_inline bool was_closed(const struct work *w, const struct endpoint *sock) {
  const struct farewell *f = find_by_key(&farewells, &w->key);
  return f && f->client - sock->sequence <= 2 * MAX_SLOT_SIZE;
}

/* Whether the bytes may begin a request. Where they need not be the beginning of anything, a part of a line
 * does not tell. */
static __always_inline bool looks_like_request(struct __sk_buff *skb, struct work *w, bool begins) {
  w->flow.head = (struct http_head){};
  int step = follow(skb, w, w->s.data, w->s.length);
  bool looks = step == HTTP_END || (step == HTTP_MORE && (begins || http_past_line(&w->flow.head)));
  w->flow.head = (struct http_head){};
  return looks;
}

/* For how long after nothing was held back what cannot be followed passes, 2^20 ns. */
#define UNREAD_GRACE 2000

/* Whether a connection that is not followed any more may go on: between two requests, or where its client had
 * begun to say something. */
static __always_inline bool may_go_on(const struct scene *sc) {
  __u32 unread_since = sc->flow->unread_since;
  if (!unread_since)
    return false;
  return sc->w->flow.state == FLOW_IDLE || unread_time() - unread_since < UNREAD_GRACE;
}

/* Of a connection it is not known any more where its next request begins: it is ended. If bytes have passed
 * while nothing was held back, it goes on as one that is older than the gate. */
__noinline int on_unfollowed(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct scene sc;
  if (!w || !open_flow_scene(&sc, w, f))
    return TCX_NEXT;
  bool lenient = is_lenient(&sc);
  if (!lenient && !may_go_on(&sc))
    return close_checked(skb, w, REASON_UNFOLLOWED);
  if (!checksum_holds(skb, w))
    return lenient ? TCX_NEXT : drop(REASON_CHECKSUM);
  if (!delete_flow(&w->key, sc.flow, &w->flow, w->flow.id, bpf_ktime_get_ns()))
    return lenient ? TCX_NEXT : drop(REASON_RACE);
  return STEP_UNTRACKED;
}

/* What the client of a connection that is older than the gate says when it spoke last: its request began
 * before, and is with the server. It counts as one, whatever the limit, and all belongs to it until the
 * server answers. One byte before what comes is taken for what was read of it, as in leave_behind(). */
__noinline int on_underway(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  if (!w || !open_scene(&sc, w->flow.room))
    return TCX_NEXT;
  struct flow *f = &w->flow;
  w->now = bpf_ktime_get_ns();
  f->id = f->since = w->now;
  f->ifindex = skb->ifindex;
  f->flags |= FLOW_LOST;
  f->body = f->got = w->socket.sequence;
  f->start = f->body - 1;
  f->next = w->s.seq == f->body ? f->body + w->s.length : f->body;
  f->answer = f->sent = w->socket.answer;
  f->unread_since = unread_time();
  if (!put_flow(skb, w, lacks_flows(sc.room, sc.pool, sc.config)) && !put_flow(skb, w, 1))
    return let_pass(REASON_UNKNOWN_FLOW);
  f = find_by_key(&flows, &w->key);
  if (!f)
    return TCX_NEXT;
  lock_current(&sc, w->flow.room, w->now);
  if (f->id == w->flow.id && f->state == FLOW_IDLE) {
    struct class_room *c = class_of(sc.room, f->class);
    c->arrived++;
    c->admitted++;
    f->state = FLOW_SERVED;
    f->epoch = enter(sc.room, f->class);
  }
  bpf_spin_unlock(&sc.room->lock);
  return TCX_NEXT;
}

/* The stack has bytes beyond those that come, and nobody knows what they say: the connection is ended. */
__noinline int on_hidden(struct __sk_buff *skb, struct work *w) {
  if (!w || !checksum_holds(skb, w))
    return drop(REASON_CHECKSUM);
  count_reason(REASON_UNFOLLOWED, true, false);
  w->flow.sent = w->socket.written;
  return close_connection(skb, w);
}

/* Bytes that the stack has not got, of a connection that is older than the gate, where nothing passes that is
 * not decided on. Where the server spoke last a request begins. */
static __always_inline int on_stranger(struct __sk_buff *skb, struct work *w, const struct endpoint *sock) {
  bool http = w->flow.protocol == PROTOCOL_HTTP;
  if (before(sock->written, w->s.ack))
    return drop(REASON_FORGED);
  if (http && sock->owes)
    return STEP_UNDERWAY;
  if (before(w->s.seq, sock->sequence))
    return pass_until(skb, w, sock->sequence);
  if (w->s.seq != sock->sequence)
    return drop(REASON_GAP);
  if (sock->gap)
    return on_hidden(skb, w);
  return http && before(w->s.ack, sock->written) ? drop(REASON_PIPELINED) : STEP_FIRST_REQUEST;
}

/* A segment of an established connection that is not in the table: it is older than the
 * gate, or than its limit. */
static __always_inline int on_established(struct __sk_buff *skb, struct scene *sc,
                                          const struct endpoint *sock) {
  struct work *w = sc->w;
  if (!w->s.length || w->s.flags & TCP_RST)
    return TCX_NEXT;
  if (sock->ending) /* a flow of it would have no end */
    return is_lenient(sc) ? TCX_NEXT : drop(REASON_RACE);
  if (was_closed(w, sock))
    return answer_closed(skb, w, 1) == TCX_REDIRECT ? TCX_REDIRECT : TCX_DROP;
  if (!is_lenient(sc) && is_parked(skb, w))
    return on_parked(skb, w);
  if (!before(sock->sequence, w->s.seq + w->s.length))
    return TCX_NEXT;
  if (is_outdated(skb, w))
    return TCX_NEXT; /* and drops it */
  if (!is_lenient(sc))
    return on_stranger(skb, w, sock);
  if (w->s.seq != sock->sequence)
    return TCX_NEXT;
  bool taken = w->flow.protocol != PROTOCOL_HTTP || looks_like_request(skb, w, !sock->owes);
  return taken ? STEP_FIRST_REQUEST : let_pass(REASON_UNKNOWN_FLOW);
}

/* A segment of a connection that the stack does not know: it was ended, or a rule of the machine has another
 * port in place of the one it came for. */
static __always_inline int on_closed(struct __sk_buff *skb, struct work *w, int state) {
  int verdict = answer_closed(skb, w, 0);
  return verdict == TCX_NEXT && state == 0 && w->s.length ? let_pass(REASON_NO_SOCKET) : verdict;
}

/* A segment of no flow in the table. */
__noinline int on_untracked(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  if (!w)
    return TCX_NEXT;
  sc.w = w;
  w->flow = (struct flow){};
  if (!may_connect(skb, w))
    return TCX_DROP;
  if (!classify(skb, w) || !open_scene(&sc, w->flow.room))
    return TCX_NEXT;
  int state = find_socket(skb, &w->key, &w->socket);
  if (state == BPF_TCP_ESTABLISHED)
    w->flow.flags &= ~FLOW_PROXIED; /* its header has gone by */
  if (state == BPF_TCP_NEW_SYN_RECV)
    return on_half_open(skb, &sc, &w->socket, false);
  if (state == BPF_TCP_LISTEN && is_cookie(skb, w))
    return on_half_open(skb, &sc, &w->socket, true);
  if (state == 0 || state == BPF_TCP_LISTEN)
    return on_closed(skb, w, state);
  if (state == BPF_TCP_ESTABLISHED || state == BPF_TCP_CLOSE_WAIT)
    return on_established(skb, &sc, &w->socket);
  return TCX_NEXT;
}
