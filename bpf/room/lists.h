/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The lists of a room, and the pool of nodes that are in them. All functions here run under the room's lock
 * unless they say otherwise. */
#pragma once
#include "room/lines.h"

static __always_inline __u32 *used_by(struct pool *p, const struct node_link *l) {
  return &p->used_by[l->room & (MAX_SERVICES - 1)];
}

static __always_inline __u32 *used_from(struct pool *p, const struct node_link *l) {
  return &p->used_from[l->group & (SOURCE_GROUPS - 1)];
}

/* Gives a node for a request to the service in a slot, of a group of sources; 0 if there is none. Takes the
 * pool's lock. */
static __always_inline __u32 take_node(struct pool *p, __u32 room, __u32 group) {
  __u32 node = 0;
  bpf_spin_lock(&p->lock);
  if (p->free) {
    node = p->free;
    p->free = link_of(p, node)->in[BY_ARRIVAL].next;
  } else if (p->fresh < slot_count) {
    node = ++p->fresh;
  }
  if (node) {
    struct node_link *l = link_of(p, node);
    l->state = NODE_TAKEN;
    l->busy = 0;
    l->again = 0;
    l->room = room;
    l->group = group;
    p->used++;
    ++*used_by(p, l);
    ++*used_from(p, l);
  }
  bpf_spin_unlock(&p->lock);
  return node;
}

/* Takes a node back that is in no list. Takes the pool's lock. */
static __always_inline void free_node(struct pool *p, __u32 node) {
  bpf_spin_lock(&p->lock);
  struct node_link *l = link_of(p, node);
  l->state = NODE_FREE;
  leave_lines(p, l);
  l->in[BY_ARRIVAL].next = p->free;
  p->free = node;
  p->used--;
  --*used_by(p, l);
  --*used_from(p, l);
  bpf_spin_unlock(&p->lock);
}

/* The list of a class that the node belongs to. */
static __always_inline __u32 list_of(const struct node_link *l) { return l->list & (LIST_LEN - 1); }

/* Takes a waiting node out of its class's list. */
static __always_inline void unqueue(struct room *r, struct pool *p, __u32 node) {
  __u32 class = link_of(p, node)->class, list = list_of(link_of(p, node));
  struct class_room *c = class_of(r, class);
  take_out(p, BY_ARRIVAL, &c->head[list], &c->tail[list], node);
  link_of(p, node)->state = NODE_TAKEN;
  unline(c, p, node);
  r->kept_classes &= ~bit_of(class) | -any_of(c->head[LIST_KEPT]);
  r->untold |= bit_of(class);
  r->waiting--;
  if (--c->waiting == 0) {
    r->waiting_classes &= ~bit_of(class);
    r->due_classes &= ~bit_of(class);
    c->credit = 0;
    c->clock += MOST_DEBT; /* all have had what they wanted: what they had before that is forgotten */
  }
}

static __always_inline void count_waiting(struct room *r, struct node_link *l) {
  l->state = NODE_WAITING;
  r->untold |= bit_of(l->class);
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
  if (gathering || l->state == NODE_DUE)
    take_out(p, BY_ARRIVAL, gathering ? &r->gather_head : &r->due_head,
             gathering ? &r->gather_tail : &r->due_tail, node);
  l->state = NODE_TAKEN;
}

/* Marks a node for rejection. */
static __always_inline void make_due(struct room *r, struct pool *p, __u32 node, __u8 why) {
  struct node_link *l = link_of(p, node);
  withdraw(r, p, node);
  append(p, BY_ARRIVAL, &r->due_head, &r->due_tail, node);
  l->state = NODE_DUE;
  l->reject = why;
}

/* Marks a node that a flow keeps as one to be put before the stack again. */
static __always_inline void make_due_again(struct room *r, struct pool *p, __u32 node) {
  make_due(r, p, node, 0);
  link_of(p, node)->again = 1;
}

/* Puts a node at the end of the list of heads that come in pieces. */
static __always_inline void enlist(struct room *r, struct pool *p, __u32 node) {
  append(p, BY_ARRIVAL, &r->gather_head, &r->gather_tail, node);
  link_of(p, node)->state = NODE_GATHERING;
  r->gathering++;
}

/* Puts a node at the end of its class and its line, or before all others of its list and its line. */
static __always_inline void enqueue(struct room *r, struct pool *p, __u32 node, bool first) {
  struct node_link *l = link_of(p, node);
  struct class_room *q = class_of(r, l->class);
  __u32 list = list_of(l);
  put_in(p, BY_ARRIVAL, &q->head[list], &q->tail[list], node, first);
  line_up(q, p, node, first);
  count_waiting(r, l);
}
