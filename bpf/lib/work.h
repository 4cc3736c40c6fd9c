/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory of a program's run. A clone that is sent meets the programs again before the send
 * returns, so that a CPU has several runs at once, one within another. */
#pragma once
#include "answer.h"
#include "endpoint.h"
#include "flow.h"

#define MAX_NESTING 4

/* The option of RFC 7323, network byte order. */
struct timestamps {
  __be32 option;
  __be32 value;
  __be32 echo;
};

/* A packet of our own. */
struct emission {
  struct flow_key key;
  struct timestamps times; /* host and network order alike: only copied; option 0: none */
  __u32 l3;                /* as in the packet that it is made of */
  __u32 seq;
  __u32 ack;
  __u32 length; /* bytes of the text */
  __u8 flags;
  __u8 to_server;
  __u8 text;   /* enum text */
  __u8 pad[1]; /* 0 */
};

/* What the client of a connection that we end is told. */
enum text {
  TEXT_FIN,       /* nothing: as when a server closes an idle connection */
  TEXT_RESET,     /* nothing, by a reset */
  TEXT_POLICY,    /* what the service says */
  TEXT_MALFORMED, /* 400 */
  TEXT_TOO_LARGE, /* 431 */
};

/* What a rejection needs to know of the request. */
struct rejected {
  struct flow_key key;
  struct timestamps times;
  __u32 l3;
  __u32 seq; /* of the request's first byte */
  __u32 end; /* behind its last */
  __u32 ack;
  __u32 ifindex;
  __u32 room;   /* slot of the service */
  __u8 text;    /* enum text */
  __u8 no_peer; /* the stack has no socket to be reset */
  __u8 pad[2];  /* 0 */
  __u32 length; /* bytes of TEXT_POLICY */
};

struct work {
  struct segment s;
  struct flow_key key;
  struct flow flow; /* as it will be */
  __u32 next;       /* flow.next as it was seen */
  __u64 now;
  struct http_chunk chunk;
  __u32 padding; /* behind the chunk: a checksum is over whole words */
  __u32 used;    /* bytes up to the head's end */
  struct http_answer answer;
  struct {
    __u32 at;             /* offset in the frame */
    __u32 left;           /* bytes of the segment from there on */
  } reading;              /* where it goes on */
  struct http_head began; /* what was read of the request before this segment */
  __u32 keep;             /* bytes of the segment's data that are the request's */
  __u32 kept;             /* of these, those that are in the slot */
  __u32 says;             /* 1: the segment has what the server had not said before */
  __u32 watch;            /* 1: its flow is to be looked at again */
  struct watch look;
  struct endpoint socket;
  struct {
    __u32 ifindex;
    __u32 flags; /* BPF_F_INGRESS or 0 */
  } out;         /* where the packet goes, if it is redirected */
  struct rejected rejected;
  struct emission emission;
};

/* Key: depth of nesting. Written and read by one run at a time. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, MAX_NESTING);
  __type(key, __u32);
  __type(value, struct work);
} works SEC(".maps");

/* Key 0; value: runs on this CPU at the moment. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u32);
} nesting SEC(".maps");

/* NULL: too deep. What was entered must be left. */
static __always_inline struct work *enter_run(void) {
  __u32 zero = 0;
  __u32 *depth = bpf_map_lookup_elem(&nesting, &zero);
  if (!depth)
    return NULL;
  __u32 level = *depth;
  if (level >= MAX_NESTING)
    return NULL;
  struct work *w = bpf_map_lookup_elem(&works, &level);
  if (w)
    *depth = level + 1;
  return w;
}

static __always_inline void leave_run(void) {
  __u32 zero = 0;
  __u32 *depth = bpf_map_lookup_elem(&nesting, &zero);
  if (depth)
    --*depth;
}
