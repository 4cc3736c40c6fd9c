/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Limits of one rule: every one must have a token, or a place, and none is spent unless all have. A list of
 * cells in the form of rules; a rate beside them is the last. */
#pragma once
#include "observe/counters.h"
#include "policy/bucket.h"
#include "policy/image.h"
#include "room/places.h"

/* Hashes of what a request has of the fields that buckets go by. */
struct keys {
  __u64 valued[MAX_FIELDS / 64]; /* bits: fields that have a key */
  __u64 key[MAX_FIELDS];         /* hash of the first value that is not empty; never 0 */
};

/* The hash of what a request has of a field, given + 1; 0: nothing. */
static __always_inline __u64 key_in(const struct keys *k, __u32 key) {
  __u32 field = (key - 1) & (MAX_FIELDS - 1);
  bool has = k && key && k->valued[field / 64] >> (field & 63) & 1;
  return has ? k->key[field] : 0;
}

/* The hash by which a bucket is found under the rule, or limit; 0: there is none, and its source has one. */
static __always_inline __u64 key_of(const struct keys *k, const struct rule *r) { return key_in(k, r->key); }

static __always_inline const struct rule *rule_at(struct image *im, __u32 cell) {
  const struct page *page = page_of(im, cell);
  return page ? &page->cell[cell % PAGE_CELLS].rule : NULL;
}

/* The tag under which a limit's places are counted: that of the packet's source, or of a value; of a limit
 * that all share, the rule's. */
static __always_inline __u64 place_tag(const struct rule *r, const struct packet *p, __u64 value,
                                       const struct secret *secret) {
  return source_tag(r, p, r->per_source ? value : 1, secret);
}

/* Takes a place of the limit, and adds its number to *places. */
static __always_inline int take_at_once(const struct rule *r, const struct packet *p, __u64 value,
                                        __u64 *places) {
  __u32 zero = 0;
  const struct secret *secret = bpf_map_lookup_elem(&source_secret, &zero);
  if (!places || !secret)
    return FAULT;
  int number = take_place(place_tag(r, p, value, secret), r->tolerance);
  if (number < 0)
    return number == PLACE_NONE ? EMPTY : CROWDED;
  *places = *places << PLACE_BITS | (__u32)number;
  return TAKEN;
}

/* Takes a token, or a place, of the rule's, or limit's. */
__noinline int take_limit(const struct rule *r, const struct packet *p, __u64 value, __u64 now,
                          __u64 *places) {
  if (!r || !p)
    return FAULT;
  return r->by == BY_PLACES ? take_at_once(r, p, value, places) : police(r, p, value, now);
}

/* Takes a token for a SYN, but no place: a forged SYN would never give it back. It only looks whether there
 * is one. */
__noinline int ask_limit(const struct rule *r, const struct packet *p, __u64 now) {
  __u32 zero = 0;
  if (!r || !p)
    return FAULT;
  if (r->by != BY_PLACES)
    return police(r, p, 0, now);
  const struct secret *secret = bpf_map_lookup_elem(&source_secret, &zero);
  int seen = secret ? look_for_place(place_tag(r, p, 0, secret), r->tolerance) : 0;
  return seen == PLACE_NONE ? EMPTY : seen == PLACE_CROWDED ? CROWDED : TAKEN;
}

static __always_inline bool is_refused(int taken) { return taken != TAKEN && taken != FAULT; }

/* Has the limits before a cell give back what they gave. */
static __always_inline void return_tokens(struct image *im, const struct packet *p, const struct keys *keys,
                                          __u32 cell, __u32 end, __u64 now) {
  for (int i = 0; i < MAX_LIMITS && cell && cell != end; i++) {
    const struct rule *r = rule_at(im, cell);
    if (!r)
      return;
    give_back(r, p, key_of(keys, r), now);
    cell = forget(r->limits, now);
  }
}

/* Takes a token, or a place, of each of the limits from a cell on, in the image of a generation. Places are
 * the caller's, to give back; NULL: for a SYN. */
static __always_inline int take_tokens(const struct packet *p, const struct keys *keys, __u32 first,
                                       __u32 generation, __u64 now, __u64 *places) {
  struct image im;
  const struct header *h = open_image(&im);
  if (!h || im.generation != generation)
    return FAULT;
  __u32 cell = first;
  for (int i = 0; i < MAX_LIMITS && cell; i++) {
    const struct rule *r = rule_at(&im, cell);
    if (!r)
      return FAULT;
    int taken = places ? take_limit(r, p, key_of(keys, r), now, places) : ask_limit(r, p, now);
    if (is_refused(taken)) {
      __u32 slot = r->slot;
      if (r->action == ACTION_POLICE)
        count(bpf_map_lookup_elem(&rule_counts, &slot), true, false);
      return_tokens(&im, p, keys, first, cell, now);
      return taken;
    }
    cell = forget(r->limits, now);
  }
  return TAKEN;
}
