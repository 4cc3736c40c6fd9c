/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SYN policing where frames come in: XDP, or tcx where an interface has no room for it. */
#pragma once
#include "compat/verifier.h"
#include "syn/decide.h"

/* A frame's first bytes when they are not in one piece. Key 0. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u8[MAX_HEADERS]);
} scratch SEC(".maps");

/* Whether more of the frame, which has more than the bytes at hand, could tell more. */
static __always_inline bool wants_more(int parsed, const struct packet *p) {
  return parsed == PARSED_TRUNCATED || (parsed == PARSED_ANOMALY && !p->has_ports);
}

/* Parses a frame whose headers go beyond its linear part (a frame of several buffers).
 * Global for the reason that decide_syn() is. */
__noinline int parse_pieces(struct xdp_md *ctx, struct packet *p, __u32 length) {
  __u32 zero = 0;
  if (!p)
    return PARSED_TRUNCATED; /* for the verifier */
  __u8 *bytes = bpf_map_lookup_elem(&scratch, &zero);
  if (!bytes)
    return pass(p, REASON_MAP_FAULT);
  length = BOUND(length, MAX_HEADERS);
  if (length < sizeof(struct ethhdr))
    return pass(p, REASON_MALFORMED);
  if (bpf_xdp_load_bytes(ctx, 0, bytes, AMOUNT(length, MAX_HEADERS)))
    return pass(p, REASON_PULL_FAULT);
  struct view v = {bytes, bytes + length};
  return parse(&v, p);
}

static __always_inline int xdp_syn(struct xdp_md *ctx) {
  struct view v = {(void *)(long)ctx->data, (void *)(long)ctx->data_end};
  struct packet p;
  int parsed = parse(&v, &p);
  if (wants_more(parsed, &p)) {
    __u32 length = bpf_xdp_get_buff_len(ctx);
    if (length > v.end - v.data)
      parsed = parse_pieces(ctx, &p, length);
  }
  return verdict(parsed, &p, ctx->ingress_ifindex) ? XDP_DROP : XDP_PASS;
}

static __always_inline int tcx_syn(struct __sk_buff *skb) {
  struct view v = {(void *)(long)skb->data, (void *)(long)skb->data_end};
  struct packet p;
  int parsed = parse(&v, &p);
  if (wants_more(parsed, &p) && skb->len > v.end - v.data) {
    __u32 length = skb->len < MAX_HEADERS ? skb->len : MAX_HEADERS;
    if (bpf_skb_pull_data(skb, length)) {
      parsed = pass(&p, REASON_PULL_FAULT);
    } else {
      v = (struct view){(void *)(long)skb->data, (void *)(long)skb->data_end};
      parsed = parse(&v, &p);
    }
  }
  return verdict(parsed, &p, skb->ifindex) ? TCX_DROP : TCX_NEXT;
}
