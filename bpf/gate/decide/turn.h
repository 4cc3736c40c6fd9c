/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A request takes its turn: what becomes of the segment with which it begins or goes on. */
#pragma once
#include "gate/decide/closing.h"
#include "gate/decide/reject.h"
#include "gate/early.h"
#include "gate/outdated.h"
#include "policy/clients.h"

/* Whether the stack is still to make a socket of the flow's first request. */
static __always_inline bool is_opening(const struct endpoint *sock, const struct flow *f) {
  return sock->state == BPF_TCP_NEW_SYN_RECV || (sock->state == BPF_TCP_LISTEN && f->flags & FLOW_COOKIE);
}

/* Whether the segment acknowledges what the server has not sent: its client did not send it. */
static __always_inline bool is_ahead(struct __sk_buff *skb, struct work *w) {
  if (!before(w->flow.sent, w->s.ack))
    return false;
  find_socket(skb, &w->key, &w->socket);
  return takes_data(&w->socket) && before(last_sent(w), w->s.ack);
}

/* Puts the flow into the class of a rank. */
static __always_inline void set_rank(struct flow *f, const struct room_config *c, __u32 rank) {
  const struct rank *k = &c->rank[rank & (MAX_RANKS - 1)];
  f->rank = rank;
  f->class = k->class;
  f->socket_priority = k->socket_priority;
  f->mark = socket_mark(c, rank);
}

/* Whether the segment goes on to a device above that decides on it. */
static __always_inline bool goes_above(struct __sk_buff *skb, struct work *w, const struct header *h) {
  struct packet *p = &w->s.p;
  return h->uppers && !bpf_skb_load_bytes(skb, 0, p->mac, sizeof(p->mac)) && for_upper(h, p, skb->ifindex);
}

/* The service that the segment is for, if it has a waiting room here. */
static __always_inline const struct service *gate_service(struct __sk_buff *skb, struct image *im,
                                                          const struct header *h, struct work *w) {
  const struct service *s = find_service(im, h, &w->s.p);
  return s && s->gate && on_interface(s, skb->ifindex) && !goes_above(skb, w, h) ? s : NULL;
}

/* The same for who needs nothing but its slot; MAX_SERVICES: none. */
__noinline int gate_slot(struct __sk_buff *skb, struct work *w) {
  struct image im;
  const struct header *h = open_image(&im);
  const struct service *s = w && h ? gate_service(skb, &im, h, w) : NULL;
  return s ? s->slot : MAX_SERVICES;
}

/* Fills in what the policy in force says of w->flow's source. 0: it goes by the waiting room. Global, for the
 * look-ups in it are much to follow. */
__noinline int classify(struct __sk_buff *skb, struct work *w) {
  struct image im;
  const struct header *h = open_image(&im);
  const struct service *found = w && h ? gate_service(skb, &im, h, w) : NULL;
  if (!found)
    return 0;
  const struct service service = *found; /* one pointer less that differs to the verifier */
  const struct room_config *c = room_config(&im, h, service.slot);
  if (!c)
    return 0;
  const struct rule *rule = find_rule(&im, &service, c, &w->s.p, listed_in(h, &w->s.p));
  if (im.fault || (rule && rule->action == ACTION_PASS))
    return 0;
  struct flow *f = &w->flow;
  set_rank(f, c, source_rank(c, rule, &w->s.p));
  f->home = f->rank;
  f->ends = c->ends;
  if (!f->id) { /* a connection does not change it */
    f->protocol = c->protocol;
    if (c->proxies && is_trusted(&im, &service, &w->s.p))
      f->flags |= FLOW_PROXIED;
  }
  f->room = service.slot;
  f->generation = im.generation;
  return 1;
}

/* Makes the flow's class what the policy in force says, or the application has said since. False: it goes by
 * the waiting room now. */
static __always_inline bool reclassify(struct __sk_buff *skb, struct scene *sc) {
  struct work *w = sc->w;
  if (w->flow.generation != sc->header->generation)
    return classify(skb, w);
  if (w->flow.rank != w->flow.home)
    set_rank(&w->flow, sc->config, w->flow.home);
  return true;
}

/* Whether the connection belongs to another service now. */
static __always_inline bool has_moved(const struct scene *sc) { return sc->w->flow.room != sc->flow->room; }

/* Has the connection begin anew in the room of its service: its state is guarded by one lock
 * from beginning to end. */
