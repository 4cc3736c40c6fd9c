/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What becomes of a request when it arrives. */
#pragma once
#include "gate/above.h"
#include "gate/recognise/request.h"
#include "gate/watches.h"
#include "match/patterns.h"
#include "policy/bucket.h"
#include "policy/known.h"

enum fate {
  FATE_PASS,
  FATE_HELD,
  FATE_REJECT,
  FATE_LOST, /* it could not be held, or another CPU was faster: the client sends it again */
};

/* Whether more of the body is to come, when the stack has its bytes up to a sequence number:
 * unless the answer has begun, or nothing is known of the body. */
static __always_inline bool expects_body(const struct flow *f, __u32 has) {
  if (f->flags & (FLOW_ANSWERED | FLOW_TUNNEL))
    return false;
  if (f->flags & FLOW_LOST)
    return f->head.flags & HTTP_ENDLESS;
  return f->flags & FLOW_CHUNKS || before(has, f->next);
}

/* Whether there is something to find out of a flow in service that no packet tells, when the
 * bytes up to a sequence number are on their way to the stack. */
static __always_inline bool wants_watch(const struct flow *f, __u32 passed) {
  if (f->protocol != PROTOCOL_HTTP)
    return f->ends != END_CLOSE;
  /* What no packet tells: that the server has written the last of its answer, or that its client takes none.
   */
  if (f->flags & FLOW_ANSWERED && !(f->flags & FLOW_TUNNEL) && f->ends != END_CLOSE)
    return true;
  /* The stack may drop what comes with a SYN cookie, and has nothing then whose end would be told. */
  if (f->node || f->flags & FLOW_COOKIE)
    return true;
  return expects_body(f, passed);
}

/* The flow's request, whose bytes up to a sequence number are known, is in service as of now.
 * Returns whether it is to be watched from now on: where places are scarce, once at least, for the
 * stack may drop it. Under the lock. */
static __always_inline bool begin_service(const struct room *r, const struct room_config *c, struct flow *f,
                                          __u32 epoch, __u64 now, __u32 passed) {
  f->state = FLOW_SERVED;
  f->since = now;
  f->epoch = epoch;
  f->lacks = 0;
  f->flags &= ~(FLOW_NEW | FLOW_ANSWERED);
  if (f->protocol == PROTOCOL_TCP && passed == f->start)
    f->flags |= FLOW_ANSWERED;
  bool scarce = is_strict(c, r) && !c->shadow;
  f->moves |= f->watched; /* a look may be due before these bytes are with the stack */
  if (f->watched || !(scarce || wants_watch(f, passed)))
    return false;
  f->watched = 1;
  return true;
}

/* Makes the request of w->flow the flow's, which takes its turn. The answer to one that goes on may have
 * begun. Under the lock. */
static __always_inline void note_turn(struct flow *f, const struct work *w) {
  note_request(f, &w->flow);
  f->earns = 0;
  if (f->state != FLOW_IDLE && f->state != FLOW_SERVED)
    return;
  f->answer = w->flow.answer;
  f->reply = w->flow.reply;
  f->asked++;
}

/* Lets the request of w->flow into service at once. Under the lock. */
static __always_inline void enter_flow(struct room *r, const struct room_config *c, struct flow *f,
                                       struct work *w) {
  note_turn(f, w);
  class_of(r, f->class)->admitted++;
  f->line = 0; /* nobody waits whom it could have been unfair to */
  f->earns = w->earns;
  w->watch = begin_service(r, c, f, enter(r, f->class), w->now, w->s.seq + w->keep);
}

/* Whether the flow may take the turn for which the packet was read. Under the lock. */
static __always_inline bool is_ready_for(const struct room *r, const struct flow *f, const struct work *w) {
  return f->id == w->flow.id && f->state == w->flow.state && f->next == w->next && is_free(r, f);
}

/* A request arrives: lets it into service if that is possible at once. FATE_HELD: it has to
 * wait. */
