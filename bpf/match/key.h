/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Hashes of the values that have a bucket each. Their key is the instance's: the seed of texts is a policy's,
 * and a bucket has to be found again after a reload. */
#pragma once
#include "match/patterns.h"

/* Words that are hashed in one turn. */
#define KEY_TURN 16

/* Hashes words of the text from a byte on, behind whose end there are zeros. Returns where it came to. */
__noinline int absorb_text(struct reading *r, __u32 at) {
  if (!r)
    return 0;
  __u64 v[4] = {r->sip[0], r->sip[1], r->sip[2], r->sip[3]};
  for (int i = 0; i < KEY_TURN && at < r->text.length; i++) {
    sip_absorb(v, *(const http_u64 *)&r->text.byte[text_opaque(at) & (MAX_TEXT - 8)]);
    at = forget(at + 8, r->text.factor);
  }
  for (int i = 0; i < 4; i++)
    r->sip[i] = v[i];
  return at;
}

/* Notes the value at hand as the field's key, unless it is empty or has one. */
__noinline int note_key(struct reading *r, __u32 field) {
  __u32 zero = 0, at = 0;
  const struct secret *secret = bpf_map_lookup_elem(&source_secret, &zero);
  if (!r || !secret || !r->text.length)
    return 0;
  field = text_opaque(field) & (MAX_FIELDS - 1);
  __u64 *valued = &r->keys.valued[field / 64], bit = 1ULL << (field & 63);
  if (*valued & bit)
    return 0;
  *valued |= bit;
  sip_begin(r->sip, secret->key);
  *(http_u64 *)&r->text.byte[BOUND(r->text.length, MAX_TEXT)] = 0;
  for (int i = 0; i < MAX_TEXT / 8 / KEY_TURN && at < r->text.length; i++)
    at = absorb_text(r, at);
  sip_absorb(r->sip, r->text.length);
  r->keys.key[field] = sip_end(r->sip) | 1;
  return 0;
}
