/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Requests in slots: putting them in, adding to them, making packets of them again. */
#pragma once
#include "emit/checksum.h"

/* Key: number of a node; value: struct slot, and behind it slot_size bytes of the frame. Who
 * took the node writes it; who took the node from the queue reads it. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __uint(key_size, sizeof(__u32));
  __uint(value_size, sizeof(struct slot) + 2048);
} slots SEC(".maps");

static __always_inline struct slot *slot_of(__u32 node) { return bpf_map_lookup_elem(&slots, &node); }

static __always_inline __u8 *frame_of(struct slot *s) { return (__u8 *)(s + 1); }

/* Notes who asks and which rule has decided, for telling of it when the request has waited. */
static __always_inline void save_attribution(struct slot *slot, const struct work *w) {
  slot->by = w->by;
  slot->debt = w->debt;
  slot->proxied = w->proxied;
  slot->from_v6 = w->from.v6;
  slot->from[0] = w->from.src[0];
  slot->from[1] = w->from.src[1];
}

static __always_inline void load_attribution(struct work *w, const struct slot *slot) {
  w->by = slot->by;
  w->debt = slot->debt;
  w->proxied = slot->proxied;
  w->from.v6 = slot->from_v6;
  w->from.src[0] = slot->from[0];
  w->from.src[1] = slot->from[1];
}

/* Bytes of a slot that are headers, or are left over where the last piece does not fit. */
#define SLOT_OVERHEAD 192

/* Bytes of data that a slot takes. */
static __always_inline __u32 slot_room(void) { return slot_size - SLOT_OVERHEAD; }

/* The sequence number behind what is in a slot. */
static __always_inline __u32 end_of_slot(const struct slot *s) { return s->sequence + s->length - s->data; }

/* Shortens the segment to its headers and so many bytes of data. w->s.length is those then. */
__noinline int cut(struct __sk_buff *skb, struct work *w, __u32 keep) {
  if (!w)
    return -1;
  struct segment *s = &w->s;
  __u32 end = s->data + keep;
  __u8 flags = s->flags & ~(TCP_FIN | TCP_PSH);
  if (!checksum_holds(skb, w) || bpf_skb_change_tail(skb, end, 0) ||
      bpf_skb_store_bytes(skb, s->l4 + 13, &flags, 1, BPF_F_RECOMPUTE_CSUM))
    return -1;
  s->length = keep;
  struct extent x = {.l3 = s->l3, .l4 = s->l4, .end = end};
  return seal(skb, &x, &w->key, w);
}

/* The window in a TCP header. */
#define WINDOW_AT 14

/* Writes two bytes of the segment at an offset from its TCP header. */
static __always_inline bool put_word(struct __sk_buff *skb, const struct work *w, __u32 at, __u16 value) {
  __be16 was, now = bpf_htons(value);
  return !bpf_skb_load_bytes(skb, w->s.l4 + at, &was, 2) &&
         !bpf_skb_store_bytes(skb, w->s.l4 + at, &now, 2, 0) &&
         !bpf_l4_csum_replace(skb, w->s.l4 + 16, was, now, 2);
}

/* The same of one byte. */
static __always_inline bool put_byte(struct __sk_buff *skb, const struct work *w, __u32 at, __u8 value) {
  __be16 word;
  if (bpf_skb_load_bytes(skb, w->s.l4 + (at & ~1U), &word, sizeof(word)))
    return false;
  __u16 was = bpf_ntohs(word);
  return put_word(skb, w, at & ~1U, at & 1 ? (was & 0xff00) | value : (was & 0xff) | value << 8);
}

/* Bytes at a request's beginning without which no server reads the rest. As many as can become a word of
 * TCP's options, of which there are up to 40 bytes. */
#define LEAST_WITHHELD 4
#define MOST_TCP_HEADER 60

#define NO_OPERATIONS 0x0101

/* Takes the first bytes from the data of a segment: makes options of them that mean nothing. */
__noinline int withhold(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return -1;
  __u32 seq = w->s.seq + LEAST_WITHHELD, data = w->s.data - w->s.l4;
  __be16 word;
  if (bpf_skb_load_bytes(skb, w->s.l4 + 12, &word, 2))
    return -1;
  __u16 longer = bpf_ntohs(word) + 0x1000;
  bool done = put_word(skb, w, 4, seq >> 16) && put_word(skb, w, 6, seq) && put_word(skb, w, 12, longer) &&
              put_word(skb, w, data, NO_OPERATIONS) && put_word(skb, w, data + 2, NO_OPERATIONS);
  return done ? 0 : -1;
}

