/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The decision on one frame, whatever hook it comes from. */
#pragma once
#include "bucket.h"
#include "classify.h"
#include "stats.h"

/* What decide() made of a packet; account() counts it. */
struct decision {
  const struct service *service; /* NULL: to none */
  const struct rule *rule;       /* NULL: decided by reason */
  struct counts *counts;         /* of the rule */
  __u32 reason;                  /* enum reason; with a rule: why beside it, or 0 */
  bool drop;
  bool shadow; /* count only */
};

/* Whether the packet is dropped. The one place where verdicts are counted. */
static __always_inline bool account(const struct decision *d) {
  if (d->service) {
    __u32 slot = d->service->slot;
    count(bpf_map_lookup_elem(&service_counts, &slot), d->drop, d->shadow);
  }
  if (d->rule)
    count(d->counts, d->drop, d->shadow);
  if (!d->rule || d->reason)
    count_reason(d->reason, d->drop, d->shadow);
  return d->drop && !d->shadow;
}

static __always_inline void decide_by_rule(struct decision *d, const struct packet *p, __u64 now) {
  const struct rule *r = d->rule;
  __u32 slot = r->slot;
  d->counts = bpf_map_lookup_elem(&rule_counts, &slot);
  if (d->counts)
    (void)*(volatile __u64 *)&d->counts->passed; /* on its way while the bucket's line is */
  if (r->action == ACTION_DROP) {
    d->drop = true;
  } else if (r->action == ACTION_POLICE) {
    int taken = police(r, p, now);
    d->drop = taken != TAKEN && taken != FAULT;
    if (taken == FAULT)
      d->reason = REASON_MAP_FAULT;
    else if (taken == CONTENDED)
      d->reason = REASON_CONTENDED;
    else if (taken == CROWDED)
      d->reason = REASON_SOURCES;
  }
}

/* A SYN, or what may hide one, to a service. */
static __always_inline void decide_for_service(struct image *im, struct decision *d, const struct packet *p) {
  d->shadow = d->service->shadow;
  if (p->anomaly) {
    d->reason = p->anomaly;
    d->drop = true;
    return;
  }
  /* Here, because reading the clock waits for every load before it: those of the look-up
   * are the slow ones. */
  __u64 now = bpf_ktime_get_ns();
  d->rule = find_rule(im, d->service, p);
  if (!d->rule) {
    d->reason = im->fault ? REASON_MAP_FAULT : REASON_NO_RULE;
    return;
  }
  d->reason = 0;
  decide_by_rule(d, p, now);
}

static __always_inline void decide(struct decision *d, const struct packet *p, __u32 ifindex) {
  struct image im;
  const struct header *h = open_image(&im);
  if (!h) {
    d->reason = REASON_NO_POLICY;
    return;
  }
  if (!p->has_address) {
    /* More tags than are read: whether it is to a service cannot be known. */
    d->reason = p->anomaly;
    d->drop = true;
    d->shadow = h->shadow;
    return;
  }
  d->reason = REASON_NO_SERVICE;
  const struct service *service = find_service(&im, h, p);
  if (im.fault)
    d->reason = REASON_MAP_FAULT;
  if (!service || (p->has_ports && !on_interface(service, ifindex)))
    return;
  if (for_upper(h, p, ifindex)) {
    d->reason = REASON_UPPER;
    return;
  }
  d->service = service;
  decide_for_service(&im, d, p);
}

/* Decides on and counts a SYN, or what may hide one. 1: drop it. A global function, which
 * the verifier looks at once and not again for each way through the parser. */
__noinline int decide_syn(const struct packet *p, __u32 ifindex) {
  struct decision d = {};
  if (!p)
    return 0; /* for the verifier */
  decide(&d, p, ifindex);
  return account(&d);
}

/* Decides on and counts a frame of which parse() found `parsed`. True: drop it. */
static __always_inline bool verdict(int parsed, const struct packet *p, __u32 ifindex) {
  if (parsed == PARSED_SYN || parsed == PARSED_ANOMALY)
    return decide_syn(p, ifindex);
  count_reason(parsed == PARSED_PASS ? p->anomaly : REASON_MALFORMED, false, false);
  return false;
}
