/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Runs the scanner in the kernel over what is behind the Ethernet header of a test run's frame. */
#include "headers/kernel.h"

#include "headers/bpf/bpf_helpers.h"

#include "compat/verifier.h"
#include "parse/tls.h"

/* The kernel's test run sees Ethernet's header in front of what is scanned. */
#define BEFORE 14

/* One chunk for each CPU, as a program that scans has it. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct http_chunk);
} chunks SEC(".maps");

/* What came of the last run. */
struct tls_hello hello;
__u32 used;

__noinline int scan(struct tls_hello *h, const struct http_chunk *c, __u32 length, __u32 *bytes) {
  if (!h || !c || !bytes)
    return HTTP_LOST;
  return tls_scan(h, c, length, bytes);
}

__noinline __u32 skip(struct tls_hello *h, __u32 n) { return h ? tls_skip(h, n) : 0; }

/* Reads all there is; with `skips` it skips in it, as the gate does. */
#define MAX_CHUNKS 16

static __always_inline int follow(struct __sk_buff *skb, bool skips) {
  __u32 zero = 0, offset = BEFORE, length = skb->len - BEFORE;
  struct http_chunk *c = bpf_map_lookup_elem(&chunks, &zero);
  if (!c)
    return HTTP_LOST;
  hello = (struct tls_hello){};
  used = 0;
  for (int i = 0; i < MAX_CHUNKS; i++) {
    __u32 bytes = skips ? skip(&hello, length) : 0;
    used += bytes;
    offset += bytes;
    length -= bytes;
    if (!length)
      return HTTP_MORE;
    __u32 n = length < HTTP_CHUNK ? length : HTTP_CHUNK;
    if (!n || n > HTTP_CHUNK || bpf_skb_load_bytes(skb, offset, c->byte, AMOUNT(n, HTTP_CHUNK)))
      return HTTP_LOST;
    int step = scan(&hello, c, n, &bytes);
    used += bytes;
    if (step != HTTP_MORE)
      return step;
    offset += n;
    length -= n;
  }
  return HTTP_LOST;
}

SEC("tc")
int tls_read(struct __sk_buff *skb) { return follow(skb, false); }

SEC("tc")
int tls_follow(struct __sk_buff *skb) { return follow(skb, true); }

char LICENSE[] SEC("license") = "Dual BSD/GPL";
