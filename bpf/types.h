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
  /* Of the gate, per packet. */
  REASON_HANDSHAKE = 18, /* dropped: end of a handshake; the connection waits for its request */
  REASON_FORGED =
      19,          /* dropped: numbers that nobody sends who got our SYN-ACK, or another head than before */
  REASON_GAP = 20, /* dropped: bytes beyond the next; they will be sent again */
  REASON_PIPELINED = 21,    /* dropped: a request before the answer to the last; it will be sent again */
  REASON_HELD = 22,         /* dropped: further segment of a connection whose request waits */
  REASON_CHECKSUM = 23,     /* dropped: wrong checksum */
  REASON_UNFOLLOWED = 24,   /* dropped: connection ended, for where its next request begins is not known */
  REASON_UNKNOWN_FLOW = 25, /* passed: of a connection older than the gate, or not HTTP where nobody waits */
  REASON_NESTING =
      26, /* more runs within each other than there is memory for: a segment passed, a kick dropped */
  REASON_CLONE_FAULT =
      27, /* a packet could not be made: a release or answer dropped, a SYN passed as it is */
  REASON_ACCEPT_QUEUE = 28, /* dropped: a release that had to wait for room in the accept queue */
  REASON_FAREWELL = 29,     /* dropped: of a connection that was rejected */
  REASON_RACE = 30,         /* dropped: another CPU was faster with the same connection */
  REASON_CUT = 31,          /* passed: as far as the next request */
  REASON_GATHERED = 32,     /* dropped: part of a head, put into its slot and acknowledged */
  REASON_UNWATCHED = 33,    /* beside other counts: more flows to look at again than there are places */
  REASON_BLOCKED = 34,      /* dropped: SYN of a client that a request rule blocks */
  REASON_NO_SNI = 35,       /* beside other counts: a ClientHello without a name that can be read */
  REASON_SHED = 36, /* dropped: SYN of a class of which only a share is let in, as it could not be served */
  REASON_UNTAKEN = 37, /* beside other counts: a request that was let in, and that the stack has dropped */
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
  __u32 rooms;      /* cell of the first struct room_config; those of all slots follow */
  __u32 room_count;
  __u32 match;        /* cell of struct match; 0: there are no request rules */
  __u8 shadow;        /* 1: every service is in shadow mode */
  __u8 uppers;        /* 1: upper_devices has entries */
  __u8 blocks;        /* 1: a request rule blocks clients */
  __u8 steers;        /* 1: SYNs to a service may be dropped in overload */
  __u32 longest_wait; /* ms: of requests to any service that holds some */
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
  __u32
      trusted_v4; /* entry: source address → a cell, if it is a trusted proxy's; ENTRY_NONE: there are none */
  __u32 trusted_v6;
  __u32 learned; /* cell of struct roots for sources learned in a class, by rank; 0: no rule asks */
  __u8 shadow;   /* 1: count, drop nothing */
  __u8 gate;     /* 1: its requests go through the waiting room of its slot */
  __u8 pad[2];   /* 0 */
};

/* Where the look-up of connection rules begins, in place of service.root, for sources that are
 * learned in a class. */
struct roots {
  __u32 v4; /* entries */
  __u32 v6;
  __u32 pad[2]; /* 0 */
};

enum action {
  ACTION_CLASSIFY = 0, /* pass */
  ACTION_POLICE = 1,   /* pass for a token */
  ACTION_DROP = 2,
  ACTION_PASS = 3,
  ACTION_REJECT = 4, /* request rules: 503 */
  ACTION_LEN
};

#define NO_CLASS 0xff

/* A request rule, in place of its guard. */
struct request_guard {
  __u64 block; /* ns for which connections of a client are refused after a rejection; 0: none */
  __u64 learn; /* ns for which a client is remembered in the rule's class; 0: not */
  __u8 over;   /* enum over */
  __u8 pad[7]; /* 0 */
};

/* When a rule's rate, drop or rejection is enforced. It matches, and gives its class, always. */
enum when { WHEN_ALWAYS = 0, WHEN_OVERLOAD = 1, WHEN_LEN };

