/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SipHash-1-3 (Aumasson and Bernstein, 2012) of words. Where their number is fixed the length word of the
 * general function is left out. */
#pragma once
#include "headers/kernel.h"

static __always_inline __u64 rotl(__u64 x, int bits) { return x << bits | x >> (64 - bits); }

static __always_inline void sip_round(__u64 v[4]) {
  v[0] += v[1];
  v[1] = rotl(v[1], 13) ^ v[0];
  v[0] = rotl(v[0], 32);
  v[2] += v[3];
  v[3] = rotl(v[3], 16) ^ v[2];
  v[0] += v[3];
  v[3] = rotl(v[3], 21) ^ v[0];
  v[2] += v[1];
  v[1] = rotl(v[1], 17) ^ v[2];
  v[2] = rotl(v[2], 32);
}

static __always_inline void sip_absorb(__u64 v[4], __u64 word) {
  v[3] ^= word;
  sip_round(v);
  v[0] ^= word;
}

static __always_inline void sip_begin(__u64 v[4], const __u64 key[2]) {
  v[0] = key[0] ^ 0x736f6d6570736575ULL;
  v[1] = key[1] ^ 0x646f72616e646f6dULL;
  v[2] = key[0] ^ 0x6c7967656e657261ULL;
  v[3] = key[1] ^ 0x7465646279746573ULL;
}

static __always_inline __u64 sip_end(__u64 v[4]) {
  v[2] ^= 0xff;
  sip_round(v);
  sip_round(v);
  sip_round(v);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Of three words. */
static __always_inline __u64 siphash13(const __u64 key[2], __u64 a, __u64 b, __u64 c) {
  __u64 v[4];
  sip_begin(v, key);
  sip_absorb(v, a);
  sip_absorb(v, b);
  sip_absorb(v, c);
  return sip_end(v);
}
