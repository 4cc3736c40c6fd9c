/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads a frame as far as SYN policing needs it. Calls no helper: the same source is
 * compiled natively and compared with a Go parser on random frames. */
#pragma once
#include "abi/reasons.h"
#include "compat/verifier.h"

#define MAX_VLAN_TAGS 2  /* tags with which a SYN to a service is accepted */
#define READ_VLAN_TAGS 8 /* tags up to which the destination is still looked for */
#define MAX_EXTENSIONS 8 /* IPv6 extension headers */
#define MAX_HEADERS 512  /* bytes from the frame's first to the end of the TCP header */

/* What parse() found. */
enum parsed {
  PARSED_SYN,       /* all of struct packet is set */
  PARSED_ANOMALY,   /* may be to a service, which must not get it; packet.anomaly says why */
  PARSED_PASS,      /* packet.anomaly is the reason to let it pass */
  PARSED_TRUNCATED, /* the frame goes on where the bytes at hand end */
};

struct packet {
  __u64 src[2]; /* as in a trie key: an IPv4 address is the upper half of the first word */
  __u64 dst[2];
  __u16 sport;
  __u16 dport;
  __u8 mac[6]; /* destination; of SYNs, and behind goes_above() */
  __u8 v6;
  __u8 has_address;
  __u8 has_ports;
  __u8 anomaly; /* enum reason */
};

/* The bytes at hand. They may be packet or map memory: each access is checked against
 * the end, for the one, and has a bounded offset, for the other. */
struct view {
  const void *data;
  const void *end;
};

static __always_inline const void *view_at(const struct view *v, __u32 offset, __u32 length) {
  if (offset > MAX_HEADERS - length)
    return NULL;
  const void *p = v->data + offset;
  /* The verifier believes what is read only through the very pointer that was compared. */
  asm volatile("" : "+r"(p));
  if (p + length > v->end)
    return NULL;
  return p;
}

static __always_inline int pass(struct packet *p, enum reason why) {
  p->anomaly = why;
  return PARSED_PASS;
}

static __always_inline int anomaly(struct packet *p, enum reason why) {
  p->anomaly = why;
  return PARSED_ANOMALY;
}

/* Where the layers of a frame are. */
struct layers {
  __u32 l3;      /* offset of the IP header */
  __u32 l4;      /* offset of the TCP header */
  __u32 l4_size; /* bytes of TCP header and data, as the IP header says */
  __u16 proto;   /* Ethernet type */
  __u8 tags;     /* VLAN tags seen */
  __u8 first;    /* the first of several fragments */
  __u8 protocol; /* what the last IPv6 header read says follows */
};

/* 1 if the field holds the Ethernet type of a VLAN tag, else 0; without a branch. */
static __always_inline __u32 is_tag(const __be16 *field) {
  __u32 q = *field ^ bpf_htons(ETH_P_8021Q), ad = *field ^ bpf_htons(ETH_P_8021AD);
  return (((q - 1) | (ad - 1)) >> 31) & 1;
}

/* Counts the tags of a tagged frame without a branch for each, so that the verifier goes
 * on with one state and not with one for each number of tags. */
static __always_inline int parse_tags(const struct view *v, struct layers *l, struct packet *p) {
  const __be16 *field = view_at(v, 12, 4 * READ_VLAN_TAGS + 2);
  if (!field)
    return PARSED_TRUNCATED;
  __u32 more = 1, tags = 0;
  for (int i = 0; i <= READ_VLAN_TAGS; i++) {
    more &= is_tag(field + 2 * i);
    tags += more;
  }
  if (tags > READ_VLAN_TAGS)
    return anomaly(p, REASON_VLAN_TAGS);
  l->tags = tags;
  l->l3 = sizeof(struct ethhdr) + tags * sizeof(struct vlan_hdr);
  const __be16 *proto = view_at(v, l->l3 - 2, 2);
  if (!proto)
    return PARSED_TRUNCATED;
  l->proto = bpf_ntohs(*proto);
  return PARSED_SYN;
}

static __always_inline int parse_ethernet(const struct view *v, struct layers *l, struct packet *p) {
  const struct ethhdr *eth = view_at(v, 0, sizeof(*eth));
  if (!eth)
    return PARSED_TRUNCATED;
  if (is_tag(&eth->h_proto))
    return parse_tags(v, l, p);
  l->l3 = sizeof(*eth);
  l->proto = bpf_ntohs(eth->h_proto);
  return PARSED_SYN;
}

