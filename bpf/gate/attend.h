/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who has a packet sees to it that what is due in a room is done. */
#pragma once
#include "emit/reply.h"
#include "gate/scene.h"
#include "room/epochs.h"
#include "room/order.h"

/* Sends a clone of the packet with a mark to the egress program of an interface. False: it is not there. */
static __always_inline bool send_kick(struct __sk_buff *skb, __u32 mark, __u32 ifindex) {
  __u32 was = skb->mark;
  skb->mark = mark;
  /* Above 0 it says that the clone was not sent: another CPU has done what was due. */
  bool sent = bpf_clone_redirect(skb, ifindex, 0) >= 0;
  skb->mark = was;
  return sent;
}

/* The same on another interface than the packet's, where nothing but a gate may see it. */
__noinline int kick_elsewhere(struct __sk_buff *skb, __u32 mark, __u32 ifindex) {
  return bpf_map_lookup_elem(&gates, &ifindex) && send_kick(skb, mark, ifindex);
}

/* Has the egress program of the interface on which came what is due in the room make of a clone of the packet
 * what it is due for: sockets are looked up from there. What came on an interface that is no more is done
 * here. */
static __always_inline void kick(struct __sk_buff *skb, __u32 slot, __u32 ifindex) {
  __u32 room = slot & MARK_ROOM;
  bool here = !ifindex || ifindex == skb->ifindex;
  if (!here && kick_elsewhere(skb, MARK_KICK | room, ifindex))
    return;
  if (!send_kick(skb, here ? MARK_KICK | room : MARK_ELSEWHERE | room, skb->ifindex))
    count_reason(REASON_CLONE_FAULT, true, false);
}

/* Jiffies: when somebody had to wait last, or no place was left for who came. It is of all rooms, and without
 * any lock: it saves looking for whose a packet is where nobody has to wait. */
__u32 contended_at;

/* For how many ticks of the clock after somebody has waited the next who comes is taken to have to, as well:
 * between a quarter of a second and two and a half. */
#define CONTENDED_FOR 250

static __always_inline void note_contention(void) {
  __u32 now = bpf_jiffies64();
  if (contended_at != now)
    contended_at = now;
}

/* Whether the next who comes may have to wait, in whatever room. */
static __always_inline bool seems_contended(void) {
  return (__u32)bpf_jiffies64() - contended_at < CONTENDED_FOR;
}

/* Requests that one packet releases or rejects at most. */
#define MAX_KICKS 8

static __always_inline bool seems_free(const struct room *r) { return has_room(r); }

/* Whether there is anything to do in the room, at a glance: without the lock, and for what
 * has waited for too long only once per tick of the clock. */
static __always_inline bool seems_due(struct room *r) {
  if (r->due_head)
    return true;
  if (!(r->waiting | r->gathering))
    return false;
  __u32 now = bpf_jiffies64();
  if (r->waiting && seems_free(r) && !r->pooled && (r->stuck != now || r->kept_classes))
    return true;
  if (r->looked == now)
    return false;
  r->looked = now;
  note_contention();
  return true;
}

/* Whether the policy has put the room into another pool, or given it another share. */
static __always_inline bool has_moved_up(const struct room *r, const struct room_config *c) {
  return (r->above ^ c->above) | (r->weight ^ c->weight);
}

/* Whether an epoch has ended, or the room is in another pool. Without the lock. */
static __always_inline bool is_behind(const struct room *r, const struct room_config *c, __u64 now) {
  return (c->epoch && (__s64)(now - r->epoch_began) >= (__s64)c->epoch) || has_moved_up(r, c);
}

/* Has what is counted of the room be told to the pool that it is in now. Under the lock. */
static __always_inline void move_up(struct room *r, const struct room_config *c) {
  if (!has_moved_up(r, c))
    return;
  r->above = c->above;
  r->weight = c->weight;
  r->pooled = 1;
  r->untold = ~0U;
}

/* Moves a room on by an epoch. False: it was not behind. */
__noinline int next_epoch(__u32 slot) {
  struct scene sc;
  if (!open_scene(&sc, slot))
    return 0;
  __u64 now = bpf_ktime_get_ns();
  if (!is_behind(sc.room, sc.config, now))
    return 0;
  bpf_spin_lock(&sc.room->lock);
  move_up(sc.room, sc.config);
  advance(sc.room, sc.config, now);
  bpf_spin_unlock(&sc.room->lock);
  return 1;
}

/* Moves a room on to this moment's epoch: the last turn is for when nothing is in service any more. */
__noinline int catch_up(__u32 slot) {
  for (int i = 0; i <= EPOCHS; i++)
    if (!next_epoch(slot))
      break;
  return 0;
}

/* Takes the room's lock, for what depends on the limit and on who is in service. That the room is behind is
 * rare: the verifier looks at what is done about it once, and not wherever the lock is taken. */
static __always_inline void lock_current(struct scene *sc, __u32 slot, __u64 now) {
  if (is_behind(sc->room, sc->config, now))
    catch_up(slot);
  bpf_spin_lock(&sc->room->lock);
  put_limit(sc->room, limit_of(sc->room, sc->config, now), now);
}

/* Accounts an admission of a class to the reserves of a room. */
__noinline int account_admission(__u32 slot, __u32 class) {
  struct scene sc;
  if (!open_scene(&sc, slot))
    return 0;
  bpf_spin_lock(&sc.room->lock);
  credit(sc.room, sc.config, class);
  bpf_spin_unlock(&sc.room->lock);
  return 0;
}

