/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Look-ups in the policy image. */
#pragma once
#include "parse/packet.h"
#include "policy/maps.h"

/* Words by number: the halves of the address, the port in the upper 16 bits, the lists that it is in. */
struct key {
  __u64 word[4];
};

/* The image that a packet is decided by, and the page read last. */
struct image {
  void *map;
  const struct page *page;
  __u32 number; /* of that page */
  __u32 generation;
  bool fault; /* a look-up found no page, which cannot be */
};

/* Opens the policy in force. NULL: there is none. */
static __always_inline const struct header *open_image(struct image *im) {
  __u32 zero = 0;
  im->map = bpf_map_lookup_elem(&policy_image, &zero);
  if (!im->map)
    return NULL;
  im->number = 0;
  im->fault = false;
  im->page = bpf_map_lookup_elem(im->map, &zero);
  if (!im->page)
    return NULL;
  im->generation = im->page->cell[0].header.generation;
  return &im->page->cell[0].header;
}

/* Makes the page of a cell the image's current one. */
static __always_inline const struct page *page_of(struct image *im, __u32 index) {
  __u32 number = index / PAGE_CELLS;
  if (number != im->number) {
    const struct page *page = bpf_map_lookup_elem(im->map, &number);
    if (!page)
      return NULL;
    im->page = page;
    im->number = number;
  }
  return im->page;
}

/* What find_cell() returns in place of a cell: none, a look-up that found no page, another policy. */
#define CELL_NONE 0
#define CELL_FAULT (-1)
#define CELL_STALE (-2)

/* Whether the guard of a cell lets the key in. */
static __always_inline bool opens(const union cell *c, const struct key *key) {
  return !((key->word[c->guard.word & 3] ^ c->guard.key) & c->guard.mask);
}

/* The entry behind a node. */
static __always_inline __u32 next_entry(const struct node *n, const struct key *key) {
  __u64 w = key->word[n->word & 3];
  return (w ^ n->key) & n->mask ? n->miss : n->child[w >> (n->shift & 63) & 15];
}

/* Walks from an entry to the cell that it leads to for the key, in the image of a generation. Global, so that
 * the verifier follows it once: with the image opened anew, for a pointer to it cannot be passed. */
__noinline int find_cell(const struct key *key, __u32 entry, __u32 generation) {
  struct image im;
  const struct header *h = open_image(&im);
  if (!key || !h || h->generation != generation)
    return CELL_STALE;
  for (int i = 0; i <= MAX_STEPS; i++) {
    if (entry == ENTRY_NONE)
      return CELL_NONE;
    const struct page *page = page_of(&im, entry & ~ENTRY_NODE);
    if (!page)
      return CELL_FAULT;
    if (entry & ENTRY_NODE) {
      entry = next_entry(&page->node[entry % PAGE_CELLS / 2], key);
      continue;
    }
    const union cell *c = &page->cell[entry % PAGE_CELLS];
    if (opens(c, key))
      return entry;
    entry = c->guard.miss;
  }
  return CELL_NONE;
}

/* Steps in the page at hand that need no call: those of most policies. */
#define NEAR_STEPS 3

/* The cell that an entry leads to for the key; NULL if to none. */
static __always_inline const union cell *walk(struct image *im, __u32 entry, const struct key *key) {
  for (int i = 0; i < NEAR_STEPS && entry; i++) {
    __u32 at = entry & ~ENTRY_NODE;
    if (at / PAGE_CELLS != im->number)
      break;
    asm volatile("" : "+r"(at)); /* so that clang keeps the mask, which is for the verifier */
    const union cell *c = &im->page->cell[at % PAGE_CELLS];
    if (entry & ENTRY_NODE)
      entry = next_entry(&im->page->node[at % PAGE_CELLS / 2], key);
    else if (opens(c, key))
      return c;
    else
      entry = c->guard.miss;
  }
  if (!entry)
    return NULL;
  int cell = find_cell(key, entry, im->generation);
  im->fault |= (__u32)cell >> 31;
  if (cell <= 0)
    return NULL;
  const struct page *page = page_of(im, cell);
  return page ? &page->cell[cell % PAGE_CELLS] : NULL;
}

