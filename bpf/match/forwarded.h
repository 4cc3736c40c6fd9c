/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who a request's client is, by what trusted proxies say: the nearest in the chain from the
 * connection's peer, over its PROXY header, to the beginning of X-Forwarded-For that is not one of them. */
#pragma once
#include "match/patterns.h"
#include "policy/clients.h"

/* Whether the address is a trusted proxy's. */
static __always_inline bool trusts(const struct reading *r, const struct address *a) {
  struct image im;
  if (!open_image(&im))
    return false;
  struct key key = {{a->word[0], a->word[1], 0, 0}};
  return walk(&im, r->trusted[a->v6 ? 1 : 0], &key);
}

/* Elements of one header that are looked at; beyond them nothing is known. */
#define MAX_FORWARDED 32

/* Takes the next element from the right. False: it is decided, or there are no more. */
__noinline int forwarded_step(struct reading *r) {
  struct address a = {};
  if (!r)
    return 0;
  if (!forwarded_last(&r->text, &r->forwarded))
    return 0;
  if (!read_address(&r->text, r->forwarded.begin, r->forwarded.end, &a)) {
    r->client = CLIENT_UNKNOWN;
    return 0;
  }
  bool trusted = trusts(r, &a);
  if (trusted && r->said)
    return 1; /* what is further left has been read */
  r->from = a;
  r->client = trusted ? CLIENT_WEAK : CLIENT_FIRM;
  return trusted;
}

/* X-Forwarded-For has come, or comes again: what is further right is nearer. */
__noinline int on_forwarded(struct reading *r) {
  if (!r)
    return 0;
  r->forwarded = (struct forwarded){.first = 0, .rest = r->text.length};
  r->said = r->client != CLIENT_NONE;
  for (int i = 0; i < MAX_FORWARDED; i++) {
    if (!forwarded_step(r))
      return 0;
  }
  r->client = CLIENT_UNKNOWN;
  return 0;
}