enum over { OVER_REJECT = 0, OVER_DROP = 1, OVER_DEMOTE = 2, OVER_LEN };

/* A connection rule without its match. The bucket is a GCRA (ITU-T I.371): a theoretical
 * arrival time that each pass moves on by the interval. */
struct rule {
  union {
    struct guard guard;
    struct request_guard request; /* of a request rule: none leads to it by a guard */
  };
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
  __u8 when;   /* enum when */
  __u8 pad[2]; /* 0 */
};

/* ---- Request rules. Their tables are found by keyed hashes of what a request says; docs/decisions
 * has why, internal/policy how they are built. */

/* What rules ask of a request. Headers and cookies that rules name are further fields. */
enum field {
  FIELD_HOST = 0,
  FIELD_PATH = 1,
  FIELD_METHOD = 2,
  FIELD_SNI = 3,
  FIELD_ALPN = 4,
  FIELD_NAMED = 5, /* the first of those */
};

#define MAX_FIELDS 128

/* Bytes of a pattern between two stars, or before the first or behind the last, at most. */
#define MAX_LITERAL 1023

/* Bytes of a value that is compared at most: what fits a slot. */
#define MAX_TEXT 16384

/* What a key of the hash table is of. */
enum match_kind {
  MATCH_EXACT = 0,  /* field, text */
  MATCH_PREFIX = 1, /* field, text: a pattern begins so, or a longer one does */
  MATCH_SUFFIX = 2, /* the same from the end */
  MATCH_TAIL = 3,   /* pattern, suffix: the suffix ends it */
  MATCH_WORD = 4,   /* pattern, word: the word goes on with it */
  MATCH_OUTPUT = 5, /* state of the automaton: a word ends there */
  MATCH_EDGE = 6,   /* node of the graph, pattern */
  MATCH_HEADER = 7, /* name in lower case */
  MATCH_COOKIE = 8, /* name */
};

/* An entry of the hash table. Four are a cell, from which a key may be up to MATCH_CELLS - 1 cells
 * on; an entry with a key of 0 is free and ends the search. */
struct match_entry {
  __u64 key;
  __u32 rule; /* first rule that asks for this alone, or NO_MATCH; of OUTPUT: the word */
  __u32 to; /* pattern, 0: none; of OUTPUT: next state with a word; of EDGE: node; of HEADER and COOKIE: field
             */
};

#define MATCH_WAYS 4
#define MATCH_CELLS 4
#define NO_MATCH 0xffffffffU

enum pattern_flag {
  PATTERN_EDGE = 1, /* rules that ask for more than one field ask for it */
  PATTERN_TAIL = 2, /* of a suffix: it ends others; of others: suffixes may end them */
  PATTERN_WORD = 4, /* words may go on with it */
};

/* A pattern as far as it is common to several. Number 0 is none. */
struct pattern {
  __u32 up;     /* the next shorter prefix, or suffix, that has a flag; 0: none */
  __u16 length; /* bytes of a prefix, suffix or word */
  __u16 flags;  /* enum pattern_flag */
};

/* Patterns that one value may have at once at most: `check` refuses policies in which more of them
 * are each other's prefixes, or suffixes. */
#define MAX_CHAIN 16

/* What is asked of a field. */
struct match_field {
  __u32 rule;     /* first rule that asks only that it is there, or NO_MATCH */
  __u32 pattern;  /* the empty prefix: "*", or what begins with a star; 0: none */
  __u32 prefixes; /* cell of the lengths of prefixes, ascending, 32 a cell */
  __u32 suffixes;
  __u16 prefix_count;
  __u16 suffix_count;
  __u16 longest_suffix;
  __u8 exact;   /* 1: there are patterns without a star */
  __u8 words;   /* 1: there are words to look for */
  __u8 pad[40]; /* 0 */
};

