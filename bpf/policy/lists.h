/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* In which lists of addresses a packet's source is. */
#pragma once
#include "abi/lists.h"
#include "policy/image.h"

/* Tables of lists. Key: which of the two, header.lists less one; value: an array of struct list_page. Written
 * by user space, which replaces a whole table, or puts that of another policy into the other before the
 * policy's image names it. Never full. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
  __uint(max_entries, 2);
  __type(key, __u32);
  __array(values, struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_INNER_MAP);
    __uint(max_entries, 1);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(struct list_page));
  });
} lists SEC(".maps");

/* Key: as of lists. Written by programs; user space sums the CPUs, and clears that of a table before it is in
 * force. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 2);
  __type(key, __u32);
  __type(value, struct list_counts);
} list_matches SEC(".maps");

/* The table of that number, header.lists, and its first page. NULL: there is none. */
static __always_inline void *open_lists(__u32 number, const struct list_header **h) {
  __u32 zero = 0, which = number - 1;
  void *table = bpf_map_lookup_elem(&lists, &which);
  struct list_page *first = table ? bpf_map_lookup_elem(table, &zero) : NULL;
  if (!first)
    return NULL;
  *h = &first->header;
  return table;
}

/* A unit of a table. NULL: there is no such page. */
static __always_inline const __u64 *list_unit(void *table, __u32 at) {
  __u32 number = at / LIST_UNITS;
  struct list_page *page = bpf_map_lookup_elem(table, &number);
  return page ? &page->unit[at % LIST_UNITS] : NULL;
}

/* n bits of the source's address, 1 to 22, behind the first so many. */
static __always_inline __u64 address_bits(const struct packet *p, __u32 at, __u32 n) {
  __u64 w = p->src[0] << (at & 63) | p->src[1] >> 1 >> ((63 - at) & 63);
  if (at >= 64)
    w = p->src[1] << (at & 63);
  return w >> ((64 - n) & 63);
}

/* 1: a is less than b, with a borrow from below. In arithmetic, for branches are paths to the verifier. */
static __always_inline __u64 borrow(__u64 a, __u64 b, __u64 below) {
  return ((~a & b) | (~(a ^ b) & (a - b - below))) >> 63;
}

static __always_inline const struct list_end *list_end(void *table, __u32 at) {
  __u32 number = at / LIST_PAGE_ENDS;
  struct list_page *page = bpf_map_lookup_elem(table, &number);
  return page ? &page->end[at % LIST_PAGE_ENDS] : NULL;
}

/* A binary search for what is behind the last of some segments that does not begin behind the source. */
struct list_search {
  __u32 begin;
  __u32 end;
};

/* Goes on behind the middle, or before it: as it begins behind the source. */
static __always_inline void list_halve(struct list_search *s, __u32 middle, __u64 behind) {
  __u32 before = (__u32)behind - 1;
  s->begin += (middle + 1 - s->begin) & before;
  s->end -= (s->end - middle) & ~before;
}

/* How many segments a node has. */
static __always_inline __u32 list_count(__u64 node) { return node >> 32 & ((1 << 27) - 1); }

/* Bits of the lists of a set, by its number. */
static __always_inline __u64 set_lists(void *table, const struct list_header *h, __u32 set) {
  const __u64 *in = set ? list_unit(table, h->sets + set) : NULL;
  return in ? *in : 0;
}

/* Bits of the lists of an IPv4 source among the segments of a node. Global, as is what leads there, so that
 * the verifier follows each once. */
__noinline __u64 segment_lists_v4(const struct packet *p, __u32 number, __u64 node) {
  const struct list_header *h = NULL;
  void *table = open_lists(number, &h);
  if (!p || !table || !h)
    return 0;
  __u32 first = h->ends_v4 + (__u32)node;
  struct list_search s = {first, first + list_count(node)};
  __u64 address = p->src[0] >> 32;
  for (int i = 0; i < LIST_STEPS && s.begin < s.end; i++) {
    __u32 middle = s.begin + (s.end - s.begin) / 2;
    const __u64 *e = list_unit(table, middle);
    if (!e)
      return 0;
    list_halve(&s, middle, borrow(address, *e >> 32, 0));
  }
  const __u64 *found = s.begin == first ? NULL : list_unit(table, s.begin - 1);
  if (!found)
    return 0;
  __u64 e = *found;
  __u32 length = e >> 16 & 63, mask = -(__u32) !!length << ((32 - length) & 31);
  return (e >> 32 ^ address) & mask ? 0 : set_lists(table, h, e & 0xffff);
}

/* The same of IPv6. */
__noinline __u64 segment_lists_v6(const struct packet *p, __u32 number, __u64 node) {
  const struct list_header *h = NULL;
  void *table = open_lists(number, &h);
  if (!p || !table || !h)
    return 0;
  __u32 first = h->ends_v6 + (__u32)node;
  struct list_search s = {first, first + list_count(node)};
  for (int i = 0; i < LIST_STEPS && s.begin < s.end; i++) {
    __u32 middle = s.begin + (s.end - s.begin) / 2;
    const struct list_end *e = list_end(table, middle);
    if (!e)
      return 0;
    list_halve(&s, middle, borrow(p->src[0], e->high, borrow(p->src[1], e->low, 0)));
  }
  const struct list_end *e = s.begin == first ? NULL : list_end(table, s.begin - 1);
  if (!e)
    return 0;
  __u32 n = e->length;
  __u64 high = n >= 64 ? ~0ULL : -(__u64) !!n << ((64 - n) & 63),
        low = n <= 64 ? 0 : ~0ULL << ((128 - n) & 63);
  return ((e->high ^ p->src[0]) & high) | ((e->low ^ p->src[1]) & low) ? 0 : set_lists(table, h, e->set);
}

/* Node of the addresses that are in no list. */
#define NO_LIST ((__u64)LIST_CONST << 59)

/* The last node on the way of the packet's source. */
__noinline __u64 list_node(const struct packet *p, __u32 number) {
  const struct list_header *h = NULL;
  void *table = open_lists(number, &h);
  if (!p || !table || !h)
    return NO_LIST;
  __u64 node = p->v6 ? h->root_v6 : h->root_v4;
  __u32 at = 0, nodes = h->nodes;
  for (int i = 0; i < LIST_DEPTH; i++) {
    __u32 bits = node >> 59;
    if (bits == LIST_ENDS || bits == LIST_CONST)
      break;
    const __u64 *next = list_unit(table, nodes + (__u32)node + address_bits(p, at, bits));
    if (!next)
      return NO_LIST;
    node = *next;
    at = forget(at + bits, node);
  }
  return node;
}

/* Bits of the lists that the packet's source is in. `number`: header.lists. */
__noinline __u64 find_lists(const struct packet *p, __u32 number) {
  const struct list_header *h = NULL;
  if (!p)
    return 0;
  __u64 node = list_node(p, number);
  if (node >> 59 != LIST_CONST)
    return p->v6 ? segment_lists_v6(p, number, node) : segment_lists_v4(p, number, node);
  void *table = (__u32)node ? open_lists(number, &h) : NULL;
  return table && h ? set_lists(table, h, node) : 0;
}

/* Counts a packet or request whose source is in lists. */
__noinline int count_lists(__u64 in, __u32 table) {
  __u32 which = table - 1;
  struct list_counts *c = bpf_map_lookup_elem(&list_matches, &which);
  for (int i = 0; c && i < MAX_LISTS && in; i++, in >>= 1)
    c->matched[i] += in & 1;
  return 0;
}
