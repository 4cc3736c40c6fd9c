/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Copies of requests for user space, which tries another policy on them. */
#pragma once
#include "emit/slot.h"
#include "gate/work.h"
#include "observe/mirror.h"

_Static_assert(MIRROR_RECORDS == MAX_NESTING + 1, "one record for each run, and one for SYNs");

static __always_inline void copy_key(struct mirrored *c, const struct work *w, __u64 now) {
  c->time = now;
  c->key = w->key;
  c->syn = 0;
  c->service = w->flow.room;
  c->proxied = w->proxied;
  c->real[0] = w->from.src[0];
  c->real[1] = w->from.src[1];
  c->real_v6 = w->from.v6;
}

/* Copies the beginning of the request, which is in its slot if w->grown says so. Returns its length. */
static __always_inline __u32 copy_head(struct __sk_buff *skb, const struct work *w, struct mirrored *c) {
  __u32 named = w->flow.named & NAMED_HERE ? w->flow.proxy.size : 0;
  c->skip = 0;
  if (!w->grown) {
    __u32 n = w->s.length > named ? BOUND(w->s.length - named, MIRROR_HEAD) : 0;
    return n && !bpf_skb_load_bytes(skb, w->s.data + named, c->head, AMOUNT(n, MIRROR_HEAD)) ? n : 0;
  }
  struct slot *slot = slot_of(w->flow.node);
  __u32 at = slot ? slot->data + named : 0;
  if (!slot || slot_size < MIRROR_HEAD || w->grown <= at)
    return 0;
  __u32 from = BOUND(at, slot_size - MIRROR_HEAD);
  if (from > slot_size - MIRROR_HEAD)
    return 0;
  if (bpf_probe_read_kernel(c->head, MIRROR_HEAD, frame_of(slot) + from))
    return 0;
  c->skip = at - from;
  return BOUND(w->grown - from, MIRROR_HEAD);
}

/* Copies the request of w->flow before it is decided upon: then it may be there no more. 1: end_mirror() is
 * to send it. */
__noinline int begin_mirror(struct __sk_buff *skb, struct work *w, __u32 level) {
  if (!w || w->flow.protocol == PROTOCOL_TCP)
    return 0;
  bool named = w->proxied;
  const struct mirror_control *m =
      mirror_for(named ? w->from.src[0] : w->key.peer[0], named ? w->from.src[1] : w->key.peer[1],
                 named ? w->from.v6 : w->key.v6);
  __u64 now = bpf_ktime_get_ns();
  struct mirrored *c = m ? begin_copy(m, level, now) : NULL;
  if (!c)
    return 0;
  copy_key(c, w, now);
  c->length = copy_head(skb, w, c);
  return 1;
}

/* Sends the copy with what was decided. */
__noinline int end_mirror(struct work *w, __u32 level) {
  struct mirrored *c = bpf_map_lookup_elem(&mirrored_records, &level);
  if (!w || !c)
    return 0;
  c->fate = w->fate;
  c->class = w->flow.class;
  c->rule = w->by;
  c->reason = w->why;
  end_copy(c);
  return 0;
}
