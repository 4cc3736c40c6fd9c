/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "native.h"

_Static_assert(sizeof(struct proxy_head) <= 8, "it is kept for each flow");

int native_hello(struct tls_names *n, const struct http_chunk *c, __u32 length) {
  return hello_names(n, c, length);
}

int native_ja4(struct ja4 *j, const struct http_chunk *c, __u32 length) { return ja4_read(j, c, length); }

void native_ja4_finish(struct ja4 *j, struct ja4_print *to) { ja4_finish(j, to); }

int native_address(const struct text *t, __u32 begin, __u32 end, struct address *to) {
  return read_address(t, begin, end, to);
}

int native_forwarded(const struct text *t, struct forwarded *f) { return forwarded_last(t, f); }

int native_proxy(struct proxy_head *h, const struct http_chunk *c, __u32 length, __u32 *used) {
  return proxy_scan(h, c, length, used);
}

__u32 native_proxy_skip(struct proxy_head *h, __u32 n) { return proxy_skip(h, n); }

int native_proxy_address(const struct http_chunk *c, __u32 length, struct address *to) {
  return proxy_address(c, length, to);
}
