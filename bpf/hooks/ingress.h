/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The gate where segments come in (tcx): finds where requests begin, and lets them pass,
 * holds them or rejects them. */
#pragma once
#include "../lib/admit.h"
#include "../lib/socket.h"

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

static __always_inline int drop(__u32 reason) {
  count_reason(reason, true, false);
  return TCX_DROP;
}

static __always_inline int let_pass(__u32 reason) {
  count_reason(reason, false, false);
  return TCX_NEXT;
}

/* What a rejection of the packet's own request needs to know. */
static __always_inline struct rejected *note_rejected(struct __sk_buff *skb, struct work *w) {
  struct rejected *r = &w->rejected;
  r->key = w->key;
  r->l3 = w->s.l3;
  r->seq = w->s.seq;
  r->end = end_of(&w->s);
  r->ack = w->s.ack;
  r->ifindex = skb->ifindex;
  r->room = w->flow.room;
  r->silent = 0;
  r->no_peer = !!(w->flow.flags & FLOW_COOKIE);
  if (!read_timestamps(skb, &w->s, &r->times))
    r->times.option = 0;
  return r;
}

/* Answers the packet's request as rejected. */
static __always_inline int reject(struct __sk_buff *skb, const struct scene *sc) {
  note_rejected(skb, sc->w);
  return answer(skb, sc->w, sc->config->answer_length);
}

/* Ends a connection without an answer: as a server closes an idle one. */
static __always_inline int hang_up(struct __sk_buff *skb, struct work *w) {
  note_rejected(skb, w)->silent = 1;
  return answer(skb, w, 0);
}

/* Fills in what the policy says of the flow's source. False: it goes by the waiting room. */
static __always_inline bool classify(struct scene *sc, const struct service *service, struct work *w) {
  const struct rule *rule = find_rule(&sc->im, service, &w->s.p);
  if (sc->im.fault || (rule && rule->action == ACTION_PASS))
    return false;
  const struct room_config *c = sc->config;
  struct flow *f = &w->flow;
  __u32 rank = rule && rule->class != NO_CLASS ? rule->class : c->default_rank;
  const struct rank *k = &c->rank[rank & (MAX_RANKS - 1)];
  f->rank = rank & (MAX_RANKS - 1);
  f->class = k->class;
  f->socket_priority = k->socket_priority;
  f->mark = c->mark ? c->mark + rank : 0;
  f->ends = c->ends;
  f->room = service->slot;
  f->generation = sc->header->generation;
  return true;
}

/* The service that the packet is for, if it has a waiting room here. */
static __always_inline const struct service *gate_service(struct scene *sc, struct work *w, __u32 ifindex) {
  const struct service *s = find_service(&sc->im, sc->header, &w->s.p);
  if (!s || !s->gate || !on_interface(s, ifindex) || for_upper(sc->header, &w->s.p, ifindex))
    return NULL;
  return set_scene(sc, s->slot) ? s : NULL;
}

/* What remains of a request when admit() has decided. */
static __always_inline int settle(struct __sk_buff *skb, struct scene *sc, int fate) {
  struct work *w = sc->w;
  bool fresh = w->flow.flags & FLOW_NEW;
  if (fate == FATE_PASS || (fate == FATE_LOST && is_lenient(sc)))
    return TCX_NEXT;
  if (fate == FATE_REJECT || (fate == FATE_LOST && fresh))
    delete_flow(&w->key, sc->flow, w->flow.id, w->now);
  if (fate == FATE_REJECT)
    return reject(skb, sc);
  /* The request has to wait, but what its segment acknowledges must not. */
  return fate == FATE_LOST || fresh || cut(skb, w, 0) ? TCX_DROP : TCX_NEXT;
}

/* Passes a segment up to where the next request begins. */
static __always_inline int pass_until(struct __sk_buff *skb, struct work *w, __u32 next) {
  return cut(skb, w, next - w->s.seq) ? drop(REASON_CHECKSUM) : let_pass(REASON_CUT);
}

/* Whether the segment goes on behind the end of its request: that is cut off, and sent again
 * by the client when its turn may have come. */
static __always_inline bool exceeds(const struct work *w) {
  return !(w->flow.flags & (FLOW_HEAD | FLOW_LOST)) && before(w->flow.next, w->s.seq + w->s.length);
}

