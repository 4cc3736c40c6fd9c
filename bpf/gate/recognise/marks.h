/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where in the chunks of a body segments begin. What is read of chunks is not kept, so a segment that the
 * stack has lost, and the client sends again, can only be read from there. */
#pragma once
#include "gate/scene.h"

struct mark_key {
  __u64 flow; /* id */
  __u32 seq;  /* the client's sequence number */
  __u32 pad;  /* 0 */
};

/* Value: what had been read up to there. When full the least recently used is lost: then a connection
 * whose segment the stack loses is ended. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 16384);
  __type(key, struct mark_key);
  __type(value, struct http_head);
} chunk_marks SEC(".maps");

/* The same where bytes are missing, which come again for sure: a map of its own, since in the other all
 * that arrives pushes out what is there. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 16384);
  __type(key, struct mark_key);
  __type(value, struct http_head);
} chunk_gaps SEC(".maps");

/* Notes what has been read of w->flow's chunks up to a sequence number. */
static __always_inline void set_mark(struct work *w, __u32 seq) {
  struct mark_key key = {.flow = w->flow.id, .seq = seq};
  const struct work *own = work_in_map(w);
  if (own)
    bpf_map_update_elem(&chunk_marks, &key, &own->flow.head, BPF_ANY);
}

/* The same of bytes that are missing from there on. */
static __always_inline void set_gap(struct work *w, __u32 seq) {
  struct mark_key key = {.flow = w->flow.id, .seq = seq};
  const struct work *own = work_in_map(w);
  if (own)
    bpf_map_update_elem(&chunk_gaps, &key, &own->flow.head, BPF_ANY);
}

/* How much older than the last reading a gap may be, 2^20 ns. A request that lacks bytes for longer is
 * paused, and nothing of it is read then. Sequence numbers must not come round meanwhile. */
#define GAP_AGE 2400

/* What had been read of w->flow's chunks up to a sequence number. w->began is the last reading. NULL: it is
 * not known. */
static __always_inline const struct http_head *mark_at(const struct work *w, __u32 seq) {
  struct mark_key key = {.flow = w->flow.id, .seq = seq};
  const struct http_head *h = bpf_map_lookup_elem(&chunk_gaps, &key);
  if (h && w->began.read_at - h->read_at < GAP_AGE)
    return h;
  return bpf_map_lookup_elem(&chunk_marks, &key);
}

/* Makes w->flow.head what had been read up to there. False: that is not known. */
static __always_inline bool get_mark(struct work *w, __u32 seq) {
  const struct http_head *h = mark_at(w, seq);
  if (!h)
    return false;
  w->flow.head = *h;
  return true;
}
