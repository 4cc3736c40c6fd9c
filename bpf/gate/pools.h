/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whose turn it is in a pool: what its kicks are made of. */
#pragma once
#include "gate/release.h"

/* The classes of which a member could have a request released, as far as its own room knows. */
__noinline int ready_in(__u32 above) {
  const struct room *r = room_above(above);
  return r ? ready_classes(r, bpf_jiffies64()) : 0;
}

/* The same of all members but those to be skipped, as far as the pool knows. */
__noinline int members_ready(__u32 above, __u32 skip) {
  struct scene sc;
  __u32 classes = 0;
  if (!open_scene(&sc, above - 1))
    return 0;
  for (__u32 i = 0; i < MAX_MEMBERS; i++) {
    __u32 member = sc.config->member[i];
    if (!member)
      break;
    classes |= ready_in(member) & ((skip >> i & 1) - 1);
  }
  return classes & ~full_classes(sc.room, sc.config);
}

#define NEVER (~0ULL)

/* Since when the request waits that a member would have released of a class, a bit; NEVER: it has none. */
__noinline __u64 waits_since(__u32 above, __u32 bit) {
  struct room *r = room_above(above);
  struct pool *p = the_pool();
  __u32 jiffies = bpf_jiffies64();
  if (!r || !(ready_classes(r, jiffies) & bit))
    return NEVER;
  return link_of(p, next_of(r, class_with(r, bit), jiffies))->since;
}

/* What a member that has requests of some classes has had for its share. What is under way counts as if it
 * took as long as others have: else all places would go to one until it has used them. */
__noinline __u64 served_so_far(__u32 above, __u32 classes) {
  const struct room *r = room_above(above);
  if (!r || !(ready_classes(r, bpf_jiffies64()) & classes))
    return NEVER;
  return r->due + r->took / (r->left + 1ULL) * r->in_service / (r->weight ?: 1);
}

/* The virtual time of a pool goes on to that of a member whose turn it is. */
static __always_inline void pass_time(struct room *a, __u32 member) {
  const struct room *r = room_above(member);
  if (r && (__s64)(r->due - a->at) > 0)
    a->at = r->due;
}

/* Of the number that next_member() returns: its place among the members + 1; above, the slot of its room + 1.
 */
#define MEMBER_BITS 8

/* Of two members, given by their places + 1, the one that comes first; `first`: 0: there is none yet. Of a
 * pool of shares, that has had least for its share; else whose request of a class waits longest. */
__noinline int better_of(__u32 above, __u32 classes, __u32 first, __u32 other) {
  struct scene sc;
  if (!open_scene(&sc, above - 1) || other - 1 >= MAX_MEMBERS)
    return first;
  __u32 member = sc.config->member[(other - 1) & (MAX_MEMBERS - 1)];
  __u32 best = first ? sc.config->member[(first - 1) & (MAX_MEMBERS - 1)] : 0;
  if (sc.config->between == BETWEEN_SHARES)
    return served_so_far(member, classes) < served_so_far(best, classes) ? other : first;
  return waits_since(member, classes) < waits_since(best, classes) ? other : first;
}

/* What is known of the member with that place + 1, as next_member() returns it. In a pool of shares, virtual
 * time goes on to its. */
__noinline int take_member(__u32 above, __u32 first) {
  struct scene sc;
  if (!open_scene(&sc, above - 1) || first - 1 >= MAX_MEMBERS)
    return 0;
  __u32 member = sc.config->member[(first - 1) & (MAX_MEMBERS - 1)];
  if (sc.config->between == BETWEEN_SHARES)
    pass_time(sc.room, member);
  return first | member << MEMBER_BITS;
}

/* Of classes of which members could have requests released, those of which one is next: among shares, any. */
__noinline int classes_next(__u32 above, __u32 classes) {
  struct scene sc;
  if (!classes || !open_scene(&sc, above - 1))
    return 0;
  if (sc.config->between == BETWEEN_SHARES)
    return classes;
  return next_class(sc.room, sc.config, classes, sc.config->ranks) ?: classes & -classes;
}

