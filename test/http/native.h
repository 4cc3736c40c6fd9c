/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The scanner's and the response reader's own source, compiled for this machine. */
#pragma once
#include "headers/kernel.h"

#include "headers/bpf/bpf_helpers.h"

/* What is global for the verifier would be there once for each file that includes it. */
#undef __noinline
#define __noinline static __attribute__((noinline))

#include "parse/response.h"

int native_scan(struct http_head *h, const struct http_chunk *c, __u32 length, __u32 *used);
__u32 native_skip(struct http_head *h, __u32 n);
bool native_in_body(const struct http_head *h);
bool native_past_line(const struct http_head *h);
struct label native_label(const struct http_head *h);
bool native_is_preface(const struct http_head *h);
int native_answer_scan(struct http_answer *a, const struct http_chunk *c, __u32 length, __u32 *used);
