/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads a TCP segment as the gate needs it. What SYN policing drops (fragments, headers
 * beyond bounds) does not come here. */
#pragma once
#include "parse/packet.h"

struct segment {
  struct packet p;
  __u32 seq; /* host byte order */
  __u32 ack;
  __u32 l3; /* offsets in the frame */
  __u32 l4;
  __u32 data;
  __u32 length; /* bytes of data */
  __u8 flags;
  __u8 pad[7]; /* 0 */
};

/* True if seq a comes before b. */
static __always_inline bool before(__u32 a, __u32 b) { return (__s32)(a - b) < 0; }

/* The sequence number behind the segment. */
static __always_inline __u32 end_of(const struct segment *s) {
  return s->seq + s->length + !!(s->flags & TCP_FIN);
}

static __always_inline int read_tcp(const struct view *v, const struct layers *l, __u32 frame,
                                    struct segment *s) {
  const struct tcphdr *tcp = view_at(v, l->l4, sizeof(*tcp));
  if (!tcp)
    return PARSED_TRUNCATED;
  __u32 header = tcp->doff * 4;
  /* A length of 0 in the IP header, which packet.h takes as endless, goes by the frame's. */
  __u32 size = frame < l->l4 ? 0 : frame - l->l4;
  if (l->l4_size < size)
    size = l->l4_size;
  if (header < sizeof(*tcp) || size < header)
    return PARSED_PASS;
  s->p.has_ports = 1;
  s->p.sport = bpf_ntohs(tcp->source);
  s->p.dport = bpf_ntohs(tcp->dest);
  s->seq = bpf_ntohl(tcp->seq);
  s->ack = bpf_ntohl(tcp->ack_seq);
  s->flags = tcp->flags;
  s->l3 = l->l3;
  s->l4 = l->l4;
  s->data = l->l4 + header;
  s->length = size - header;
  return PARSED_SYN;
}

/* Reads a frame of so many bytes. PARSED_SYN: all of struct segment is set but p.mac. */
static __always_inline int parse_segment(const struct view *v, __u32 frame, struct segment *s) {
  struct layers l = {};
  *s = (struct segment){};
  int r = parse_network(v, &l, &s->p);
  if (r != PARSED_SYN)
    return r;
  if (l.first)
    return PARSED_PASS;
  r = read_tcp(v, &l, frame, s);
  return r == PARSED_SYN ? read_addresses(v, &l, &s->p) : r;
}