static __always_inline int try_enter(struct scene *sc, struct flow *f) {
  struct work *w = sc->w;
  struct room *r = sc->room;
  const struct room_config *c = sc->config;
  int fate = FATE_LOST, held = hold_turn(sc, w->flow.class, w->flow.rank);
  lock_current(sc, w->flow.room, w->now);
  if (is_ready_for(r, f, w)) {
    struct class_room *q = class_of(r, w->flow.class);
    q->arrived++;
    /* Into a full accept queue the stack would not take it, and its client might not send it again. */
    bool may = held != HOLD_NONE && may_enter(r, c, w->flow.rank) && !w->crowded;
    fate = FATE_HELD;
    if (!may && c->shadow)
      q->would_hold++;
    if (may || c->shadow) {
      enter_flow(r, c, f, w);
      fate = FATE_PASS;
    }
  }
  bpf_spin_unlock(&r->lock);
  if (held > 0)
    drop_hold(w->flow.room, held, w->flow.class);
  if (fate == FATE_PASS)
    note_admission(sc, w->flow.room, w->flow.class);
  if (fate == FATE_HELD || !seems_free(r))
    note_contention();
  return fate;
}

/* Says of a node which request it stands for. */
static __always_inline void name_node(struct node_link *l, const struct work *w) {
  l->list = any_of(w->flow.flags & FLOW_NEW); /* LIST_NEW */
  l->class = w->flow.class;
  l->since = w->now;
}

/* Has the request of w->flow wait with its node, which is in a list. Under the lock. */
static __always_inline void wait_flow(struct flow *f, const struct work *w, __u32 node, __u8 state) {
  note_turn(f, w);
  f->state = state;
  f->node = node;
  f->since = w->now;
  f->withheld = any_of(w->withheld);
}

/* Whether the client has sent more behind the request, which it would send again, and with it the request,
 * ever later: by an acknowledgement it gets to know how far we are. That of the rest of a request that has
 * paused is the server's. */
static __always_inline bool is_followed_by_another(const struct work *w) {
  return w->flow.protocol == PROTOCOL_HTTP && w->flow.state != FLOW_PAUSED && exceeds(w);
}

/* Whether more of the request is to come. */
static __always_inline bool goes_on(const struct work *w) {
  const struct flow *f = &w->flow;
  return f->flags & (FLOW_CHUNKS | FLOW_LOST) || before(w->s.seq + w->keep, f->next);
}

/* Segments of fewer bytes are smaller than connections allow, on nearly all paths (IPv6 has 1208 at least):
 * clients may wait with the next until they know that this one has arrived (Nagle). */
#define SMALL_SEGMENT 1200

/* Whether the client of a new connection is to know at once what of its request has arrived, and how much
 * more may come. Else it is told when it asks, or when the stack has its request: each word costs both sides
 * time. */
static __always_inline bool awaits_word(const struct work *w) {
  return w->flow.protocol == PROTOCOL_HTTP && w->flow.flags & FLOW_NEW && w->s.length < SMALL_SEGMENT &&
         goes_on(w);
}

/* How many bytes of a request that does not fit a slot are to wait there, while the others go to the stack;
 * 0: all, for the stack has no socket yet which would keep those. What rules have decided by is among them:
 * that is not left to what the stack keeps. */
static __always_inline __u32 find_withheld(struct __sk_buff *skb, struct work *w) {
  const struct segment *s = &w->s;
  const struct flow *f = &w->flow;
  if (f->protocol != PROTOCOL_HTTP || f->flags & FLOW_NEW || s->flags & TCP_FIN ||
      w->keep <= LEAST_WITHHELD || s->data - s->l4 > MOST_TCP_HEADER - LEAST_WITHHELD)
    return 0;
  if (!goes_on(w) && w->keep <= slot_room())
    return 0;
  find_socket(skb, &w->key, &w->socket);
  if (w->socket.state != BPF_TCP_ESTABLISHED || w->socket.gap || w->socket.sequence != s->seq)
    return 0;
  __u32 read = before(s->seq, f->body) ? f->body - s->seq : 0;
  return read < LEAST_WITHHELD ? LEAST_WITHHELD : read < w->keep ? read : w->keep;
}

/* Prepares the flow's request for its turn, whose head was put together in the node's slot of so many bytes
 * and is whole now. Under the lock. */
static __always_inline void end_gathering(struct scene *sc, struct slot *slot, __u32 node, __u32 length) {
  link_of(sc->pool, node)->busy = 0;
  withdraw(sc->room, sc->pool, node);
  slot->length = length;
  save_attribution(slot, sc->w);
  class_of(sc->room, sc->w->flow.class)->arrived++;
}

/* Whether the flow gathers a head in that node. Under the lock. */
static __always_inline bool is_gathered(struct scene *sc, __u32 node) {
  const struct flow *f = sc->flow;
  return f->id == sc->w->flow.id && f->state == FLOW_GATHERING &&
         link_of(sc->pool, node)->state == NODE_GATHERING;
}

/* Told from the ids of rules, with which sources are hashed as well. */
#define FAIR_HASH (1ULL << 63)

