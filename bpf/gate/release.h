/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Makes of a kick what is due in a room: a request that is put before the stack, or its
 * rejection. */
#pragma once
#include "gate/decide/turn.h"

/* What serve() is to do. */
enum task { TASK_NONE, TASK_RELEASE, TASK_REJECT, TASK_AGAIN };

struct pick {
  enum task task;
  __u32 node;
  __u32 epoch; /* of a release that has entered service */
  __u8 class;
};

/* The class of which a room's next release is, + 1; 0: none is possible now. */
__noinline int chosen_class(__u32 slot) {
  struct scene sc;
  const struct room *r = room_of(slot);
  if (!r || !r->above || !open_scene(&sc, r->above - 1))
    return 0;
  const struct room_config *c = sc.config;
  __u32 ready = ready_classes(r, bpf_jiffies64()) & ~full_classes(sc.room, c);
  __u32 bit =
      next_class(c->between == BETWEEN_SHARES ? r : sc.room, c, ready, c->ranks) ?: ready & ~c->classes;
  return bit ? class_slot(bit) + 1 : 0;
}

/* What is due in a room, releases of some classes among it. Under the lock. */
static __always_inline void find_due(struct scene *sc, struct pick *k, __u32 jiffies, __u32 classes) {
  struct room *r = sc->room;
  struct pool *p = sc->pool;
  k->node = r->due_head;
  k->task = link_of(p, k->node)->again ? TASK_AGAIN : TASK_REJECT;
  if (k->node && !link_of(p, k->node)->busy)
    return;
  classes = next_to_release(r, sc->config, jiffies, classes);
  k->node = classes ? next_of(r, class_with(r, classes), jiffies) : 0;
  k->task = k->node && !link_of(p, k->node)->busy ? TASK_RELEASE : TASK_NONE;
}

/* Takes what is due out of the room's lists, if it came on that interface; 0: on any. */
static __always_inline void pick_next(struct scene *sc, struct pick *k, __u32 slot, __u32 ifindex) {
  struct room *r = sc->room;
  __u32 jiffies = bpf_jiffies64(), above = sc->config->above, chosen = above ? chosen_class(slot) : 0;
  int held = chosen ? hold_place(above, chosen - 1, MAX_RANKS) : HOLD_NONE;
  __u32 classes = !above ? ~0U : held == HOLD_NONE ? 0 : bits_of(chosen);
  classes = forget(classes, sc->w->now);
  lock_current(sc, slot, sc->w->now);
  find_due(sc, k, jiffies, classes);
  struct node_link *l = link_of(sc->pool, k->node);
  k->class = l->class;
  if (ifindex && ifindex != l->ifindex) /* whose socket is not to be found here */
    k->task = TASK_NONE;
  if (k->task == TASK_RELEASE)
    charge_release(class_of(r, l->class), sc->pool, k->node);
  if (k->task != TASK_NONE)
    withdraw(r, sc->pool, k->node);
  if (k->task == TASK_RELEASE)
    k->epoch = enter(r, l->class);
  bpf_spin_unlock(&r->lock);
  if (held > 0)
    drop_hold(slot, held, chosen - 1);
  if (k->task == TASK_RELEASE)
    note_admission(sc, slot, k->class);
}

/* Takes a release back: the request waits again, before all others of its list. */
__noinline int put_back(__u32 slot, __u32 node, __u32 class, __u32 epoch) {
  struct room *r = room_of(slot);
  struct pool *p = the_pool();
  __u32 now = bpf_jiffies64();
  if (!r)
    return 0;
  bpf_spin_lock(&r->lock);
  leave(r, class, epoch);
  refund_release(p, node);
  enqueue(r, p, node, true);
  r->stuck = now;
  bpf_spin_unlock(&r->lock);
  return 0;
}

/* Takes the release back for good. */
static __always_inline void withdraw_release(struct scene *sc, const struct pick *k) {
  bpf_spin_lock(&sc->room->lock);
  leave(sc->room, k->class, k->epoch);
  refund_release(sc->pool, k->node);
  bpf_spin_unlock(&sc->room->lock);
}

enum commitment {
  COMMIT_NONE, /* the flow has ended meanwhile */
  COMMIT_FREE, /* the node is free once the request is a packet again */
  COMMIT_KEEP, /* the flow keeps it: there is no other copy */
};

/* The server answers a request that has paused again, whose rest waited. Where its place is kept until it has
 * written the last of that, whoever looks at the flow sees when that is. Returns whether it is to be watched
 * from now on. Under the lock. */
static __always_inline bool resume_answered(struct room *r, struct flow *f, __u64 now) {
  bool paused = f->state == FLOW_PAUSED, watched = f->watched;
  if (paused)
    f->state = FLOW_IDLE;
  if (!paused || f->ends != END_LAST_BYTE)
    return false;
  enter_again(r, f, now);
  f->watched = 1;
  return !watched;
}