static __always_inline int parse_ipv4(const struct view *v, struct layers *l, struct packet *p) {
  const struct iphdr *ip = view_at(v, l->l3, sizeof(*ip));
  if (!ip)
    return PARSED_TRUNCATED;
  if (ip->version != 4 || ip->ihl < 5)
    return pass(p, REASON_MALFORMED);
  if (ip->protocol != IPPROTO_TCP)
    return pass(p, REASON_NOT_TCP);
  __u16 frag = bpf_ntohs(ip->frag_off);
  if (frag & IP_OFFSET)
    return pass(p, REASON_FRAGMENT_TAIL);
  __u32 header = ip->ihl * 4;
  /* A container or guest may hand over a packet that it left for us to segment, with a
   * length of 0, and Linux goes by the frame's (iph_totlen()). As with a jumbogram: endless. */
  __u32 total = ip->tot_len ? bpf_ntohs(ip->tot_len) : ~0U;
  if (total < header)
    return pass(p, REASON_MALFORMED);
  l->first = !!(frag & IP_MF);
  l->l4 = l->l3 + header;
  l->l4_size = total - header;
  return PARSED_SYN;
}

/* Extension headers that any host takes from any sender. Authentication and encryption
 * headers are not among them: without a security association a host drops them. */
static __always_inline bool is_extension(__u8 protocol) {
  return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING || protocol == IPPROTO_DSTOPTS;
}

/* The bytes at hand end within the chain of headers. Behind more than we read there may be
 * a SYN. */
static __always_inline int chain_cut(const struct layers *l, struct packet *p, __u32 wanted) {
  return l->l4 > MAX_HEADERS - wanted ? anomaly(p, REASON_EXTENSION) : PARSED_TRUNCATED;
}

static __always_inline int parse_extensions(const struct view *v, struct layers *l, struct packet *p) {
  for (int i = 0; i < MAX_EXTENSIONS; i++) {
    if (!is_extension(l->protocol))
      break;
    const struct ipv6_opt_hdr *ext = view_at(v, l->l4, sizeof(*ext));
    if (!ext)
      return chain_cut(l, p, sizeof(*ext));
    l->protocol = ext->nexthdr;
    l->l4 += (ext->hdrlen + 1) * 8;
    if (l->l4 > MAX_HEADERS)
      return anomaly(p, REASON_EXTENSION);
  }
  return PARSED_SYN;
}

static __always_inline int parse_fragment_header(const struct view *v, struct layers *l, struct packet *p) {
  const struct frag_hdr *frag = view_at(v, l->l4, sizeof(*frag));
  if (!frag)
    return chain_cut(l, p, sizeof(*frag));
  __u16 off = bpf_ntohs(frag->frag_off);
  if (off & IP6_OFFSET)
    return pass(p, REASON_FRAGMENT_TAIL);
  l->first = off & IP6_MF; /* without it the packet is whole: RFC 6946 */
  l->protocol = frag->nexthdr;
  l->l4 += sizeof(*frag);
  return PARSED_SYN;
}

static __always_inline int parse_ipv6(const struct view *v, struct layers *l, struct packet *p) {
  const struct ipv6hdr *ip = view_at(v, l->l3, sizeof(*ip));
  if (!ip)
    return PARSED_TRUNCATED;
  if (ip->version != 6)
    return pass(p, REASON_MALFORMED);
  l->protocol = ip->nexthdr;
  l->l4 = l->l3 + sizeof(*ip);
  /* A jumbogram's length is 0 here (RFC 2675); taken as endless, it is a SYN with data. */
  __u32 end = ip->payload_len ? l->l4 + bpf_ntohs(ip->payload_len) : ~0U;
  int r = parse_extensions(v, l, p);
  if (r == PARSED_SYN && l->protocol == IPPROTO_FRAGMENT)
    r = parse_fragment_header(v, l, p);
  if (r != PARSED_SYN)
    return r;
  if (is_extension(l->protocol) || l->protocol == IPPROTO_FRAGMENT)
    return anomaly(p, REASON_EXTENSION); /* too many, or behind a fragment header */
  if (l->protocol != IPPROTO_TCP)
    return pass(p, REASON_NOT_TCP);
  l->l4_size = end < l->l4 ? 0 : end - l->l4;
  return PARSED_SYN;
}

