/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Fair order in a class: each source has a line, and lines take turns by the time in service that they have
 * had. This is start-time fair queueing with a calendar of turns; docs/decisions/0038 says why. All functions
 * here run under the room's lock unless they say otherwise. */
#pragma once
#include "room/state.h"

/* Virtual time that a request costs which takes as long as the class's do on average. It is charged when the
 * request is released; what it really took is made up for at its end. */
#define REQUEST_COST (1LL << 20)

/* Length of a turn, 2^n of virtual time. */
#define TURN_BITS 21

/* What a line may have had more than its share, and is remembered, at most. */
#define MOST_DEBT (4096 * REQUEST_COST)

static __always_inline struct line *line_of(struct pool *p, __u32 line) {
  return &p->line[(line - 1) & (LINE_SETS * LINE_WAYS - 1)];
}

static __always_inline __u64 *owner_of(struct pool *p, __u32 line) {
  return &((__u64 *)p->set)[(line - 1) & (LINE_SETS * LINE_WAYS - 1)];
}

/* Lists are changed without branches, which the verifier would have to follow all: what a node's neighbours
 * are to be told that it does not have is told to node 0. */
static __always_inline void append(struct pool *p, enum chain chain, __u32 *head, __u32 *tail, __u32 node) {
  struct neighbours *l = &link_of(p, node)->in[chain];
  l->next = 0;
  l->prev = *tail;
  link_of(p, *tail)->in[chain].next = node;
  *head |= node & (any_of(*tail) - 1);
  *tail = node;
}

static __always_inline void prepend(struct pool *p, enum chain chain, __u32 *head, __u32 *tail, __u32 node) {
  struct neighbours *l = &link_of(p, node)->in[chain];
  l->prev = 0;
  l->next = *head;
  link_of(p, *head)->in[chain].prev = node;
  *tail |= node & (any_of(*head) - 1);
  *head = node;
}

static __always_inline void put_in(struct pool *p, enum chain chain, __u32 *head, __u32 *tail, __u32 node,
                                   bool first) {
  if (first)
    prepend(p, chain, head, tail, node);
  else
    append(p, chain, head, tail, node);
}

static __always_inline void take_out(struct pool *p, enum chain chain, __u32 *head, __u32 *tail, __u32 node) {
  struct neighbours *l = &link_of(p, node)->in[chain];
  __u32 next = l->next, prev = l->prev;
  link_of(p, prev)->in[chain].next = next;
  link_of(p, next)->in[chain].prev = prev;
  *head ^= (*head ^ next) & (any_of(prev) - 1);
  *tail ^= (*tail ^ prev) & (any_of(next) - 1);
}

/* Has a node be of a line no more. Under the pool's lock. */
static __always_inline void leave_line(struct pool *p, __u32 *line) {
  if (*line)
    --*owner_of(p, *line);
  *line = 0;
}

static __always_inline void leave_lines(struct pool *p, struct node_link *l) {
  leave_line(p, &l->line);
  leave_line(p, &l->value);
}

/* The line in a set with that owner, or one that nobody is in; 0: others are in all of them. Under the pool's
 * lock. */
static __always_inline __u32 find_line(struct pool *p, __u32 set, __u64 owner) {
  struct line_set *s = &p->set[set & (LINE_SETS - 1)];
  __u32 found = 0;
  for (__u32 i = 0; i < LINE_WAYS; i++) {
    __u64 way = s->way[i];
    bool same = !((way ^ owner) & ~(__u64)LINE_USE);
    if (same || !(way & LINE_USE))
      found = i + 1;
    if (same)
      break;
  }
  found = forget(found, owner);
  return found ? (set & (LINE_SETS - 1)) * LINE_WAYS + found : 0;
}

/* Gives a node that is in no list the line of its source, by a hash of who that is in which class; or in
 * that, where it has one, the line of its value, by a hash of both. False: there is none left. Takes the
 * pool's lock. */
__noinline int join_line(__u32 node, __u64 hash, __u32 of_value) {
  struct pool *p = the_pool();
  __u64 owner = hash & ~(__u64)LINE_USE;
  bpf_spin_lock(&p->lock);
  struct node_link *l = link_of(p, node);
  __u32 *mine = of_value ? &l->value : &l->line;
  leave_line(p, mine);
  leave_line(p, &l->value); /* it is of that line */
  __u32 line = find_line(p, hash, owner) ?: find_line(p, hash >> 32, owner);
  if (line) {
    __u64 *way = owner_of(p, line);
    if ((*way ^ owner) & ~(__u64)LINE_USE) {
      *way = owner;
      line_of(p, line)->start = 0;
    }
    ++*way;
  }
  *mine = line;
  bpf_spin_unlock(&p->lock);
  return line != 0;
}

