/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How a run goes on in another program. The verifier follows each program by itself, and each has the whole
 * stack. */
#pragma once
#include "gate/look.h"

enum next_program {
  NEXT_DECIDE = 0,      /* narthex_gate_decide, behind narthex_gate_in */
  NEXT_ATTEND = 1,      /* narthex_gate_attend, behind all that have decided on a segment */
  NEXT_FINGERPRINT = 2, /* narthex_gate_fingerprint, between narthex_gate_in and narthex_gate_decide */
  NEXT_LEN
};

/* Of one load: a program goes on in what was loaded with it. */
struct {
  __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
  __uint(max_entries, NEXT_LEN);
  __type(key, enum next_program);
  __type(value, __u32);
} next_programs SEC(".maps");

/* The run's end. Redirects last, because the kernel notes but one redirection at a time, and runs within this
 * one may have had theirs. */
static __always_inline int end_run(const struct work *w, int verdict) {
  if (verdict == TCX_REDIRECT)
    verdict = bpf_redirect(w->out.ifindex, w->out.flags);
  leave_run();
  return verdict;
}

/* Goes on in the next program with a step or a verdict. Without that program, which is there as long as the
 * instance is, the run ends with `otherwise`. */
static __always_inline int go_on(struct __sk_buff *skb, struct work *w, __u32 next, int step, int otherwise) {
  w->step = step;
  bpf_tail_call(skb, &next_programs, next);
  let_pass(REASON_NO_PROGRAM);
  return end_run(w, otherwise);
}

/* Sees to what is needed, and ends the run. */
static __always_inline int finish(struct __sk_buff *skb, struct work *w, int verdict) {
  return w->due ? go_on(skb, w, NEXT_ATTEND, verdict, verdict) : end_run(w, verdict);
}

/* Goes on with the run of a packet that was decided on. */
static __always_inline int gate_attend(struct __sk_buff *skb) {
  struct work *w = current_run();
  if (!w)
    return let_pass(REASON_NESTING);
  see_to(skb, w, w->flow.room, w->due);
  return end_run(w, w->step);
}
