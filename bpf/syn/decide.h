/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The decision on one frame, whatever hook it comes from. */
#pragma once
#include "observe/counters.h"
#include "observe/events.h"
#include "observe/mirror.h"
#include "policy/bucket.h"
#include "policy/clients.h"
#include "policy/limits.h"
#include "room/state.h"

/* With the slot of a service: it is in shadow mode. */
#define SHADOWED (1U << 31)

/* What decide() made of a packet; account() counts it. */
struct decision {
  const struct service *service; /* NULL: to none */
  const struct rule *rule;       /* NULL: decided by reason */
  struct counts *counts;         /* of the rule */
  __u64 now;                     /* ns; 0: nobody has asked */
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
  if (d->rule) /* which has let in what is shed */
    count(d->counts, d->drop && d->reason != REASON_SHED, d->shadow);
  if (!d->rule || d->reason)
    count_reason(d->reason, d->drop, d->shadow);
  return d->drop && !d->shadow;
}

/* The same sources are let in for 2^33 ns, so that who gets through can go on. */
#define SHED_SHIFT 33

/* A number below KEEP_ALL that a source has for a while, and nobody knows: of an IPv6 source, its /64. */
static __always_inline __u32 shed_number(const struct packet *p, __u64 now) {
  __u32 zero = 0;
  const struct secret *secret = bpf_map_lookup_elem(&source_secret, &zero);
  return secret ? siphash13(secret->key, now >> SHED_SHIFT, p->src[0], p->v6) & (KEEP_ALL - 1) : 0;
}

/* Whether the SYN is one of those that are not let in at the moment, for requests of its class could not be
 * served: never of a source that is learned in a better class than its rule's. */
static __always_inline bool is_shed(struct image *im, const struct header *h, const struct decision *d,
                                    const struct packet *p, __u64 now) {
  struct room *r = h->steers ? room_of(d->service->slot) : NULL;
  if (!r || !r->control.sheds || !is_steered(r, now))
    return false;
  const struct room_config *c = room_config(im, h, d->service->slot);
  if (!c)
    return false;
  __u32 rank = rank_of(c, d->rule), learned = learned_rank(c, p);
  if (learned < rank)
    return false;
  bool known = learned < MAX_RANKS || (d->rule && d->rule->class != NO_CLASS);
  __u32 keep = known ? r->control.keep[BOUND(rank, MAX_RANKS - 1)] : r->control.strangers;
  return shed_number(p, now) >= keep;
}

/* Takes tokens for a SYN from the limits from a cell on. */
__noinline int take_for_syn(const struct packet *p, __u32 cell, __u32 generation, __u64 now) {
  return p ? take_tokens(p, NULL, cell, generation, now, NULL) : FAULT;
}

static __always_inline void decide_by_rule(struct decision *d, const struct packet *p, __u32 generation,
                                           __u64 now) {
  const struct rule *r = d->rule;
  __u32 slot = r->slot;
  d->counts = bpf_map_lookup_elem(&rule_counts, &slot);
  if (d->counts)
    (void)*(volatile __u64 *)&d->counts->passed; /* on its way while the bucket's line is */
  if (!is_enforced(r, d->service->slot, now))
    return;
  if (r->action == ACTION_DROP) {
    d->drop = true;
  } else if (r->action == ACTION_POLICE) {
    int taken = r->limits ? take_for_syn(p, r->limits, generation, now) : police(r, p, 0, now);
    d->drop = is_refused(taken);
    if (taken == FAULT)
      d->reason = REASON_MAP_FAULT;
    else if (taken == CONTENDED)
      d->reason = REASON_CONTENDED;
    else if (taken == CROWDED)
      d->reason = REASON_SOURCES;
  }
}

/* A SYN, or what may hide one, to a service. */
static __always_inline void decide_for_service(struct image *im, const struct header *h, struct decision *d,
                                               const struct packet *p) {
  d->shadow = d->service->shadow;
  if (p->anomaly) {
    d->reason = p->anomaly;
    d->drop = true;
    return;
  }
  /* Here, because reading the clock waits for every load before it: those of the look-up
   * are the slow ones. */
  __u64 now = d->now = bpf_ktime_get_ns();
  if (h->blocks && is_blocked(p, now)) {
    d->reason = REASON_BLOCKED;
    d->drop = true;
    return;
  }
  const struct service *s = d->service;
  __u64 in = listed_in(h, p);
  if (in)
    count_lists(in, h->lists);
  d->rule = find_rule(im, s, s->learned ? room_config(im, h, s->slot) : NULL, p, in);
  if (!d->rule) {
    d->reason = im->fault ? REASON_MAP_FAULT : REASON_NO_RULE;
  } else {
    d->reason = 0;
    decide_by_rule(d, p, im->generation, now);
  }
  if (!d->drop && !(d->rule && d->rule->action == ACTION_PASS) && is_shed(im, h, d, p, now)) {
    d->reason = REASON_SHED;
    d->drop = true;
  }
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
  decide_for_service(&im, h, d, p);
}

/* Tells of a SYN that was dropped. `service`: its slot, and SHADOWED if it passes nevertheless. */
__noinline int tell_syn(const struct packet *p, __u32 service, __u32 rule, __u32 reason, __s64 debt) {
  struct event e = {};
  if (!p)
    return 0;
  e.time = bpf_ktime_get_ns();
  incoming_key(&e.key, p);
  e.local_v6 = p->v6;
  e.kind = EVENT_SYN;
  e.shadow = service >> 31;
  e.service = service & ~SHADOWED;
  e.class = NO_CLASS;
  e.rule = rule;
  e.reason = reason;
  e.debt = debt;
  tell(&e);
  return 0;
}

static __always_inline void tell_drop(const struct decision *d, const struct packet *p) {
  __u64 now = heard_at(true);
  if (!now)
    return;
  const struct rule *r = d->rule;
  bool polices = r && r->action == ACTION_POLICE;
  tell_syn(p, d->service->slot | (d->shadow ? SHADOWED : 0), r ? r->slot : NO_RULE, d->reason,
           polices ? debt_of(r, p, 0, now) : 0);
}

static __always_inline void mirror_syn(const struct decision *d, const struct packet *p) {
  __u32 fate = d->drop ? MIRROR_DROP : MIRROR_PASS;
  copy_syn(p, d->service->slot, d->rule ? d->rule->slot : NO_RULE, d->reason | fate << FATE_SHIFT,
           d->now ? d->now : bpf_ktime_get_ns());
}

/* Decides on and counts a SYN, or what may hide one. 1: drop it. A global function, which
 * the verifier looks at once and not again for each way through the parser. */
__noinline int decide_syn(const struct packet *p, __u32 ifindex) {
  struct decision d = {};
  if (!p)
    return 0; /* for the verifier */
  decide(&d, p, ifindex);
  d.reason = forget(d.reason, p->sport);
  d.drop = forget(d.drop, p->sport) & 1;
  d.shadow = forget(d.shadow, p->sport) & 1;
  if (d.drop && d.service)
    tell_drop(&d, p);
  if (d.service && mirror_for(p->src[0], p->src[1], p->v6))
    mirror_syn(&d, p);
  return account(&d);
}

/* Decides on and counts a frame of which parse() found `parsed`. True: drop it. */
static __always_inline bool verdict(int parsed, const struct packet *p, __u32 ifindex) {
  if (parsed == PARSED_SYN || parsed == PARSED_ANOMALY)
    return decide_syn(p, ifindex);
  count_reason(parsed == PARSED_PASS ? p->anomaly : REASON_MALFORMED, false, false);
  return false;
}