/* Copies the segment's frame into a slot, or as much of it as there is room for. */
__noinline int fill_slot(struct __sk_buff *skb, struct work *w, __u32 node) {
  if (!w)
    return -1;
  struct slot *slot = slot_of(node);
  if (!slot || !checksum_holds(skb, w))
    return -1;
  __u32 length = BOUND(w->s.data + (w->withheld ?: w->keep), slot_size);
  if (length < w->s.data || !length || bpf_skb_load_bytes(skb, 0, frame_of(slot), AMOUNT(length, slot_size)))
    return -1;
  __u32 flags_at = BOUND(w->s.l4 + 13, MAX_HEADERS);
  bool whole = length == w->s.data + w->s.length;
  if (!whole)
    frame_of(slot)[flags_at] &= ~(TCP_FIN | TCP_PSH);
  slot->sealed = !whole || skb->gso_size ? SEAL_NONE : is_vouched_for(skb) ? SEAL_IP : SEAL_ALL;
  w->kept = length - w->s.data;
  slot->key = w->key;
  slot->flow = w->flow.id;
  slot->length = length;
  slot->ifindex = skb->ifindex;
  slot->sequence = w->s.seq;
  slot->passed = w->s.seq + w->keep;
  slot->acknowledged = w->s.ack;
  slot->l3 = w->s.l3;
  slot->l4 = w->s.l4;
  slot->data = w->s.data;
  slot->vlan_tags = !!skb->vlan_present;
  slot->vlan_proto = skb->vlan_proto;
  slot->vlan_tci = skb->vlan_tci;
  save_attribution(slot, w);
  return 0;
}

/* Bytes that are copied at once: a constant each, for the verifier; the smaller towards the
 * end of the slot. */
#define APPEND_PIECE 2048
#define APPEND_LEAST 64
#define MAX_PIECES (MAX_SLOT_SIZE / APPEND_PIECE + APPEND_PIECE / APPEND_LEAST)

/* Appends a piece at w->reading behind the slot's first w->kept bytes. True: there may be
 * another. Global, and with its place in memory: each piece is the same to the verifier. */
__noinline int append_piece(struct __sk_buff *skb, struct work *w, __u32 node) {
  if (!w)
    return 0;
  struct slot *slot = slot_of(node);
  __u32 length = w->kept, left = w->reading.left, n = 0;
  if (!slot || slot_size < APPEND_PIECE)
    return 0;
  if (length <= slot_size - APPEND_PIECE)
    n = BOUND(left, APPEND_PIECE);
  else if (length <= slot_size - APPEND_LEAST)
    n = BOUND(left, APPEND_LEAST);
  if (!n || bpf_skb_load_bytes(skb, w->reading.at, frame_of(slot) + length, AMOUNT(n, APPEND_PIECE)))
    return 0;
  w->reading.at += n;
  w->reading.left = left - n;
  w->kept = length + n;
  return left > n;
}

/* Appends w->keep bytes of a segment's data to a slot as far as there is room for them.
 * Returns the slot's length, which the caller commits; -1: they are not what was sent. */
__noinline int append_data(struct __sk_buff *skb, struct work *w, __u32 node) {
  if (!w)
    return -1;
  struct slot *slot = slot_of(node);
  if (!slot || !checksum_holds(skb, w))
    return -1;
  w->reading.at = w->s.data;
  w->reading.left = w->keep;
  w->kept = slot->length;
  slot->sealed = SEAL_NONE;
  for (int i = 0; i < MAX_PIECES && append_piece(skb, w, node); i++)
    ;
  return w->kept;
}

/* Layout of TCP options on nearly all segments: two NOPs and the timestamps (RFC 7323,
 * appendix A). */
#define TIMESTAMP_OPTION 0x0101080a
#define TIMESTAMP_SIZE 12

/* Reads the timestamps of the frame's TCP header. False: it has none where they always are. */
static __always_inline bool read_timestamps(struct __sk_buff *skb, const struct segment *s,
                                            struct timestamps *t) {
  __u32 at = s->l4 + sizeof(struct tcphdr);
  return s->data >= at + TIMESTAMP_SIZE && !bpf_skb_load_bytes(skb, at, t, sizeof(*t)) &&
         t->option == bpf_htonl(TIMESTAMP_OPTION);
}

