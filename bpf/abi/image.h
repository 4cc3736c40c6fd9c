/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The policy image: cells, and the pages that they are in. */
#pragma once
#include "abi/match.h"
#include "abi/policy.h"

/* A policy image is a sequence of cells of 64 bytes: cell 0 is the header; nodes, which
 * take two cells from an even one on, services and rules follow. So a rule is in one cache
 * line wherever the kernel begins a map's values, which is at a multiple of 16 but no more. */
_Static_assert(sizeof(struct match) == 64 && sizeof(struct match_field) == 64, "cells");
_Static_assert(sizeof(struct match_node) == 32 && sizeof(struct pattern) == 8 && sizeof(struct refusal) == 16,
               "parts of cells");
_Static_assert(sizeof(struct sets) == 64 && sizeof(struct rule) == 64 && sizeof(struct service) <= 64,
               "cells");

union cell {
  struct header header;
  struct guard guard; /* of a service or a rule */
  struct service service;
  struct rule rule;
  struct sets sets;
  struct places places;
  __u8 size[64];
};

/* Cells are stored in pages, because a step within a page needs no map look-up: of 2 MiB,
 * for some 10,000 rules. */
#define PAGE_CELLS 32768

struct page {
  union {
    union cell cell[PAGE_CELLS];
    struct node node[PAGE_CELLS / 2];
    struct room_config room[PAGE_CELLS / ROOM_CELLS];
    struct roots roots[PAGE_CELLS * 4];
    struct match match[PAGE_CELLS];
    struct match_field field[PAGE_CELLS];
    struct match_entry entry[PAGE_CELLS * MATCH_WAYS];
    struct match_node graph[PAGE_CELLS * 2];
    struct pattern pattern[PAGE_CELLS * 8];
    struct refusal refusal[PAGE_CELLS * 4];
    __u16 length[PAGE_CELLS * 32];
    __u32 state[PAGE_CELLS * 16];
    __u8 byte[PAGE_CELLS * 64];
  };
};