static __always_inline __s64 greater_of(__s64 a, __s64 b) {
  __u64 less = (__u64)(b - a) >> 63;
  asm volatile("" : "+r"(less)); /* as in any_of() */
  return a + ((b - a) & (less - 1));
}

/* Whether a line is of a known source: 1 or 0. */
static __always_inline __u32 is_known(struct pool *p, __u32 line) {
  return any_of(*owner_of(p, line) & LINE_KNOWN);
}

/* The place in a class of a turn of the calendar; or, if `known` is 1 and not 0, of that of known sources. */
static __always_inline struct turn *turn_at(struct class_room *c, __u32 turn, __u32 known) {
  return &c->turn[(turn % TURNS + 1) & (known - 1)];
}

/* Gives a line its turn, with the node at its front. What is farther away than the calendar goes has the last
 * turn, and is put off when that comes. Known sources take turns one by one. */
static __always_inline void take_turns(struct class_room *c, struct pool *p, struct line *line) {
  __u32 turn = line->start >> TURN_BITS, empty = any_of(c->turns) - 1;
  c->first ^= (c->first ^ turn) & empty;
  /* The place before the first is free: for who comes anew and has had less than all others. */
  c->first -= (turn - c->first) >> 31 & ~(c->turns >> ((c->first - 1) % TURNS));
  __s64 ahead = TURNS - 2 - greater_of(0, TURNS - 2 - greater_of(0, (__s32)(turn - c->first)));
  turn = (c->first + (__u32)ahead) % TURNS;
  line->turn = turn;
  __u32 known = is_known(p, link_of(p, line->head)->line);
  c->turns |= (1 - known) << turn;
  struct turn *t = turn_at(c, turn, known);
  append(p, IN_TURN, &t->head, &t->tail, line->head);
}

/* Takes the node at the front of a line out of its turn. */
static __always_inline void give_turn_up(struct class_room *c, struct pool *p, struct line *line,
                                         __u32 front) {
  __u32 turn = line->turn % TURNS, known = is_known(p, link_of(p, front)->line);
  struct turn *t = turn_at(c, turn, known);
  take_out(p, IN_TURN, &t->head, &t->tail, front);
  c->turns &= ~(1U << turn) | (any_of(t->head | known) << turn);
}

/* Has a class remember a line, or a line one of its values, if more wait in it than in the one that had most.
 */
static __always_inline void note_most(__u32 *known, struct pool *p, __u32 number) {
  __s64 most = -(__s64)any_of(*known) & line_of(p, *known)->waiting;
  __u32 more = (most - line_of(p, number)->waiting) >> 63;
  *known ^= (*known ^ number) & more;
}

/* Puts a node behind those of its line with the same value, or before them. Only the first of these is in the
 * line, so that values take turns there. False: it is not. */
static __always_inline bool follow_value(struct pool *p, struct line *line, __u32 node, bool first) {
  __u32 number = link_of(p, node)->value;
  if (!number)
    return true;
  struct line *value = line_of(p, number);
  __u32 front = value->head;
  put_in(p, OF_VALUE, &value->head, &value->tail, node, first);
  value->waiting++;
  note_most(&line->most, p, number);
  if (front && first)
    take_out(p, IN_LINE, &line->head, &line->tail, front);
  return first || !front;
}

/* Takes a node from among those of its line with the same value. The next of these comes into the line, at
 * its end. False: the node was not in the line. */
static __always_inline bool leave_value(struct pool *p, struct line *line, __u32 node) {
  __u32 number = link_of(p, node)->value;
  if (!number)
    return true;
  struct line *value = line_of(p, number);
  bool front = value->head == node;
  take_out(p, OF_VALUE, &value->head, &value->tail, node);
  value->waiting--;
  if (!value->head)
    line->most &= any_of(line->most ^ number) * ~0U;
  else if (front)
    append(p, IN_LINE, &line->head, &line->tail, value->head);
  return front;
}

/* Puts a node at the end of its line, or at its front. */
static __always_inline void line_up(struct class_room *c, struct pool *p, __u32 node, bool first) {
  __u32 number = link_of(p, node)->line;
  struct line *line = line_of(p, number);
  __u32 front = line->head;
  bool here = follow_value(p, line, node, first);
  line->waiting++;
  if (!is_known(p, number))
    note_most(&c->most, p, number);
  if (here)
    put_in(p, IN_LINE, &line->head, &line->tail, node, first);
  if (line->head == front)
    return;
  if (front) {
    give_turn_up(c, p, line, front);
  } else {
    c->lines++;
    /* Who has had nothing lately goes before those who have had their share, and not before all others who
     * have not. */
    line->start = greater_of(line->start, c->clock - (1LL << TURN_BITS));
    line->start = c->clock + MOST_DEBT - greater_of(0, c->clock + MOST_DEBT - line->start);
  }
  take_turns(c, p, line);
}

