/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Clients without a kernel: answers SYN-ACKs, with a request if there is to be one, and keeps
 * nothing. It expects the SYNs to have had the option MSS alone, so that SYN-ACKs have no other. */
#include "../../../bpf/headers/kernel.h"

#include "bpf_endian.h"
#include "bpf_helpers.h"

#define BPF_F_PSEUDO_HDR (1ULL << 4)
#define MAX_REQUEST 512

/* Which clients: those whose addresses begin so. IPv4 addresses are in the first four bytes. */
const volatile __u8 v6;
const volatile __be32 prefix[4];
const volatile __be32 mask[4];
const volatile __be16 server_port;

/* What they ask; its length is a multiple of four. */
const volatile __u32 request_length;
const volatile __u8 request[MAX_REQUEST];

/* 1: the IPv4 header has a wrong checksum then, for which the stack drops the packet. */
const volatile __u8 broken;

/* SYN-ACKs that were answered. */
__u64 answered;

/* Offsets in the frame, without a VLAN tag, which is not in its bytes. */
#define L3 14
#define ADDRESSES (v6 ? L3 + 8 : L3 + 12)
#define L4 (v6 ? L3 + 40 : L3 + 20)
#define WITH_MSS 24 /* bytes of the TCP header */

/* The header of a segment as words that the checksum is made of. */
struct words {
  __be16 source;
  __be16 destination;
  __be32 seq;
  __be32 ack;
  __u8 length; /* in its upper half */
  __u8 flags;
  __be16 window;
  __sum16 check;
  __be16 urgent;
  __be32 option;
};

static __always_inline int is_ours(const __be32 *address) {
  for (int i = 0; i < (v6 ? 4 : 1); i++)
    if ((address[i] & mask[i]) != prefix[i])
      return 0;
  return 1;
}

/* Turns a frame round: addresses of both layers. */
static __always_inline int turn(struct __sk_buff *skb) {
  __u8 mac[12], turned[12];
  __be32 from[4] = {}, to[4] = {};
  __u32 size = v6 ? 16 : 4;
  if (bpf_skb_load_bytes(skb, 0, mac, 12) || bpf_skb_load_bytes(skb, ADDRESSES, from, size) ||
      bpf_skb_load_bytes(skb, ADDRESSES + size, to, size))
    return -1;
  __builtin_memcpy(turned, mac + 6, 6);
  __builtin_memcpy(turned + 6, mac, 6);
  return bpf_skb_store_bytes(skb, 0, turned, 12, 0) || bpf_skb_store_bytes(skb, ADDRESSES, to, size, 0) ||
         bpf_skb_store_bytes(skb, ADDRESSES + size, from, size, 0);
}

/* Changes one word. The sum of the pseudo header does not depend on these words, so that this
 * holds for a checksum that is left to the device as well. */
static __always_inline int change(struct __sk_buff *skb, __u32 at, __be32 from, __be32 to) {
  return bpf_l4_csum_replace(skb, L4 + 16, from, to, 4) || bpf_skb_store_bytes(skb, L4 + at, &to, 4, 0);
}

/* Puts the request behind the header. */
static __always_inline int append(struct __sk_buff *skb) {
  __u32 length = request_length;
  if (length == 0)
    return 0;
  if (length > MAX_REQUEST)
    return -1;
  if (bpf_skb_change_tail(skb, L4 + WITH_MSS + length, 0) ||
      bpf_skb_store_bytes(skb, L4 + WITH_MSS, (void *)request, length, 0))
    return -1;
  __be16 was = bpf_htons(WITH_MSS), is = bpf_htons(WITH_MSS + length);
  __s64 sum = bpf_csum_diff(NULL, 0, (__be32 *)request, length, 0);
  if (sum < 0 || bpf_l4_csum_replace(skb, L4 + 16, 0, sum, 0) ||
      bpf_l4_csum_replace(skb, L4 + 16, was, is, BPF_F_PSEUDO_HDR | 2))
    return -1;
  if (v6)
    return bpf_skb_store_bytes(skb, L3 + 4, &is, 2, 0);
  was = bpf_htons(20 + WITH_MSS);
  is = bpf_htons(20 + WITH_MSS + length);
  if (bpf_l3_csum_replace(skb, L3 + 10, was, is, 2) || bpf_skb_store_bytes(skb, L3 + 2, &is, 2, 0))
    return -1;
  return broken ? bpf_l3_csum_replace(skb, L3 + 10, 0, bpf_htons(0x5555), 2) : 0;
}

SEC("tc")
int respond(struct __sk_buff *skb) {
  __be32 to[4] = {};
  struct words old, new;
  __u32 size = v6 ? 16 : 4;
  if (skb->protocol != (v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP)) ||
      bpf_skb_load_bytes(skb, ADDRESSES + size, to, size) || !is_ours(to) ||
      bpf_skb_load_bytes(skb, L4, &old, sizeof(old)))
    return TCX_NEXT;
  if (old.source != server_port || old.flags != (TCP_SYN | TCP_ACK) || old.length >> 4 != WITH_MSS / 4)
    return TCX_NEXT;
  new = old;
  new.seq = old.ack;
  new.ack = bpf_htonl(bpf_ntohl(old.seq) + 1);
  new.flags = TCP_ACK | (request_length ? TCP_PSH : 0);
  new.option = bpf_htonl(0x01010101); /* padding */
  new.source = old.destination;
  new.destination = old.source;
  __be32 *was = (__be32 *)&old, *is = (__be32 *)&new;
  if (turn(skb))
    return TCX_DROP;
  for (int i = 0; i < 6; i++)
    if (i != 4 && was[i] != is[i] && change(skb, 4 * i, was[i], is[i]))
      return TCX_DROP;
  if (append(skb))
    return TCX_DROP;
  __sync_fetch_and_add(&answered, 1);
  return bpf_redirect(skb->ifindex, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
