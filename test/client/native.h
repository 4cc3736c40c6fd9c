/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The readers' own source, compiled for this machine. */
#pragma once
#include "headers/kernel.h"

#include "headers/bpf/bpf_helpers.h"

/* What is global for the verifier would be there once for each file that includes it. */
#undef __noinline
#define __noinline static __attribute__((noinline))

#include "parse/hello.h"
#include "parse/ja4.h"
#include "parse/proxy.h"

int native_hello(struct tls_names *n, const struct http_chunk *c, __u32 length);
int native_ja4(struct ja4 *j, const struct http_chunk *c, __u32 length);
void native_ja4_finish(struct ja4 *j, struct ja4_print *to);
int native_address(const struct text *t, __u32 begin, __u32 end, struct address *to);
int native_forwarded(const struct text *t, struct forwarded *f);
int native_proxy(struct proxy_head *h, const struct http_chunk *c, __u32 length, __u32 *used);
__u32 native_proxy_skip(struct proxy_head *h, __u32 n);
int native_proxy_address(const struct http_chunk *c, __u32 length, struct address *to);
