/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types that user space shares; Go's are generated from these. Integers are in host byte
 * order, times in nanoseconds of CLOCK_MONOTONIC, unless a field says otherwise. */
#pragma once
#include "headers/kernel.h"

/* Why a packet was passed or dropped without a rule. Numbers are never used again: a
 * reason that is retired keeps its number. Append before REASON_LEN. */
enum reason {
  REASON_NOT_IP = 0,        /* passed: neither IPv4 nor IPv6 */
  REASON_NOT_TCP = 1,       /* passed */
  REASON_NOT_SYN = 2,       /* passed: TCP, but not the start of a connection */
  REASON_MALFORMED = 3,     /* passed: headers that no stack accepts */
  REASON_FRAGMENT_TAIL = 4, /* passed: a later fragment, of no use without the first */
  REASON_NO_SERVICE = 5,    /* passed: to no service */
  REASON_NO_RULE = 6,       /* passed: to a service, no rule matches */
  REASON_NO_POLICY = 7,     /* passed: nothing is published yet */
  REASON_MAP_FAULT = 8,     /* passed: a look-up failed that cannot fail */
  REASON_PULL_FAULT = 9,    /* passed: headers could not be read, a helper's fault */
  REASON_FRAGMENT = 10,     /* dropped: first fragment to a service */
  REASON_VLAN_TAGS = 11,    /* dropped: more VLAN tags than two, to a service or beyond reading */
  REASON_EXTENSION = 12,    /* dropped: IPv6 extension headers beyond bounds, to a service's address */
  REASON_SYN_DATA = 13,     /* dropped: SYN with data to a service */
  REASON_SYN_FLAGS = 14,    /* dropped: SYN with FIN or RST to a service */
  REASON_CONTENDED = 15,    /* dropped, beside the rule's count: other CPUs took every token tried for */
  REASON_SOURCES =
      16, /* dropped, beside the rule's count: a new source, and every bucket it might get is in debt */
  REASON_UPPER = 17, /* passed: to a device above this one, where it is decided */
  REASON_LEN
};

/* Verdicts on packets. Where a service is in shadow mode, would_drop counts in place of
 * dropped. Written by the CPU that holds the copy alone. */
struct counts {
  __u64 passed;
  __u64 dropped;
  __u64 would_drop;
};

/* What a look-up step leads to: ENTRY_NONE, the number of a cell that ends the look-up (a
 * service or a rule), or, with ENTRY_NODE set, that of the next node. */
#define ENTRY_NONE 0U
#define ENTRY_NODE (1U << 31)

/* Steps of a look-up at most: 32 strides of an IPv6 address, 4 of a port. */
#define MAX_STEPS 36

/* First cell of a policy image. */
struct header {
  __u32 listen_v4; /* entry: (destination port, address) → service */
  __u32 listen_v6;
  __u32 any_v4; /* entry: destination address → a service that listens there, enforcing if one is */
  __u32 any_v6;
  __u32 generation; /* of the image; user space counts them */
  __u8 shadow;      /* 1: every service is in shadow mode */
  __u8 uppers;      /* 1: upper_devices has entries */
  __u8 pad[2];      /* 0 */
};

/* One step of a look-up in a multibit trie; internal/policy builds it and says how it is
 * read. */
struct node {
  __u64 key;
  __u64 mask;
  __u32 miss;      /* entry */
  __u8 word;       /* 0, 1: halves of the address, 2: port in the upper 16 bits */
  __u8 shift;      /* bits */
  __u16 pad;       /* 0 */
  __u32 child[16]; /* entries */
  __u8 size[40];   /* 0; makes it two cells */
};

/* What a look-up that ends at a cell still has to compare: a step that leads to one outcome
 * only needs no node of its own, and no cache line. */