static __always_inline int move(struct scene *sc) {
  struct work *w = sc->w;
  if (!delete_flow(&w->key, sc->flow, NULL, w->flow.id, bpf_ktime_get_ns()))
    return drop(REASON_RACE);
  w->flow.flags = 0;
  w->flow.state = FLOW_IDLE;
  w->flow.node = 0;
  w->flow.watched = w->flow.moves = 0;
  w->flow.head = (struct http_head){};
  w->flow.named &= NAMED_CLIENT;
  return STEP_FIRST_REQUEST;
}

/* A request has been made a packet of its slot. If the slot is the only copy, which it is with a
 * flow, the flow keeps it, unless it has ended meanwhile. */
static __always_inline void leave_slot(struct scene *sc, __u32 node, struct flow *f, __u64 id) {
  bool kept = false;
  if (f) {
    bpf_spin_lock(&sc->room->lock);
    kept = f->id == id && f->node == node;
    if (kept)
      link_of(sc->pool, node)->state = NODE_KEPT;
    bpf_spin_unlock(&sc->room->lock);
  }
  if (!kept)
    free_node(sc->pool, node);
}

/* Gives back a slot that was claimed; frees it, if its flow has ended meanwhile, which left that
 * to us. */
static __always_inline void unclaim(struct scene *sc) {
  struct work *w = sc->w;
  __u32 node = w->flow.node;
  bpf_spin_lock(&sc->room->lock);
  link_of(sc->pool, node)->busy = 0;
  bool orphaned = !sc->flow || sc->flow->id != w->flow.id;
  if (orphaned)
    withdraw(sc->room, sc->pool, node);
  bpf_spin_unlock(&sc->room->lock);
  if (orphaned)
    free_node(sc->pool, node);
}

/* open_flow_scene() of a flow whose slot is claimed. False: the flow has ended, and the slot is free. */
static __always_inline bool open_claimed_scene(struct scene *sc, struct work *w, struct flow *f) {
  sc->w = w;
  sc->flow = f;
  if (!open_scene(sc, w->flow.room))
    return false;
  if (f && f->id == w->flow.id)
    return true;
  unclaim(sc);
  return false;
}

/* What concerns a flow, with the slot that is claimed, if its request is in one. */
static __always_inline bool open_request_scene(struct scene *sc, struct work *w, struct flow *f) {
  return w->grown ? open_claimed_scene(sc, w, f) : open_flow_scene(sc, w, f);
}

/* Has the stack not find the request in a slot too old. */
__noinline int renew(struct __sk_buff *skb, struct work *w, __u32 node) {
  struct slot *slot = slot_of(node);
  if (!w || !slot)
    return 0;
  find_socket(skb, &slot->key, &w->socket);
  renew_slot(slot, &w->socket);
  return 0;
}

/* Makes the packet the request in the flow's slot, and passes it. */
static __always_inline int pass_slot(struct __sk_buff *skb, struct scene *sc) {
  struct work *w = sc->w;
  renew(skb, w, w->flow.node);
  int failed = restore(skb, w, w->flow.node);
  leave_slot(sc, w->flow.node, sc->flow, w->flow.id);
  return failed ? drop(REASON_CLONE_FAULT) : TCX_NEXT;
}

/* Parts the flow, whose request is over, from the slot that it has kept. */
static __always_inline void forget_slot(struct scene *sc) {
  struct flow *f = sc->flow;
  __u32 node = 0;
  if (!sc->w->flow.node)
    return;
  bpf_spin_lock(&sc->room->lock);
  if (f->id == sc->w->flow.id && is_free(sc->room, f))
    node = part_node(sc->room, sc->pool, f);
  bpf_spin_unlock(&sc->room->lock);
  sc->w->flow.node = 0;
  if (node)
    free_node(sc->pool, node);
}

/* The server answers a request that has paused: it works on it, whether there is room or not. Under the lock.
 */
static __always_inline void enter_again(struct room *r, struct flow *f, __u64 now) {
  class_of(r, f->class)->arrived++;
  class_of(r, f->class)->admitted++;
  f->state = FLOW_SERVED;
  f->since = now;
  f->epoch = enter(r, f->class);
}

/* What waits, and begins at a sequence number, waits no more, for the server answers: the rest of a request
 * that had paused is paused again, a request has come too early and is left to come again. Under the lock. */
static __always_inline void take_back(struct room *r, struct flow *f, __u32 begin) {
  class_of(r, f->class)->gave_up++;
  f->state = f->start == begin ? FLOW_IDLE : FLOW_PAUSED;
  if (f->start != begin)
    return;
  f->next = f->body = begin;
  f->flags = 0;
  f->reply.state = ANSWER_UNKNOWN;
}