/* Makes the release of the request in the slot the flow's. */
static __always_inline int commit_release(struct scene *sc, const struct pick *k, struct flow *f,
                                          const struct slot *slot) {
  struct room *r = sc->room;
  struct work *w = sc->w;
  __u64 now = w->now, id = slot->flow;
  __u32 begin = slot->sequence, end = end_of_slot(slot);
  int commitment = COMMIT_NONE;
  bpf_spin_lock(&r->lock);
  bool mine = f && f->id == id && f->state == FLOW_HELD && f->node == k->node;
  if (mine && !(f->flags & FLOW_ANSWERED)) {
    struct class_room *q = class_of(r, k->class);
    __u64 waited = elapsed(f->since, now);
    q->released++;
    w->waited = waited;
    q->wait_sum += waited;
    q->wait[bucket_of(waited)]++;
    f->withheld = 0;
    commitment = f->flags & FLOW_ACKED ? COMMIT_KEEP : COMMIT_FREE;
    if (commitment == COMMIT_FREE)
      f->node = 0;
    w->watch = begin_service(r, sc->config, f, k->epoch, now, end);
    w->look.sent = f->answer;
    f->line = link_of(sc->pool, k->node)->line;
    f->owner = *owner_of(sc->pool, f->line) >> 32;
    q->ahead += is_known(sc->pool, f->line);
  } else {
    leave(r, k->class, k->epoch);
    refund_release(sc->pool, k->node);
  }
  if (mine && commitment == COMMIT_NONE) { /* it was answered while it was in our hands */
    take_back(r, f, begin);
    f->node = 0;
    w->watch = resume_answered(r, f, now);
  }
  bpf_spin_unlock(&r->lock);
  return commitment;
}

/* Makes the packet the request in the slot, and puts it before the stack. A flow keeps the
 * slot. */
static __always_inline int send_in(struct __sk_buff *skb, struct scene *sc, __u32 node,
                                   const struct slot *slot, struct flow *keeper) {
  __u32 ifindex = slot->ifindex;
  __u64 id = slot->flow;
  int failed = restore(skb, sc->w, node);
  leave_slot(sc, node, keeper, id);
  if (failed) /* the client will send it again, and it will pass; or it will be put there again */
    return drop(REASON_CLONE_FAULT);
  skb->mark = MARK_OURS;
  return send_out(sc->w, ifindex, BPF_F_INGRESS);
}

/* Has the flow of the slot looked at again. */
static __always_inline void watch_slot(struct work *w, const struct slot *slot, __u32 end) {
  w->look.key = slot->key;
  w->look.id = slot->flow;
  w->look.received = end;
  w->look.ifindex = slot->ifindex;
  push_watch(w, w->now);
}

/* Answers the request in the slot as rejected. Where the server has said something since it
 * came, that could not be told from the answer: the connection is reset, behind what the server has sent.
 * The socket counts a segment as sent when it comes back from sending it, the flow when it passes egress. */
static __always_inline int send_rejection(struct __sk_buff *skb, struct scene *sc, const struct pick *k,
                                          struct slot *slot, bool cookie, __u32 sent) {
  struct work *w = sc->w;
  struct rejected *r = &w->rejected;
  struct timestamps *t = slot_timestamps(slot);
  r->key = slot->key;
  r->times.option = 0;
  if (t)
    r->times = *t;
  r->l3 = slot->l3;
  r->l4 = slot->l4;
  r->seq = slot->sequence;
  r->end = end_of_slot(slot);
  r->ack = slot->acknowledged;
  r->ifindex = slot->ifindex;
  r->no_peer = cookie;
  choose_in_slot(skb, w, k->node, slot->length);
  if (takes_data(&w->socket) && before(sent, w->socket.answer))
    sent = w->socket.answer;
  say_chosen(w, r, before(r->ack, sent));
  if (before(r->ack, sent))
    r->ack = sent;
  int failed = restore(skb, w, k->node);
  free_node(sc->pool, k->node);
  return failed ? drop(REASON_CLONE_FAULT) : answer(skb, w);
}