/* The hash of the value by which the requests of a source take turns, from what was read of the request; 0:
 * it has none. */
__noinline __u64 fair_value(struct work *w, __u32 key) {
  const struct reading *r = the_reading();
  return w && r && w->read ? key_in(&r->keys, key) : 0;
}

/* Told from that likewise. */
#define KNOWN_HASH (1ULL << 62)

/* The hash of the request's source in its class, if its answers make that known, for so long; 0: they do not.
 * What comes from a proxy that says nobody's name is of many. */
__noinline __u64 known_source(struct work *w, __u32 known) {
  __u32 zero = 0;
  const struct secret *secret = bpf_map_lookup_elem(&source_secret, &zero);
  if (!w || !secret || !known || w->flow.protocol != PROTOCOL_HTTP || (w->proxied && !w->named))
    return 0;
  __u64 id = w->flow.room | w->flow.class << 16 | KNOWN_HASH;
  return key_hash(secret, id, w->proxied ? &w->from : &w->s.p, 32, 64, 0);
}

/* Gives a node the line of its request's source, which is `who` of the class: a rank's fair, bits_v4, bits_v6
 * and key; with FAIR_KNOWN: among known sources. False: there is none left. Where only its value finds none,
 * it takes its turn by itself. */
__noinline int choose_line(struct work *w, __u32 node, __u32 who) {
  __u32 zero = 0;
  const struct secret *secret = bpf_map_lookup_elem(&source_secret, &zero);
  if (!w || !secret)
    return false;
  const struct packet *from = w->proxied && w->named ? &w->from : &w->s.p;
  __u64 id = w->flow.room | w->flow.class << 16 | FAIR_HASH;
  __u64 known = who & FAIR_KNOWN ? LINE_KNOWN : 0;
  if (!(who & FAIR_SOURCE))
    return join_line(node, (siphash13(secret->key, id, 0, 0) & ~LINE_KNOWN) | known, false);
  __u64 hash = key_hash(secret, id, from, who >> 8 & 0xff, who >> 16 & 0xff, 0);
  hash = (hash & ~LINE_KNOWN) | known;
  bool lined = join_line(node, hash, false);
  if (lined && who >> 24)
    join_line(node, siphash13(secret->key, id, hash, fair_value(w, who >> 24)), true);
  return lined;
}

/* Puts a request, whose frame is in the node's slot, into the queue, or into service if that
 * has become possible. `gathered`: 0, or what the slot's length is now that the head in it is whole. */
__noinline int take_turn(struct work *w, __u32 node, __u32 gathered) {
  struct scene scene, *sc = &scene;
  struct slot *slot = slot_of(node);
  if (!w || !slot || !set_flow_scene(sc, w))
    return FATE_LOST;
  struct flow *f = sc->flow;
  struct room *r = sc->room;
  const struct room_config *c = sc->config;
  int fate = FATE_LOST, held = hold_turn(sc, w->flow.class, w->flow.rank);
  const struct rank *k = &c->rank[w->flow.rank & (MAX_RANKS - 1)];
  __u32 known = spend_known(w->earns, k->known), ahead = known * FAIR_KNOWN;
  bool lined =
      choose_line(w, node, k->fair | k->bits_v4 << 8 | k->bits_v6 << 16 | (__u32)k->key << 24 | ahead);
  lock_current(sc, w->flow.room, w->now);
  if (gathered ? is_gathered(sc, node) : is_ready_for(r, f, w)) {
    struct class_room *q = class_of(r, w->flow.class);
    if (gathered)
      end_gathering(sc, slot, node, gathered);
    gathered = forget(gathered, w->now);
    name_node(link_of(sc->pool, node), w);
    if (held != HOLD_NONE && may_enter(r, c, w->flow.rank) && !w->crowded) {
      enter_flow(r, c, f, w);
      fate = FATE_PASS;
    } else if (lined && make_place(r, sc->pool, c, w->flow.rank, node)) {
      enqueue(r, sc->pool, node, false);
      q->held++;
      if (!gathered && !w->withheld && (is_followed_by_another(w) || awaits_word(w)))
        w->flow.flags |= FLOW_ACKED;
      wait_flow(f, w, node, FLOW_HELD);
      f->earns = w->earns & ((__u64)known - 1); /* who goes ahead earns nothing by it */
      fate = FATE_HELD;
    } else {
      q->rejected[REJECT_QUEUE_FULL]++;
      fate = FATE_REJECT;
    }
  }
  bpf_spin_unlock(&r->lock);
  if (held > 0)
    drop_hold(w->flow.room, held, w->flow.class);
  if (fate == FATE_PASS)
    note_admission(sc, w->flow.room, w->flow.class);
  return fate;
}