/* Takes a node out of its line. */
static __always_inline void unline(struct class_room *c, struct pool *p, __u32 node) {
  __u32 number = link_of(p, node)->line;
  struct line *line = line_of(p, number);
  bool front = line->head == node, here = leave_value(p, line, node);
  if (here)
    take_out(p, IN_LINE, &line->head, &line->tail, node);
  line->waiting--;
  if (!front)
    return;
  give_turn_up(c, p, line, node);
  if (line->head) {
    take_turns(c, p, line);
    return;
  }
  c->lines--;
  c->most &= any_of(c->most ^ number) * ~0U;
}

/* The number of the only bit that is set. */
static __always_inline __u32 number_of(__u32 bit) {
  return any_of(bit & 0xaaaaaaaa) + ADDED(any_of(bit & 0xcccccccc) << 1) +
         ADDED(any_of(bit & 0xf0f0f0f0) << 2) + ADDED(any_of(bit & 0xff00ff00) << 3) +
         ADDED(any_of(bit & 0xffff0000) << 4);
}

/* How many turns it is to the next that has somebody. */
static __always_inline __u32 turns_ahead(const struct class_room *c) {
  __u32 at = c->first % TURNS;
  __u32 from = c->turns >> at | (__u32)((__u64)c->turns << (TURNS - at));
  return number_of(from & -from);
}

/* The turn of the calendar that is next. */
static __always_inline struct turn *next_turn(struct class_room *c) {
  return turn_at(c, c->first + turns_ahead(c), 0);
}

/* The node of the class whose turn it is; 0: nobody waits. */
static __always_inline __u32 front_of(struct class_room *c) {
  return turn_at(c, c->first + turns_ahead(c), any_of(c->turn[0].head))->head;
}

/* Puts the line off whose turn it is, if it has come to the last turn that there was, and has had too much
 * for it. False: it is next. */
static __always_inline bool put_off(struct class_room *c, struct pool *p, __u32 front) {
  struct line *line = line_of(p, link_of(p, front)->line);
  c->first += turns_ahead(c);
  __s32 early = (__u32)(line->start >> TURN_BITS) - c->first;
  if (!front || early <= 0 || is_known(p, link_of(p, front)->line))
    return false;
  give_turn_up(c, p, line, front);
  take_turns(c, p, line);
  return true;
}

/* How far the clock may be ahead of the line that is served. Those who come anew are one turn behind the
 * clock: so next to who is served, and a little later than who came anew before, else new ones would be first
 * for ever. */
#define MOST_AHEAD ((1LL << TURN_BITS) + REQUEST_COST / 2)

/* Charges a line for its request, which is released, still in its line. The clock is of those that are not
 * known: meanwhile it stands. */
static __always_inline void charge_release(struct class_room *c, struct pool *p, __u32 node) {
  __u32 number = link_of(p, node)->line;
  struct line *line = line_of(p, number);
  line->start += REQUEST_COST;
  if (is_known(p, number))
    return;
  c->first += turns_ahead(c);
  __s32 behind = c->first - (__u32)(c->clock >> TURN_BITS);
  c->clock += greater_of(0, behind) << TURN_BITS; /* all have had more than their share */
  c->clock += (__u64)REQUEST_COST / (c->lines + 1 - any_of(c->lines));
  /* Lines that are served, and do not wait, are not among those by which it was divided. */
  c->clock -= greater_of(0, c->clock + REQUEST_COST - line->start - MOST_AHEAD);
}

/* Takes that back. */
static __always_inline void refund_release(struct pool *p, __u32 node) {
  line_of(p, link_of(p, node)->line)->start -= REQUEST_COST;
}

/* Longest time in service that is charged for. */
#define MOST_CHARGED (1ULL << 40)

/* Has a line pay for what its request took, less what it was charged for already. The line may be another's
 * by now; that it becomes one at this moment is accepted. */
static __always_inline void charge(struct class_room *c, struct pool *p, __u32 number, __u32 owner,
                                   __u64 took) {
  if (!number || !c->mean || *owner_of(p, number) >> 32 != owner)
    return;
  struct line *line = line_of(p, number);
  took = took < MOST_CHARGED ? took : MOST_CHARGED;
  line->start += (__s64)(took * REQUEST_COST / c->mean) - REQUEST_COST;
}
