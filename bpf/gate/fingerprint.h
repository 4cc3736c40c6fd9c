/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Makes the fingerprint of a ClientHello that is whole, before request rules are asked. A program of its own,
 * for it is much to verify, and only policies that ask for fingerprints have it run. */
#pragma once
#include "gate/decide/rules.h"
#include "gate/next.h"
#include "parse/ja4.h"

/* Key 0. Nothing is sent while it is used, so that no run within this one meets it. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct ja4);
} fingerprints SEC(".maps");

/* Whether rules ask for the fingerprint of what the segment completes, of which `step` is what comes next. */
static __always_inline bool asks_fingerprint(const struct work *w, int step) {
  if (w->flow.protocol != PROTOCOL_TLS || (step != STEP_READ && step != STEP_COMPARE))
    return false;
  struct image im;
  const struct header *h = open_image(&im);
  const struct match *m = h && h->match ? match_of(&im, h) : NULL;
  return m && m->asks >> FIELD_JA4 & 1;
}

/* Goes to the next piece of the ClientHello, and reads it. Returns enum http_step. */
__noinline int read_piece(struct __sk_buff *skb, struct work *w, struct ja4 *j, __u32 node) {
  if (!w || !j)
    return HTTP_LOST;
  __u32 before = w->reading.left;
  if (load_piece(skb, w, node))
    return HTTP_LOST;
  return ja4_read(j, &w->chunk, before - w->reading.left);
}

/* Puts the fingerprint into w->print, if the ClientHello has one. */
__noinline int fingerprint(struct __sk_buff *skb, struct work *w) {
  __u32 zero = 0;
  struct ja4 *j = bpf_map_lookup_elem(&fingerprints, &zero);
  if (!w || !j)
    return 0;
  __u32 node = begin_reading(w), before = w->flow.named & NAMED_HERE ? w->flow.proxy.size : 0;
  before = before < w->reading.left ? before : w->reading.left;
  w->reading.at += before;
  w->reading.left -= before;
  __builtin_memset(&j->r, 0, sizeof(j->r));
  int step = HTTP_MORE;
  for (int i = 0; i < MAX_SLOT_SIZE / HTTP_CHUNK + 2 && step == HTTP_MORE; i++)
    step = read_piece(skb, w, j, node);
  w->printed = step == HTTP_END;
  if (w->printed)
    ja4_finish(j, &w->print);
  else
    count_reason(REASON_NO_JA4, false, false);
  return 0;
}

/* Goes on with the run that narthex_gate_in has begun. */
static __always_inline int gate_fingerprint(struct __sk_buff *skb) {
  struct work *w = current_run();
  if (!w)
    return let_pass(REASON_NESTING);
  fingerprint(skb, w);
  return go_on(skb, w, NEXT_DECIDE, w->step, TCX_NEXT);
}
