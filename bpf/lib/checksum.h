/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Checksums of packets that we make or change (RFC 1071). */
#pragma once
#include "../headers/bpf/bpf_core_read.h"
#include "work.h"

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

/* Bytes of a segment up to which a checksum is verified; beyond there are only segments
 * that were merged by the kernel, which has verified them. */
#define MAX_CHUNKS 33

static __always_inline __u16 fold(__u64 sum) {
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

/* One's complement sum of a frame's bytes, folded; negative: they could not be read. */
__noinline int sum_bytes(struct __sk_buff *skb, __u32 offset, __u32 length, struct work *w) {
  __u64 sum = 0;
  if (!w)
    return -1;
  for (int i = 0; i < MAX_CHUNKS; i++) {
    if (!length)
      return fold(sum);
    __u32 n = BOUND(length, HTTP_CHUNK);
    if (n == 0 || bpf_skb_load_bytes(skb, offset, &w->chunk, n))
      return -1;
    __u8 *end = (__u8 *)&w->chunk + n;
    end[0] = end[1] = end[2] = 0;
    sum += bpf_csum_diff(NULL, 0, (void *)&w->chunk, (n + 3) & ~3U, 0);
    offset += n;
    length -= n;
  }
  return length ? -1 : fold(sum);
}

/* Sum of the pseudo header (RFC 9293, 3.1), from the addresses of the frame. */
static __always_inline int sum_pseudo(struct __sk_buff *skb, __u32 l3, __u32 tcp_size, bool v6,
                                      struct work *w) {
  int addresses = v6 ? sum_bytes(skb, l3 + 8, 32, w) : sum_bytes(skb, l3 + 12, 8, w);
  if (addresses < 0)
    return -1;
  return fold((__u64)addresses + bpf_htons(tcp_size) + bpf_htons(IPPROTO_TCP));
}

/* Where the device is to begin the sum of a frame whose checksum was left to it, as an offset
 * in the frame; 0: the bytes hold the checksum. */
static __always_inline __u32 partial_from(struct __sk_buff *skb) {
  struct sk_buff *k = bpf_cast_to_kern_ctx(skb);
  if (BPF_CORE_READ_BITFIELD(k, ip_summed) != CHECKSUM_PARTIAL)
    return 0;
  return k->csum_start - (__u32)(k->data - k->head);
}

/* Whether the segment is as its sender made it, as far as a checksum tells. */
__noinline int checksum_holds(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return 0;
  if (skb->gso_size || partial_from(skb))
    return 1;
  __u32 size = w->s.data - w->s.l4 + w->s.length;
  int pseudo = sum_pseudo(skb, w->s.l3, size, w->s.p.v6, w);
  int segment = sum_bytes(skb, w->s.l4, size, w);
  return pseudo >= 0 && segment >= 0 && fold((__u64)pseudo + segment) == 0xffff;
}

/* A packet in a frame: offsets. */
struct extent {
  __u32 l3;
  __u32 l4;
  __u32 end;
  __u8 v6;
  __u8 send;   /* to a device, not to the stack */
  __u8 pad[2]; /* 0 */
};

static __always_inline int seal_ipv4(struct __sk_buff *skb, const struct extent *x, struct work *w) {
  __be16 total = bpf_htons(x->end - x->l3);
  __sum16 check = 0;
  if (bpf_skb_store_bytes(skb, x->l3 + 2, &total, 2, BPF_F_RECOMPUTE_CSUM) ||
      bpf_skb_store_bytes(skb, x->l3 + 10, &check, 2, BPF_F_RECOMPUTE_CSUM))
    return -1;
  int sum = sum_bytes(skb, x->l3, x->l4 - x->l3, w);
  if (sum < 0)
    return -1;
  check = ~sum;
  return bpf_skb_store_bytes(skb, x->l3 + 10, &check, 2, BPF_F_RECOMPUTE_CSUM);
}

static __always_inline int seal_tcp(struct __sk_buff *skb, const struct extent *x, __u32 partial,
                                    struct work *w) {
  __sum16 check = 0;
  if (bpf_skb_store_bytes(skb, x->l4 + 16, &check, 2, BPF_F_RECOMPUTE_CSUM))
    return -1;
  int pseudo = sum_pseudo(skb, x->l3, x->end - x->l4, x->v6, w);
  int segment = partial ? 0 : sum_bytes(skb, x->l4, x->end - x->l4, w);
  if (pseudo < 0 || segment < 0)
    return -1;
  check = partial ? pseudo : (__u16)~fold((__u64)pseudo + segment);
  return bpf_skb_store_bytes(skb, x->l4 + 16, &check, 2, BPF_F_RECOMPUTE_CSUM);
}

/* Writes lengths and checksums into a frame. A packet that is to be sent and whose checksum
 * the device will complete gets what the device expects; if the device expects it elsewhere,
 * the packet cannot be sent. */
__noinline int seal(struct __sk_buff *skb, const struct extent *x, struct work *w) {
  if (!w || !x)
    return -1;
  __u32 partial = x->send ? partial_from(skb) : 0;
  if (partial && partial != x->l4)
    return -1;
  if (x->v6) {
    __be16 payload = bpf_htons(x->end - x->l3 - sizeof(struct ipv6hdr));
    if (bpf_skb_store_bytes(skb, x->l3 + 4, &payload, 2, BPF_F_RECOMPUTE_CSUM))
      return -1;
  } else if (seal_ipv4(skb, x, w)) {
    return -1;
  }
  return seal_tcp(skb, x, partial, w);
}