/* A node of the graph that rules with several fields are paths through. */
struct match_node {
  __u64 fields[MAX_FIELDS / 64]; /* bits: fields that lead on */
  __u32 rule;                    /* first rule that has all it asks for here, or NO_MATCH */
  __u32 first;                   /* first rule here or further on */
  __u8 pad[8];                   /* 0 */
};

/* All of the request rules. */
struct match {
  __u64 seed;  /* secret, with which hashes begin */
  __u32 rules; /* cell of the first rule; one a cell, in file order */
  __u32 rule_count;
  __u32 entries;  /* cell of the hash table, which begins a page unless it fits into one */
  __u32 mask;     /* of its cells: a power of 2, less 1 */
  __u32 fields;   /* cell of the first struct match_field; one a cell */
  __u32 patterns; /* cell of pattern 0; eight a cell */
  __u32 nodes;    /* cell of the graph's root; two a cell */
  __u32 classes;  /* cell of a byte's class in the automaton; 256 bytes */
  __u32 states;   /* cell of the automaton: states[state * width + class], of 32 bits, 16 a cell */
  __u16 width;    /* classes of bytes */
  __u8 headers;   /* 1: rules name headers */
  __u8 cookies;   /* 1: rules name cookies */
  __u8 graph;     /* 1: there are rules with several fields, or with none */
  __u8 asks;      /* bits: fields below FIELD_NAMED that rules ask for */
  __u8 pad[2];    /* 0 */
  __u32 letters;  /* bits: first letters, of 5 bits each, of the names of headers that rules name */
  __u8 pad2[4];   /* 0 */
};

/* In an entry of the automaton: words end in the state, see MATCH_OUTPUT. */
#define STATE_OUTPUT (1U << 31)

/* Services of a policy at most. */
#define MAX_SERVICES 1024

/* Classes of a policy at most, and room for as many of the policy before whose requests are
 * still waiting or in service. */
#define MAX_RANKS 16
#define CLASS_SLOTS 32

/* A class of the policy. Its index in room_config.rank is its rank, 0 for the most
 * important. */
struct rank {
  __u32 max;            /* requests in service at once; 0: no bound */
  __u8 class;           /* slot of the class: the same for as long as the class has its name */
  __u8 reserve;         /* percent of the admissions while it has requests waiting */
  __u8 socket_priority; /* SO_PRIORITY of accepted sockets, and of what is sent on them */
  __u8 pad;             /* 0 */
};

/* What ends a request's time in service. */
enum service_end {
  END_AUTO = 0, /* the server's FIN if request or response close the connection, else as below */
  END_FIRST_BYTE = 1,
  END_CLOSE = 2,
  SERVICE_END_LEN
};

enum protocol {
  PROTOCOL_HTTP = 0,
  PROTOCOL_TLS = 1, /* a connection waits with its ClientHello */
  PROTOCOL_TCP = 2, /* a connection waits at the end of its handshake */
  PROTOCOL_LEN
};

#define ANSWER_SIZE 256

/* What a service's waiting room goes by. It takes eight cells. */
struct room_config {
  __u64 max_wait;      /* ns */
  __u64 epoch;         /* ns: max_service / EPOCHS */
  __u32 limit;         /* requests in service at once; 0: unlimited */
  __u32 queue_size;    /* requests that wait at once */
  __u32 mark;          /* SO_MARK of accepted sockets is this plus the rank; 0: it is not set */
  __u16 answer_length; /* of the rejection; 0: it is a reset */
  __u8 ranks;          /* classes in rank */
  __u8 shadow;         /* 1: count, hold nothing */
  __u8 ends;           /* enum service_end */
  __u8 default_rank;   /* of requests whose rule names no class */
  __u8 strict;   /* 1: requests may have to wait; else whatever is not understood passes, see is_strict() */
  __u8 bounded;  /* 1: a class has a max */
  __u8 protocol; /* enum protocol */
  __u8 h2c;      /* 1: HTTP/2 without TLS passes */
  __u8 proxies;  /* 1: there are proxies that are trusted to say who their clients are */
  __u8 adaptive; /* 1: the room's control has the limit */
  __u8 pad[84];  /* 0 */
  __u32 classes; /* bit: slot of a class in rank */
  struct rank rank[MAX_RANKS];
  __u8 answer[ANSWER_SIZE]; /* the rejection, an HTTP response */
};