/* The service that the packet is for, NULL if none. Without ports, one that listens on the
 * address. */
static __always_inline const struct service *find_service(struct image *im, const struct header *h,
                                                          const struct packet *p) {
  struct key key = {{p->dst[0], p->dst[1], (__u64)p->dport << 48, 0}};
  __u32 entry = p->v6 ? h->listen_v6 : h->listen_v4;
  if (!p->has_ports)
    entry = p->v6 ? h->any_v6 : h->any_v4;
  const union cell *c = walk(im, entry, &key);
  return c ? &c->service : NULL;
}

/* The rule that a look-up from an entry comes to for the packet's source, NULL if none. */
static __always_inline const struct rule *find_rule_from(struct image *im, __u32 entry,
                                                         const struct packet *p, __u64 in) {
  struct key key = {{p->src[0], p->src[1], (__u64)p->sport << 48, in}};
  const union cell *c = walk(im, entry, &key);
  return c ? &c->rule : NULL;
}

/* Whether the service's policy holds on the interface. */
static __always_inline bool on_interface(const struct service *s, __u32 ifindex) {
  if (s->group == GROUP_ANY)
    return true;
  __u64 *groups = bpf_map_lookup_elem(&interface_groups, &ifindex);
  return groups && (*groups >> (s->group & 63) & 1);
}

/* Whether the packet goes on to a device above the interface that decides on it. */
static __always_inline bool for_upper(const struct header *h, const struct packet *p, __u32 ifindex) {
  if (!h->uppers)
    return false;
  struct upper_device key = {.lower = ifindex};
  __builtin_memcpy(key.mac, p->mac, sizeof(key.mac));
  return bpf_map_lookup_elem(&upper_devices, &key);
}

/* What the waiting room of a service's slot goes by. NULL: nothing is said of it. */
static __always_inline const struct room_config *room_config(struct image *im, const struct header *h,
                                                             __u32 slot) {
  if (slot >= h->room_count)
    return NULL;
  __u32 cell = h->rooms + slot * ROOM_CELLS;
  const struct page *page = page_of(im, cell);
  return page ? &page->room[cell % PAGE_CELLS / ROOM_CELLS] : NULL;
}

/* What a service with a slot says to requests that a row of answers is for. NULL: nothing. */
static __always_inline const struct refusal *find_answer(struct image *im, const struct header *h, __u32 slot,
                                                         __u32 row) {
  const struct room_config *c = room_config(im, h, slot);
  __u32 n = c ? row * h->kinds + c->kind : h->answer_count;
  if (n >= h->answer_count)
    return NULL;
  __u32 cell = h->answers + n / 4;
  const struct page *page = page_of(im, cell);
  return page ? &page->refusal[cell % PAGE_CELLS * 4 + ADDED(n % 4)] : NULL;
}

/* Rank of a connection that the rule, or none, matches. */
static __always_inline __u32 rank_of(const struct room_config *c, const struct rule *rule) {
  return (rule && rule->class != NO_CLASS ? rule->class : c->default_rank) & (MAX_RANKS - 1);
}

/* Rank of the class with a slot; MAX_RANKS: the policy has it no more. */
static __always_inline __u32 rank_of_class(const struct room_config *c, __u32 class) {
  __u32 rank = 0;
  while (rank < MAX_RANKS && (rank >= c->ranks || c->rank[rank].class != class))
    rank++;
  return forget(rank, class);
}

/* SO_MARK of the sockets of that rank; 0: it is not set. */
static __always_inline __u32 socket_mark(const struct room_config *c, __u32 rank) {
  return c->mark ? c->mark + rank : 0;
}

/* Whether a service with a waiting room may listen on the port. */
static __always_inline bool is_gate_port(__u16 port) {
  __u32 index = port / 64;
  __u64 *ports = bpf_map_lookup_elem(&gate_ports, &index);
  return ports && (*ports >> (port % 64) & 1);
}
