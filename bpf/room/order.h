/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who may enter service, who is next, and who makes room. All under the room's lock. */
#pragma once
#include "room/lists.h"

/* Of a number that classes may have in service all bits, or none while that holds nothing. */
static __always_inline __u64 what_holds(const struct room *r) {
  return (r->control.marks / CONTROL_GIVEN_UP & 1) - 1ULL;
}

/* Whether as many requests of a class are in service as may be. Without branches, which the verifier would
 * have to follow all. */
static __always_inline __u32 is_full(const struct room *r, const struct rank *k, __u64 holds) {
  __u64 max = k->max & holds;
  __u64 in_service = r->class[k->class & (CLASS_SLOTS - 1)].in_service;
  return any_of(max) & ~((in_service - max) >> 63);
}

/* The first of the classes, by rank, of which a request may enter service, among the first so many ranks; its
 * bit, or 0. */
static __always_inline __u32 first_by_rank(const struct room *r, const struct room_config *c, __u32 classes,
                                           __u32 ranks) {
  if (!classes)
    return 0;
  __u64 holds = what_holds(r);
  ranks = forget(ranks, r->in_service);
  for (__u32 i = 0; i < MAX_RANKS; i++) {
    if (i >= ranks)
      break;
    __u32 bit = bit_of(c->rank[i].class);
    if (classes & bit && !is_full(r, &c->rank[i], holds))
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

/* The slot of the class with that bit, the lowest of several. There is one. */
static __always_inline __u32 class_slot(__u32 bits) { return number_of(bits & -bits) & (CLASS_SLOTS - 1); }

/* The same class in a room. */
static __always_inline struct class_room *class_with(struct room *r, __u32 bits) {
  return &r->class[class_slot(bits)];
}

/* Bit of the class that is next among these with one of the first so many ranks; 0 if none
 * could be admitted. A class whose reserve is due is next, whatever its rank. */
static __always_inline __u32 next_class(const struct room *r, const struct room_config *c, __u32 classes,
                                        __u32 ranks) {
  __u32 due = first_by_rank(r, c, classes & r->due_classes, c->ranks);
  return due ?: first_by_rank(r, c, classes, ranks);
}

/* The classes of which somebody waits who could be released, as far as the room knows. Where the server's
 * accept queue was found full at this tick of the clock, it is nobody whom it still has to accept. */
static __always_inline __u32 ready_classes(const struct room *r, __u32 jiffies) {
  if (!r->waiting || !has_room(r))
    return 0;
  return r->stuck == jiffies ? r->kept_classes : r->waiting_classes;
}

/* Bits of the class among some of which a request is to be released next, and maybe of others beyond it; 0 if
 * there is no room or nobody. */
static __always_inline __u32 next_to_release(const struct room *r, const struct room_config *c, __u32 jiffies,
                                             __u32 among) {
  __u32 classes = ready_classes(r, jiffies) & among;
  /* Those of classes that are in the policy no more come last. */
  return next_class(r, c, classes, c->ranks) ?: classes & ~c->classes;
}

/* The node of a class that is next. */
static __always_inline __u32 next_of(const struct room *r, struct class_room *q, __u32 jiffies) {
  return r->stuck == jiffies ? q->head[LIST_KEPT] : front_of(q);
}

static __always_inline bool is_overdue(struct pool *p, __u64 max_wait, __u32 node, __u64 now) {
  return (__s64)(now - link_of(p, node)->since) >= (__s64)max_wait;
}

/* Finds out whether overload lasts in a class, of which the one that waits longest has waited for so long: it
 * does when that has been more than the target for as long as that, until it is less than half of it. While
 * who has waited for the target goes, it stays near. */
static __always_inline void note_waited(struct class_room *q, __u64 target, __u64 waited, __u64 now) {
  if (waited < target / 2)
    q->late = q->lasts = 0;
  else if (waited >= target && !q->late)
    q->late = now;
  else if (q->late && now - q->late >= target)
    q->lasts = ~0ULL;
}

/* How long anybody of a class may wait. */
static __always_inline __u64 most_wait(const struct class_room *q, const struct room_config *c) {
  return c->max_wait - ((c->max_wait - c->target) & q->lasts);
}

/* How long the rest of a head is waited for where none is put together any more. */
#define LEFT_GATHERING 1000000000ULL

/* A node that has waited for too long, 0 if none. */
static __always_inline __u32 overdue_node(struct room *r, struct pool *p, const struct room_config *c,
                                          __u64 now) {
  __u64 most = is_strict(c, r) || c->max_wait < LEFT_GATHERING ? c->max_wait : LEFT_GATHERING;
  if (r->gather_head && is_overdue(p, most, r->gather_head, now))
    return r->gather_head;
  if (!r->waiting)
    return 0;
  for (__u32 i = 0; i < MAX_RANKS && i < c->ranks; i++) {
    __u32 class = c->rank[i].class;
    __u32 node = r->waiting_classes & bit_of(class) ? oldest(class_of(r, class), p) : 0;
    if (node && is_overdue(p, most_wait(class_of(r, class), c), node, now))
      return node;
  }
  __u32 gone = r->waiting_classes & ~c->classes; /* in the policy no more */
  __u32 node = gone ? oldest(class_with(r, gone), p) : 0;
  return node && is_overdue(p, c->max_wait, node, now) ? node : 0;
}

/* Accounts an admission of the class to the reserves. */
static __always_inline void credit(struct room *r, const struct room_config *c, __u32 class) {
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
  if (!has_room(r) || is_full(r, &c->rank[rank & (MAX_RANKS - 1)], what_holds(r)))
    return false;
  return !r->waiting || !next_class(r, c, r->waiting_classes, rank + 1);
}

/* The node that makes room for a node's request of that rank. It is of the source that has most in the lowest
 * class, if that is lower; or, if that has more even without it than the request's source with it, or the
 * latter is known, in the same, unless its line is not known yet. Of that source it is the one that waits
 * longest. Known sources make no room where any other could. */
static __always_inline __u32 displaced_by(struct room *r, struct pool *p, const struct room_config *c,
                                          __u32 rank, __u32 node) {
  __u32 bit = r->waiting_classes & ~c->classes;
  for (__u32 i = 0; !bit && i < MAX_RANKS; i++) {
    __u32 lowest = MAX_RANKS - 1 - i;
    if (lowest <= rank)
      break;
    if (lowest < c->ranks)
      bit = r->waiting_classes & bit_of(c->rank[lowest].class);
  }
  const struct node_link *l = link_of(p, node);
  const struct class_room *q = bit ? class_with(r, bit) : &r->class[l->class & (CLASS_SLOTS - 1)];
  const struct line *most = line_of(p, q->most), *mine = line_of(p, l->line), *of = line_of(p, most->most);
  bool among = most->most && l->line == q->most; /* values of one source */
  bool first = l->line && is_known(p, l->line);
  __u32 last = q->most ? 0 : next_turn((struct class_room *)q)->tail; /* it is not known who has most */
  if (!bit && (!l->line || !(q->most || (first && last))))
    return 0;
  if (!bit && !first &&
      (among ? of->waiting < line_of(p, l->value)->waiting + 2 : most->waiting < mine->waiting + 2))
    return 0;
  if (!q->most)
    return last ?: oldest(q, p);
  return most->most ? of->head : most->head;
}

/* Whether nodes run out for the service, which has its share of them; the node at hand is counted. The pool
 * is looked at without its lock. */
static __always_inline bool is_scarce(struct pool *p, const struct room_config *c, __u32 node) {
  return p->used > c->common && *used_by(p, link_of(p, node)) > c->share;
}

/* Heads that may come in pieces at once where nobody waits for a turn. */
#define LEAST_GATHERING 16

/* Of a queue's places, or of the nodes, the sources of one group may have one in so many, and a few, when
 * others give way to them. */
#define GROUP_PART 8

/* Whether the oldest head that comes in pieces gives way to the node's request: not for sources that have
 * many places already, unless it is one of theirs. */
static __always_inline bool gives_way(const struct room *r, struct pool *p, const struct room_config *c,
                                      __u32 node) {
  const struct node_link *l = link_of(p, node);
  __u32 most = c->queue_size < slot_count ? c->queue_size : slot_count;
  return r->gather_head && (*used_from(p, l) <= LEAST_GATHERING + most / GROUP_PART ||
                            link_of(p, r->gather_head)->group == l->group);
}

/* Makes a place in the queue for the node's request, of that rank. What has not come as a whole goes
 * first, for it costs nothing to send a part. False: the queue is full. */
static __always_inline bool make_place(struct room *r, struct pool *p, const struct room_config *c,
                                       __u32 rank, __u32 node) {
  if (r->waiting + r->gathering < c->queue_size && !is_scarce(p, c, node))
    return true;
  if (!c->queue_size)
    return false;
  __u32 victim = gives_way(r, p, c, node) ? r->gather_head : displaced_by(r, p, c, rank, node);
  if (victim)
    make_due(r, p, victim, REJECT_DISPLACED);
  return victim;
}

/* Makes a place for a head that comes in pieces: in the queue, if there is one. */
static __always_inline bool make_gathering_place(struct room *r, struct pool *p, const struct room_config *c,
                                                 __u32 rank, __u32 node) {
  if (c->queue_size)
    return make_place(r, p, c, rank, node);
  if (r->gathering >= LEAST_GATHERING)
    make_due(r, p, r->gather_head, REJECT_DISPLACED);
  return true;
}

/* Starts the counters of a class anew that nobody waits or is in service of. Takes the room's
 * lock. */
static __always_inline void reset_class(struct room *r, __u32 class) {
  bpf_spin_lock(&r->lock);
  struct class_room *c = class_of(r, class);
  __s64 clock = c->clock + MOST_DEBT;
  if (!c->waiting && !c->in_service && !c->charged && !c->told && c->brief.begun == c->brief.served) {
    __builtin_memset(c, 0, __builtin_offsetof(struct class_room, turn)); /* in which is nobody */
    __builtin_memset(&c->brief, 0, sizeof(c->brief));
    c->clock = clock; /* what sources had is of the class before */
  }
  bpf_spin_unlock(&r->lock);
}
