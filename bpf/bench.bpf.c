/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* For benchmarks: a test run repeats one frame, so these programs put another source
 * address into it each time. */
#include "narthex.bpf.c"

#define BENCH_SOURCES 16384

/* Addresses as in a frame; an IPv4 address is the first four bytes. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, BENCH_SOURCES);
  __type(key, __u32);
  __type(value, __be32[4]);
} bench_sources SEC(".maps");

/* Turn of the run; the number of the source never seen. */
__u64 bench_turn;

/* Puts the next source into the frame. 0: the frame is none of ours. */
static __always_inline int bench_source(struct xdp_md *ctx, bool fresh) {
  void *data = (void *)(long)ctx->data;
  if (data + 54 > (void *)(long)ctx->data_end)
    return 0;
  struct ethhdr *eth = data;
  __u64 turn = bench_turn++;
  __u32 index = turn % BENCH_SOURCES;
  __be32 *from = bpf_map_lookup_elem(&bench_sources, &index);
  if (!from)
    return 0;
  if (eth->h_proto == bpf_htons(ETH_P_IP)) {
    struct iphdr *ip = data + sizeof(*eth);
    ip->saddr = fresh ? bpf_htonl(0x0a000000 + (__u32)turn % 0xffffff) : from[0];
    return 1;
  }
  struct ipv6hdr *ip = data + sizeof(*eth);
  ip->saddr[0] = from[0];
  ip->saddr[1] = fresh ? (__be32)turn : from[1];
  ip->saddr[2] = from[2];
  ip->saddr[3] = from[3];
  return 1;
}

/* What the programs below cost without a decision. */
SEC("xdp.frags")
int bench_nothing(struct xdp_md *ctx) { return bench_source(ctx, false) ? XDP_PASS : XDP_ABORTED; }

/* Sources of the table in turn. */
SEC("xdp.frags")
int bench_known(struct xdp_md *ctx) { return bench_source(ctx, false) ? xdp_syn(ctx) : XDP_ABORTED; }

/* A source never seen in each frame. */
SEC("xdp.frags")
int bench_fresh(struct xdp_md *ctx) { return bench_source(ctx, true) ? xdp_syn(ctx) : XDP_ABORTED; }

/* What a test run costs. */
SEC("xdp.frags")
int bench_empty(struct xdp_md *ctx) { return ctx->data ? XDP_PASS : XDP_ABORTED; }
