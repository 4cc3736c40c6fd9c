/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* For benchmarks: a test run repeats one frame, so these programs put another source
 * address into it each time. */
#include "programs.bpf.c"

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

/* A request, which is whole in its segment, as far as the gate reads it, step by step. Each step does what
 * the one before does. */

/* Its headers. */
static __always_inline struct work *bench_begin(struct __sk_buff *skb) {
  struct work *w = enter_run();
  if (!w)
    return NULL;
  if (read_segment(skb, &w->s) != PARSED_SYN) {
    leave_run();
    return NULL;
  }
  incoming_key(&w->key, &w->s.p);
  clear_attribution(w);
  w->grown = 0;
  w->flow = (struct flow){};
  return w;
}

static __always_inline int bench_end(bool done) {
  leave_run();
  return done ? TCX_PASS : TCX_DROP;
}

/* The class of its source. */
__noinline int bench_classify(struct __sk_buff *skb, struct work *w) { return w && classify(skb, w); }

/* Where it ends. */
__noinline int bench_scan(struct __sk_buff *skb, struct work *w) {
  return w && read_request(skb, w, w->s.seq) == HTTP_END;
}

__noinline int bench_values(struct work *w) {
  struct reading *r = the_reading();
  return w && r ? read_values(w, r) : READ_BAD;
}

/* Its path, decoded and cleaned, and its hash. */
__noinline int bench_path(struct __sk_buff *skb, struct work *w) {
  struct reading *r = the_reading();
  if (!w || !r)
    return 0;
  reading_begin(r);
  w->reading.at = w->s.data;
  w->reading.left = w->s.length;
  int value = READ_NEXT;
  for (int i = 0; i < MAX_READINGS && (value == READ_NEXT || value == READ_ON); i++) {
    if (value == READ_NEXT && !next_piece(skb, w, r, 0))
      return 0;
    value = bench_values(w);
  }
  return value == FIELD_PATH;
}

SEC("tc")
int bench_segment(struct __sk_buff *skb) { return bench_begin(skb) ? bench_end(true) : TCX_DROP; }

SEC("tc")
int bench_class(struct __sk_buff *skb) {
  struct work *w = bench_begin(skb);
  return w ? bench_end(bench_classify(skb, w)) : TCX_DROP;
}

/* Puts its flow into the table, once and not to be measured. */
SEC("tc")
int bench_flow(struct __sk_buff *skb) {
  struct work *w = bench_begin(skb);
  if (!w)
    return TCX_DROP;
  w->flow.id = 1;
  return bench_end(bench_classify(skb, w) && !bpf_map_update_elem(&flows, &w->key, &w->flow, BPF_ANY));
}

/* The rule that its path matches. */
__noinline int bench_match(struct work *w) {
  struct reading *r = the_reading();
  if (!w || !r)
    return 0;
  match_value(r, FIELD_PATH);
  return r->best != NO_MATCH;
}

/* What is known of its connection. */
__noinline int bench_find(struct work *w) {
  struct scene sc;
  return w && set_flow_scene(&sc, w);
}

static __always_inline int bench_read_url(struct __sk_buff *skb, struct work *w) {
  return bench_classify(skb, w) && bench_scan(skb, w) && bench_path(skb, w);
}

SEC("tc")
int bench_url(struct __sk_buff *skb) {
  struct work *w = bench_begin(skb);
  return w ? bench_end(bench_read_url(skb, w)) : TCX_DROP;
}

SEC("tc")
int bench_connection(struct __sk_buff *skb) {
  struct work *w = bench_begin(skb);
  return w ? bench_end(bench_read_url(skb, w) && bench_find(w)) : TCX_DROP;
}

SEC("tc")
int bench_clock(struct __sk_buff *skb) {
  struct work *w = bench_begin(skb);
  if (!w)
    return TCX_DROP;
  bool found = bench_read_url(skb, w) && bench_find(w);
  w->now = bpf_ktime_get_ns();
  return bench_end(found);
}

/* What is known of its connection, and what its rule says. */
__noinline int bench_apply(struct work *w) {
  struct scene sc;
  return w && set_flow_scene(&sc, w) && apply_rule(&sc) == RULING_GO;
}

SEC("tc")
int bench_rule(struct __sk_buff *skb) {
  struct work *w = bench_begin(skb);
  if (!w)
    return TCX_DROP;
  bool matches = bench_read_url(skb, w) && bench_match(w);
  w->now = bpf_ktime_get_ns();
  return bench_end(matches && bench_apply(w));
}

/* All that the gate does between the class of the source and the turn. */
SEC("tc")
int bench_rules(struct __sk_buff *skb) {
  struct work *w = bench_begin(skb);
  if (!w)
    return TCX_DROP;
  if (!bench_classify(skb, w) || !bench_scan(skb, w))
    return bench_end(false);
  w->why = read_rules(skb, w);
  return bench_end(apply_rules(w, find_by_key(&flows, &w->key)) == STEP_TURN && w->flow.rule != NO_MATCH);
}

/* The frame's length says which of two rooms. */
static __always_inline bool bench_open(struct scene *sc, const struct __sk_buff *skb) {
  return open_scene(sc, skb->len & 1);
}

/* What a request does to its room that enters at once and leaves: the lock is taken twice. */
SEC("tc")
int bench_room(struct __sk_buff *skb) {
  struct scene sc;
  if (!bench_open(&sc, skb))
    return TCX_DROP;
  struct room *r = sc.room;
  lock_current(&sc, skb->len & 1, r->epoch_began);
  class_of(r, 0)->arrived++;
  class_of(r, 0)->admitted++;
  __u32 epoch = enter(r, 0);
  bpf_spin_unlock(&r->lock);
  bpf_spin_lock(&r->lock);
  if (leave(r, 0, epoch))
    count_service(class_of(r, 0), skb->len);
  bpf_spin_unlock(&r->lock);
  return TCX_NEXT;
}

/* What a connection does to counters that all CPUs share: its flow begins and ends. */
SEC("tc")
int bench_counts(struct __sk_buff *skb) {
  struct scene sc;
  if (!bench_open(&sc, skb))
    return TCX_DROP;
  count_flow(sc.room, sc.pool, 1);
  count_flow(sc.room, sc.pool, -1);
  return TCX_NEXT;
}

/* The same without either. */
SEC("tc")
int bench_scene(struct __sk_buff *skb) {
  struct scene sc;
  return bench_open(&sc, skb) ? TCX_NEXT : TCX_DROP;
}