/* The request of w->flow, which is in the table, begins with this segment. */
static __always_inline int on_request(struct __sk_buff *skb, struct scene *sc) {
  struct work *w = sc->w;
  w->keep = exceeds(w) ? w->flow.next - w->s.seq : w->s.length;
  int fate = admit(skb, sc);
  if (fate == FATE_PASS && w->keep < w->s.length && !is_lenient(sc))
    return pass_until(skb, w, w->s.seq + w->keep);
  return settle(skb, sc, fate);
}

/* Verdicts of functions that have found out what a segment is: decide_segment() goes on with
 * the function of that name, for calls within calls take stack. */
#define ON_FIRST_REQUEST 101
#define ON_IDLE 102
#define ON_SERVED 103

/* The first request of a connection. */
__noinline int on_first_request(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  if (!w)
    return TCX_NEXT;
  sc.w = w;
  sc.header = open_image(&sc.im);
  if (!sc.header || !set_scene(&sc, w->flow.room))
    return TCX_NEXT;
  w->now = bpf_ktime_get_ns();
  w->flow.id = w->now;
  w->flow.answer = w->flow.sent = w->s.ack;
  w->flow.start = w->s.seq;
  int step = read_request(skb, w, w->s.seq);
  if (step == HTTP_LOST && !sc.config->strict)
    return let_pass(REASON_UNKNOWN_FLOW);
  /* Until it is decided on, the request has not been seen: it may come again meanwhile. */
  __u32 next = w->flow.next;
  w->flow.next = w->s.seq;
  long failed = bpf_map_update_elem(&flows, &w->key, &w->flow, BPF_NOEXIST);
  w->flow.next = next;
  sc.flow = bpf_map_lookup_elem(&flows, &w->key);
  if (!failed && sc.flow)
    return on_request(skb, &sc);
  if (sc.flow)
    return is_lenient(&sc) ? TCX_NEXT : drop(REASON_RACE);
  count_rejected(sc.room, w->flow.class, REJECT_NO_FLOW);
  return is_lenient(&sc) ? TCX_NEXT : reject(skb, &sc);
}

/* A client of a connection that was rejected has not heard of it yet, or says good-bye. */
__noinline int see_off(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return TCX_NEXT;
  struct farewell *f = bpf_map_lookup_elem(&farewells, &w->key);
  if (!f)
    return TCX_NEXT;
  if (w->s.flags & TCP_RST) {
    bpf_map_delete_elem(&farewells, &w->key);
    return drop(REASON_FAREWELL);
  }
  if (end_of(&w->s) == w->s.seq)
    return drop(REASON_FAREWELL);
  count_reason(REASON_FAREWELL, true, false);
  w->flow.room = f->room;
  const struct rejected *r = note_rejected(skb, w);
  struct emission *e = &w->emission;
  set_answer(e, r, 0);
  e->flags = TCP_ACK;
  e->seq = f->end;
  if (r->end == f->client) { /* the request again: our answer was lost */
    e->flags |= TCP_FIN;
    e->seq = f->seq;
    e->length = f->end - f->seq - 1;
  }
  return emit(skb, w, f->room) ? TCX_DROP : send_out(w, skb->ifindex, 0);
}

/* A client ends a connection on which it has not asked for anything: the server need not
 * hear of it. */
static __always_inline int on_empty_close(struct __sk_buff *skb, struct work *w) {
  count_reason(REASON_HANDSHAKE, true, false);
  return hang_up(skb, w);
}

/* A segment for a connection that the server does not know of. */
static __always_inline int on_embryo(struct __sk_buff *skb, struct scene *sc, const struct endpoint *sock,
                                     bool cookie) {
  struct work *w = sc->w;
  const struct segment *s = &w->s;
  if (is_lenient(sc))
    return s->length ? ON_FIRST_REQUEST : TCX_NEXT;
  if (s->flags & TCP_RST)
    return TCX_NEXT;
  if (!cookie && (s->seq != sock->sequence || s->ack != sock->answer)) {
    int verdict = see_off(skb, w);
    return verdict == TCX_NEXT ? drop(REASON_FORGED) : verdict;
  }
  w->flow.flags = FLOW_NEW | (cookie ? FLOW_COOKIE : 0);
  if (s->length)
    return ON_FIRST_REQUEST;
  return s->flags & TCP_FIN ? on_empty_close(skb, w) : drop(REASON_HANDSHAKE);
}

