/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The scanner's own source, compiled for this machine. */
#pragma once
#include "headers/kernel.h"

#include "headers/bpf/bpf_helpers.h"

/* What is global for the verifier would be there once for each file that includes it. */
#undef __noinline
#define __noinline static __attribute__((noinline))

#include "parse/tls.h"

int native_scan(struct tls_hello *h, const struct http_chunk *c, __u32 length, __u32 *used);
__u32 native_skip(struct tls_hello *h, __u32 n);