/* The same, if there are any. Without the lock. */
static __always_inline void note_admission(struct scene *sc, __u32 slot, __u32 class) {
  if (sc->config->reserves && sc->room->waiting)
    account_admission(slot, class);
}

/* The bit of a class, given + 1; 0: none. */
static __always_inline __u32 bits_of(__u32 class) {
  return any_of(class) << ((class - 1) & (CLASS_SLOTS - 1));
}

/* What there is to do; beside it, from DUE_BITS on, the interface on which came what it is to be done to; 0:
 * that is not known. */
enum due { DUE_NOTHING, DUE_NEXT, DUE_OVERDUE };
#define DUE_BITS 2

/* Marks a request that has waited for too long for rejection. */
__noinline int expel(__u32 slot) {
  struct scene sc;
  if (!open_scene(&sc, slot))
    return 0;
  __u64 now = bpf_ktime_get_ns();
  bpf_spin_lock(&sc.room->lock);
  __u32 node = overdue_node(sc.room, sc.pool, sc.config, now);
  if (node && !link_of(sc.pool, node)->busy)
    make_due(sc.room, sc.pool, node,
             is_overdue(sc.pool, sc.config->max_wait, node, now) ? REJECT_MAX_WAIT : REJECT_TARGET);
  bpf_spin_unlock(&sc.room->lock);
  return 0;
}

/* Lines that are put off in one look. */
#define MOST_PUT_OFF 4

/* Looks at who is next of the first of these classes of a room. Returns −1 if that was a line that is put
 * off, for it has had too much; else the interface on which came the request that is next, or what is to be
 * rejected before; 0: it is not known. */
__noinline int look_at_next(__u32 slot, __u32 classes) {
  struct room *r = room_of(slot);
  struct pool *p = the_pool();
  if (!r)
    return 0;
  __u32 jiffies = bpf_jiffies64();
  bpf_spin_lock(&r->lock);
  struct class_room *q = class_with(r, classes);
  __u32 node = r->due_head ?: next_of(r, q, jiffies);
  struct node_link *l = link_of(p, node);
  __s32 found = l->busy ? 0 : l->ifindex;
  if (l->state == NODE_WAITING && put_off(q, p, front_of(q)))
    found = -1;
  bpf_spin_unlock(&r->lock);
  return found;
}

/* Looks whether overload lasts in a class of a room. */
__noinline int note_waits(__u32 slot, __u32 class) {
  struct scene sc;
  if (!open_scene(&sc, slot))
    return 0;
  struct class_room *q = class_of(sc.room, class);
  __u64 now = bpf_ktime_get_ns();
  bpf_spin_lock(&sc.room->lock);
  __u32 node = oldest(q, sc.pool);
  note_waited(q, sc.config->target, node ? now - link_of(sc.pool, node)->since : 0, now);
  sc.room->late_classes &= ~bit_of(class);
  sc.room->late_classes |= any_of(q->late) << (class & (CLASS_SLOTS - 1));
  bpf_spin_unlock(&sc.room->lock);
  return 0;
}

/* The same in all that have anybody waiting, or had. */
__noinline int note_all_waits(__u32 slot) {
  struct room *r = room_of(slot);
  if (!r)
    return 0;
  for (__u32 i = 0; i < CLASS_SLOTS; i++)
    if ((r->waiting_classes | r->late_classes) & bit_of(i))
      note_waits(slot, i);
  return 0;
}

/* `chosen`: where the room is in a pool, the class + 1 of which a release is due; 0: none. */
__noinline int what_is_due(__u32 slot, __u32 chosen) {
  struct scene sc;
  if (!open_scene(&sc, slot))
    return DUE_NOTHING;
  struct room *r = sc.room;
  __u64 now = bpf_ktime_get_ns();
  __u32 jiffies = bpf_jiffies64();
  if (sc.config->target < sc.config->max_wait)
    note_all_waits(slot);
  lock_current(&sc, slot, now);
  bool overdue = overdue_node(r, sc.pool, sc.config, now);
  __u32 among = sc.config->above ? bits_of(chosen) : ~0U;
  __u32 classes = next_to_release(r, sc.config, jiffies, among);
  int due = overdue ? DUE_OVERDUE : classes || r->due_head ? DUE_NEXT : DUE_NOTHING, ifindex = -1;
  bpf_spin_unlock(&r->lock);
  if (overdue)
    expel(slot);
  for (int i = 0; due && ifindex < 0 && i < MOST_PUT_OFF; i++)
    ifindex = look_at_next(slot, classes);
  return due && ifindex > 0 ? due | (ifindex << DUE_BITS) : due;
}

/* Does what is due in a room, by kicks. Whoever has a packet does it: nothing depends on the
 * daemon. Returns how many kicks it took. */
__noinline int attend(struct __sk_buff *skb, __u32 slot) {
  for (int i = 0; i < MAX_KICKS; i++) {
    __u32 found = what_is_due(slot, 0), due = found & ((1 << DUE_BITS) - 1);
    if (due == DUE_NOTHING)
      return i;
    kick(skb, slot, found >> DUE_BITS);
    struct room *r = room_of(slot);
    if (!r || (due == DUE_NEXT && !r->due_head && !(r->waiting && seems_free(r))))
      return i + 1;
  }
  return MAX_KICKS;
}