/* The member that is next to have a request released; 0: none. */
__noinline int next_member(__u32 above, __u32 skip) {
  struct scene sc;
  __u32 classes = classes_next(above, members_ready(above, skip)), first = 0;
  if (!classes || !open_scene(&sc, above - 1))
    return 0;
  for (__u32 i = 0; i < MAX_MEMBERS; i++) {
    if (!sc.config->member[i])
      break;
    __u32 other = (i + 1) & ((skip >> i & 1) - 1);
    first = better_of(above, classes, first, other);
  }
  return take_member(above, first);
}

/* Whether a slot's room is a pool's. */
__noinline int is_pool(__u32 slot) {
  struct scene sc;
  return open_scene(&sc, slot) && sc.config->between != BETWEEN_NONE;
}

/* Has the members of a pool tell what they have not told yet. */
__noinline int tell_members(__u32 above) {
  struct scene sc;
  if (!open_scene(&sc, above - 1))
    return 0;
  for (__u32 i = 0; i < MAX_MEMBERS; i++) {
    __u32 member = sc.config->member[i];
    if (!member)
      break;
    catch_up(member - 1);
    tell_above(member - 1);
  }
  return 0;
}

/* The same of those in pools that are in it. */
__noinline int tell_tree(__u32 above) {
  struct scene sc;
  if (!open_scene(&sc, above - 1))
    return 0;
  for (__u32 i = 0; i < MAX_MEMBERS; i++) {
    __u32 member = sc.config->member[i];
    if (!member)
      break;
    if (is_pool(member - 1))
      tell_members(member);
  }
  return tell_members(above);
}

/* Members that are tried for one kick. */
#define MAX_TRIES 4

/* The service whose request is next in a pool, or in a pool in it: its slot + 1. Its place among the members
 * is in the lowest bits. */
static __always_inline __u32 next_service(__u32 above, __u32 skip) {
  __u32 found = next_member(above, skip), member = found >> MEMBER_BITS;
  if (member && is_pool(member - 1))
    member = (__u32)next_member(member, 0) >> MEMBER_BITS;
  return (found & ((1 << MEMBER_BITS) - 1)) | member << MEMBER_BITS;
}

/* With the slot that find_service_due() returns: on whatever interface it came. */
#define ANYWHERE (1 << 16)

/* Finds out for which service a kick is that is for a room, and on which interface it is due. Returns its
 * slot; MAX_SERVICES: there is nothing to do, or another kick does it. */
__noinline int find_service_due(struct __sk_buff *skb, __u32 slot, __u32 ifindex) {
  struct room *a = room_of(slot);
  if (!a || !is_pool(slot))
    return slot;
  __u32 skip = 0;
  if (seems_unheard(a)) {
    a->looked = bpf_jiffies64();
    note_contention();
    tell_tree(slot + 1);
  }
  for (int i = 0; i < MAX_TRIES; i++) {
    __u32 found = next_service(slot + 1, skip), service = found >> MEMBER_BITS;
    if (!found)
      break;
    __u32 chosen = service ? chosen_class(service - 1) : 0;
    __u32 due = chosen ? what_is_due(service - 1, chosen) : DUE_NOTHING, on = due >> DUE_BITS;
    if (due && (!ifindex || !on || on == ifindex))
      return service - 1;
    if (due)
      return kick_elsewhere(skb, MARK_KICK | ((service - 1) & MARK_ROOM), on) ? MAX_SERVICES
                                                                              : (service - 1) | ANYWHERE;
    tell_above(service - 1);
    skip |= 1U << ((found - 1) & (MAX_MEMBERS - 1));
  }
  return MAX_SERVICES;
}

/* Does one thing that is due in a room, or in a pool. */
static __always_inline int serve_due(struct __sk_buff *skb, struct work *w, __u32 room, __u32 ifindex) {
  __u32 found = find_service_due(skb, room, ifindex), slot = found & (ANYWHERE - 1);
  if (slot >= MAX_SERVICES)
    return TCX_DROP;
  int verdict = serve(skb, w, slot, found & ANYWHERE ? 0 : ifindex);
  tell_above(slot);
  return verdict;
}