/* Says that bytes behind the IP header of a slot's frame are not what they were. */
static __always_inline void break_seal(struct slot *slot) {
  if (slot->sealed == SEAL_ALL)
    slot->sealed = SEAL_IP;
}

/* The timestamps in a slot's frame. NULL: none. */
static __always_inline struct timestamps *slot_timestamps(struct slot *slot) {
  __u32 at = slot->l4 + sizeof(struct tcphdr);
  if (slot->data < at + TIMESTAMP_SIZE || at > MAX_HEADERS)
    return NULL;
  struct timestamps *t = (void *)frame_of(slot) + at;
  return t->option == bpf_htonl(TIMESTAMP_OPTION) ? t : NULL;
}

/* Gives a held request the timestamps of a later segment: released with its own it could
 * seem older than what the server has seen since (PAWS). The echo of a first request was looked at. */
__noinline int refresh_slot(struct __sk_buff *skb, struct work *w, __u32 node) {
  struct timestamps fresh;
  if (!w)
    return 0;
  struct slot *slot = slot_of(node);
  if (!slot || !read_timestamps(skb, &w->s, &fresh))
    return 0;
  struct timestamps *held = slot_timestamps(slot);
  if (held && before(bpf_ntohl(held->value), bpf_ntohl(fresh.value))) {
    held->value = fresh.value;
    if (!(w->flow.flags & FLOW_NEW))
      held->echo = fresh.echo;
    break_seal(slot);
  }
  return 0;
}

/* Gives a request the latest timestamp that its stack has seen, if that is later: a client can have sent it
 * with something else meanwhile. */
static __always_inline void renew_slot(struct slot *slot, const struct endpoint *e) {
  struct timestamps *t = slot_timestamps(slot);
  if (!t || !e->times || !before(bpf_ntohl(t->value), e->recent))
    return;
  t->value = bpf_htonl(e->recent);
  break_seal(slot);
}

/* Takes VLAN tags off that stand beside or in the packet. */
static __always_inline int drop_tags(struct __sk_buff *skb) {
  for (int i = 0; i <= MAX_VLAN_TAGS; i++) {
    if (!skb->vlan_present)
      return 0;
    if (bpf_skb_vlan_pop(skb))
      return -1;
  }
  return 0;
}

/* Where a device is to complete the checksum of a packet, it has to stay behind where that
 * begins: makes the packet one of the slot's family, so that its headers are as long. */
static __always_inline int fit_family(struct __sk_buff *skb, const struct slot *slot) {
  __u32 partial = partial_from(skb), tags = slot->l3 - sizeof(struct ethhdr);
  if (!partial || partial == slot->l4 - tags)
    return 0;
  return bpf_skb_change_proto(skb, slot->key.v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP), 0);
}

/* Makes room for the tag in the slot's frame, likewise, and puts back the one beside it: the kernel
 * moves a tag into the packet when the next is pushed. */
static __always_inline int push_tags(struct __sk_buff *skb, const struct slot *slot) {
  if (slot->l3 != sizeof(struct ethhdr) && bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), 0))
    return -1;
  return slot->vlan_tags ? bpf_skb_vlan_push(skb, slot->vlan_proto, slot->vlan_tci) : 0;
}

/* Makes the packet the request in the slot. */
__noinline int restore(struct __sk_buff *skb, struct work *w, __u32 node) {
  if (!w)
    return -1;
  struct slot *slot = slot_of(node);
  if (!slot || drop_tags(skb) || fit_family(skb, slot) || push_tags(skb, slot))
    return -1;
  __u32 length = BOUND(slot->length, slot_size);
  if (!length || bpf_skb_change_tail(skb, length, 0) ||
      bpf_skb_store_bytes(skb, 0, frame_of(slot), AMOUNT(length, slot_size),
                          BPF_F_RECOMPUTE_CSUM | BPF_F_INVALIDATE_HASH))
    return -1;
  if (slot->sealed == SEAL_ALL)
    return 0;
  struct extent x = {.l3 = slot->l3, .l4 = slot->l4, .end = length};
  x.has_ip = slot->sealed == SEAL_IP;
  x.send = partial_from(skb) == slot->l4; /* no stack looks at what a device is to complete */
  return seal(skb, &x, &slot->key, w);
}