/* A segment of an established connection that is not in the table: it is older than the
 * gate, or than its limit. What looks like a request is taken for one. */
static __always_inline int on_stranger(struct __sk_buff *skb, struct work *w, const struct endpoint *sock) {
  if (!w->s.length || w->s.seq != sock->sequence)
    return TCX_NEXT;
  int step = follow(skb, w, w->s.data, w->s.length);
  w->flow.head = (struct http_head){};
  if (step == HTTP_LOST)
    return let_pass(REASON_UNKNOWN_FLOW);
  return ON_FIRST_REQUEST;
}

/* A segment of no flow in the table. */
__noinline int on_unknown(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  struct endpoint sock;
  if (!w)
    return TCX_NEXT;
  sc.w = w;
  sc.header = open_image(&sc.im);
  if (!sc.header)
    return TCX_NEXT;
  w->flow = (struct flow){};
  const struct service *service = gate_service(&sc, w, skb->ifindex);
  if (!service || !classify(&sc, service, w))
    return TCX_NEXT;
  int state = find_socket(skb, &w->key, &sock);
  if (state == BPF_TCP_NEW_SYN_RECV)
    return on_embryo(skb, &sc, &sock, false);
  if (state == BPF_TCP_LISTEN && is_cookie(skb, w))
    return on_embryo(skb, &sc, &sock, true);
  if (state == 0 || state == BPF_TCP_LISTEN)
    return see_off(skb, w);
  if (state == BPF_TCP_ESTABLISHED || state == BPF_TCP_CLOSE_WAIT)
    return on_stranger(skb, w, &sock);
  return TCX_NEXT;
}

/* A segment whose client gives a held request up, by FIN or RST. */
__noinline int on_gave_up(struct __sk_buff *skb, struct work *w) {
  struct flow *f = w ? bpf_map_lookup_elem(&flows, &w->key) : NULL;
  struct slot *slot = f ? slot_of(w->flow.node) : NULL;
  if (!slot)
    return TCX_DROP;
  struct rejected *r = note_rejected(skb, w);
  r->seq = slot->sequence;
  delete_flow(&w->key, f, w->flow.id, bpf_ktime_get_ns());
  if (!(w->s.flags & TCP_RST)) {
    r->silent = 1;
    return answer(skb, w, 0);
  }
  set_reset(&w->emission, r);
  return emit(skb, w, r->room) ? TCX_DROP : TCX_NEXT;
}

/* Claims a held request's slot, so that it stays where it is. */
static __always_inline bool claim(struct scene *sc) {
  struct work *w = sc->w;
  struct flow *f = sc->flow;
  bool mine = false;
  bpf_spin_lock(&sc->room->lock);
  if (f->id == w->flow.id && f->state == FLOW_HELD && f->node == w->flow.node) {
    struct node_link *l = link_of(sc->pool, f->node);
    mine = l->state == NODE_WAITING && !l->busy;
    if (mine)
      l->busy = 1;
  }
  bpf_spin_unlock(&sc->room->lock);
  return mine;
}

static __always_inline void unclaim(struct scene *sc) {
  bpf_spin_lock(&sc->room->lock);
  link_of(sc->pool, sc->w->flow.node)->busy = 0;
  bpf_spin_unlock(&sc->room->lock);
}

/* Adds the next bytes of a held request to its slot. */
static __always_inline void extend(struct __sk_buff *skb, struct scene *sc, struct slot *slot) {
  struct work *w = sc->w;
  struct flow *f = sc->flow;
  __u32 length = slot->length, extended = append_data(skb, w, w->flow.node);
  if ((int)extended <= (int)length)
    return;
  w->s.length = extended - length;
  if (w->flow.flags & FLOW_HEAD)
    read_request(skb, w, w->s.seq);
  else if (w->flow.flags & FLOW_LOST)
    w->flow.next = w->s.seq + w->s.length;
  if (exceeds(w))
    extended -= w->s.seq + w->s.length - w->flow.next;
  bpf_spin_lock(&sc->room->lock);
  if (f->id == w->flow.id && f->state == FLOW_HELD) {
    note_request(f, &w->flow);
    slot->length = extended;
  }
  bpf_spin_unlock(&sc->room->lock);
}

