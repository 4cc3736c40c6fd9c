/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Walks the graph of rules that ask for several fields, along the patterns that a request has. */
#pragma once
#include "match/patterns.h"
#include "policy/lists.h"

/* The number of the lowest bit that is set, by a de Bruijn sequence (Leiserson et al., 1998): BPF has no
 * instruction for it. */
static const __u8 lowest_bits[64] = {0,  1,  2,  53, 3,  7,  54, 27, 4,  38, 41, 8,  34, 55, 48, 28,
                                     62, 5,  39, 46, 44, 42, 22, 9,  24, 35, 59, 56, 49, 18, 29, 11,
                                     63, 52, 6,  26, 37, 40, 33, 47, 61, 45, 43, 21, 23, 58, 17, 10,
                                     51, 25, 36, 32, 60, 20, 57, 16, 50, 31, 19, 15, 30, 14, 13, 12};

static __always_inline __u32 lowest_bit(__u64 w) {
  return lowest_bits[((w & -w) * 0x022fdd63cc95386dULL) >> 58];
}

/* Goes on to a node: to its fields that the request has. */
__noinline int walk_enter(struct reading *r, __u32 number) {
  struct image im;
  struct match m;
  const struct match_node *n = r && open_match(&im, &m) ? node_at(&im, &m, number) : NULL;
  if (!n)
    return 0;
  note_rule(r, n->rule);
  r->walk.node = number;
  for (int i = 0; i < MAX_FIELDS / 64; i++)
    r->walk.left[i] = n->first < r->best ? n->fields[i] & r->present[i] : 0;
  return 0;
}

/* Follows an edge, if there is one for the pattern. */
__noinline int walk_edge(struct reading *r, __u32 pattern) {
  struct image im;
  struct match m;
  if (!r || !open_match(&im, &m))
    return 0;
  const struct match_entry *e = find_entry(&im, &m, pair_key(m.seed, MATCH_EDGE, r->walk.node, pattern));
  if (!e)
    return 0;
  if (r->walk.visits >= MAX_VISITS) {
    r->complex = 1;
    return 0;
  }
  r->walk.visit[r->walk.visits & (MAX_VISITS - 1)] = e->to;
  r->walk.visits++;
  return 0;
}

/* Notes the sets that an address is in as what a field has. */
static __always_inline void note_sets(struct reading *r, const struct image *opened, const struct key *key,
                                      __u32 entry, __u32 field) {
  struct image at = *opened, *im = &at;
  field &= MAX_FIELDS - 1;
  int cell = entry ? find_cell(key, entry, im->generation) : CELL_NONE;
  const struct page *page = cell > 0 ? page_of(im, cell) : NULL;
  if (!page)
    return;
  const struct sets *p = &page->cell[cell % PAGE_CELLS].sets;
  __u32 n = 0;
  for (; n < MAX_SETS && p->pattern[n]; n++)
    r->hit[field][n] = p->pattern[n];
  r->hits[field] = n;
  r->present[field / 64] |= 1ULL << (field & 63);
}

/* Sets bits of fields from the first on. */
static __always_inline void note_bits(__u64 *fields, __u32 first, __u64 bits) {
  __u64 here = bits << (first & 63), behind = bits >> 1 >> ((63 - first) & 63);
  for (__u32 i = 0; i < MAX_FIELDS / 64; i++)
    fields[i] |= i == first / 64 ? here : i == first / 64 + 1 ? behind : 0;
}

/* Notes in which of the lists that rules ask for a request's client is. Like an absent name a list has one
 * pattern. */
__noinline int note_lists(struct reading *r, const struct packet *from) {
  struct image im;
  struct match m;
  const struct header *h = open_image(&im);
  if (!r || !from || !h)
    return 0;
  __u32 table = h->lists;
  if (!table || !open_match(&im, &m) || !m.lists)
    return 0;
  __u64 all = (1ULL << (m.list_count & 63)) - 1, in = find_lists(from, table);
  if (in)
    count_lists(in, table);
  note_bits(r->absent, m.lists, all);
  note_bits(r->present, m.lists, in & all);
  return 0;
}

/* Notes in which of the sets that rules ask for a request's client is, and its destination. */
__noinline int note_places(struct reading *r, const struct packet *from, const struct packet *to) {
  struct image im;
  struct match m;
  if (!r || !from || !to || !open_match(&im, &m) || !m.places)
    return 0;
  const struct page *page = page_of(&im, m.places);
  if (!page)
    return 0;
  struct places p = page->cell[m.places % PAGE_CELLS].places;
  struct key key = {{from->src[0], from->src[1], 0, 0}};
  note_sets(r, &im, &key, from->v6 ? p.from_v6 : p.from_v4, p.from);
  key = (struct key){{to->dst[0], to->dst[1], (__u64)to->dport << 48, 0}};
  note_sets(r, &im, &key, to->v6 ? p.to_v6 : p.to_v4, p.to);
  return 0;
}

/* Notes of the names that rules want absent those that are. */
static __always_inline void note_absent(struct reading *r) {
  for (int i = 0; i < MAX_FIELDS / 64; i++)
    r->present[i] |= ~r->present[i] << 1 & r->absent[i];
}

/* What an absent name has, or a list, is the one pattern that its field can have, which has the field's
 * number. */
static __always_inline void hit_absent(struct reading *r, __u32 field) {
  field = text_opaque(field) & (MAX_FIELDS - 1);
  if (r->absent[field / 64] >> (field & 63) & 1) {
    r->hit[field][0] = field;
    r->hits[field] = 1;
  }
}

/* Takes the next field of the node. False: there is none. */
static __always_inline bool walk_field(struct reading *r) {
  for (int i = 0; i < MAX_FIELDS / 64; i++) {
    __u64 left = r->walk.left[i];
    if (!left)
      continue;
    r->walk.left[i] = left & (left - 1);
    r->walk.field = i * 64 + lowest_bit(left);
    r->walk.hit = 0;
    hit_absent(r, r->walk.field);
    return true;
  }
  return false;
}

/* One step of the walk. False: it is over. */
__noinline int walk_step(struct reading *r) {
  if (!r)
    return 0;
  __u32 field = r->walk.field & (MAX_FIELDS - 1), hit = r->walk.hit;
  if (hit < r->hits[field]) {
    r->walk.hit = hit + 1;
    walk_edge(r, r->hit[field][hit & (MAX_HITS - 1)]);
    return 1;
  }
  if (walk_field(r))
    return 1;
  if (!r->walk.visits)
    return 0;
  r->walk.visits--;
  r->walk.hit = MAX_HITS;
  walk_enter(r, r->walk.visit[r->walk.visits & (MAX_VISITS - 1)]);
  return 1;
}

/* Steps of a walk, and those of one turn. */
#define MAX_WALK 1024
#define WALK_TURN 32

/* False: the walk is over. */
__noinline int walk_turn(struct reading *r) {
  if (!r)
    return 0;
  for (int i = 0; i < WALK_TURN; i++)
    if (!walk_step(r))
      return 0;
  return 1;
}

/* Notes the first rule that has all it asks for in what was read. */
__noinline int walk_graph(struct reading *r) {
  if (!r)
    return 0;
  r->walk.visits = 0;
  r->walk.hit = MAX_HITS;
  walk_enter(r, 0);
  for (int i = 0; i < MAX_WALK / WALK_TURN; i++)
    if (!walk_turn(r))
      return 0;
  r->complex = 1;
  return 0;
}
