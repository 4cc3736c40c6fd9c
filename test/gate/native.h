/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The gate's own source, compiled for this machine, and the part of the kernel that it asks:
 * packets, maps, sockets, a clock. One world at a time, and one thread. */
#pragma once
#include "headers/kernel.h"

#include "abi/types.h"

#define MOST_PACKET 16384
#define MOST_CUT 15900 /* bytes of data that are surely left when a segment is cut */
#define MOST_SOCKETS 128
#define MOST_OUTS 512
#define IFINDEX 7
#define WINDOW_SCALE 7

/* Bytes of a line of pages, each of which is the number of its first byte, and of the longest page. */
#define PAGE_LINE 8
#define LONGEST_PAGE 32768
#define SLOT_OVERHEAD_MOST 192 /* bytes of a slot that are not a request's */
#define LEAST_WITHHELD 4
#define CPUS 2

/* What there is of a packet beside its bytes. */
struct meta {
  __u32 mark;
  __u32 priority;
  __u32 linear; /* bytes that programs see without asking for them; 0: all */
  __u32 gso_size;
  __u32 partial;  /* offset of the TCP header whose checksum is left to a device; 0: none */
  __u32 verified; /* 1: the device has said that the checksum is right, whatever the bytes hold */
  __u32 ifindex;
  __u32 sender; /* number + 1 of the socket that sends it; 0: none */
  __u32 vlan_present;
  __u32 vlan_proto; /* network byte order */
  __u32 vlan_tci;
};

/* A policy of one service, with one rule per rank: sources whose second byte is the rank are
 * of it; those with 255 pass the gate by. */
struct policy {
  struct room_config room;
  __u32 generation;
  __u32 port;
  char rejection[512]; /* an HTTP response; empty: a reset */
  __u32 page;          /* bytes of lines that are said in its place; 0: none */
};

/* Sizes of what user space sizes. */
struct sizes {
  __u32 slots;
  __u32 slot_size;
  __u32 flows;
  __u32 farewells;
};

/* A socket of the stack. */
struct socket {
  struct flow_key key; /* a listener has its local port alone */
  __u32 state;         /* BPF_TCP_…; 0: unused */
  __u32 rcv_nxt;       /* of a request socket: what it expects */
  __u32 snd_nxt;       /* all that the server has written, which is sent at once */
  __u32 snd_una;
  __u32 window;
  __u32 gap;      /* it has bytes beyond rcv_nxt */
  __u32 beyond;   /* where the first of those are */
  __u32 received; /* bytes of the client */
  __u32 heard;    /* when the client's last came */
  __u32 said;     /* when the server's last went */
  __u32 err;
  __u32 shut;     /* a process is closing it */
  __u32 listener; /* of a request socket: number of its listener */
  __u32 backlog;
  __u32 max_backlog;
  __u64 cookie;
};

enum place { TO_STACK, TO_WIRE };

/* A packet that came out. */
struct out {
  __u32 place; /* enum place */
  __u32 at;    /* in out_bytes */
  __u32 length;
  __u32 own; /* 1: made by the gate */
  struct meta meta;
};

/* The world as the programs find it. */
struct world {
  __u64 now;
  __u32 cookies;    /* the listener sends SYN cookies */
  __u32 fail_every; /* a helper that can fail for want of memory does so every so often; 0: never */
  __u32 calls;      /* of such helpers */
  __u32 failures;   /* how often one has failed */
  __u32 out_count;
  __u32 kicks;
  struct out out[MOST_OUTS];
  __u8 *out_bytes;
  struct socket socket[MOST_SOCKETS];
  char fault[256]; /* what a program did that it may not; empty: nothing */
};

extern struct world the_world;

/* What is known of a connection. */
struct known {
  __u32 state;
  __u32 flags;
  __u32 next;
  __u32 start;
  __u32 body;
  __u32 answer;
  __u32 node;
  __u32 class;
  __u32 watched;
  __u32 slot_start; /* of what is in its slot; 0 without one */
  __u32 slot_end;
  __u32 withheld; /* 1: what is behind the first bytes is with the stack */
  __u32 early;    /* 1: bytes behind `next` may be kept */
};

/* What the maps hold. */
struct census {
  __u32 flows;
  __u32 used; /* of the pool */
  __u32 in_lists;
  __u32 kept;
  __u32 gathering;
  __u32 watched;
  __u32 waiting;
  __u32 in_service;
  __u32 states[8]; /* flows by state */
  char wrong[256]; /* what cannot be; empty: nothing */
};

void world_open(const struct sizes *s, const struct policy *p);
void world_policy(const struct policy *p);

/* Runs a program on a packet, and what comes of that. Returns the verdict. */
int world_in(const __u8 *frame, __u32 length, const struct meta *m);
int world_out(const __u8 *frame, __u32 length, const struct meta *m);
void world_tick(void);
void world_sweep(void);                           /* all flows */
bool world_ends(__u32 socket, __u32 state);       /* sockops is told that it is about to be CLOSE */
void world_closed(__u32 socket);                  /* the socket's state is CLOSE from now on */
void world_released(__u32 socket);                /* the server has closed it */
void world_destroyed(__u32 socket, __u64 cookie); /* nobody has it any more */
void world_established(__u32 socket, const struct flow_key *k); /* and sockops is called from now on */

/* A source in a contest for places. */
struct contender {
  __u32 connections; /* each asks again at once */
  __u32 fresh;       /* 1: each request is another source's, that has never been there */
  __u32 network;     /* of contenders with the same each is a value of one source; 0: it is a source */
  __u32 made_up;     /* 1: each of its requests has another value */
  __u64 cost;        /* ns in service */
  __u64 served;      /* ns in service, so far */
};

/* Divides places among sources in the order of a class until so many requests have been served. */
void world_contest(struct census *seen, struct contender *all, __u32 count, __u32 places, __u32 requests);

void world_census(struct census *c);
struct room *world_room(void);
bool world_flow(const struct flow_key *k, struct known *to);
__u64 world_reason(__u32 reason, __u32 dropped);
__u32 world_cookie(const struct flow_key *k, __u32 isn);
bool world_mirrors(__u64 high, __u64 low, bool v6, __u32 mask, __u32 seed);
