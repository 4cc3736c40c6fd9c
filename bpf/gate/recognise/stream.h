/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Segments of connections of which nothing is known but who speaks (tls, tcp). */
#pragma once
#include "gate/decide/turn.h"

/* The least bytes of a request, and of an answer, over TLS. Fewer are a WINDOW_UPDATE, SETTINGS or PING of
 * HTTP/2. */
#define LEAST_REQUEST 56
#define LEAST_ANSWER 128

/* How often the client has spoken, before its first request is all said: its hello, its Finished. */
#define HELLO_FLIGHTS 2

/* Whether what the client says, in a connection of tls in service, is likely to be another request: it has
 * all that the server has said, which may be an answer. */
static __always_inline bool asks_again(const struct work *w, const struct flow *f) {
  return f->ends != END_CLOSE && f->flights >= HELLO_FLIGHTS && w->s.length >= LEAST_REQUEST &&
         w->s.ack == w->socket.written && w->s.ack - f->answer >= LEAST_ANSWER;
}

/* The client speaks, after the server or again. Its connection leaves service, for another turn, if that is
 * another request while somebody waits. Under the lock. */
static __always_inline bool note_flight(struct scene *sc, struct flow *f, bool yields) {
  struct work *w = sc->w;
  if (!(f->flags & FLOW_ANSWERED))
    return true;
  f->flags &= ~FLOW_ANSWERED;
  bool again = yields && asks_again(w, f);
  f->answer = w->s.ack;
  f->flights += f->flights != 255;
  if (!again)
    return true;
  end_service(sc->room, sc->pool, f, w->now);
  w->flow.state = FLOW_IDLE;
  return false;
}

/* The client speaks: it is owed an answer. False: its connection is not in service any more. */
static __always_inline bool note_spoke(struct scene *sc) {
  struct flow *f = sc->flow;
  bool served = false, tls = sc->w->flow.protocol == PROTOCOL_TLS;
  bool yields = tls && is_waited_for(sc->room) && !is_lenient(sc);
  if (yields)
    sc->w->now = bpf_ktime_get_ns();
  bpf_spin_lock(&sc->room->lock);
  if (f->id == sc->w->flow.id && f->state == FLOW_SERVED && !is_forgotten(sc->room, f->epoch))
    served = note_flight(sc, f, yields);
  bpf_spin_unlock(&sc->room->lock);
  return served;
}

/* Whether the segment says again what was read of a ClientHello, of which the stack has nothing: it may name
 * another server now. If that is not on its way any more the connection begins anew. */
__noinline int is_hello_again(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  if (!w || !set_flow_scene(&sc, w) || is_lenient(&sc))
    return 0;
  find_socket(skb, &w->key, &w->socket);
  const struct endpoint *sock = &w->socket;
  bool cookie = sock->state == BPF_TCP_LISTEN && w->flow.flags & FLOW_COOKIE;
  bool mute = takes_data(sock) && sock->sequence == w->flow.start &&
              (sock->state == BPF_TCP_NEW_SYN_RECV || sock->silent);
  if (!cookie && !mute)
    return 0;
  w->now = bpf_ktime_get_ns();
  if (!(w->flow.flags & FLOW_ACKED) && (__s64)(w->now - w->flow.since) >= (__s64)ON_ITS_WAY &&
      checksum_holds(skb, w))
    delete_flow(&w->key, sc.flow, &w->flow, w->flow.id, w->now);
  return 1;
}

/* Data of a connection that does not wait. */
__noinline int on_stream(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct scene sc;
  if (!w || !open_flow_scene(&sc, w, f))
    return TCX_NEXT;
  __u32 seq = w->s.seq, end = seq + w->s.length;
  find_socket(skb, &w->key, &w->socket);
  __u32 has = w->socket.sequence;
  /* Only what the stack will take now counts; the rest is the stack's business, unless it
   * might be taken later, without a turn. */
  if (!takes_data(&w->socket) || !before(has, end))
    return TCX_NEXT;
  if (before(last_sent(w), w->s.ack) && !is_lenient(&sc))
    return drop(REASON_FORGED);
  bool served = w->flow.state == FLOW_SERVED && !is_forgotten(sc.room, w->flow.epoch);
  if (seq != has) {
    if (served || is_lenient(&sc))
      return TCX_NEXT;
    return before(has, seq) ? drop(REASON_GAP) : pass_until(skb, w, has);
  }
  if (served && note_spoke(&sc))
    return TCX_NEXT;
  if (!reclassify(skb, &sc)) {
    delete_flow(&w->key, sc.flow, &w->flow, w->flow.id, bpf_ktime_get_ns());
    return TCX_NEXT;
  }
  if (has_moved(&sc))
    return move(&sc);
  if (!is_lenient(&sc) && is_outdated(skb, w))
    return drop(REASON_OUTDATED);
  forget_slot(&sc);
  w->now = bpf_ktime_get_ns();
  w->flow.flags = FLOW_LOST | (w->socket.state == BPF_TCP_NEW_SYN_RECV ? FLOW_NEW : 0);
  w->flow.answer = w->s.ack;
  w->flow.start = seq;
  w->flow.next = w->flow.body = end;
  return STEP_TURN;
}