/* Whether the segment's data are the next of the request, and of nothing beyond it. */
static __always_inline bool continues(const struct work *w, __u32 end) {
  const struct segment *s = &w->s;
  if (!s->length || s->seq != end)
    return false;
  return w->flow.flags & (FLOW_HEAD | FLOW_LOST) || !before(w->flow.next, s->seq + s->length);
}

/* A further segment while the flow's request waits. */
__noinline int on_held(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  if (!w || !set_flow_scene(&sc, w))
    return TCX_DROP;
  const struct segment *s = &w->s;
  struct slot *slot = slot_of(w->flow.node);
  if (!slot)
    return TCX_DROP;
  __u32 begin = slot->sequence, end = begin + slot->length - slot->data;
  if (s->flags & TCP_RST)
    return s->seq == end || s->seq == begin ? on_gave_up(skb, w) : drop(REASON_FORGED);
  if (s->flags & TCP_FIN && s->seq == end && !s->length)
    return on_gave_up(skb, w);
  if (claim(&sc)) {
    if (s->seq == begin || s->seq == end)
      refresh_slot(skb, w, w->flow.node);
    if (continues(w, end)) /* what does not will be sent again */
      extend(skb, &sc, slot);
    unclaim(&sc);
  }
  if (!(w->flow.flags & FLOW_NEW) && !s->length)
    return TCX_NEXT; /* acknowledges the answer before */
  return drop(REASON_HELD);
}

/* Makes what w->flow says of the request in service the flow's, if nothing has changed. */
static __always_inline bool note_served(struct scene *sc, __u32 next) {
  struct flow *f = sc->flow;
  bpf_spin_lock(&sc->room->lock);
  bool mine = f->id == sc->w->flow.id && f->state == FLOW_SERVED && f->next == next;
  if (mine)
    note_request(f, &sc->w->flow);
  bpf_spin_unlock(&sc->room->lock);
  return mine;
}

/* Bytes behind those that are known of the request in service. */
__noinline int on_served(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  if (!w || !set_flow_scene(&sc, w))
    return TCX_NEXT;
  __u32 end = w->s.seq + w->s.length, next = w->flow.next;
  bool gap = before(next, w->s.seq), lenient = is_lenient(&sc);
  if (is_forgotten(sc.room, w->flow.epoch))
    return ON_IDLE;
  if (w->flow.flags & FLOW_HEAD && !gap) {
    read_request(skb, w, next);
  } else if (lenient || (w->flow.flags & FLOW_LOST && !gap)) {
    w->flow.flags = (w->flow.flags & ~FLOW_HEAD) | FLOW_LOST;
    w->flow.next = end;
  } else if (w->flow.flags & (FLOW_HEAD | FLOW_LOST)) {
    return drop(REASON_GAP);
  } else {
    return before(w->s.seq, next) ? pass_until(skb, w, next) : drop(REASON_PIPELINED);
  }
  if (lenient) {
    note_served(&sc, next);
    return TCX_NEXT;
  }
  if (!note_served(&sc, next))
    return drop(REASON_RACE);
  return exceeds(w) ? pass_until(skb, w, w->flow.next) : TCX_NEXT;
}

/* Ends a connection whose client says another thing than before: what the server has got
 * of it is not what was read. */
static __always_inline int on_contradiction(struct __sk_buff *skb, struct scene *sc) {
  struct work *w = sc->w;
  count_reason(REASON_FORGED, true, false);
  delete_flow(&w->key, sc->flow, w->flow.id, bpf_ktime_get_ns());
  return hang_up(skb, w);
}

/* Bytes of the head of the request in service, again. If the stack has not got them before,
 * for whatever reason, these are what the server will read, and must say the same. */
