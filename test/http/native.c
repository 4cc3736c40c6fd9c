/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "native.h"

int native_scan(struct http_head *h, const struct http_chunk *c, __u32 length, __u32 *used) {
  return http_scan(h, c, length, used);
}

__u32 native_skip(struct http_head *h, __u32 n) { return http_skip(h, n); }

bool native_in_body(const struct http_head *h) { return http_in_body(h); }

bool native_past_line(const struct http_head *h) { return http_past_line(h); }

struct label native_label(const struct http_head *h) { return h->label; }

bool native_is_preface(const struct http_head *h) { return http_is_preface(h); }

int native_answer_scan(struct http_answer *a, const struct http_chunk *c, __u32 length, __u32 *used) {
  return answer_scan(a, c, length, used);
}
