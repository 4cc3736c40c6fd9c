/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Clients without a kernel: makes their SYNs when BPF_PROG_RUN runs it, and answers what comes from
 * the server when the device does. Nothing is kept about a connection: all that an answer needs is
 * in the segment that it answers. */
#include "../../../bpf/headers/kernel.h"

#include "bpf_endian.h"
#include "bpf_helpers.h"

#define MAX_REQUEST 256
#define STATUSES 600
#define SEEN (1 << 18)
#define LOOPBACK 1 /* the device that injected frames come from */
#define IP_DF 0x4000
#define WINDOW 64240
#define MSS 1460
#define PORTS 64512 /* from 1024 */
#define ENDS_OF_REQUEST                                                                                      \
  0x7fff /* the lower half of sequence numbers begins below, so that no request reaches the next one */

/* Addresses and ports, in network byte order. */
const volatile __be16 client_mac[3];
const volatile __be16 server_mac[3];
const volatile __be32 prefix;
const volatile __be32 mask;
const volatile __be32 server;
const volatile __be16 server_port;

const volatile __u32 ifindex; /* of the clients' device */
const volatile __u32 seed;
const volatile __u16 run;       /* the upper half of this run's sequence numbers */
const volatile __u8 to_the_end; /* receive answers until the server ends the connection */

/* What they ask, and the sum of its 16-bit words. */
const volatile __u32 request_length;
const volatile __u32 request_sum;
const volatile __u8 request[MAX_REQUEST];

/* Set when connections are just to be ended. */
__u32 ending;
/* SYNs that were made. Nobody makes two at a time. */
__u64 made;

struct counts {
  __u64 synacks;
  __u64 requests;
  __u64 ends;
  __u64 resets;
  __u64 stale;
  __u64 repeated;
  __u64 frames; /* of the server, whatever they were */
  __u64 answers[STATUSES];
};

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct counts);
} counted SEC(".maps");

/* The connections that were answered last, each where its ports and addresses say. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, SEEN);
  __type(key, __u32);
  __type(value, __u64);
} seen SEC(".maps");

struct frame {
  struct ethhdr eth;
  struct iphdr ip;
  struct tcphdr tcp;
} __attribute__((packed));

/* What is to be sent; in network byte order. */
struct segment {
  __be32 client;
  __be16 port;
  __be32 seq;
  __be32 ack;
  __u8 flags;
  __u16 more; /* bytes behind a header without options; in host byte order */
  __u32 sum;  /* of those */
};

static __always_inline __u16 folded(__u64 sum) {
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return ~sum;
}

/* Writes the headers. */
static __always_inline void write(struct frame *f, const struct segment *s, __u8 words) {
  for (int i = 0; i < 3; i++) {
    ((__be16 *)f->eth.h_dest)[i] = server_mac[i];
    ((__be16 *)f->eth.h_source)[i] = client_mac[i];
  }
  f->eth.h_proto = bpf_htons(ETH_P_IP);

  __be16 total = bpf_htons(40 + s->more);
  __u64 addresses = (__u64)s->client + server;
  *(__u8 *)&f->ip = 0x45;
  f->ip.tos = 0;
  f->ip.tot_len = total;
  f->ip.id = 0;
  f->ip.frag_off = bpf_htons(IP_DF);
  f->ip.ttl = 64;
  f->ip.protocol = IPPROTO_TCP;
  f->ip.saddr = s->client;
  f->ip.daddr = server;
  f->ip.check = folded(addresses + 0x45 + total + bpf_htons(IP_DF) + bpf_htons(64 << 8 | IPPROTO_TCP));

  f->tcp.source = s->port;
  f->tcp.dest = server_port;
  f->tcp.seq = s->seq;
  f->tcp.ack_seq = s->ack;
  __u16 offset = words << 4 | s->flags << 8; /* as in memory */
  *(__u8 *)((void *)&f->tcp + 12) = words << 4;
  f->tcp.flags = s->flags;
  f->tcp.window = bpf_htons(WINDOW);
  f->tcp.urg_ptr = 0;
  f->tcp.check = folded(addresses + bpf_htons(IPPROTO_TCP) + bpf_htons(20 + s->more) + s->port + server_port +
                        s->seq + s->ack + offset + bpf_htons(WINDOW) + s->sum);
}

/* Makes the next SYN. Every address is used once before one is used again, then with another port. */
static __always_inline int inject(struct xdp_md *ctx) {
  void *end = (void *)(long)ctx->data_end;
  struct frame *f = (void *)(long)ctx->data;
  __be32 *option = (void *)(f + 1);
  if ((void *)(option + 1) > end)
    return XDP_DROP;
  __u32 hosts = ~bpf_ntohl(mask);
  __u64 n = made++;
  __u32 host = ((__u32)n * 0x9e3779b1 + seed) & hosts;
  __u64 round = hosts == ~0U ? 0 : n / ((__u64)hosts + 1);
  __u32 port = 1024 + (round * 25013 + host * 0x85ebca6bU + seed) % PORTS;
  *option = bpf_htonl(2 << 24 | 4 << 16 | MSS);
  struct segment s = {
      .client = prefix | bpf_htonl(host),
      .port = bpf_htons(port),
      .seq = bpf_htonl((__u32)run << 16 | (bpf_get_prandom_u32() & ENDS_OF_REQUEST)),
      .flags = TCP_SYN,
      .more = 4,
  };
  s.sum = (*option & 0xffff) + (*option >> 16);
  write(f, &s, 6);
  return bpf_redirect(ifindex, 0);
}