__noinline int on_again(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  struct endpoint sock;
  if (!w || !set_flow_scene(&sc, w) || is_lenient(&sc))
    return TCX_NEXT;
  find_socket(skb, &w->key, &sock);
  __u32 end = w->s.seq + w->s.length, next = w->flow.next, start = w->flow.start;
  __u32 has = sock.state == BPF_TCP_LISTEN ? start : sock.sequence;
  __u32 read = before(end, w->flow.body) ? end : w->flow.body;
  if (!before(has, read))
    return before(next, end) ? ON_SERVED : TCX_NEXT;
  if (w->s.seq != start || has != start)
    return drop(REASON_FORGED);
  bool whole = !(w->flow.flags & (FLOW_HEAD | FLOW_LOST));
  w->flow.head = (struct http_head){};
  read_request(skb, w, start);
  if (whole && w->flow.flags & FLOW_HEAD)
    return drop(REASON_FORGED); /* less than before */
  if (whole && w->flow.next != next)
    return on_contradiction(skb, &sc);
  if (!note_served(&sc, next))
    return drop(REASON_RACE);
  return exceeds(w) ? pass_until(skb, w, w->flow.next) : TCX_NEXT;
}

/* A request on a connection that cannot be followed. */
static __always_inline int on_unfollowed(struct __sk_buff *skb, struct scene *sc) {
  struct work *w = sc->w;
  if (is_lenient(sc))
    return TCX_NEXT;
  count_reason(REASON_UNFOLLOWED, true, false);
  delete_flow(&w->key, sc->flow, w->flow.id, bpf_ktime_get_ns());
  return hang_up(skb, w);
}

/* Makes the flow's class what the policy in force says. False: it goes by the waiting room
 * now. */
static __always_inline bool reclassify(struct __sk_buff *skb, struct scene *sc) {
  struct work *w = sc->w;
  if (w->flow.generation == sc->header->generation)
    return true;
  const struct service *service = gate_service(sc, w, skb->ifindex);
  return service && classify(sc, service, w);
}

/* Whether the stack has sent what the segment does not acknowledge. flow.sent says so, which
 * is written without a lock: the socket knows. */
static __always_inline bool is_behind(struct __sk_buff *skb, struct work *w) {
  struct endpoint sock;
  find_socket(skb, &w->key, &sock);
  return before(w->s.ack, sock.answer);
}

/* Bytes behind those of the last request, which is over: the next one begins. */
__noinline int on_idle(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  if (!w || !set_flow_scene(&sc, w))
    return TCX_NEXT;
  __u32 next = w->flow.next, seq = w->s.seq;
  if (!reclassify(skb, &sc)) {
    delete_flow(&w->key, sc.flow, w->flow.id, bpf_ktime_get_ns());
    return TCX_NEXT;
  }
  if (w->flow.flags & (FLOW_LOST | FLOW_HEAD))
    return on_unfollowed(skb, &sc);
  if (seq != next && is_lenient(&sc))
    return TCX_NEXT;
  if (seq != next)
    return before(next, seq) ? drop(REASON_GAP) : pass_until(skb, w, next);
  /* Who asks before he has the answer to what he asked before has to ask again: a rejection
   * could not be told from that answer. */
  if (before(w->s.ack, w->flow.sent) && !is_lenient(&sc) && is_behind(skb, w))
    return drop(REASON_PIPELINED);
  w->now = bpf_ktime_get_ns();
  w->flow.flags = 0;
  w->flow.head = (struct http_head){};
  w->flow.answer = w->s.ack;
  w->flow.start = seq;
  read_request(skb, w, seq);
  return on_request(skb, &sc);
}

/* A segment of a flow in the table, which w->flow is a copy of. */
static __always_inline int on_flow(struct __sk_buff *skb, struct work *w) {
  const struct flow *f = &w->flow;
  __u32 end = w->s.seq + w->s.length;
  if (!f->id || f->flags & FLOW_TUNNEL)
    return TCX_NEXT;
  if (f->state == FLOW_HELD)
    return on_held(skb, w);
  if (!w->s.length)
    return TCX_NEXT;
  int verdict = before(f->next, end) ? ON_SERVED : TCX_NEXT;
  if (f->state == FLOW_SERVED && before(w->s.seq, f->body) && before(f->start, end))
    verdict = on_again(skb, w);
  if (f->state == FLOW_SERVED && verdict == ON_SERVED)
    verdict = on_served(skb, w);
  if (verdict == ON_IDLE || verdict == ON_SERVED)
    verdict = on_idle(skb, w);
  return verdict;
}

