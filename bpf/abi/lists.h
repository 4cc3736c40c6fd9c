/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Lists of addresses. internal/lists builds their table and says how it is read. */
#pragma once
#include "headers/kernel.h"

/* Lists of a policy at most. */
#define MAX_LISTS 32

/* Where a segment of IPv6 addresses begins. */
struct list_end {
  __u64 high; /* its first address, host byte order */
  __u64 low;
  __u16 set;    /* number of it */
  __u8 length;  /* of the prefix that it is; 0: it goes to where the next one begins */
  __u8 pad[13]; /* 0 */
};

/* What the first page of a table begins with. The rest is by number of a __u64, or of a list_end, from the
 * table's beginning. */
struct list_header {
  __u64 root_v4; /* nodes */
  __u64 root_v6;
  __u32 nodes;   /* first of those below */
  __u32 sets;    /* first of the bits of lists, by number of set */
  __u32 ends_v4; /* first of segments: address << 32 | length << 16 | set */
  __u32 ends_v6; /* list_end */
};

/* A node: how many bits of the address choose a child, in 5 bits; how many segments there are, in 27; where
 * children or segments begin, in 32. */
#define LIST_ENDS 0
#define LIST_CONST 31 /* the set is in the lower half */
#define LIST_DEPTH 16 /* nodes on the way to segments, or to a constant, at most */
#define LIST_STEPS 9  /* of a binary search among segments */

#define LIST_UNITS (256 * 1024)
#define LIST_PAGE_ENDS (LIST_UNITS / 4)

struct list_page {
  union {
    struct list_header header;
    __u64 unit[LIST_UNITS];
    struct list_end end[LIST_PAGE_ENDS];
  };
};

/* Packets and requests whose source was in a list, by its number. */
struct list_counts {
  __u64 matched[MAX_LISTS];
};
