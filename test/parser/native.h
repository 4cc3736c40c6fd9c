/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The data path's own source, compiled for this machine. bpf_helpers.h serves as it is: the
 * helpers are function pointers, which native.c points at functions of its own. */
#pragma once
#include "headers/kernel.h"

#include "headers/bpf/bpf_helpers.h"

#include "headers/bpf/bpf_endian.h"

#include "abi/types.h"
#include "parse/packet.h"

/* The largest table of sources that the tests ask for. */
#define TEST_SETS 16

int native_parse(const void *data, const void *end, struct packet *out);
__u64 native_siphash13(__u64 key0, __u64 key1, __u64 a, __u64 b, __u64 c);

/* Empties all buckets and makes the table `sets` large (a power of two), with `ways` ways in
 * use of each set. */
void native_buckets_reset(__u32 sets, __u32 ways, __u64 key0, __u64 key1);
/* 1: a token was taken. */
int native_police(const struct rule *r, const struct packet *p, __u64 now);
/* Limits that a test has at most. */
#define TEST_LIMITS 8

/* Whether the packet gets a token or a place of each of the limits, which have slots by their numbers, and
 * the places; and what each has refused. */
int native_take_limits(const struct rule *limits, __u32 n, const struct packet *p, __u64 now, __u64 *places);
void native_leave_places(__u64 places);
__u64 native_refused(__u32 limit);
__u64 native_source_tag(const struct rule *r, const struct packet *p);
struct source_set *native_source_set(__u64 tag);