#define ROOM_CELLS 8

_Static_assert(sizeof(struct room_config) == 64 * ROOM_CELLS, "room_config takes whole cells");

/* A policy image is a sequence of cells of 64 bytes: cell 0 is the header; nodes, which
 * take two cells from an even one on, services and rules follow. So a rule is in one cache
 * line wherever the kernel begins a map's values, which is at a multiple of 16 but no more. */
_Static_assert(sizeof(struct match) == 64 && sizeof(struct match_field) == 64, "cells");
_Static_assert(sizeof(struct match_node) == 32 && sizeof(struct pattern) == 8, "parts of cells");
_Static_assert(sizeof(struct rule) == 64 && sizeof(struct service) <= 64, "cells");

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
    struct room_config room[PAGE_CELLS / ROOM_CELLS];
    struct roots roots[PAGE_CELLS * 4];
    struct match match[PAGE_CELLS];
    struct match_field field[PAGE_CELLS];
    struct match_entry entry[PAGE_CELLS * MATCH_WAYS];
    struct match_node graph[PAGE_CELLS * 2];
    struct pattern pattern[PAGE_CELLS * 8];
    __u16 length[PAGE_CELLS * 32];
    __u32 state[PAGE_CELLS * 16];
    __u8 byte[PAGE_CELLS * 64];
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
  __u8 kind; /* enum rule_kind */
};

/* Which table of the policy a rule is in. */
enum rule_kind { RULE_CONNECTION = 0, RULE_REQUEST = 1 };

/* A client, by its address as in struct packet. */
struct client {
  __u64 address[2];
  __u8 v6;
  __u8 pad[7]; /* 0 */
};