struct guard {
  __u64 key;
  __u64 mask; /* (word ^ key) & mask must be 0; a mask of 0 lets everything in */
  __u32 miss; /* entry: where the look-up goes on otherwise */
  __u8 word;
  __u8 pad[3]; /* 0 */
};

/* Interfaces of a service are compared only if services differ in them. */
#define GROUP_ANY 0xffffffffU

struct service {
  struct guard guard;
  __u32 slot;    /* index into service_counts */
  __u32 group;   /* bit in interface_groups, or GROUP_ANY */
  __u32 root_v4; /* entry: (source address, port) → rule */
  __u32 root_v6;
  __u8 shadow; /* 1: count, drop nothing */
  __u8 pad[7]; /* 0 */
};

enum action {
  ACTION_CLASSIFY = 0, /* pass */
  ACTION_POLICE = 1,   /* pass for a token */
  ACTION_DROP = 2,
  ACTION_PASS = 3,
  ACTION_LEN
};

#define NO_CLASS 0xff

/* A connection rule without its match. The bucket is a GCRA (ITU-T I.371): a theoretical
 * arrival time that each pass moves on by the interval. */
struct rule {
  struct guard guard;
  __u64 interval;  /* ns for one token */
  __u64 tolerance; /* ns: interval × (burst − 1) */
  __u64 id;        /* tells this rule's per-source buckets from any other's, ever */
  __u32 slot;      /* index into rule_counts */
  __u32 bucket;    /* index into rule_buckets */
  __u8 action;     /* enum action */
  __u8 class;      /* index of the class, or NO_CLASS */
  __u8 per_source; /* 0: one bucket for the rule, in rule_buckets; 1: per source prefix */
  __u8 bits_v4;    /* length of that prefix */
  __u8 bits_v6;
  __u8 pad[3]; /* 0 */
};

/* A policy image is a sequence of cells of 64 bytes: cell 0 is the header; nodes, which
 * take two cells from an even one on, services and rules follow. So a rule is in one cache
 * line wherever the kernel begins a map's values, which is at a multiple of 16 but no more. */
union cell {
  struct header header;
  struct guard guard; /* of a service or a rule */
  struct service service;
  struct rule rule;
  __u8 size[64];
};

/* Cells are stored in pages, because a step within a page needs no map look-up: of 2 MiB,
 * for some 10,000 rules. */
#define PAGE_CELLS 32768

struct page {
  union {
    union cell cell[PAGE_CELLS];
    struct node node[PAGE_CELLS / 2];
  };
};

/* The token bucket of one source under one rule. A tag of 0 is nobody's. */
struct source {
  __u64 tag;  /* SipHash of rule id and source prefix */
  __u64 time; /* theoretical arrival time: the bucket is full if it has passed */
};

#define SOURCE_WAYS 8

struct source_set {
  struct source way[SOURCE_WAYS];
};

/* Secret of an instance's source tags: without it nobody can choose addresses that share
 * a set. */
struct secret {
  __u64 key[2];
};

#define NAME_SIZE 64

/* Who owns a slot of rule_counts and rule_buckets. Kept beside them for the daemon that
 * comes after this one; the programs do not read it. */
struct rule_slot {
  __u8 name[NAME_SIZE]; /* of the rule, NUL-terminated; empty: the slot is free */
  __u64 id;             /* as in struct rule; kept when the slot is freed */
  __u64 interval;       /* form of the bucket; another form starts another bucket */
  struct counts base;   /* what was counted in maps that larger ones replaced */
  __u32 burst;
  __u8 per_source;
  __u8 bits_v4;
  __u8 bits_v6;
  __u8 pad; /* 0 */
};

/* A device that frames reach by way of another, told by their destination. */
struct upper_device {
  __u32 lower; /* interface index of the other */
  __u8 mac[6]; /* of the device above */
  __u8 pad[2]; /* 0 */
};

struct service_slot {
  __u8 name[NAME_SIZE];
};

struct note {
  __u8 text[128]; /* NUL-terminated */
};
