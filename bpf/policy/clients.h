/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is remembered of clients, by their addresses. */
#pragma once
#include "compat/verifier.h"
#include "policy/lists.h"

/* Clients that a request rule has learned. Written by the programs, and by user space that forgets one.
 * When full the least recently used is forgotten. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 65536);
  __type(key, struct client);
  __type(value, struct learned);
} learned_clients SEC(".maps");

/* Clients whose connections are refused. Value: ns, until when. As above: then a client is
 * let in again too early. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 65536);
  __type(key, struct client);
  __type(value, __u64);
} blocked_clients SEC(".maps");

/* A client is an IPv4 address, or an IPv6 /64, of which one has as many addresses as one likes. */
static __always_inline void set_client(struct client *c, const struct packet *p) {
  __builtin_memset(c, 0, sizeof(*c));
  c->address[0] = p->src[0];
  c->v6 = p->v6;
}

/* Whether the packet's source is blocked. */
static __always_inline bool is_blocked(const struct packet *p, __u64 now) {
  struct client c;
  set_client(&c, p);
  const __u64 *until = bpf_map_lookup_elem(&blocked_clients, &c);
  return until && (__s64)(*until - now) > 0;
}

static __always_inline void block_client(const struct packet *p, __u64 until) {
  struct client c;
  set_client(&c, p);
  bpf_map_update_elem(&blocked_clients, &c, &until, BPF_ANY);
}

/* Remembers the packet's source in a class, of rank `rank` of the service. */
static __always_inline void remember_client(const struct room_config *config, const struct packet *p,
                                            __u32 rank, __u64 until) {
  struct client c;
  struct learned as = {.until = until, .class = config->rank[BOUND(rank, MAX_RANKS - 1)].class};
  set_client(&c, p);
  bpf_map_update_elem(&learned_clients, &c, &as, BPF_ANY);
}

/* The same, unless it is remembered in a more important class. */
static __always_inline void learn_client(const struct room_config *config, const struct packet *p, __u32 rank,
                                         __u64 now, __u64 until) {
  struct client c;
  set_client(&c, p);
  const struct learned *was = bpf_map_lookup_elem(&learned_clients, &c);
  if (was && (__s64)(was->until - now) > 0 && rank_of_class(config, was->class) < rank)
    return;
  remember_client(config, p, rank, until);
}

/* Rank of the class that the packet's source is learned in; MAX_RANKS: of none. */
static __always_inline __u32 learned_rank(const struct room_config *config, const struct packet *p) {
  struct client c;
  set_client(&c, p);
  const struct learned *l = bpf_map_lookup_elem(&learned_clients, &c);
  if (!l || (__s64)(l->until - bpf_ktime_get_ns()) <= 0)
    return MAX_RANKS;
  return rank_of_class(config, l->class);
}

/* The first connection rule that matches the packet's source, NULL if none. `config` is what the service's
 * room goes by; of one without learned classes it may be NULL. `in`: the lists that the source is in. */
static __always_inline const struct rule *find_rule(struct image *im, const struct service *s,
                                                    const struct room_config *config, const struct packet *p,
                                                    __u64 in) {
  __u32 v4 = s->root_v4, v6 = s->root_v6, row = s->learned;
  __u32 rank = row && config ? learned_rank(config, p) : MAX_RANKS;
  if (rank < MAX_RANKS) {
    __u32 cell = row + rank / 4;
    const struct page *page = page_of(im, cell);
    const struct roots *r = page ? &page->roots[cell % PAGE_CELLS * 4 + ADDED(rank % 4)] : NULL;
    v4 = r ? r->v4 : v4;
    v6 = r ? r->v6 : v6;
  }
  return find_rule_from(im, p->v6 ? v6 : v4, p, in);
}

/* Rank of the connections of a source that the rule, or none, matches. Where the application labels its
 * clients, those without a rule that gives a class are of the one that it has said. */
static __always_inline __u32 source_rank(const struct room_config *c, const struct rule *rule,
                                         const struct packet *p) {
  __u32 rank = rank_of(c, rule);
  if (!(c->labels & LABELS_HEADER) || (rule && rule->class != NO_CLASS))
    return rank;
  __u32 learned = learned_rank(c, p);
  return learned < MAX_RANKS ? learned : rank;
}

/* The lists that connection rules ask for and the packet's source is in. */
static __always_inline __u64 listed_in(const struct header *h, const struct packet *p) {
  return h->listed ? find_lists(p, h->lists) : 0;
}

/* Whether the packet comes from a proxy that is trusted to say who its client is. */
static __always_inline bool is_trusted(struct image *im, const struct service *s, const struct packet *p) {
  struct key key = {{p->src[0], p->src[1], 0, 0}};
  return walk(im, p->v6 ? s->trusted_v6 : s->trusted_v4, &key);
}
