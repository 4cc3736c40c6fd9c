/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The SYN of a connection to a service with a waiting room. */
#pragma once
#include "turn.h"

/* Takes options out of a SYN that would open ways past the gate: a second subflow (MPTCP,
 * RFC 8684), a connection that is established at once (TFO, RFC 7413). */
#define OPTION_FAST_OPEN 34
#define OPTION_MPTCP 30
#define MAX_OPTIONS 40

/* TFO from before it had a number of its own (RFC 6994), which the kernel still takes. */
#define OPTION_EXPERIMENT 254
#define EXPERIMENT_FAST_OPEN 0xf989

static __always_inline bool opens_ways(const __u8 *o, __u32 at) {
  __u8 kind = o[at];
  if (kind == OPTION_EXPERIMENT && at + 3 < MAX_OPTIONS)
    return (o[at + 2] << 8 | o[at + 3]) == EXPERIMENT_FAST_OPEN;
  return kind == OPTION_MPTCP || kind == OPTION_FAST_OPEN;
}

static __always_inline bool strip_options(__u8 *o, __u32 size) {
  bool stripped = false;
  __u32 at = 0, strip = 0;
  for (__u32 i = 0; i < MAX_OPTIONS; i++) {
    if (i >= size)
      break;
    if (i == at) {
      __u8 kind = o[i];
      if (kind == 0)
        break;
      __u32 length = kind == 1 ? 1 : i + 1 < MAX_OPTIONS ? o[i + 1] : 0;
      if (length == 0 || (length == 1 && kind != 1))
        break;
      at = i + length;
      strip = opens_ways(o, i);
    }
    if (strip) {
      o[i] = 1; /* no operation */
      stripped = true;
    }
  }
  return stripped;
}

__noinline int strip_syn(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return 0;
  __u8 options[MAX_OPTIONS] = {}, before_it[MAX_OPTIONS];
  __u32 at = w->s.l4 + sizeof(struct tcphdr), size = BOUND(w->s.data - at, MAX_OPTIONS);
  if (w->s.data <= at || !size || bpf_skb_load_bytes(skb, at, options, size))
    return 0;
  __builtin_memcpy(before_it, options, sizeof(options));
  if (!strip_options(options, size))
    return 0;
  __s64 diff = bpf_csum_diff((void *)before_it, MAX_OPTIONS, (void *)options, MAX_OPTIONS, 0);
  if (bpf_skb_store_bytes(skb, at, options, size, 0) || bpf_l4_csum_replace(skb, w->s.l4 + 16, 0, diff, 0))
    count_reason(REASON_CLONE_FAULT, false, false);
  return 0;
}

/* A new connection begins where the table may still have one whose end was missed. */
__noinline int forget_old(struct __sk_buff *skb, struct work *w) {
  struct endpoint sock;
  if (!w)
    return 0;
  struct flow *f = bpf_map_lookup_elem(&flows, &w->key);
  if (!f)
    return 0;
  __u64 id = f->id;
  if (!id) /* another CPU deletes it, or could not */
    bpf_map_delete_elem(&flows, &w->key);
  if (!id || f->state == FLOW_HELD || f->state == FLOW_GATHERING)
    return 0;
  int state = find_socket(skb, &w->key, &sock);
  if (state == 0 || state == BPF_TCP_LISTEN || state == BPF_TCP_TIME_WAIT)
    delete_flow(&w->key, f, NULL, id, bpf_ktime_get_ns());
  return 0;
}

/* Whether the SYN would end a connection that waits: the kernel gives up a request socket for a
 * SYN within its window that is not its own, and a held SYN cookie is worth nothing beside a
 * new request socket. A client that has forgotten its connection says so to the next SYN-ACK. */
__noinline int would_end(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return 0;
  const struct flow *f = bpf_map_lookup_elem(&flows, &w->key);
  if (f && f->flags & FLOW_COOKIE && (f->state == FLOW_HELD || f->state == FLOW_GATHERING))
    return 1;
  find_socket(skb, &w->key, &w->socket);
  return w->socket.state == BPF_TCP_NEW_SYN_RECV && w->s.seq + 1 != w->socket.sequence;
}
