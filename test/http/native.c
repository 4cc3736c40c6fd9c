/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "native.h"

int native_scan(struct http_head *h, const struct http_chunk *c, __u32 length, __u32 *used) {
  return http_scan(h, c, length, used);
}

void native_read_answer(struct http_answer *a, const struct http_chunk *c, __u32 length) {
  http_read_answer(a, c, length);
}