/* Turns the frame into an answer without payload. */
static __always_inline int answer(struct xdp_md *ctx, const struct segment *s) {
  int have = bpf_xdp_get_buff_len(ctx);
  if (bpf_xdp_adjust_tail(ctx, (int)sizeof(struct frame) - have))
    return XDP_DROP;
  void *end = (void *)(long)ctx->data_end;
  struct frame *f = (void *)(long)ctx->data;
  if ((void *)(f + 1) > end)
    return XDP_DROP;
  write(f, s, 5);
  return bpf_redirect(ifindex, 0);
}

/* Turns a SYN-ACK into the request. Most of the room for it is before the frame. */
static __always_inline int ask(struct xdp_md *ctx, struct segment *s) {
  int need = (int)sizeof(struct frame) + (int)request_length - (int)bpf_xdp_get_buff_len(ctx);
  if (need > 0 ? bpf_xdp_adjust_head(ctx, -need) : need < 0 && bpf_xdp_adjust_tail(ctx, need))
    return XDP_DROP;
  __u32 length = request_length;
  if (length == 0 || length > MAX_REQUEST ||
      bpf_xdp_store_bytes(ctx, sizeof(struct frame), (void *)request, length))
    return XDP_DROP;
  void *end = (void *)(long)ctx->data_end;
  struct frame *f = (void *)(long)ctx->data;
  if ((void *)(f + 1) > end)
    return XDP_DROP;
  s->flags = TCP_ACK | TCP_PSH;
  s->more = length;
  s->sum = request_sum;
  write(f, s, 5);
  return bpf_redirect(ifindex, 0);
}

/* Ends the connection, wherever it is. */
static __always_inline int reset(struct xdp_md *ctx, struct segment *s) {
  s->flags = TCP_RST;
  s->ack = 0;
  return answer(ctx, s);
}

/* Counts an answer if one begins here, once for a connection. */
static __always_inline void status(struct xdp_md *ctx, struct counts *c, __u32 at, const struct segment *s) {
  char b[12];
  if (bpf_xdp_load_bytes(ctx, at, b, sizeof(b)))
    return;
  if (b[0] != 'H' || b[1] != 'T' || b[2] != 'T' || b[3] != 'P' || b[4] != '/' || b[8] != ' ')
    return;
  __u32 code = (b[9] - '0') * 100 + (b[10] - '0') * 10 + (b[11] - '0');
  if (code >= STATUSES)
    code = 0;
  __u64 is = (__u64)s->client << 32 | (__u64)s->port << 16 | (bpf_ntohl(s->seq) & 0xffff);
  __u32 key = (s->client * 0x9e3779b1U ^ s->port * 0x85ebca6bU) >> 14;
  __u64 *was = bpf_map_lookup_elem(&seen, &key);
  if (!was)
    return;
  if (*was == is) {
    c->repeated++;
    return;
  }
  *was = is;
  c->answers[code]++;
}

/* Answers a segment of the server. */
static __always_inline int respond(struct xdp_md *ctx, struct counts *c, struct frame *f, int length) {
  __u8 flags = f->tcp.flags;
  __u32 ack = bpf_ntohl(f->tcp.ack_seq), seq = bpf_ntohl(f->tcp.seq);
  __u32 header = f->tcp.doff * 4;
  int data = length - 20 - (int)header;
  struct segment s = {.client = f->ip.daddr, .port = f->tcp.dest, .seq = f->tcp.ack_seq, .flags = TCP_ACK};
  bool ours = ack >> 16 == run;

  c->frames++;
  if (flags & TCP_RST) {
    if (ours || !(flags & TCP_ACK))
      c->resets++;
    return XDP_DROP;
  }
  if (!(flags & TCP_ACK))
    return XDP_DROP;
  if (!ours)
    c->stale++;
  if (!ours || ending)
    return reset(ctx, &s);
  if (flags & TCP_SYN) {
    c->synacks++;
    if (!request_length)
      return XDP_DROP;
    c->requests++;
    s.ack = bpf_htonl(seq + 1);
    return ask(ctx, &s);
  }
  if (data > 0)
    status(ctx, c, 34 + header, &s);
  if (flags & TCP_FIN)
    c->ends++;
  if (flags & TCP_FIN || (data > 0 && !to_the_end))
    return reset(ctx, &s);
  if (data <= 0)
    return XDP_DROP;
  s.ack = bpf_htonl(seq + data);
  return answer(ctx, &s);
}

SEC("xdp.frags")
int clients(struct xdp_md *ctx) {
  if (ctx->ingress_ifindex == LOOPBACK)
    return inject(ctx);
  void *end = (void *)(long)ctx->data_end;
  struct frame *f = (void *)(long)ctx->data;
  if ((void *)(f + 1) > end || f->eth.h_proto != bpf_htons(ETH_P_IP) || *(__u8 *)&f->ip != 0x45 ||
      f->ip.protocol != IPPROTO_TCP || f->ip.saddr != server || f->tcp.source != server_port ||
      (f->ip.daddr & mask) != prefix)
    return XDP_PASS;
  __u32 zero = 0;
  struct counts *c = bpf_map_lookup_elem(&counted, &zero);
  return c ? respond(ctx, c, f, bpf_ntohs(f->ip.tot_len)) : XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
