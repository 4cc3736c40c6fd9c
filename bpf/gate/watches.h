/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Flows that are to be looked at again a little later, for what no packet tells: that its
 * client is silent, or that the stack has not got what we gave it. */
#pragma once
#include "gate/work.h"
#include "observe/counters.h"

/* Key 0. When full, what is not watched is given up with its epoch. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct watch_ring);
} watches SEC(".maps");

/* After how long a flow is looked at: silence lasts so long, or up to twice as long. */
#define WATCH_PERIOD 200000000ULL

static __always_inline struct watch_ring *the_watches(void) { return ONLY_VALUE(struct watch_ring, watches); }

/* Copies with the lock held, so member by member. */
static __always_inline void copy_watch(struct watch *to, const struct watch *from) {
  for (int i = 0; i < 2; i++) {
    to->key.peer[i] = from->key.peer[i];
    to->key.local[i] = from->key.local[i];
  }
  to->key.peer_port = from->key.peer_port;
  to->key.local_port = from->key.local_port;
  to->key.v6 = from->key.v6;
  to->key.pad[0] = to->key.pad[1] = to->key.pad[2] = 0;
  to->id = from->id;
  to->deadline = from->deadline;
  to->received = from->received;
  to->sent = from->sent;
  to->ifindex = from->ifindex;
}

/* Has the flow of w->look looked at again. */
static __always_inline void push_watch(struct work *w, __u64 now) {
  struct watch_ring *ring = the_watches();
  w->look.deadline = now + WATCH_PERIOD;
  bool full = true;
  bpf_spin_lock(&ring->lock);
  if (ring->end - ring->first < MAX_WATCHES) {
    copy_watch(&ring->watch[ring->end++ % MAX_WATCHES], &w->look);
    full = false;
  }
  bpf_spin_unlock(&ring->lock);
  if (!full)
    return;
  count_reason(REASON_UNWATCHED, false, false);
  struct flow *f = find_by_key(&flows, &w->look.key);
  if (f && f->id == w->look.id)
    f->watched = 0;
}

/* Has w->flow looked at again, of whose bytes the stack is to get those up to `received`. */
static __always_inline void watch_flow(struct work *w, __u32 received) {
  if (!w->watch)
    return;
  w->look.key = w->key;
  w->look.id = w->flow.id;
  w->look.received = received;
  w->look.sent = w->flow.answer;
  w->look.ifindex = w->flow.ifindex;
  push_watch(w, w->now);
}

/* Whether the first has a deadline that may have passed, at a glance and once per tick of
 * the clock. */
static __always_inline bool seems_watchful(struct watch_ring *ring) {
  if (ring->first == ring->end)
    return false;
  return ring->looked != (__u32)bpf_jiffies64();
}

/* Takes the first into w->look, if its time has come. Of another interface than that one it is left, and only
 * w->look.ifindex is set; 0: any will do. */
static __always_inline bool pop_watch(struct watch_ring *ring, struct work *w, __u64 now, __u32 ifindex) {
  __u32 jiffies = bpf_jiffies64();
  bool due = false;
  bpf_spin_lock(&ring->lock);
  struct watch *first = &ring->watch[ring->first % MAX_WATCHES];
  if (ring->first != ring->end && (__s64)(now - first->deadline) >= 0) {
    due = true;
    w->look.ifindex = first->ifindex;
    if (!ifindex || ifindex == first->ifindex) {
      copy_watch(&w->look, first);
      ring->first++;
    }
  } else {
    ring->looked = jiffies;
  }
  bpf_spin_unlock(&ring->lock);
  return due;
}
