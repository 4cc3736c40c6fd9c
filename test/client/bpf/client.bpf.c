/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Runs each of the readers in the kernel over what is behind the Ethernet header of a test run's
 * frame. */
#include "headers/kernel.h"

#include "headers/bpf/bpf_helpers.h"

#include "compat/verifier.h"
#include "parse/hello.h"
#include "parse/ja4.h"
#include "parse/proxy.h"

/* The kernel's test run sees Ethernet's header in front of what is read. */
#define BEFORE 14

/* Chunks that are read at most. */
#define MAX_CHUNKS 16

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct http_chunk);
} chunks SEC(".maps");

/* Too large for one of each CPU. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct text);
} texts SEC(".maps");

/* What came of the last run. */
struct tls_names names;
struct address address;
struct ja4_print fingerprint;
struct forwarded forwarded;
struct proxy_head head;
__u32 used;

__noinline int scan(struct proxy_head *h, const struct http_chunk *c, __u32 length, __u32 *bytes) {
  if (!h || !c || !bytes)
    return HTTP_LOST;
  return proxy_scan(h, c, length, bytes);
}

__noinline int last(const struct text *t, struct forwarded *f) { return t && f ? forwarded_last(t, f) : 0; }

/* Copies a chunk of what is read. Returns its length. */
static __always_inline __u32 copy(struct __sk_buff *skb, __u32 offset, struct http_chunk *c) {
  __u32 n = skb->len - offset;
  if (n > HTTP_CHUNK)
    n = HTTP_CHUNK;
  /* So that clang keeps both comparisons, which are for the verifier, as two: up to 6.12 it does not see
   * that n is not 0 from n - 1. */
  if (!n || n > HTTP_CHUNK)
    return 0;
  return bpf_skb_load_bytes(skb, offset, c->byte, AMOUNT(n, HTTP_CHUNK)) ? 0 : n;
}

SEC("tc")
int client_hello(struct __sk_buff *skb) {
  __u32 zero = 0;
  struct http_chunk *c = bpf_map_lookup_elem(&chunks, &zero);
  if (!c)
    return HTTP_LOST;
  __builtin_memset(&names, 0, sizeof(names));
  used = 0;
  for (int i = 0; i < MAX_CHUNKS && BEFORE + used < skb->len; i++) {
    __u32 n = copy(skb, BEFORE + used, c);
    if (!n)
      return HTTP_LOST;
    int step = hello_names(&names, c, n);
    if (step != HTTP_MORE)
      return step;
    used += n;
  }
  return HTTP_MORE;
}

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct ja4);
} prints SEC(".maps");

SEC("tc")
int client_ja4(struct __sk_buff *skb) {
  __u32 zero = 0;
  struct http_chunk *c = bpf_map_lookup_elem(&chunks, &zero);
  struct ja4 *j = bpf_map_lookup_elem(&prints, &zero);
  if (!c || !j)
    return HTTP_LOST;
  __builtin_memset(&j->r, 0, sizeof(j->r));
  used = 0;
  for (int i = 0; i < MAX_CHUNKS && BEFORE + used < skb->len; i++) {
    __u32 n = copy(skb, BEFORE + used, c);
    if (!n)
      return HTTP_LOST;
    int step = ja4_read(j, c, n);
    if (step == HTTP_END)
      ja4_finish(j, &fingerprint);
    if (step != HTTP_MORE)
      return step;
    used += n;
  }
  return HTTP_MORE;
}

SEC("tc")
int client_proxy(struct __sk_buff *skb) {
  __u32 zero = 0;
  struct http_chunk *c = bpf_map_lookup_elem(&chunks, &zero);
  if (!c)
    return HTTP_LOST;
  head = (struct proxy_head){};
  used = 0;
  for (int i = 0; i < MAX_CHUNKS && BEFORE + used < skb->len; i++) {
    __u32 bytes = 0, n = copy(skb, BEFORE + used, c);
    if (!n)
      return HTTP_LOST;
    int step = scan(&head, c, n, &bytes);
    used += bytes;
    if (step != HTTP_MORE)
      return step;
  }
  return HTTP_MORE;
}

SEC("tc")
int client_proxy_address(struct __sk_buff *skb) {
  __u32 zero = 0;
  struct http_chunk *c = bpf_map_lookup_elem(&chunks, &zero);
  return c ? proxy_address(c, copy(skb, BEFORE, c), &address) : PROXY_MALFORMED;
}

/* Copies what is read into the text. Returns its length. */
static __always_inline __u32 write(struct __sk_buff *skb, struct text *t) {
  __u32 n = skb->len - BEFORE;
  if (!n || n > MAX_TEXT)
    return 0;
  return bpf_skb_load_bytes(skb, BEFORE, t->byte, AMOUNT(n, MAX_TEXT)) ? 0 : n;
}

SEC("tc")
int client_address(struct __sk_buff *skb) {
  __u32 zero = 0;
  struct text *t = bpf_map_lookup_elem(&texts, &zero);
  return t ? read_address(t, 0, write(skb, t), &address) : 0;
}

/* `used` is which element it finds, from the end. */
SEC("tc")
int client_forwarded(struct __sk_buff *skb) {
  __u32 zero = 0, elements = used;
  struct text *t = bpf_map_lookup_elem(&texts, &zero);
  if (!t)
    return 0;
  forwarded = (struct forwarded){.rest = write(skb, t)};
  int found = last(t, &forwarded);
  for (__u32 i = 0; i < 64 && i < elements && found; i++)
    found = last(t, &forwarded);
  return found;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
