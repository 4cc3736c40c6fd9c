/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What user space keeps for the daemon that comes after it. */
#pragma once
#include "abi/reasons.h"

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
  __u8 kind; /* enum rule_kind */
  __u64 key; /* of what of a request has a bucket for each of its values: a hash; 0: of nothing */
};

/* Which table of the policy a rule is in. */
enum rule_kind {
  RULE_CONNECTION = 0,
  RULE_REQUEST = 1,
  RULE_LIMITS = 2, /* and more by these numbers, and by 2 for each further one: a limit of such a rule */
};

struct service_slot {
  __u8 name[NAME_SIZE];
};

/* Who owns a class slot, in all rooms. User space alone. */
struct class_slot {
  __u8 name[NAME_SIZE]; /* empty: the slot is free */
};

struct note {
  __u8 text[128]; /* NUL-terminated */
};
