/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SHA-256 (FIPS 180-4) of a short text. Calls no helper: it is compiled natively, too, and compared with
 * Go's. */
#pragma once
#include "parse/text.h"

#define SHA256_TEXT 2048 /* bytes of the text and of what pads it */
#define SHA256_BLOCK 64
#define SHA256_PADDING 9 /* bytes at least */

struct sha256 {
  __u8 text[SHA256_TEXT]; /* the caller writes it */
  __u32 state[8];         /* the hash, in the end */
  __u32 word[64];
};

static const __u32 sha256_first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static const __u32 sha256_round[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static __always_inline __u32 sha256_rotate(__u32 v, int by) { return v >> by | v << (32 - by); }

/* Spreads a block over the words of its rounds. */
__noinline int sha256_spread(struct sha256 *s, __u32 block) {
  if (!s)
    return 0;
  for (__u32 i = 0; i < 16; i++) {
    const __u8 *b = &s->text[(block * SHA256_BLOCK + 4 * i) & (SHA256_TEXT - 4)];
    s->word[i] = (__u32)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
  }
  for (int i = 16; i < 64; i++) {
    __u32 x = s->word[i - 15], y = s->word[i - 2];
    x = sha256_rotate(x, 7) ^ sha256_rotate(x, 18) ^ x >> 3;
    y = sha256_rotate(y, 17) ^ sha256_rotate(y, 19) ^ y >> 10;
    s->word[i] = s->word[i - 16] + x + s->word[i - 7] + y;
  }
  return 0;
}

/* The rounds over what a block was spread over. */
__noinline int sha256_mix(struct sha256 *s) {
  if (!s)
    return 0;
  __u32 a = s->state[0], b = s->state[1], c = s->state[2], d = s->state[3];
  __u32 e = s->state[4], f = s->state[5], g = s->state[6], h = s->state[7];
  for (int i = 0; i < 64; i++) {
    __u32 one = sha256_rotate(e, 6) ^ sha256_rotate(e, 11) ^ sha256_rotate(e, 25);
    __u32 two = sha256_rotate(a, 2) ^ sha256_rotate(a, 13) ^ sha256_rotate(a, 22);
    one += h + (g ^ (e & (f ^ g))) + sha256_round[i] + s->word[i];
    two += (a & b) | (c & (a | b));
    h = g;
    g = f;
    f = e;
    e = d + one;
    d = c;
    c = b;
    b = a;
    a = one + two;
  }
  s->state[0] += a;
  s->state[1] += b;
  s->state[2] += c;
  s->state[3] += d;
  s->state[4] += e;
  s->state[5] += f;
  s->state[6] += g;
  s->state[7] += h;
  return 0;
}

/* Hashes so many bytes of the text, of which the last 9 must be free. */
__noinline int sha256(struct sha256 *s, __u32 length) {
  if (!s || length > SHA256_TEXT - SHA256_PADDING)
    return 0;
  __u32 blocks = (length + SHA256_PADDING + SHA256_BLOCK - 1) / SHA256_BLOCK;
  for (__u32 i = 0; i < SHA256_BLOCK + SHA256_PADDING; i++)
    s->text[text_opaque(length + i) & (SHA256_TEXT - 1)] = i ? 0 : 0x80;
  __u32 end = blocks * SHA256_BLOCK;
  s->text[text_opaque(end - 2) & (SHA256_TEXT - 1)] = length >> 5;
  s->text[text_opaque(end - 1) & (SHA256_TEXT - 1)] = length << 3;
  for (int i = 0; i < 8; i++)
    s->state[i] = sha256_first[i];
  for (__u32 i = 0; i < SHA256_TEXT / SHA256_BLOCK && i < blocks; i++) {
    sha256_spread(s, i);
    sha256_mix(s);
  }
  return 0;
}
