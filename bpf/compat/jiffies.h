/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How long a jiffy is, which no program is told: it is found out by how many there were. */
#pragma once
#include "headers/kernel.h"

/* The kernel counts jiffies from 300 s before 2^32 of them on, ms from the boot on. */
#define JIFFIES_ROUND (1ULL << 32)
#define JIFFIES_ROUND_AT 300000

/* So near to that nothing is known, ms. */
#define JIFFIES_BLUR 10000

/* Jiffies in a time in ms. 0: not known. */
static __always_inline __u32 jiffies_in(__u32 ms) {
  __u64 now = bpf_ktime_get_ns() / 1000000, jiffies = bpf_jiffies64();
  if (now > JIFFIES_ROUND_AT + JIFFIES_BLUR && jiffies > JIFFIES_ROUND)
    return (jiffies - JIFFIES_ROUND) * ms / (now - JIFFIES_ROUND_AT);
  if (now + JIFFIES_BLUR < JIFFIES_ROUND_AT && jiffies < JIFFIES_ROUND)
    return (JIFFIES_ROUND - jiffies) * ms / (JIFFIES_ROUND_AT - now);
  return 0;
}
