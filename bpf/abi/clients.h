/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is remembered of sources. */
#pragma once
#include "headers/kernel.h"

/* The token bucket of one source under one rule. A tag of 0 is nobody's. */
struct source {
  __u64 tag;  /* SipHash of rule id and source prefix */
  __u64 time; /* theoretical arrival time: the bucket is full if it has passed */
};

#define SOURCE_WAYS 8

struct source_set {
  struct source way[SOURCE_WAYS];
};

/* Secret of an instance's source tags: without it nobody can choose addresses that share
 * a set. */
struct secret {
  __u64 key[2];
};

/* A client, by its address as in struct packet. */
struct client {
  __u64 address[2];
  __u8 v6;
  __u8 pad[7]; /* 0 */
};

/* What a client was learned as. */
struct learned {
  __u64 until; /* ns */
  __u32 class; /* slot */
  __u32 pad;   /* 0 */
};
