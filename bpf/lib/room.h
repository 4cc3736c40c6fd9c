/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who may enter service, and who is next. All functions here run under the room's lock
 * unless they say otherwise. */
#pragma once
#include "../config.h"
#include "../types.h"
#include "packet.h"

/* Key: slot of a service. Written by the programs under its lock; user space reads. Sized
 * for the services of the policy; user space refuses more. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct room);
} rooms SEC(".maps");

/* Key 0. The nodes of all rooms. When there is no free one the request is rejected. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct pool);
} pool SEC(".maps");

/* Makes the verifier know a bound that holds anyway. */
#define BOUND(x, most)                                                                                       \
  ({                                                                                                         \
    __u32 bounded = (x);                                                                                     \
    asm volatile("" : "+r"(bounded));                                                                        \
    bounded > (most) ? (most) : bounded;                                                                     \
  })

static __always_inline struct node_link *link_of(struct pool *p, __u32 node) {
  return &p->link[BOUND(node, MAX_SLOTS)];
}

static __always_inline struct class_room *class_of(struct room *r, __u32 class) {
  return &r->class[class & (CLASS_SLOTS - 1)];
}

/* 1, if any of these bits is set, of which the highest is not, or 0. Without branches, which the verifier
 * would have to follow all. */
static __always_inline __u32 any_of(__u64 bits) { return -bits >> 63; }

/* The bit of a class slot. */
static __always_inline __u32 bit_of(__u32 class) { return 1U << (class & (CLASS_SLOTS - 1)); }

/* Gives a node, 0 if there is none. Takes the pool's lock. */
static __always_inline __u32 take_node(struct pool *p) {
  __u32 node = 0;
  bpf_spin_lock(&p->lock);
  if (p->free) {
    node = p->free;
    p->free = link_of(p, node)->next;
  } else if (p->fresh < slot_count) {
    node = ++p->fresh;
  }
  if (node) {
    p->used++;
    link_of(p, node)->state = NODE_TAKEN;
    link_of(p, node)->busy = 0;
    link_of(p, node)->again = 0;
  }
  bpf_spin_unlock(&p->lock);
  return node;
}

/* Takes a node back that is in no list. Takes the pool's lock. */
static __always_inline void free_node(struct pool *p, __u32 node) {
  bpf_spin_lock(&p->lock);
  struct node_link *l = link_of(p, node);
  l->state = NODE_FREE;
  l->next = p->free;
  p->free = node;
  p->used--;
  bpf_spin_unlock(&p->lock);
}

static __always_inline void append(struct pool *p, __u32 *head, __u32 *tail, __u32 node) {
  struct node_link *l = link_of(p, node);
  l->next = 0;
  l->prev = *tail;
  if (*tail)
    link_of(p, *tail)->next = node;
  else
    *head = node;
  *tail = node;
}

static __always_inline void prepend(struct pool *p, __u32 *head, __u32 *tail, __u32 node) {
  struct node_link *l = link_of(p, node);
  l->prev = 0;
  l->next = *head;
  if (*head)
    link_of(p, *head)->prev = node;
  else
    *tail = node;
  *head = node;
}

static __always_inline void take_out(struct pool *p, __u32 *head, __u32 *tail, __u32 node) {
  struct node_link *l = link_of(p, node);
  if (l->prev)
    link_of(p, l->prev)->next = l->next;
  else
    *head = l->next;
  if (l->next)
    link_of(p, l->next)->prev = l->prev;
  else
    *tail = l->prev;
  l->state = NODE_TAKEN;
}

/* The list of a class that the node belongs to. */
static __always_inline __u32 list_of(const struct node_link *l) { return l->list & (LIST_LEN - 1); }

/* Takes a waiting node out of its class's list. */
static __always_inline void unqueue(struct room *r, struct pool *p, __u32 node) {
  __u32 class = link_of(p, node)->class, list = list_of(link_of(p, node));
  struct class_room *c = class_of(r, class);
  take_out(p, &c->head[list], &c->tail[list], node);
  r->kept_classes &= ~bit_of(class) | -any_of(c->head[LIST_KEPT]);
  r->waiting--;
  if (--c->waiting == 0) {
    r->waiting_classes &= ~bit_of(class);
    r->due_classes &= ~bit_of(class);
    c->credit = 0;
  }
}

