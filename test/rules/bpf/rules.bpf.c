/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds the rule of a request's head in the kernel. The head is behind the Ethernet header of a test
 * run's frame, or in a slot; for benchmarks it comes from a table, for a test run repeats one frame. */
#include "headers/kernel.h"

#include "headers/bpf/bpf_endian.h"
#include "headers/bpf/bpf_helpers.h"

#include "abi/config.h"
#include "match/reader.h"

/* The kernel's test run sees Ethernet's header in front of what is read. */
#define BEFORE 14

/* Between whom, as in struct packet. */
__u64 client[2], server[2];
__u32 port, v6;

/* What came of the last run. */
__u32 rule, complex, refused;

/* Length of the head that is in the slot. */
__u32 in_slot;

__noinline int read_one(struct __sk_buff *skb, struct work *w, __u32 node, __u32 length) {
  struct reading *r = the_reading();
  if (!w || !r)
    return -1;
  reading_begin(r);
  w->reading.at = BEFORE;
  w->reading.left = length;
  refused = !read_head(skb, w, r, node);
  w->from.src[0] = client[0];
  w->from.src[1] = client[1];
  w->s.p.dst[0] = server[0];
  w->s.p.dst[1] = server[1];
  w->s.p.dport = port;
  w->from.v6 = w->s.p.v6 = v6;
  find_joint(w, r);
  rule = r->best;
  complex = r->complex;
  return 0;
}

static __always_inline int read_in(struct __sk_buff *skb, __u32 node, __u32 length) {
  struct work *w = enter_run();
  if (!w)
    return -1;
  int failed = read_one(skb, w, node, length);
  leave_run();
  return failed;
}

/* The head in the frame. */
SEC("tc")
int rules_frame(struct __sk_buff *skb) { return read_in(skb, 0, skb->len - BEFORE); }

/* The head in the first slot. */
SEC("tc")
int rules_slot(struct __sk_buff *skb) { return read_in(skb, 1, in_slot); }

#define BENCH_HEADS 4096
#define BENCH_SIZE 1024

/* Heads, each as long as there is room for in the frame. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, BENCH_HEADS);
  __type(key, __u32);
  __type(value, __u8[BENCH_SIZE]);
} bench_heads SEC(".maps");

__u64 bench_turn;

/* Puts the next head into the frame. */
static __always_inline int next_head(struct __sk_buff *skb) {
  __u32 index = bench_turn++ % BENCH_HEADS, length = BOUND(skb->len - BEFORE, BENCH_SIZE);
  __u8 *head = bpf_map_lookup_elem(&bench_heads, &index);
  if (!head || !length)
    return -1;
  return bpf_skb_store_bytes(skb, BEFORE, head, AMOUNT(length, BENCH_SIZE), 0);
}

/* What the program below costs beside reading. */
SEC("tc")
int bench_nothing(struct __sk_buff *skb) {
  if (next_head(skb))
    return -1;
  struct work *w = enter_run();
  if (!w)
    return -1;
  leave_run();
  return 0;
}

/* Heads of the table in turn. */
SEC("tc")
int bench_read(struct __sk_buff *skb) { return next_head(skb) ? -1 : read_in(skb, 0, skb->len - BEFORE); }

char LICENSE[] SEC("license") = "Dual BSD/GPL";