static __always_inline __u64 word(__be32 high, __be32 low) {
  return (__u64)bpf_ntohl(high) << 32 | bpf_ntohl(low);
}

/* Often in another cache line than what follows, which nothing else has read. */
static __always_inline void read_mac(const struct view *v, struct packet *p) {
  const struct ethhdr *eth = view_at(v, 0, sizeof(*eth));
  if (eth)
    __builtin_memcpy(p->mac, eth->h_dest, sizeof(p->mac));
}

static __always_inline int read_addresses(const struct view *v, const struct layers *l, struct packet *p) {
  p->has_address = 1;
  if (l->proto == ETH_P_IP) {
    const struct iphdr *ip = view_at(v, l->l3, sizeof(*ip));
    if (!ip)
      return PARSED_TRUNCATED;
    p->v6 = 0;
    p->src[0] = word(ip->saddr, 0);
    p->dst[0] = word(ip->daddr, 0);
    p->src[1] = p->dst[1] = 0;
    return PARSED_SYN;
  }
  const struct ipv6hdr *ip = view_at(v, l->l3, sizeof(*ip));
  if (!ip)
    return PARSED_TRUNCATED;
  p->v6 = 1;
  p->src[0] = word(ip->saddr[0], ip->saddr[1]);
  p->src[1] = word(ip->saddr[2], ip->saddr[3]);
  p->dst[0] = word(ip->daddr[0], ip->daddr[1]);
  p->dst[1] = word(ip->daddr[2], ip->daddr[3]);
  return PARSED_SYN;
}

/* The first fragment of a service's packet is refused whatever it holds, so that it is
 * never put together; the ports are at its very start (RFC 791: at least eight bytes). */
static __always_inline int parse_fragment(const struct view *v, const struct layers *l, struct packet *p) {
  const __be16 *ports = view_at(v, l->l4, 4);
  if (ports && l->l4_size >= 4) {
    p->has_ports = 1;
    p->sport = bpf_ntohs(ports[0]);
    p->dport = bpf_ntohs(ports[1]);
  }
  return anomaly(p, REASON_FRAGMENT);
}

static __always_inline int parse_tcp(const struct view *v, const struct layers *l, struct packet *p) {
  const struct tcphdr *tcp = view_at(v, l->l4, sizeof(*tcp));
  if (!tcp)
    return chain_cut(l, p, sizeof(*tcp));
  if ((tcp->flags & (TCP_SYN | TCP_ACK)) != TCP_SYN)
    return pass(p, REASON_NOT_SYN);
  __u32 header = tcp->doff * 4;
  if (header < sizeof(*tcp) || l->l4_size < header)
    return pass(p, REASON_MALFORMED);
  p->has_ports = 1;
  p->sport = bpf_ntohs(tcp->source);
  p->dport = bpf_ntohs(tcp->dest);
  if (tcp->flags & (TCP_FIN | TCP_RST))
    return anomaly(p, REASON_SYN_FLAGS);
  if (l->l4_size > header)
    return anomaly(p, REASON_SYN_DATA);
  return PARSED_SYN;
}

/* Reads up to the TCP header. */
static __always_inline int parse_network(const struct view *v, struct layers *l, struct packet *p) {
  int r = parse_ethernet(v, l, p);
  if (r != PARSED_SYN)
    return r;
  if (l->proto == ETH_P_IP)
    return parse_ipv4(v, l, p);
  if (l->proto == ETH_P_IPV6)
    return parse_ipv6(v, l, p);
  return pass(p, REASON_NOT_IP);
}

static __always_inline int parse_layers(const struct view *v, struct layers *l, struct packet *p) {
  int r = parse_network(v, l, p);
  if (r != PARSED_SYN)
    return r;
  return l->first ? parse_fragment(v, l, p) : parse_tcp(v, l, p);
}

/* Reads the frame. Only a SYN, and what may hide one, gets its addresses read. */
static __always_inline int parse(const struct view *v, struct packet *p) {
  struct layers l = {};
  *p = (struct packet){};
  int r = parse_layers(v, &l, p);
  if (r != PARSED_SYN && r != PARSED_ANOMALY)
    return r;
  if (l.l3 == 0)
    return r; /* more tags than are read */
  if (l.tags > MAX_VLAN_TAGS)
    r = anomaly(p, REASON_VLAN_TAGS);
  read_mac(v, p);
  return read_addresses(v, &l, p) == PARSED_TRUNCATED ? PARSED_TRUNCATED : r;
}