static __always_inline void count_waiting(struct room *r, struct node_link *l) {
  l->state = NODE_WAITING;
  r->waiting++;
  class_of(r, l->class)->waiting++;
  r->waiting_classes |= bit_of(l->class);
  r->kept_classes |= bit_of(l->class) & (list_of(l) - 1); /* but not LIST_NEW */
}

/* Takes a node out of the list in which it is. */
static __always_inline void withdraw(struct room *r, struct pool *p, __u32 node) {
  struct node_link *l = link_of(p, node);
  if (l->state == NODE_WAITING) {
    unqueue(r, p, node);
    return;
  }
  bool gathering = l->state == NODE_GATHERING;
  if (gathering)
    r->gathering--;
  if (gathering || l->state == NODE_DOOMED)
    take_out(p, gathering ? &r->gather_head : &r->doomed_head, gathering ? &r->gather_tail : &r->doomed_tail,
             node);
  l->state = NODE_TAKEN;
}

/* Marks a node for rejection. */
static __always_inline void doom(struct room *r, struct pool *p, __u32 node, __u8 why) {
  struct node_link *l = link_of(p, node);
  withdraw(r, p, node);
  append(p, &r->doomed_head, &r->doomed_tail, node);
  l->state = NODE_DOOMED;
  l->reject = why;
}

/* Marks a node that a flow keeps as one to be put before the stack again. */
static __always_inline void call_again(struct room *r, struct pool *p, __u32 node) {
  doom(r, p, node, 0);
  link_of(p, node)->again = 1;
}

/* Puts a node at the end of the list of heads that come in pieces. */
static __always_inline void enlist(struct room *r, struct pool *p, __u32 node) {
  append(p, &r->gather_head, &r->gather_tail, node);
  link_of(p, node)->state = NODE_GATHERING;
  r->gathering++;
}

/* log2 of a duration in microseconds, at most HISTOGRAM − 1. Without branches, as above. */
static __always_inline __u32 bucket_of(__u64 ns) {
  __u64 us = ns / 1000;
  __u32 log = 0;
  for (int step = 16; step; step /= 2) {
    __u32 shift = any_of(us >> step) * step;
    us >>= shift & 63;
    log += shift;
  }
  return log & (HISTOGRAM - 1);
}

/* Forgets what entered so long ago that its end must have been missed. */
static __always_inline void forget_epoch(struct room *r, __u32 epoch) {
  __u32 *entered = r->entered[epoch % EPOCHS];
  for (int i = 0; i < CLASS_SLOTS; i++) {
    __u32 n = entered[i];
    entered[i] = 0;
    r->in_service -= n;
    r->class[i].in_service -= n;
    r->class[i].served += n;
    r->class[i].lost += n;
  }
}

/* Whether what user space has decided still holds: it renews that for as long as it lives. */
static __always_inline bool is_steered(const struct room *r, __u64 now) {
  return (__s64)(r->control.until - now) > 0;
}

/* Requests in service at once; 0: unlimited. */
static __always_inline __u32 limit_of(const struct room *r, const struct room_config *c, __u64 now) {
  if (!c->adaptive)
    return c->limit;
  return is_steered(r, now) ? r->control.limit : r->control.safe;
}

/* Moves on to the epoch of this moment. */
static __always_inline void advance(struct room *r, const struct room_config *c, __u64 now) {
  if ((__s64)(now - r->epoch_began) < (__s64)c->epoch)
    return;
  if (!r->in_service || !c->epoch) {
    r->epoch_began = now;
    return;
  }
  for (int i = 0; i < EPOCHS; i++) {
    if (now - r->epoch_began < c->epoch)
      return;
    r->epoch_began += c->epoch;
    forget_epoch(r, ++r->epoch);
  }
  r->epoch_began = now;
}

