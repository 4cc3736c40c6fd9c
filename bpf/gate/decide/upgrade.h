/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Requests that offer to go on in HTTP/2 without TLS. Some clients always offer that with their first
 * request, and go on in HTTP/1 where the server does not take them up on it (RFC 9110, 7.8). */
#pragma once
#include "emit/slot.h"
#include "gate/scene.h"

/* The header's name with its colon. */
#define UPGRADE_NAME HTTP_EIGHT('u', 'p', 'g', 'r', 'a', 'd', 'e', ':')
#define UPGRADE_SIZE 8

static __always_inline bool is_upgrade(__u64 name) { return (name | HTTP_EACH(0x20)) == UPGRADE_NAME; }

/* How many bytes of the request in w->flow, which begins with its head or a PROXY header, are before that
 * name, of which it has one. */
static __always_inline __u32 before_upgrade(const struct flow *f) {
  return (f->named & NAMED_HERE ? f->proxy.size : 0) + f->head.upgrade_at - UPGRADE_SIZE;
}

/* Renames the header in a segment that begins with the request. False: it is not there. */
static __always_inline bool rename_in_segment(struct __sk_buff *skb, struct work *w) {
  __u32 before = before_upgrade(&w->flow), at = w->s.data + before - w->s.l4;
  __u64 name;
  if (before > 0x10000 || before + UPGRADE_SIZE > w->s.length ||
      bpf_skb_load_bytes(skb, w->s.l4 + at, &name, sizeof(name)) || !is_upgrade(name))
    return false;
  return put_byte(skb, w, at, 'X');
}

/* The same in the slot in which the request was put together. */
static __always_inline bool rename_in_slot(struct work *w, __u32 node) {
  struct slot *slot = slot_of(node);
  if (!slot)
    return false;
  __u32 at = BOUND(slot->data + before_upgrade(&w->flow), MAX_SLOT_SIZE - UPGRADE_SIZE);
  if (at + UPGRADE_SIZE > slot_size)
    return false;
  __u64 name;
  __builtin_memcpy(&name, frame_of(slot) + at, sizeof(name));
  if (!is_upgrade(name))
    return false;
  frame_of(slot)[at] = 'X';
  break_seal(slot);
  return true;
}

/* Has a server read nothing of the offer in the request of w->flow, whose head is whole: in the segment, or
 * in the node's slot. False: it cannot be. */
__noinline int ignore_upgrade(struct __sk_buff *skb, struct work *w, __u32 node) {
  if (!w || w->flow.head.upgrade_at == UPGRADE_TWICE)
    return false;
  if (node ? !rename_in_slot(w, node) : !rename_in_segment(skb, w))
    return false;
  struct http_head *h = &w->flow.head;
  h->seen &= ~(HTTP_SEEN_H2C | HTTP_SEEN_H2C_TOKEN | HTTP_SEEN_UPGRADE);
  h->flags &= ~HTTP_H2C;
  if (!(h->seen & HTTP_SEEN_CONNECT))
    h->flags &= ~HTTP_UPGRADE;
  return true;
}
