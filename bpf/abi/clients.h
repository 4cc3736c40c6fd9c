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

/* Sources that are known, by what they got an answer of lately: of each bits 32 to 63 of the hash, bits 8 to
 * 31 when that was, in 2^30 ns, and in the lowest how many requests may go ahead for it. 0: nobody's. */
#define KNOWN_WAYS 8
#define KNOWN_SETS 32768 /* a power of two */

struct known_set {
  __u64 way[KNOWN_WAYS];
};

#define KNOWN_REQUESTS 50
#define KNOWN_LEFT 0xff       /* bits of how many are left */
#define KNOWN_TIME_BITS 8     /* where the time begins, and */
#define KNOWN_TIMES 0xffffffU /* its bits */

/* What a client was learned as. */
struct learned {
  __u64 until; /* ns */
  __u32 class; /* slot */
  __u32 pad;   /* 0 */
};