/* Counts a request in service. The epoch is to be kept for leave(). */
static __always_inline __u32 enter(struct room *r, __u32 class) {
  r->in_service++;
  class_of(r, class)->in_service++;
  r->entered[r->epoch % EPOCHS][class & (CLASS_SLOTS - 1)]++;
  return r->epoch;
}

/* Whether what entered in that epoch has been given up. */
static __always_inline bool is_forgotten(const struct room *r, __u32 epoch) {
  return r->epoch - epoch >= EPOCHS;
}

/* Ends what enter() began. False: it has been given up before. */
static __always_inline bool leave(struct room *r, __u32 class, __u32 epoch) {
  if (is_forgotten(r, epoch))
    return false;
  r->in_service--;
  class_of(r, class)->in_service--;
  r->entered[epoch % EPOCHS][class & (CLASS_SLOTS - 1)]--;
  return true;
}

/* Ends a request's service that began so long ago. */
static __always_inline void finish(struct room *r, __u32 class, __u32 epoch, __u64 took) {
  if (!leave(r, class, epoch))
    return;
  if ((__s64)took < 0) /* another CPU read the clock later, and had the lock first */
    took = 0;
  struct class_room *c = class_of(r, class);
  c->served++;
  c->service_sum += took;
  c->service[bucket_of(took)]++;
  c->typical = c->typical ? c->typical - c->typical / 8 + took / 8 : took;
}

/* Ends a ghost's service. How long it took is not known. */
static __always_inline void lay(struct room *r, struct ghost *g) {
  if (g->cookie && leave(r, g->class, g->epoch))
    class_of(r, g->class)->served++;
  g->cookie = 0;
}

#define MAX_REAPED 32

/* Whether the first ghost is to go. */
static __always_inline bool is_ghost_due(const struct room *r, __u64 now) {
  const struct ghost *g = &r->ghost[r->ghost_first % GHOSTS];
  return r->ghost_first != r->ghost_end && (!g->cookie || (__s64)(g->deadline - now) <= 0);
}

/* Lets ghosts go whose time has come, some at a time. */
static __always_inline void reap_ghosts(struct room *r, __u64 now) {
  for (int i = 0; i < MAX_REAPED; i++) {
    struct ghost *g = &r->ghost[r->ghost_first % GHOSTS];
    if (!is_ghost_due(r, now))
      return;
    lay(r, g);
    r->ghost_first++;
  }
}

/* Whether there is something for catch_up() to do. Without the lock. */
static __always_inline bool is_behind(const struct room *r, const struct room_config *c, __u64 now) {
  return (c->epoch && (__s64)(now - r->epoch_began) >= (__s64)c->epoch) || is_ghost_due(r, now);
}

/* What a class for which nothing is known yet is taken to need. */
#define TYPICAL_UNKNOWN 1000000000ULL

/* Keeps a request in service whose client is gone, for the server does not know that yet:
 * until it closes its socket, or for as long as such a request usually takes. */
static __always_inline __u32 haunt(struct room *r, __u32 class, __u32 epoch, __u64 cookie, __u64 now) {
  struct class_room *c = class_of(r, class);
  if (r->ghost_end - r->ghost_first >= GHOSTS)
    lay(r, &r->ghost[r->ghost_first++ % GHOSTS]);
  __u32 number = r->ghost_end++;
  struct ghost *g = &r->ghost[number % GHOSTS];
  g->deadline = now + (c->typical ?: TYPICAL_UNKNOWN);
  g->cookie = cookie;
  g->class = class;
  g->epoch = epoch;
  return number;
}

static __always_inline bool has_room(const struct room *r) { return !r->limit || r->in_service < r->limit; }

/* Bits of the classes that are at their max. Without branches, which the verifier would have
 * to follow all. */
static __always_inline __u32 at_max(const struct room *r, const struct room_config *c) {
  __u32 full = 0;
  if (!c->bounded)
    return 0;
  for (__u32 i = 0; i < MAX_RANKS; i++) {
    const struct rank *k = &c->rank[i];
    __u64 max = k->max, in_service = r->class[k->class & (CLASS_SLOTS - 1)].in_service;
    __u32 bound = (-max) >> 63, below = (in_service - max) >> 63;
    full |= (bound & ~below) << (k->class & (CLASS_SLOTS - 1));
  }
  return full;
}