/* What a client was learned as. */
struct learned {
  __u64 until; /* ns */
  __u32 class; /* slot */
  __u32 pad;   /* 0 */
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

/* Who owns a class slot, in all rooms. User space alone. */
struct class_slot {
  __u8 name[NAME_SIZE]; /* empty: the slot is free */
};

struct note {
  __u8 text[128]; /* NUL-terminated */
};

/* Why a request was answered by us. */
enum reject {
  REJECT_QUEUE_FULL = 0, /* and nobody of a lower class waited */
  REJECT_DISPLACED = 1,  /* made room for one of a higher class */
  REJECT_MAX_WAIT = 2,
  REJECT_NO_SERVER = 3, /* its listener or its connection was gone when its turn came */
  REJECT_CLOSED = 4,    /* the server closed the idle connection while it waited */
  REJECT_NO_SLOT = 5,
  REJECT_NO_FLOW = 6,
  REJECT_TOO_LARGE = 7, /* a head does not fit a slot */
  REJECT_MALFORMED = 8, /* two readers could understand it in two ways, or it is not HTTP/1 */
  REJECT_H2C = 9,       /* it leads to HTTP/2, which is not followed */
  REJECT_RULE = 10,     /* a request rule says so */
  REJECT_DROPPED = 11,  /* the same, by a reset */
  REJECT_BLOCKED = 12,  /* its client, behind a trusted proxy, is blocked */
  REJECT_COMPLEX = 13,  /* it has more patterns at once than are followed */
  REJECT_LEN
};

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

/* Buckets of a histogram: i counts durations of 2^i µs and more; the last, all beyond. */
#define HISTOGRAM 32

/* Lists of a class. Each is in the order of arrival. */
enum list {
  LIST_KEPT = 0, /* further requests of connections that the server has */
  LIST_NEW = 1,  /* of connections that it still has to accept */
  LIST_LEN
};

/* What a room has of one class. */
struct class_room {
  /* What each request touches comes first, in one cache line. */
  __u32 head[LIST_LEN]; /* nodes that wait longest; 0: none */
  __u32 tail[LIST_LEN];
  __u32 waiting;
  __u32 in_service;
  __u32 credit;  /* reserve: percent points of admissions that are due to it */
  __u32 pad;     /* 0 */
  __u64 typical; /* ns in service, a moving average; 0: not known */
  __u64 arrived;
  __u64 admitted; /* at once */
  __u64 served;
  __u64 service_sum; /* ns */
  __u64 would_hold;
  __u64 held;
  __u64 released;
  __u64 gave_up;
  __u64 lost;
  __u64 paused;       /* times that a request left service because the stack had not got it, or its body */
  __u64 rejected[16]; /* by enum reject */
  __u64 wait_sum;     /* ns */
  __u64 service[HISTOGRAM];
  __u64 wait[HISTOGRAM];
};

/* In service are counted by the epoch in which they entered, so that what never ends can be
 * told from what is new and be given up, at no cost per request. */
#define EPOCHS 8

/* Requests whose client has reset the connection while the server was working. */
#define GHOSTS 256

struct ghost {
  __u64 deadline; /* ns */
  __u64 cookie;   /* of the server's socket; 0: it has left service */
  __u32 epoch;
  __u32 class; /* slot */
};

/* Where a ghost is, by its socket. */
struct haunted {
  __u32 room;   /* slot of the service */
  __u32 number; /* of the ghost in it */
};

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
  __u64 time;    /* ns */
  __u64 peer[2]; /* as in struct flow_key; of a connection behind a proxy, the client's that it names */
  __u64 local[2];
  __u16 peer_port; /* 0: not known, of a client that a proxy names */
  __u16 local_port;
  __u8 v6;       /* 1: peer is an IPv6 address */
  __u8 kind;     /* enum event_kind */
  __u8 shadow;   /* 1: it was not carried out */
  __u8 class;    /* slot; NO_CLASS: none */
  __u32 service; /* slot */
  __u32 rule;    /* its slot; NO_RULE: none */
  __u32 reason;  /* as its kind says */
  __u8 local_v6; /* 1: local is an IPv6 address */
  __u8 pad[3];   /* 0 */
  __s64 debt;    /* ns until the rule's bucket would be full */
  __u64 waited;  /* ns */
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
  __u64 time;    /* ns */
  __u64 peer[2]; /* as in struct flow_key */
  __u64 local[2];
  __u64 real[2]; /* with proxied: whose request it is */
  __u16 peer_port;
  __u16 local_port;
  __u8 v6;       /* 1: peer is an IPv6 address, and local */
  __u8 real_v6;  /* 1: real is an IPv6 address */
  __u8 proxied;  /* 1: real is set */
  __u8 syn;      /* 1: of a SYN */
  __u8 fate;     /* enum mirror_fate */
  __u8 class;    /* slot; NO_CLASS: none, or not known */
  __u16 skip;    /* bytes at the beginning of head that are not the request's */
  __u32 service; /* slot */
  __u32 rule;    /* its slot; NO_RULE: none */
  __u32 reason;  /* of a SYN enum reason, of a request enum reject */
  __u32 mask;    /* as in struct mirror_control when it was copied */
  __u32 length;  /* of head */
  __u8 head[MIRROR_HEAD];
};

/* What user space has decided for a service, by what it sees of the server. */
struct control {
  __u64 until;           /* ns: it holds until then */
  __u32 limit;           /* requests in service at once; 0: unlimited */
  __u32 safe;            /* the same from then on */
  __u32 overload;        /* 1: the service is overloaded, for rules that ask */
  __u32 sheds;           /* 1: not all of keep are KEEP_ALL */
  __u32 keep[MAX_RANKS]; /* SYNs that are let in, by rank of their class: so many of KEEP_ALL */
};

#define KEEP_ALL 65536