/* Has a request wait for the rest of its head, the beginning of which is in the node's slot. */
static __always_inline int try_gather(struct scene *sc, struct flow *f, __u32 node) {
  struct work *w = sc->w;
  struct room *r = sc->room;
  int fate = FATE_LOST;
  bpf_spin_lock(&r->lock);
  if (is_ready_for(r, f, w)) {
    name_node(link_of(sc->pool, node), w);
    fate = FATE_REJECT;
    if (make_gathering_place(r, sc->pool, sc->config, w->flow.rank, node)) {
      enlist(r, sc->pool, node);
      wait_flow(f, w, node, FLOW_GATHERING);
      f->flags |= FLOW_ACKED;
      fate = FATE_HELD;
    } else {
      class_of(r, w->flow.class)->rejected[REJECT_QUEUE_FULL]++;
    }
  }
  bpf_spin_unlock(&r->lock);
  return fate;
}

/* Counts a rejection of the request of w->flow, and tells of it. */
static __always_inline void note_rejection(struct room *r, struct work *w, __u32 why, bool shadow) {
  __u32 reason = why;
  asm volatile("" : "+r"(reason)); /* so that clang keeps the mask, which is for the verifier */
  bpf_spin_lock(&r->lock);
  class_of(r, w->flow.class)->rejected[reason & 15]++;
  bpf_spin_unlock(&r->lock);
  report(w, EVENT_REJECT, why, shadow);
}

/* Number of the group that the request's client is in: all of an IPv4 source's /24, or an IPv6 source's /48.
 * Nobody can choose with whom. */
static __always_inline __u32 source_group(const struct work *w) {
  __u32 zero = 0;
  const struct secret *secret = bpf_map_lookup_elem(&source_secret, &zero);
  bool named = w->proxied && w->named;
  __u64 address = named ? w->from.src[0] : w->s.p.src[0];
  __u8 v6 = named ? w->from.v6 : w->s.p.v6;
  return secret ? siphash13(secret->key, address >> (v6 ? 16 : 40), v6, SOURCE_GROUPS) : 0;
}

/* Puts the segment, as far as it fits, into the slot of a new node. Returns 0 if there is none; *fate says
 * why. */
static __always_inline __u32 fill_node(struct __sk_buff *skb, struct scene *sc, int *fate) {
  __u32 node = take_node(sc->pool, sc->w->flow.room, source_group(sc->w));
  *fate = FATE_REJECT;
  if (!node) {
    note_rejection(sc->room, sc->w, REJECT_NO_SLOT, false);
    return 0;
  }
  link_of(sc->pool, node)->ifindex = skb->ifindex;
  if (!fill_slot(skb, sc->w, node))
    return node;
  count_reason(REASON_CHECKSUM, true, false);
  *fate = FATE_LOST;
  free_node(sc->pool, node);
  return 0;
}

/* Reads the request as far as it is in its slot: the rest will come again, behind that. */
static __always_inline void note_kept(struct __sk_buff *skb, struct work *w) {
  __u32 length = w->s.length;
  if (w->kept == w->keep || w->withheld)
    return;
  w->s.length = w->keep = w->kept;
  if (w->flow.state != FLOW_PAUSED || http_in_body(&w->began)) {
    w->flow.head = w->began;
    read_request(skb, w, w->s.seq);
  }
  w->s.length = length;
}

/* Decides on the request of w->flow, of which the segment is the first. */
static __always_inline int admit(struct __sk_buff *skb, struct scene *sc) {
  struct work *w = sc->w;
  w->watch = 0;
  int fate = try_enter(sc, sc->flow);
  if (fate == FATE_LOST)
    count_reason(REASON_RACE, true, false);
  if (fate == FATE_HELD) {
    w->withheld = find_withheld(skb, w);
    __u32 node = fill_node(skb, sc, &fate);
    if (!node)
      return fate;
    note_kept(skb, w);
    fate = take_turn(w, node, 0);
    if (fate != FATE_HELD)
      free_node(sc->pool, node);
    if (fate == FATE_REJECT)
      report(w, EVENT_REJECT, REJECT_QUEUE_FULL, 0);
  }
  if (fate == FATE_PASS) {
    report(w, EVENT_ADMIT, 0, 0);
    watch_flow(w, w->s.seq + w->keep);
  }
  return fate;
}
