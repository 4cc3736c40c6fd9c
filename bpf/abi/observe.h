/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What user space is told of. */
#pragma once
#include "abi/flow.h"

/* What events tell of. */
enum event_kind {
  EVENT_SYN = 0,     /* a SYN was dropped; reason: enum reason, or with a rule 0 */
  EVENT_REJECT = 1,  /* a request, or connection, was turned away; reason: enum reject */
  EVENT_DEMOTE = 2,  /* a request goes on in the lowest class, its rule's bucket being empty */
  EVENT_HOLD = 3,    /* a request has to wait; one of EVENT_SAMPLE is told */
  EVENT_ADMIT = 4,   /* a request enters service at once; one of EVENT_SAMPLE is told */
  EVENT_RELEASE = 5, /* a request enters service that has waited; one of EVENT_SAMPLE is told */
  EVENT_KIND_LEN
};

#define EVENT_SAMPLE 16

#define NO_RULE 0xffffffffU

/* A decision, as user space is told of it. */
struct event {
  __u64 time;          /* ns */
  struct flow_key key; /* of a connection behind a proxy that names its client, that client's, with port 0 */
  __s64 debt;          /* ns until the rule's bucket would be full */
  __u64 waited;        /* ns */
  __u32 service;       /* slot */
  __u32 rule;          /* its slot; NO_RULE: none */
  __u32 reason;        /* as its kind says */
  __u8 kind;           /* enum event_kind */
  __u8 shadow;         /* 1: it was not carried out */
  __u8 class;          /* slot; NO_CLASS: none */
  __u8 local_v6;       /* 1: key.local is an IPv6 address; key.v6 says it of key.peer */
  __u8 print[JA4_LENGTH]; /* of its ClientHello; 0 first: not known */
  __u8 pad[4];            /* 0 */
};

/* For whom what is decided about is copied. */
struct mirror_control {
  __u64 until; /* ns, which user space renews; 0: nothing is copied */
  __u32 mask;  /* of a hash of the source, whose bits are 0 of those that are copied */
  __u32 seed;  /* of the hash, random: nobody is to know whether he is copied */
};

/* What was decided of what is copied. */
enum mirror_fate {
  MIRROR_PASS = 0, /* it went on */
  MIRROR_DROP = 1,
  MIRROR_REJECT = 2,
  MIRROR_DEMOTE = 3, /* it went on in the lowest class */
  MIRROR_FATE_LEN
};

#define MIRROR_HEAD 2048

/* A copy of what was decided about: a SYN, or the beginning of a request. */
struct mirrored {
  __u64 time; /* ns */
  struct flow_key key;
  __u64 real[2]; /* with proxied: whose request it is */
  __u32 service; /* slot */
  __u32 rule;    /* its slot; NO_RULE: none */
  __u32 reason;  /* of a SYN enum reason, of a request enum reject */
  __u32 mask;    /* as in struct mirror_control when it was copied */
  __u32 length;  /* of head */
  __u16 skip;    /* bytes at the beginning of head that are not the request's */
  __u8 real_v6;  /* 1: real is an IPv6 address */
  __u8 proxied;  /* 1: real is set */
  __u8 syn;      /* 1: of a SYN */
  __u8 fate;     /* enum mirror_fate */
  __u8 class;    /* slot; NO_CLASS: none, or not known */
  __u8 pad[1];   /* 0 */
  __u8 head[MIRROR_HEAD];
};
