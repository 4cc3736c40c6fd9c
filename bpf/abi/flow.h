/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A connection, and when it is looked at again. */
#pragma once
#include "headers/kernel.h"

/* A connection, from the server's point of view. Addresses as in struct packet. */
struct flow_key {
  __u64 peer[2];
  __u64 local[2];
  __u16 peer_port;
  __u16 local_port;
  __u8 v6;
  __u8 pad[3]; /* 0 */
};

enum flow_state {
  FLOW_IDLE = 0,      /* no request: between two */
  FLOW_HELD = 1,      /* its request waits */
  FLOW_SERVED = 2,    /* its request is in service */
  FLOW_GATHERING = 3, /* the head of its request comes in pieces */
  FLOW_PAUSED = 4,    /* its request was in service, but the client leaves its body out */
};

enum flow_flag {
  FLOW_COOKIE = 1,    /* held before there is a socket: the SYN queue was full */
  FLOW_HEAD = 2,      /* the head of the request has not ended yet */
  FLOW_LOST = 4,      /* where the next request begins is not known, or there are none */
  FLOW_CLOSES = 8,    /* the request or its response ends the connection */
  FLOW_TUNNEL = 16,   /* what follows belongs to this request, until the connection closes */
  FLOW_ANSWERED = 32, /* the response has begun; of tls and tcp: the client did not speak last */
  FLOW_NEW = 64,      /* the connection is not established: its first request waits */
  FLOW_CHUNKS = 128,  /* the body comes in chunks, which have not ended yet */
  FLOW_PROXIED = 512, /* a trusted proxy's, whose PROXY header may come or has not ended yet */
  FLOW_ACKED = 256    /* the gate has acknowledged the head: its slot is the only copy */
};

/* A flow in short form: between two requests, or with one in service that has no body, was let in at once,
 * and is followed without the room's lock. Where anything else happens on its connection it is made a struct
 * flow, which says the same. */
struct brief_flow {
  __u64 since;      /* ns: in service since; 0: between two requests; BRIEF_GONE: being written, or deleted */
  __u32 start;      /* the client's sequence number of the first byte of its last request */
  __u32 next;       /* and of the first behind it */
  __u32 answer;     /* the server's from which on its bytes answer that */
  __u32 answer_end; /* behind the answer; with BRIEF_ANSWERED, or between two requests */
  __u32 sent;       /* behind what the server has sent */
  __u32 ifindex;    /* on which it came */
  __u32 generation; /* as in struct flow, and so are: */
  __u32 mark;
  __u16 room;
  __u8 class;
  __u8 rank;
  __u8 ends;
  __u8 socket_priority;
  __u8 flags;     /* enum brief_flag */
  __u8 watched;   /* 1: it is in the ring of flows to be looked at again */
  __u32 asked_at; /* 2^20 ns: when its last request came */
  __u32 got;      /* as in struct flow */
};

#define BRIEF_GONE (~0ULL)

enum brief_flag {
  BRIEF_CLOSES = 1,   /* FLOW_CLOSES */
  BRIEF_HEAD = 2,     /* the answer has no body: HTTP_HEAD_METHOD */
  BRIEF_ANSWERED = 4, /* the answer has begun, behind whose known end the server closes */
  BRIEF_UNREAD = 8,   /* the request came while nothing was held back: flow.unread_since */
};

/* Where a flow is found that may give way to another one. */
struct seat {
  __u64 id; /* of the flow; 0: free */
  struct flow_key key;
};

/* What is remembered of a connection whose flow has given way, with its socket. */
struct parked {
  __u32 next; /* the client's sequence number at which its next request begins */
  __u32 is;   /* 1 */
};

/* A flow that is to be looked at again. */
struct watch {
  struct flow_key key;
  __u64 id;       /* of the flow */
  __u64 deadline; /* ns */
  __u32 received; /* the client's sequence number up to which the stack had its bytes */
  __u32 sent;     /* the server's up to which the stack had sent */
  __u32 ifindex;  /* on which it came: there its socket is found */
  __u32 pad;      /* 0 */
};

/* A power of two. */
#define MAX_WATCHES 65536

/* All wait for as long, so that the first to come is the first to be due. */
struct watch_ring {
  struct bpf_spin_lock lock;
  __u32 first; /* numbers; index into watch: modulo MAX_WATCHES */
  __u32 end;
  __u32 looked; /* jiffies: when the first was last found not to be due */
  struct watch watch[MAX_WATCHES];
};