/* Rejects the request in a node that is in no list any more. */
static __always_inline int reject_node(struct __sk_buff *skb, struct scene *sc, const struct pick *k,
                                       __u32 why) {
  struct slot *slot = slot_of(k->node);
  if (!slot)
    return TCX_DROP;
  struct work *w = sc->w;
  struct flow *f = find_by_key(&flows, &slot->key);
  __u64 id = slot->flow;
  if (!f || f->id != id) { /* its client has gone */
    free_node(sc->pool, k->node);
    return TCX_DROP;
  }
  bool cookie = is_only_cookie(f), mine = false;
  __u32 sent = 0;
  w->key = slot->key;
  w->flow.protocol = f->protocol;
  w->flow.head.flags = f->head.flags;
  w->flow.named = f->named;
  w->flow.proxy.size = f->proxy.size;
  load_attribution(w, slot);
  bpf_spin_lock(&sc->room->lock);
  if (f->id == id) {
    mine = true;
    sent = f->sent;
    w->waited = elapsed(f->since, w->now);
    class_of(sc->room, k->class)->rejected[why & 15]++;
    f->state = FLOW_IDLE;
    f->node = 0;
  }
  bpf_spin_unlock(&sc->room->lock);
  if (!mine || !delete_flow(&w->key, f, NULL, id, w->now)) {
    free_node(sc->pool, k->node);
    return TCX_DROP;
  }
  report(w, EVENT_REJECT, why, 0);
  find_socket(skb, &w->key, &w->socket);
  return send_rejection(skb, sc, k, slot, cookie, sent);
}

/* Whether the server can take the request now. */
static __always_inline bool is_ready(const struct endpoint *s, const struct flow *f, __u32 begin) {
  if (s->state == BPF_TCP_LISTEN)
    return f->flags & FLOW_COOKIE;
  /* An established socket may have bytes before these to take from its backlog. */
  bool fits = s->state == BPF_TCP_NEW_SYN_RECV ? s->sequence == begin : !before(begin, s->sequence);
  return takes_data(s) && fits && !s->orphaned;
}

static __always_inline int release_node(struct __sk_buff *skb, struct scene *sc, const struct pick *k) {
  struct slot *slot = slot_of(k->node);
  if (!slot)
    return TCX_DROP;
  struct work *w = sc->w;
  __u64 id = slot->flow;
  struct flow *f = find_by_key(&flows, &slot->key);
  struct endpoint *sock = &w->socket;
  find_socket(skb, &slot->key, sock);
  if (f && f->id == id && f->flags & FLOW_NEW && sock->crowded) {
    put_back(w->flow.room, k->node, k->class, k->epoch);
    return drop(REASON_ACCEPT_QUEUE);
  }
  bool ready = f && is_ready(sock, f, slot->sequence);
  __u32 end = end_of_slot(slot);
  w->watch = 0;
  int commitment = ready ? commit_release(sc, k, f, slot) : COMMIT_NONE;
  if (w->watch)
    watch_slot(w, slot, end);
  if (commitment != COMMIT_NONE) {
    w->key = slot->key;
    load_attribution(w, slot);
    report(w, EVENT_RELEASE, 0, 0);
    renew_slot(slot, sock);
    return send_in(skb, sc, k->node, slot, commitment == COMMIT_KEEP ? f : NULL);
  }
  if (!ready)
    withdraw_release(sc, k);
  if (f && f->id == id && !ready)
    return reject_node(skb, sc, k, REJECT_NO_SERVER);
  free_node(sc->pool, k->node);
  return TCX_DROP;
}

/* Puts a request before the stack again that was released, but has not got there. */
static __always_inline int send_again(struct __sk_buff *skb, struct scene *sc, const struct pick *k) {
  struct slot *slot = slot_of(k->node);
  if (!slot)
    return TCX_DROP;
  struct work *w = sc->w;
  struct flow *f = find_by_key(&flows, &slot->key);
  bool mine = false;
  w->watch = 0;
  bpf_spin_lock(&sc->room->lock);
  if (f && f->id == slot->flow && f->node == k->node) {
    mine = true;
    link_of(sc->pool, k->node)->again = 0;
    w->watch = !f->watched;
    f->watched = 1;
    w->look.sent = f->answer;
  }
  bpf_spin_unlock(&sc->room->lock);
  if (!mine) {
    free_node(sc->pool, k->node);
    return TCX_DROP;
  }
  if (w->watch)
    watch_slot(w, slot, end_of_slot(slot));
  renew(skb, w, k->node);
  return send_in(skb, sc, k->node, slot, f);
}

/* Does one thing that is due in a room, on that interface or, 0, on any, with a packet that can be made
 * anything of. */
__noinline int serve(struct __sk_buff *skb, struct work *w, __u32 room, __u32 ifindex) {
  struct scene sc = {.w = w};
  struct pick k = {};
  if (!w || !open_scene(&sc, room))
    return TCX_DROP;
  w->now = bpf_ktime_get_ns();
  pick_next(&sc, &k, room, ifindex);
  clear_attribution(w);
  w->flow.room = room;
  w->flow.class = k.class;
  if (k.task == TASK_RELEASE)
    return release_node(skb, &sc, &k);
  if (k.task == TASK_REJECT)
    return reject_node(skb, &sc, &k, link_of(sc.pool, k.node)->reject);
  if (k.task == TASK_AGAIN)
    return send_again(skb, &sc, &k);
  return TCX_DROP;
}
