/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads what a client sends, as far as needed to know where its request ends. */
#pragma once
#include "gate/work.h"

/* Global, so that the verifier looks at it once. */
__noinline int scan_head(struct http_head *h, const struct http_chunk *c, __u32 length, __u32 *used) {
  return h && c && used ? http_scan(h, c, length, used) : HTTP_LOST;
}

__noinline int scan_hello(struct tls_hello *h, const struct http_chunk *c, __u32 length, __u32 *used) {
  return h && c && used ? tls_scan(h, c, length, used) : HTTP_LOST;
}

__noinline int scan_proxy(struct proxy_head *h, const struct http_chunk *c, __u32 length, __u32 *used) {
  return h && c && used ? proxy_scan(h, c, length, used) : HTTP_LOST;
}

/* Pieces that the longest segment comes in, which the stack may have made of many. */
#define MAX_READS (0x10000 / HTTP_CHUNK + 1)

/* Beside enum http_step: there is another piece. */
#define HTTP_ON 100

/* The piece at hand may be a PROXY header's. Returns whether it is known to be, as enum http_step; until then
 * its bytes are read as a request's, too. */
static __always_inline int follow_proxy(struct work *w, __u32 n) {
  struct flow *f = &w->flow;
  __u32 used = 0;
  int step = scan_proxy(&f->proxy, &w->chunk, n, &used);
  if (step == HTTP_MORE)
    return step;
  f->flags &= ~FLOW_PROXIED;
  if (step == HTTP_LOST)
    return step;
  f->head = (struct http_head){};
  f->named = NAMED_HERE;
  w->used += used;
  w->reading.at += used;
  w->reading.left -= used;
  return step;
}

/* Reads a piece at w->reading. With its place in memory, of which the verifier remembers
 * nothing: each piece is the same to it. */
__noinline int follow_piece(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return HTTP_LOST;
  bool tls = w->flow.protocol == PROTOCOL_TLS;
  __u32 left = w->reading.left, at = w->reading.at, used = 0;
  int proxy = HTTP_LOST;
  __u32 skipped = tls ? tls_skip(&w->flow.hello, left) : http_skip(&w->flow.head, left);
  w->used += skipped;
  at += skipped;
  left -= skipped;
  __u32 n = BOUND(left, HTTP_CHUNK);
  if (n == 0)
    return HTTP_MORE;
  if (bpf_skb_load_bytes(skb, at, &w->chunk, AMOUNT(n, HTTP_CHUNK)))
    return HTTP_LOST;
  if (w->flow.flags & FLOW_PROXIED)
    proxy = follow_proxy(w, n);
  if (proxy == HTTP_END)
    return w->reading.left ? HTTP_ON : HTTP_MORE;
  int step =
      tls ? scan_hello(&w->flow.hello, &w->chunk, n, &used) : scan_head(&w->flow.head, &w->chunk, n, &used);
  if (proxy == HTTP_MORE) {
    used = n;
    step = HTTP_MORE;
  }
  w->used += used;
  w->reading.at = at + n;
  w->reading.left = left - n;
  return step == HTTP_MORE && left > n ? HTTP_ON : step;
}

/* Reads on in the request's head or the chunks of its body, or in the ClientHello, which go on
 * in the frame's bytes from an offset. Returns enum http_step; w->used: bytes up to the end. */
__noinline int follow(struct __sk_buff *skb, struct work *w, __u32 offset, __u32 length) {
  if (!w)
    return HTTP_LOST;
  w->used = 0;
  w->reading.at = offset;
  w->reading.left = length;
  for (int i = 0; i < MAX_READS; i++) {
    int step = follow_piece(skb, w);
    if (step != HTTP_ON)
      return step;
  }
  return HTTP_LOST;
}

/* Notes in w->flow what has been read of a request up to its end, or the segment's. */
static __always_inline void note_step(struct work *w, int step, __u32 from) {
  struct flow *f = &w->flow;
  f->flags &= ~(FLOW_HEAD | FLOW_LOST | FLOW_CHUNKS);
  f->next = w->s.seq + w->s.length;
  f->body = from + w->used;
  if (step == HTTP_MORE)
    f->flags |= http_in_body(&f->head) ? FLOW_CHUNKS : FLOW_HEAD;
  else if (step == HTTP_LOST || f->head.flags & HTTP_ENDLESS)
    f->flags |= FLOW_LOST;
  else
    f->next = f->body + (__u32)f->head.length;
  /* Before the end of chunks, too: the answer may come before it. */
  if (step != HTTP_LOST && f->head.flags & HTTP_CLOSES)
    f->flags |= FLOW_CLOSES;
}

/* Notes in w->flow what the segment's bytes from a sequence number on say. Of connections that
 * are not HTTP only the beginning is read, and all that follows belongs to it. Returns enum
 * http_step. */
static __always_inline int read_request(struct __sk_buff *skb, struct work *w, __u32 from) {
  struct flow *f = &w->flow;
  __u32 skip = from - w->s.seq;
  bool reads = f->protocol == PROTOCOL_HTTP || (f->protocol == PROTOCOL_TLS && f->flags & FLOW_HEAD);
  int step = reads ? follow(skb, w, w->s.data + skip, w->s.length - skip) : HTTP_LOST;
  if (f->protocol == PROTOCOL_HTTP) {
    note_step(w, step, from);
    return step;
  }
  f->flags &= ~FLOW_HEAD;
  f->flags |= step == HTTP_MORE ? FLOW_HEAD : FLOW_LOST;
  f->next = f->body = w->s.seq + w->s.length;
  return step == HTTP_MORE ? HTTP_MORE : HTTP_END;
}

/* Whether the segment goes on behind the end of its request: that is cut off, and sent again
 * by the client when its turn may have come. */
static __always_inline bool exceeds(const struct work *w) {
  return !(w->flow.flags & (FLOW_HEAD | FLOW_CHUNKS | FLOW_LOST)) &&
         before(w->flow.next, w->s.seq + w->s.length);
}

/* Prepares for reading a request from its beginning on that has been read: with its PROXY header. */
static __always_inline void read_proxy_again(struct flow *f) {
  if (!(f->named & NAMED_HERE))
    return;
  f->named = 0;
  f->flags |= FLOW_PROXIED;
  f->proxy = (struct proxy_head){};
}

/* Makes what w->flow says of the request the flow's. Under the lock. */
static __always_inline void note_request(struct flow *f, const struct flow *read) {
  f->next = read->next;
  f->start = read->start;
  f->body = read->body;
  f->flags = read->flags;
  f->class = read->class;
  f->rank = read->rank;
  f->home = read->home;
  f->rule = read->rule;
  f->named = read->named;
  f->client = read->client;
  f->proxy = read->proxy;
  f->ends = read->ends;
  f->generation = read->generation;
  f->socket_priority = read->socket_priority;
  f->mark = read->mark;
  f->head = read->head;
}