/* The first of the classes, by rank, among the first so many ranks; its bit, or 0. */
static __always_inline __u32 first_by_rank(const struct room *r, const struct room_config *c, __u32 classes,
                                           __u32 ranks) {
  if (!classes)
    return 0;
  ranks = forget(ranks, r->in_service);
  for (__u32 i = 0; i < MAX_RANKS; i++) {
    if (i >= ranks)
      break;
    __u32 bit = bit_of(c->rank[i].class);
    if (classes & bit)
      return bit;
  }
  return 0;
}

/* The node of a class that waits longest; 0 if there is none. */
static __always_inline __u32 oldest(const struct class_room *c, struct pool *p) {
  __u32 kept = c->head[LIST_KEPT], new = c->head[LIST_NEW];
  if (!kept || !new)
    return kept | new;
  return (__s64)(link_of(p, kept)->since - link_of(p, new)->since) < 0 ? kept : new;
}

/* The class with that bit, the lowest of several. There is one. */
static __always_inline const struct class_room *class_with(const struct room *r, __u32 bits) {
  __u32 bit = bits & -bits;
  __u32 slot = any_of(bit & 0xaaaaaaaa) | any_of(bit & 0xcccccccc) << 1 | any_of(bit & 0xf0f0f0f0) << 2 |
               any_of(bit & 0xff00ff00) << 3 | any_of(bit & 0xffff0000) << 4;
  return &r->class[slot & (CLASS_SLOTS - 1)];
}

/* Bit of the class that is next among these with one of the first so many ranks; 0 if none
 * could be admitted. A class whose reserve is due is next, whatever its rank. */
static __always_inline __u32 next_class(const struct room *r, const struct room_config *c, __u32 classes,
                                        __u32 ranks) {
  __u32 able = classes & ~at_max(r, c);
  __u32 due = first_by_rank(r, c, able & r->due_classes, c->ranks);
  return due ?: first_by_rank(r, c, able, ranks);
}

/* The node that is to be released next, 0 if there is no room or nobody. Where the server's
 * accept queue was found full at this tick of the clock, it is nobody whom it still has to accept. */
static __always_inline __u32 next_node(const struct room *r, struct pool *p, const struct room_config *c,
                                       __u32 jiffies) {
  if (!r->waiting || !has_room(r))
    return 0;
  bool stuck = r->stuck == jiffies;
  __u32 classes = stuck ? r->kept_classes : r->waiting_classes;
  __u32 bit = next_class(r, c, classes, c->ranks);
  if (!bit) /* those of classes that are in the policy no more come last */
    bit = classes & ~c->classes;
  if (!bit)
    return 0;
  const struct class_room *q = class_with(r, bit);
  return stuck ? q->head[LIST_KEPT] : oldest(q, p);
}

static __always_inline bool is_overdue(struct pool *p, __u64 max_wait, __u32 node, __u64 now) {
  return (__s64)(now - link_of(p, node)->since) >= (__s64)max_wait;
}

/* How long the rest of a head is waited for where none is put together any more. */
#define LEFT_GATHERING 1000000000ULL

/* A node that has waited for too long, 0 if none. */
static __always_inline __u32 overdue_node(struct room *r, struct pool *p, const struct room_config *c,
                                          __u64 now) {
  __u64 most = c->strict || r->limit || c->max_wait < LEFT_GATHERING ? c->max_wait : LEFT_GATHERING;
  if (r->gather_head && is_overdue(p, most, r->gather_head, now))
    return r->gather_head;
  if (!r->waiting)
    return 0;
  for (__u32 i = 0; i < MAX_RANKS && i < c->ranks; i++) {
    __u32 class = c->rank[i].class;
    __u32 node = r->waiting_classes & bit_of(class) ? oldest(class_of(r, class), p) : 0;
    if (node && is_overdue(p, c->max_wait, node, now))
      return node;
  }
  __u32 gone = r->waiting_classes & ~c->classes; /* in the policy no more */
  __u32 node = gone ? oldest(class_with(r, gone), p) : 0;
  return node && is_overdue(p, c->max_wait, node, now) ? node : 0;
}