/* The waiting room of a service. */
struct room {
  struct bpf_spin_lock lock; /* guards all of it, and the state of its flows and nodes */
  __u32 in_service;
  __u32 waiting;
  __u32 waiting_classes; /* bit: class slot */
  __u32 kept_classes;    /* the same; somebody waits in LIST_KEPT */
  __u32 due_classes;     /* bit: class slot; its reserve is due */
  __u32 doomed_head;     /* nodes that are to be rejected; 0: none */
  __u32 doomed_tail;
  __u32 epoch;       /* number of the current one */
  __u32 ghost_first; /* numbers; index into ghost: modulo GHOSTS */
  __u32 ghost_end;
  __u32 looked;    /* jiffies: when the queues were last looked at for what is due */
  __u32 stuck;     /* jiffies: when a release last found no room in the accept queue, which keeps LIST_NEW */
  __u32 limit;     /* requests in service at once, as of the last turn; 0: unlimited */
  __u32 gathering; /* heads that come in pieces */
  __u32 gather_head; /* their nodes, the oldest first; 0: none */
  __u32 gather_tail;
  __u64 epoch_began;                  /* ns */
  struct control control;             /* written by narthex_gate_steer alone */
  __u32 entered[EPOCHS][CLASS_SLOTS]; /* in service, by epoch of entry and class slot */
  struct ghost ghost[GHOSTS];
  struct class_room class[CLASS_SLOTS];
};

enum node_state {
  NODE_FREE = 0,
  NODE_WAITING = 1,   /* in the list of its class */
  NODE_DOOMED = 2,    /* in the list of those that are to be rejected, or put before the stack again */
  NODE_TAKEN = 3,     /* in no list: being put in, released or rejected */
  NODE_GATHERING = 4, /* in the list of heads that come in pieces */
  NODE_KEPT = 5       /* in no list: kept by its flow until the stack has it */
};

/* Place of a held request in a list of its room. Its number is that of its slot; 0 is no
 * node. */
struct node_link {
  __u64 since; /* ns: waits since */
  __u32 next;
  __u32 prev;
  __u16 room;  /* slot of the service */
  __u8 class;  /* slot */
  __u8 state;  /* enum node_state */
  __u8 reject; /* enum reject, when doomed */
  __u8 busy;   /* its slot is being written: leave it to who does that */
  __u8 again;  /* doomed, but to be put before the stack again */
  __u8 list;   /* enum list */
};

#define MAX_SLOTS 65536
#define MAX_SLOT_SIZE 16064 /* what bpf_skb_change_tail() makes of a packet at most */

struct pool {
  struct bpf_spin_lock lock; /* guards what comes before link, and links that are free */
  __u32 free;                /* first free node; 0: none */
  __u32 fresh;               /* nodes that were in use already: those beyond are free, too */
  __u32 used;
  struct node_link link[MAX_SLOTS + 1];
};

/* A held request: its frame without VLAN tags, as it will be put before the stack again. */
struct slot {
  struct flow_key key;
  __u64 flow;         /* flow.id */
  __u32 length;       /* bytes of the frame */
  __u32 ifindex;      /* on which it came */
  __u32 sequence;     /* of its first byte of data */
  __u32 acknowledged; /* what it acknowledges */
  __u16 l3;           /* offsets of the headers and of the data */
  __u16 l4;
  __u16 data;
  __u16 vlan_tags;  /* 0 or 1, beside the frame */
  __u16 vlan_proto; /* network byte order */
  __u16 vlan_tci;
  __u8 sealed;  /* 1: lengths and checksums of the frame are right */
  __u8 proxied; /* 1: a trusted proxy has said whose request it is, which `from` is */
  __u8 from_v6; /* 1: `from` is an IPv6 address */
  __u8 pad[1];  /* 0 */
  __u32 by;     /* slot of the rule that has decided before it waited; NO_RULE: none */
  __s64 debt;   /* ns: of its bucket then */
  __u64 from[2];
};

/* A flow that is to be looked at again. */
struct watch {
  struct flow_key key;
  __u64 id;       /* of the flow */
  __u64 deadline; /* ns */
  __u32 received; /* the client's sequence number up to which the stack had its bytes */
  __u32 sent;     /* the server's up to which the stack had sent */
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
