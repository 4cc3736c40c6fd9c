/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets of our own: the rejection to the client, and the reset to the server's stack that
 * ends what it has of the connection. Both are made of a packet that is at hand. */
#pragma once
#include "classify.h"
#include "held.h"
#include "stats.h"

#define MARK_ROOM 0x3ff               /* of a kick: slot of the service */
#define MARK_KICK (gate_mark | 0x400) /* do what is due in a room */
#define MARK_OURS (gate_mark | 0x800) /* let pass */

/* What the client of a rejected connection still has to be told. */
struct farewell {
  __u32 seq;    /* of our answer */
  __u32 end;    /* behind it and its FIN */
  __u32 client; /* behind what the client had sent */
  __u32 room;   /* slot of the service */
};

/* Connections that were rejected. Written and read by the programs. The least recently used
 * is evicted: its client's last packets are answered with a reset, after the rejection. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 16384);
  __type(key, struct flow_key);
  __type(value, struct farewell);
} farewells SEC(".maps");

/* No-operation options that make a reset as long as the kernel asks of a packet whose
 * checksum was left to a device, whatever its address family was. */
#define RESET_OPTIONS 40

static const __u8 reset_options[RESET_OPTIONS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                                  1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static __always_inline int put_ipv4(struct __sk_buff *skb, const struct emission *e) {
  __be32 peer = bpf_htonl(e->key.peer[0] >> 32), local = bpf_htonl(e->key.local[0] >> 32);
  struct iphdr ip = {
      .version = 4,
      .ihl = 5,
      .frag_off = bpf_htons(0x4000), /* do not fragment */
      .ttl = 64,
      .protocol = IPPROTO_TCP,
      .saddr = e->to_server ? peer : local,
      .daddr = e->to_server ? local : peer,
  };
  return bpf_skb_store_bytes(skb, e->l3, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM);
}

static __always_inline void put_words(__be32 to[4], const __u64 from[2]) {
  for (int i = 0; i < 2; i++) {
    to[2 * i] = bpf_htonl(from[i] >> 32);
    to[2 * i + 1] = bpf_htonl((__u32)from[i]);
  }
}

static __always_inline int put_ipv6(struct __sk_buff *skb, const struct emission *e) {
  struct ipv6hdr ip = {.version = 6, .nexthdr = IPPROTO_TCP, .hop_limit = 64};
  put_words(e->to_server ? ip.saddr : ip.daddr, e->key.peer);
  put_words(e->to_server ? ip.daddr : ip.saddr, e->key.local);
  return bpf_skb_store_bytes(skb, e->l3, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM);
}

static __always_inline int put_tcp(struct __sk_buff *skb, const struct emission *e, __u32 l4, __u32 options) {
  __be16 peer = bpf_htons(e->key.peer_port), local = bpf_htons(e->key.local_port);
  struct tcphdr tcp = {
      .source = e->to_server ? peer : local,
      .dest = e->to_server ? local : peer,
      .seq = bpf_htonl(e->seq),
      .ack_seq = bpf_htonl(e->ack),
      .doff = (sizeof(struct tcphdr) + options) / 4,
      .flags = e->flags,
      .window = 0xffff,
  };
  if (bpf_skb_store_bytes(skb, l4, &tcp, sizeof(tcp), BPF_F_RECOMPUTE_CSUM))
    return -1;
  if (e->to_server)
    return bpf_skb_store_bytes(skb, l4 + sizeof(tcp), reset_options, RESET_OPTIONS, BPF_F_RECOMPUTE_CSUM);
  if (!options)
    return 0;
  struct timestamps t = {e->times.option, e->times.echo, e->times.value};
  return bpf_skb_store_bytes(skb, l4 + sizeof(tcp), &t, sizeof(t), BPF_F_RECOMPUTE_CSUM);
}

static __always_inline int swap_macs(struct __sk_buff *skb) {
  __u8 from[12], to[12];
  if (bpf_skb_load_bytes(skb, 0, from, 12))
    return -1;
  __builtin_memcpy(to, from + 6, 6);
  __builtin_memcpy(to + 6, from, 6);
  return bpf_skb_store_bytes(skb, 0, to, 12, BPF_F_RECOMPUTE_CSUM);
}

/* Has the run end with the packet going to a device's egress, or ingress. */
static __always_inline int send_out(struct work *w, __u32 ifindex, __u32 flags) {
  w->out.ifindex = ifindex;
  w->out.flags = flags;
  return TCX_REDIRECT;
}

/* Makes the packet, whose frame is one of the client's up to the IP header, what w->emission
 * says: to the client with `length` bytes of the service's rejection. */
__noinline int emit(struct __sk_buff *skb, struct work *w, __u32 slot) {
  if (!w)
    return -1;
  const struct emission *e = &w->emission;
  __u32 l4 = e->l3 + (e->key.v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
  __u32 options = e->to_server ? RESET_OPTIONS : e->times.option ? TIMESTAMP_SIZE : 0;
  __u32 data = l4 + sizeof(struct tcphdr) + options;
  if (bpf_skb_change_tail(skb, data + e->length, 0) || (!e->to_server && swap_macs(skb)))
    return -1;
  if ((e->key.v6 ? put_ipv6(skb, e) : put_ipv4(skb, e)) || put_tcp(skb, e, l4, options))
    return -1;
  if (e->length) {
    struct image im;
    const struct header *h = open_image(&im);
    const struct room_config *c = h ? room_config(&im, h, slot) : NULL;
    __u32 n = BOUND(e->length, ANSWER_SIZE);
    if (!c || !n || bpf_skb_store_bytes(skb, data, c->answer, n, BPF_F_RECOMPUTE_CSUM))
      return -1;
  }
  struct extent x = {.l3 = e->l3, .l4 = l4, .end = data + e->length, .send = !e->to_server};
  return seal(skb, &x, &e->key, w);
}

/* The reset that ends what the stack has of a rejected connection. */
static __always_inline void set_reset(struct emission *e, const struct rejected *r) {
  e->key = r->key;
  e->times.option = 0;
  e->l3 = r->l3;
  e->seq = r->seq;
  e->ack = r->ack;
  e->length = 0;
  e->flags = TCP_RST | TCP_ACK;
  e->to_server = 1;
}

/* What the client is told in its place, with so many bytes of an answer. */
static __always_inline void set_answer(struct emission *e, const struct rejected *r, __u32 length) {
  e->key = r->key;
  e->times = r->times;
  e->l3 = r->l3;
  e->seq = r->ack;
  e->ack = r->end;
  e->length = length;
  e->flags = TCP_ACK | (length ? TCP_PSH : 0) | (length || r->silent ? TCP_FIN : TCP_RST);
  e->to_server = 0;
}

/* Answers a request, of which the packet has the Ethernet header, as rejected: resets the
 * connection at the stack, and makes the packet the answer. Returns a verdict. */
__noinline int answer(struct __sk_buff *skb, struct work *w, __u32 length) {
  if (!w)
    return TCX_DROP;
  const struct rejected *r = &w->rejected;
  struct emission *e = &w->emission;
  bool sent = true;
  skb->mark = MARK_OURS;
  if (!r->no_peer) {
    set_reset(e, r);
    sent = !emit(skb, w, r->room) && !bpf_clone_redirect(skb, r->ifindex, BPF_F_INGRESS);
  }
  skb->mark = 0;
  struct farewell f = {.seq = r->ack, .end = r->ack + length + 1, .client = r->end, .room = r->room};
  bpf_map_update_elem(&farewells, &r->key, &f, BPF_ANY);
  set_answer(e, r, length);
  if (!sent || emit(skb, w, r->room)) {
    count_reason(REASON_CLONE_FAULT, true, false);
    return TCX_DROP;
  }
  return send_out(w, r->ifindex, 0);
}