/* Takes options out of a SYN that would open ways past the gate: a second subflow (MPTCP,
 * RFC 8684), a connection that is established at once (TFO, RFC 7413). */
#define OPTION_FAST_OPEN 34
#define OPTION_MPTCP 30
#define MAX_OPTIONS 40

/* TFO from before it had a number of its own (RFC 6994), which the kernel still takes. */
#define OPTION_EXPERIMENT 254
#define EXPERIMENT_FAST_OPEN 0xf989

static __always_inline bool opens_ways(const __u8 *o, __u32 at) {
  __u8 kind = o[at];
  if (kind == OPTION_EXPERIMENT && at + 3 < MAX_OPTIONS)
    return (o[at + 2] << 8 | o[at + 3]) == EXPERIMENT_FAST_OPEN;
  return kind == OPTION_MPTCP || kind == OPTION_FAST_OPEN;
}

static __always_inline bool strip_options(__u8 *o, __u32 size) {
  bool stripped = false;
  __u32 at = 0, strip = 0;
  for (__u32 i = 0; i < MAX_OPTIONS; i++) {
    if (i >= size)
      break;
    if (i == at) {
      __u8 kind = o[i];
      if (kind == 0)
        break;
      __u32 length = kind == 1 ? 1 : i + 1 < MAX_OPTIONS ? o[i + 1] : 0;
      if (length == 0 || (length == 1 && kind != 1))
        break;
      at = i + length;
      strip = opens_ways(o, i);
    }
    if (strip) {
      o[i] = 1; /* no operation */
      stripped = true;
    }
  }
  return stripped;
}

__noinline int strip_syn(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return 0;
  __u8 options[MAX_OPTIONS] = {}, before_it[MAX_OPTIONS];
  __u32 at = w->s.l4 + sizeof(struct tcphdr), size = BOUND(w->s.data - at, MAX_OPTIONS);
  if (w->s.data <= at || !size || bpf_skb_load_bytes(skb, at, options, size))
    return 0;
  __builtin_memcpy(before_it, options, sizeof(options));
  if (!strip_options(options, size))
    return 0;
  __s64 diff = bpf_csum_diff((void *)before_it, MAX_OPTIONS, (void *)options, MAX_OPTIONS, 0);
  if (bpf_skb_store_bytes(skb, at, options, size, 0) || bpf_l4_csum_replace(skb, w->s.l4 + 16, 0, diff, 0))
    count_reason(REASON_CLONE_FAULT, false, false);
  return 0;
}

/* A new connection begins where the table may still have one whose end was missed. */
__noinline int forget_old(struct __sk_buff *skb, struct work *w) {
  struct endpoint sock;
  if (!w)
    return 0;
  struct flow *f = bpf_map_lookup_elem(&flows, &w->key);
  if (!f || f->state == FLOW_HELD)
    return 0;
  int state = find_socket(skb, &w->key, &sock);
  if (state == 0 || state == BPF_TCP_LISTEN || state == BPF_TCP_TIME_WAIT)
    delete_flow(&w->key, f, f->id, bpf_ktime_get_ns());
  return 0;
}

static __always_inline int on_syn(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  sc.header = open_image(&sc.im);
  if (!sc.header || !gate_service(&sc, w, skb->ifindex))
    return TCX_NEXT;
  forget_old(skb, w);
  if (!is_lenient(&sc))
    strip_syn(skb, w);
  return TCX_NEXT;
}

/* Decides on a segment to a port of the gate. */
__noinline int decide_segment(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return TCX_NEXT;
  incoming_key(&w->key, &w->s.p);
  if ((w->s.flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
    return on_syn(skb, w);
  struct flow *f = bpf_map_lookup_elem(&flows, &w->key);
  int verdict = TCX_NEXT;
  if (f && f->state != FLOW_HELD && !w->s.length) {
    w->flow.room = f->room; /* changes nothing */
  } else if (f) {
    w->flow = *f;
    verdict = on_flow(skb, w);
  } else {
    verdict = on_unknown(skb, w);
  }
  if (verdict == ON_FIRST_REQUEST)
    verdict = on_first_request(skb, w);
  struct room *r = room_of(w->flow.room);
  if (r && seems_due(r))
    attend(skb, w->flow.room);
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