/* Accounts an admission of the class to the reserves. */
static __always_inline void credit(struct room *r, const struct room_config *c, __u32 class) {
  if (!r->waiting)
    return;
  for (__u32 i = 0; i < MAX_RANKS; i++) {
    if (i >= c->ranks)
      break;
    const struct rank *k = &c->rank[i];
    struct class_room *q = class_of(r, k->class);
    if (!k->reserve || !q->waiting)
      continue;
    q->credit += k->reserve;
    if (k->class == class)
      q->credit = q->credit > 100 ? q->credit - 100 : 0;
    else if (q->credit > 200)
      q->credit = 200;
    if (q->credit >= 100)
      r->due_classes |= bit_of(k->class);
    else
      r->due_classes &= ~bit_of(k->class);
  }
}

/* Whether a request of that rank may enter now: there is room, and nobody waits before it
 * who could. */
static __always_inline bool may_enter(const struct room *r, const struct room_config *c, __u32 rank) {
  if (!has_room(r))
    return false;
  if (at_max(r, c) & bit_of(c->rank[rank & (MAX_RANKS - 1)].class))
    return false;
  return !r->waiting || !next_class(r, c, r->waiting_classes, rank + 1);
}

/* The node that makes room for a request of that rank: the longest-waiting of the lowest
 * class, if that is lower. */
static __always_inline __u32 displaced_by(const struct room *r, struct pool *p, const struct room_config *c,
                                          __u32 rank) {
  __u32 bit = r->waiting_classes & ~c->classes;
  for (__u32 i = 0; !bit && i < MAX_RANKS; i++) {
    __u32 lowest = MAX_RANKS - 1 - i;
    if (lowest <= rank)
      break;
    if (lowest < c->ranks)
      bit = r->waiting_classes & bit_of(c->rank[lowest].class);
  }
  return bit ? oldest(class_with(r, bit), p) : 0;
}

/* Makes a place in the queue for a request of that rank. What has not come as a whole goes
 * first, for it costs nothing to send a part. False: the queue is full. */
static __always_inline bool make_place(struct room *r, struct pool *p, const struct room_config *c,
                                       __u32 rank) {
  if (r->waiting + r->gathering < c->queue_size)
    return true;
  if (!c->queue_size)
    return false;
  __u32 victim = r->gather_head;
  if (!victim)
    victim = displaced_by(r, p, c, rank);
  if (victim)
    doom(r, p, victim, REJECT_DISPLACED);
  return victim;
}

/* Heads that may come in pieces at once where nobody waits for a turn. */
#define LEAST_GATHERING 16

/* Makes a place for a head that comes in pieces: in the queue, if there is one. */
static __always_inline bool make_gathering_place(struct room *r, struct pool *p, const struct room_config *c,
                                                 __u32 rank) {
  if (c->queue_size)
    return make_place(r, p, c, rank);
  if (r->gathering >= LEAST_GATHERING)
    doom(r, p, r->gather_head, REJECT_DISPLACED);
  return true;
}

/* Puts a node at the end of its class. */
static __always_inline void enqueue(struct room *r, struct pool *p, __u32 node) {
  struct node_link *l = link_of(p, node);
  struct class_room *q = class_of(r, l->class);
  __u32 list = list_of(l);
  append(p, &q->head[list], &q->tail[list], node);
  count_waiting(r, l);
}

/* Starts the counters of a class anew that nobody waits or is in service of. Takes the room's
 * lock. */
static __always_inline void reset_class(struct room *r, __u32 class) {
  bpf_spin_lock(&r->lock);
  struct class_room *c = class_of(r, class);
  if (!c->waiting && !c->in_service)
    __builtin_memset(c, 0, sizeof(*c));
  bpf_spin_unlock(&r->lock);
}
