/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Runs the scanner, or the reader of responses, in the kernel over what is behind the Ethernet header of a
 * test run's frame, which makes tests of what the verifier lets through and figures of what it costs. */
#include "headers/kernel.h"

#include "headers/bpf/bpf_helpers.h"

#include "compat/verifier.h"
#include "parse/response.h"

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
struct http_head head;
struct http_answer answer;
__u32 used;
bool in_body, past_line, preface;

__noinline int scan(struct http_head *h, const struct http_chunk *c, __u32 length, __u32 *bytes) {
  if (!h || !c || !bytes)
    return HTTP_LOST;
  return http_scan(h, c, length, bytes);
}

__noinline int scan_answer(struct http_answer *a, const struct http_chunk *c, __u32 length, __u32 *bytes) {
  if (!a || !c || !bytes)
    return HTTP_LOST;
  return answer_scan(a, c, length, bytes);
}

/* Copies what is scanned. Returns its length. */
static __always_inline __u32 copy(struct __sk_buff *skb, struct http_chunk *c) {
  __u32 length = skb->len - BEFORE;
  if (!length || length > HTTP_CHUNK)
    return 0;
  return bpf_skb_load_bytes(skb, BEFORE, c->byte, AMOUNT(length, HTTP_CHUNK)) ? 0 : length;
}

/* What a test run costs. */
SEC("tc")
int http_empty(struct __sk_buff *skb) { return skb->len == 0; }

/* What it costs with the copy. */
SEC("tc")
int http_nothing(struct __sk_buff *skb) {
  __u32 zero = 0;
  struct http_chunk *c = bpf_map_lookup_elem(&chunks, &zero);
  return c ? (int)copy(skb, c) : 0;
}

/* Says what came of a scan. */
static __always_inline int note(int step) {
  in_body = http_in_body(&head);
  past_line = http_past_line(&head);
  preface = http_is_preface(&head);
  return step;
}

SEC("tc")
int http_request(struct __sk_buff *skb) {
  __u32 zero = 0;
  struct http_chunk *c = bpf_map_lookup_elem(&chunks, &zero);
  if (!c)
    return HTTP_LOST;
  head = (struct http_head){};
  used = 0;
  int step = scan(&head, c, copy(skb, c), &used);
  return note(step);
}

/* Reads all there is, and skips in it, as the gate does. */
#define MAX_CHUNKS 16

static __always_inline int follow(struct __sk_buff *skb, struct http_chunk *c) {
  __u32 offset = BEFORE, length = skb->len - BEFORE;
  for (int i = 0; i < MAX_CHUNKS; i++) {
    __u32 bytes = http_skip(&head, length);
    used += bytes;
    offset += bytes;
    length -= bytes;
    if (!length)
      return HTTP_MORE;
    __u32 n = length < HTTP_CHUNK ? length : HTTP_CHUNK;
    if (!n || n > HTTP_CHUNK || bpf_skb_load_bytes(skb, offset, c->byte, AMOUNT(n, HTTP_CHUNK)))
      return HTTP_LOST;
    int step = scan(&head, c, n, &bytes);
    used += bytes;
    if (step != HTTP_MORE)
      return step;
    offset += n;
    length -= n;
  }
  return HTTP_LOST;
}

SEC("tc")
int http_follow(struct __sk_buff *skb) {
  __u32 zero = 0;
  struct http_chunk *c = bpf_map_lookup_elem(&chunks, &zero);
  if (!c)
    return HTTP_LOST;
  head = (struct http_head){};
  used = 0;
  int step = follow(skb, c);
  return note(step);
}

SEC("tc")
int http_response(struct __sk_buff *skb) {
  __u32 zero = 0;
  struct http_chunk *c = bpf_map_lookup_elem(&chunks, &zero);
  if (!c)
    return HTTP_LOST;
  answer = (struct http_answer){.head.labels = 1};
  used = 0;
  return scan_answer(&answer, c, copy(skb, c), &used);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
