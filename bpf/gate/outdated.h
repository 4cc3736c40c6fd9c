/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Segments that the stack would drop for their timestamps (RFC 7323): a request among them would have a place
 * until that is noticed. */
#pragma once
#include "emit/slot.h"
#include "gate/socket.h"
#include "gate/step.h"

#define MAX_OPTIONS 40
#define NO_OPERATION 1

/* Makes options that are none into the segment's. The stack asks for no timestamps where there are none. */
__noinline int clear_options(struct __sk_buff *skb, struct work *w) {
  __u8 none[MAX_OPTIONS];
  if (!w)
    return 0;
  __u32 start = w->s.l4 + sizeof(struct tcphdr), size = BOUND(w->s.data - start, MAX_OPTIONS);
  __builtin_memset(w->chunk.byte, NO_OPERATION, MAX_OPTIONS);
  __builtin_memset(none, NO_OPERATION, MAX_OPTIONS);
  if (w->s.data <= start || !size || bpf_skb_load_bytes(skb, start, w->chunk.byte, AMOUNT(size, MAX_OPTIONS)))
    return 0;
  __s64 diff = bpf_csum_diff((void *)w->chunk.byte, MAX_OPTIONS, (void *)none, MAX_OPTIONS, 0);
  if (bpf_skb_store_bytes(skb, start, none, AMOUNT(size, MAX_OPTIONS), 0) ||
      bpf_l4_csum_replace(skb, w->s.l4 + 16, 0, diff, 0))
    count_reason(REASON_CLONE_FAULT, false, false);
  return 0;
}

/* Whether the stack would drop the segment, w->socket being its connection's, for its timestamps. Where these
 * are not where they always are they are taken out. */
__noinline int is_outdated(struct __sk_buff *skb, struct work *w) {
  struct timestamps t;
  if (!w || !w->socket.times || w->s.data == w->s.l4 + sizeof(struct tcphdr))
    return 0;
  if (!read_timestamps(skb, &w->s, &t))
    return clear_options(skb, w);
  const struct endpoint *e = &w->socket;
  __u32 echo = bpf_ntohl(t.echo);
  return before(bpf_ntohl(t.value), e->recent) || (e->echoes && echo && echo - e->echo >= e->echoes);
}