/* The client of the request in service is not silent. False: it was taken for that meanwhile. */
static __always_inline bool note_moves(struct scene *sc) {
  struct flow *f = sc->flow;
  bpf_spin_lock(&sc->room->lock);
  bool mine = f->id == sc->w->flow.id, served = mine && f->state == FLOW_SERVED;
  if (mine)
    f->moves = 1;
  bpf_spin_unlock(&sc->room->lock);
  return served;
}

/* Passes what has come of a request but for its beginning: the stack keeps that, and shows its server nothing
 * of it. */
__noinline int pass_rest(struct __sk_buff *skb, struct work *w) {
  if (!w || (w->keep < w->s.length && cut(skb, w, w->keep)))
    return drop(REASON_CHECKSUM);
  return withhold(skb, w) ? drop(REASON_CLONE_FAULT) : TCX_NEXT;
}

/* What remains of a request when admit() has decided. */
static __always_inline int settle(struct __sk_buff *skb, struct scene *sc, int fate) {
  struct work *w = sc->w;
  bool fresh = w->flow.flags & FLOW_NEW;
  if (fate == FATE_HELD)
    report(w, EVENT_HOLD, 0, 0);
  if (fate == FATE_PASS || (fate == FATE_LOST && is_lenient(sc)))
    return TCX_NEXT;
  bool mine = true;
  if (fate == FATE_REJECT || (fate == FATE_LOST && fresh))
    mine = delete_flow(&w->key, sc->flow, &w->flow, w->flow.id, w->now);
  if (fate == FATE_REJECT)
    return mine ? reject_request(skb, w, w->s.seq) : drop(REASON_RACE);
  if (fate == FATE_HELD && w->withheld)
    return pass_rest(skb, w);
  if (fate == FATE_HELD && w->flow.flags & FLOW_ACKED)
    return acknowledge(skb, w, w->s.seq + w->keep, w->s.data + w->keep);
  /* The request has to wait, but what its segment acknowledges must not. */
  return fate == FATE_LOST || fresh || w->told || cut(skb, w, 0) ? TCX_DROP : TCX_NEXT;
}

/* Passes a segment up to a sequence number; the client sends the rest again. */
static __always_inline int pass_until(struct __sk_buff *skb, struct work *w, __u32 end) {
  return cut(skb, w, end - w->s.seq) ? drop(REASON_CHECKSUM) : let_pass(REASON_CUT);
}

/* Keeps what the segment has behind its request, if that was let in or waits, and the rest is cut off. */
static __always_inline void keep_behind(struct __sk_buff *skb, const struct scene *sc, int fate) {
  if (exceeds(sc->w) && (fate == FATE_PASS || fate == FATE_HELD) && !is_lenient(sc))
    keep_early(skb, sc->w, sc->w->flow.next);
}

/* The request of w->flow, which is in the table, begins with this segment, or goes on. */
__noinline int on_turn(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct scene sc;
  if (!w || !open_flow_scene(&sc, w, f))
    return TCX_NEXT;
  w->keep = exceeds(w) ? w->flow.next - w->s.seq : w->s.length;
  w->earns = known_source(w, sc.config->rank[w->flow.rank & (MAX_RANKS - 1)].known);
  int fate = admit(skb, &sc);
  keep_behind(skb, &sc, fate);
  if (fate == FATE_PASS && w->keep < w->s.length && !is_lenient(&sc))
    return pass_until(skb, w, w->s.seq + w->keep);
  return settle(skb, &sc, fate);
}

/* Whether what the request says may matter, whose head is whole. */
static __always_inline bool has_rules(const struct scene *sc, int step) {
  if (step == HTTP_LOST || sc->w->flow.protocol == PROTOCOL_TCP)
    return false;
  return sc->header->match || sc->config->proxies;
}

/* The request of w->flow, which is in the table, begins with this segment, of which `step`
 * says what was read. */
static __always_inline int on_request(struct __sk_buff *skb, struct scene *sc, int step) {
  struct work *w = sc->w;
  bool lenient = is_lenient(sc);
  __u32 why = lenient ? 0 : why_unreadable(skb, sc, step, 0);
  if (why)
    return reject_unreadable(skb, w, why, w->s.seq);
  if (w->flow.flags & FLOW_HEAD)
    return lenient ? STEP_TURN : STEP_GATHER;
  ask_if_due(skb, sc, step, 0);
  w->grown = 0;
  return has_rules(sc, step) ? STEP_READ : STEP_JUDGE;
}
