/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Checksums of packets that we make or change (RFC 1071). */
#pragma once
#include "compat/cast.h"
#include "gate/work.h"

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

/* Adds the next piece to w->sum. Returns 1 if there is another, 0, or -1: it could not be read.
 * With its place in memory each piece is the same to the verifier. */
__noinline int sum_piece(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return -1;
  __u32 left = w->sum.left;
  if (left == 0)
    return 0;
  __u64 n = AMOUNT(left, HTTP_CHUNK);
  if (bpf_skb_load_bytes(skb, w->sum.at, &w->chunk, n))
    return -1;
  __u8 *end = (__u8 *)&w->chunk + n;
  end[0] = end[1] = end[2] = 0;
  w->sum.sum += bpf_csum_diff(NULL, 0, (void *)&w->chunk, (n + 3) & ~3U, 0);
  w->sum.at += n;
  w->sum.left = left - n;
  return left > n;
}

/* One's complement sum of a frame's bytes, folded; negative: they could not be read. */
__noinline int sum_bytes(struct __sk_buff *skb, __u32 offset, __u32 length, struct work *w) {
  if (!w)
    return -1;
  w->sum.at = offset;
  w->sum.left = length;
  w->sum.sum = 0;
  int more = 1;
  for (int i = 0; i < MAX_CHUNKS && more > 0; i++)
    more = sum_piece(skb, w);
  return more ? -1 : fold(w->sum.sum);
}

/* Sum of the pseudo header (RFC 9293, 3.1), as sum_bytes() gives it. The sum does not depend
 * on the order of bytes in the words (RFC 1071), so that it is had from the key. */
static __always_inline __u16 sum_pseudo(const struct flow_key *k, __u32 tcp_size) {
  __u64 sum = IPPROTO_TCP + tcp_size;
  for (int i = 0; i < 2; i++)
    sum += (k->peer[i] >> 32) + (__u32)k->peer[i] + (k->local[i] >> 32) + (__u32)k->local[i];
  return bpf_htons(fold(sum));
}

/* The kernel's own view of a packet, to be read by KERNEL_FIELD(has_casts, ...). */
static __always_inline struct sk_buff *kernel_view(struct __sk_buff *skb) {
  return has_casts ? bpf_cast_to_kern_ctx(skb) : address_of(skb);
}

/* What the kernel knows of a frame's checksum: CHECKSUM_PARTIAL and so on. */
static __always_inline __u64 checksum_state(struct __sk_buff *skb) {
  struct sk_buff *k = kernel_view(skb);
  return has_casts ? BPF_CORE_READ_BITFIELD(k, ip_summed) : BPF_CORE_READ_BITFIELD_PROBED(k, ip_summed);
}

/* Where the device is to begin the sum of a frame whose checksum was left to it, as an offset
 * in the frame; 0: the bytes hold the checksum. */
static __always_inline __u32 partial_from(struct __sk_buff *skb) {
  if (checksum_state(skb) != CHECKSUM_PARTIAL)
    return 0;
  bool direct = has_casts;
  struct sk_buff *k = kernel_view(skb);
  __u32 headroom = KERNEL_FIELD(direct, k, data) - KERNEL_FIELD(direct, k, head);
  return KERNEL_FIELD(direct, k, csum_start) - headroom;
}

/* Whether the kernel takes the frame's checksum for right without a look: it was merged, or the device has
 * verified it, or is to fill it in. The bytes may not hold it. */
static __always_inline bool is_vouched_for(struct __sk_buff *skb) {
  if (skb->gso_size)
    return true;
  __u64 state = checksum_state(skb);
  return state == CHECKSUM_PARTIAL || state == CHECKSUM_UNNECESSARY;
}

/* Whether the segment is as its sender made it, as far as checksums tell. */
__noinline int checksum_holds(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return 0;
  if (is_vouched_for(skb))
    return 1;
  if (!w->key.v6 && sum_bytes(skb, w->s.l3, w->s.l4 - w->s.l3, w) != 0xffff)
    return 0;
  __u32 size = w->s.data - w->s.l4 + w->s.length;
  int segment = sum_bytes(skb, w->s.l4, size, w);
  return segment >= 0 && fold((__u64)sum_pseudo(&w->key, size) + segment) == 0xffff;
}

/* A packet in a frame: offsets. */
struct extent {
  __u32 l3;
  __u32 l4;
  __u32 end;
  __u32 send;   /* 1: the device may complete its checksum */
  __u32 has_ip; /* 1: the IP header is right */
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

static __always_inline int seal_tcp(struct __sk_buff *skb, const struct extent *x, const struct flow_key *key,
                                    __u32 partial, struct work *w) {
  __sum16 check = 0;
  if (bpf_skb_store_bytes(skb, x->l4 + 16, &check, 2, BPF_F_RECOMPUTE_CSUM))
    return -1;
  __u16 pseudo = sum_pseudo(key, x->end - x->l4);
  int segment = partial ? 0 : sum_bytes(skb, x->l4, x->end - x->l4, w);
  if (segment < 0)
    return -1;
  check = partial ? pseudo : (__u16)~fold((__u64)pseudo + segment);
  return bpf_skb_store_bytes(skb, x->l4 + 16, &check, 2, BPF_F_RECOMPUTE_CSUM);
}

/* Writes lengths and checksums into a frame. With `send`, a packet whose checksum a device will complete gets
 * what that device expects; if it expects it elsewhere, the packet cannot be sent. */
__noinline int seal(struct __sk_buff *skb, const struct extent *x, const struct flow_key *key,
                    struct work *w) {
  if (!w || !x || !key)
    return -1;
  __u32 partial = x->send ? partial_from(skb) : 0;
  if (partial && partial != x->l4)
    return -1;
  if (!x->has_ip && key->v6) {
    __be16 payload = bpf_htons(x->end - x->l3 - sizeof(struct ipv6hdr));
    if (bpf_skb_store_bytes(skb, x->l3 + 4, &payload, 2, BPF_F_RECOMPUTE_CSUM))
      return -1;
  } else if (!x->has_ip && seal_ipv4(skb, x, w)) {
    return -1;
  }
  return seal_tcp(skb, x, key, partial, w);
}
