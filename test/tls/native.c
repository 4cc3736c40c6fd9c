/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "native.h"

_Static_assert(sizeof(struct tls_hello) <= sizeof(struct http_head), "they share a flow's memory");

int native_scan(struct tls_hello *h, const struct http_chunk *c, __u32 length, __u32 *used) {
  return tls_scan(h, c, length, used);
}

__u32 native_skip(struct tls_hello *h, __u32 n) { return tls_skip(h, n); }
