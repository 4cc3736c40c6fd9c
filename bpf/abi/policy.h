/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The policy as the programs read it: services, connection rules, classes. */
#pragma once
#include "headers/kernel.h"

/* What a look-up step leads to: ENTRY_NONE, the number of a cell that ends the look-up (a
 * service or a rule), or, with ENTRY_NODE set, that of the next node. */
#define ENTRY_NONE 0U
#define ENTRY_NODE (1U << 31)

/* Steps of a look-up at most: 32 strides of an IPv6 address, 4 of a port, 4 of lists. */
#define MAX_STEPS 40

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
  __u8 lists;         /* the table of lists in force, and one more; 0: there are no lists */
  __u8 listed;        /* 1: connection rules ask for lists */
  __u8 bounds;        /* 1: a connection rule bounds how many there are at once */
  __u8 pad[1];        /* 0 */
  __u32 longest_wait; /* ms: of requests to any service that holds some */
  __u32 answers;      /* cell of the first struct refusal; they are in rows of `kinds` */
  __u32 answer_count;
  __u32 kinds;  /* of services, by what they say to who is refused */
  __u32 labels; /* cell of what classes are called in answers, by rank: FNV-1a of their names */
};

/* One step of a look-up in a multibit trie; internal/policy builds it and says how it is
 * read. */
struct node {
  __u64 key;
  __u64 mask;
  __u32 miss;      /* entry */
  __u8 word;       /* 0, 1: halves of the address, 2: port in the upper 16 bits, 3: bits of lists */
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
  __u64 block;  /* ns for which connections of a client are refused after a rejection; 0: none */
  __u64 learn;  /* ns for which a client is remembered in the rule's class; 0: not */
  __u16 answer; /* row of what is said to who is rejected */
  __u8 over;    /* enum over */
  __u8 pad[5];  /* 0 */
};

/* From which level of overload on a rule's rate, drop or rejection is enforced. It matches, and gives its
 * class, always. */
enum when { WHEN_ALWAYS = 0, WHEN_OVERLOAD = 1, WHEN_REJECTING = 2, WHEN_FLOODED = 3, WHEN_LEN };

enum over { OVER_REJECT = 0, OVER_DROP = 1, OVER_DEMOTE = 2, OVER_LEN };

/* A connection rule without its match. The bucket is a GCRA (ITU-T I.371): a theoretical
 * arrival time that each pass moves on by the interval. */
struct rule {
  union {
    struct guard guard;
    struct request_guard request; /* of a request rule: none leads to it by a guard */
  };
  __u64 interval;  /* ns for one token */
  __u64 tolerance; /* ns: interval × (burst − 1); BY_PLACES: places */
  __u64 id;        /* tells this rule's per-source buckets from any other's, ever */
  __u32 slot;      /* index into rule_counts; its bucket is twice as far in rule_buckets, and one by the id */
  __u32 limits;    /* cell of the first limit, or of a limit the next, as struct rule; 0: there is none */
  __u8 action;     /* enum action */
  __u8 class;      /* index of the class, or NO_CLASS */
  __u8 per_source; /* 0: one bucket for the rule, in rule_buckets; 1: per source prefix */
  __u8 bits_v4;    /* length of that prefix */
  __u8 bits_v6;
  __u8 when; /* enum when */
  __u8 by;   /* enum limit_by */
  __u8 key;  /* of a request rule: field + 1 whose values have a bucket each; 0: sources have */
};

/* What a rule, or a limit, goes by. */
enum limit_by {
  BY_RATE = 0,
  BY_PACE = 1,   /* interval and tolerance are those of its pace, for as long as that holds; one bucket */
  BY_PLACES = 2, /* so many at once; no bucket */
};

/* Limits of a rule at most, with the rate beside them. */
#define MAX_LIMITS 9

/* Of these, those that are BY_PLACES. */
#define MAX_PLACES 4

/* The rate of a rule that user space sets by what it sees of the server. */
struct pace {
  __u64 until;     /* ns: it holds until then; afterwards the rule limits nothing */
  __u64 interval;  /* ns for one token */
  __u64 tolerance; /* ns */
};

/* Rows of answers of every policy. */
enum answer_row {
  ROW_OVERLOAD = 0,  /* no place, or waited for too long */
  ROW_MALFORMED = 1, /* 400 */
  ROW_TOO_LARGE = 2, /* 431 */
  ROW_BLOCKED = 3,   /* the client's connections are refused */
};

/* What is said in the server's place: HTTP responses by their offsets in the map answers. */
struct refusal {
  __u32 text;        /* for everybody but: */
  __u32 page;        /* GETs, those that accept HTML or all: */
  __u16 length;      /* bytes of the text; 0: the connection is reset */
  __u16 head;        /* those without the body, for HEAD */
  __u16 page_length; /* 0: there is none */
  __u16 any;         /* 1: the page is for all GETs */
};

/* Texts of a policy at most, bytes; the map answers has those of two, so that one that is being sent is not
 * another's suddenly. */
#define ANSWERS_SIZE (256 * 1024)

/* Bytes of a text in a packet at most: any path takes them. */
#define MAX_PIECE 1220

/* Part of the texts. It has what goes on behind it, so that a piece that begins in it is in it. */
#define ANSWER_STRIDE 4096

struct answer_part {
  __u8 text[ANSWER_STRIDE + MAX_PIECE];
};

/* Services of a policy at most. */
#define MAX_SERVICES 1024

/* Classes of a policy at most, and room for as many of the policy before whose requests are
 * still waiting or in service. */
#define MAX_RANKS 16
#define CLASS_SLOTS 32

/* Rooms that share a pool at most: of services, or of pools. */
#define MAX_MEMBERS 32

/* A class of the policy. Its index in room_config.rank is its rank, 0 for the most
 * important. */
struct rank {
  __u32 max;            /* requests in service at once; 0: no bound */
  __u8 class;           /* slot of the class: the same for as long as the class has its name */
  __u8 reserve;         /* percent of the admissions while it has requests waiting */
  __u8 socket_priority; /* SO_PRIORITY of accepted sockets, and of what is sent on them */
  __u8 fair;            /* enum fair */
  __u8 bits_v4;         /* length of the prefix that is one source */
  __u8 bits_v6;
  __u8 key;    /* field + 1 whose values divide the share of their source; 0: none */
  __u8 pad[1]; /* 0 */
  __u32 known; /* 2^30 ns: for which a source that got an answer goes ahead of others; 0: none does */
};

/* Who has a line of its own in a class. */
enum fair {
  FAIR_NONE = 0,   /* nobody: one line, in order of arrival */
  FAIR_SOURCE = 1, /* sources, by their prefix */
  FAIR_LEN
};

/* Beside that, where a line is chosen: of known sources. */
#define FAIR_KNOWN 2

/* What ends a request's time in service. */
enum service_end {
  END_AUTO = 0, /* the server's FIN if request or response close the connection, else as below */
  END_FIRST_BYTE = 1,
  END_CLOSE = 2,
  END_LAST_BYTE = 3, /* the server has written all of the answer */
  SERVICE_END_LEN
};

/* What becomes of an offer to go on in HTTP/2 without TLS. */
enum h2c {
  H2C_IGNORE = 0, /* the server is not shown it; as H2C_REJECT where that cannot be, and to the preface */
  H2C_PASS = 1,   /* it enters, and the preface too */
  H2C_REJECT = 2,
};

enum protocol {
  PROTOCOL_HTTP = 0,
  PROTOCOL_TLS = 1, /* a connection waits with its ClientHello */
  PROTOCOL_TCP = 2, /* a connection waits at the end of its handshake */
  PROTOCOL_LEN
};

/* How an application may say of what class the next requests are. */
enum label_way {
  LABELS_HEADER = 1, /* of the connection and its client, by Narthex-Class in an answer */
  LABELS_SOCKET = 2  /* of the connection, by SO_MARK or SO_PRIORITY */
};

/* By what the members of a pool come first. */
enum pool_order {
  BETWEEN_NONE = 0,    /* it is no pool, but a service */
  BETWEEN_CLASSES = 1, /* they are one queue */
  BETWEEN_SHARES = 2,  /* each has its share of the places */
};

/* Priorities of sockets, a power of two. */
#define SOCKET_PRIORITIES 8

/* What a service's waiting room goes by, or the room of a pool, which holds nothing but counts what its
 * members have. It takes eight cells. */
struct room_config {
  __u64 max_wait;    /* ns */
  __u64 epoch;       /* ns: max_service / EPOCHS */
  __u64 target;      /* ns: the same while overload lasts; max_wait: likewise */
  __u32 limit;       /* requests in service at once; 0: unlimited */
  __u32 queue_size;  /* requests that wait at once */
  __u32 mark;        /* SO_MARK of accepted sockets is this plus the rank; 0: it is not set */
  __u16 kind;        /* of what it says to who is refused, less than header.kinds */
  __u8 ranks;        /* classes in rank */
  __u8 shadow;       /* 1: count, hold nothing */
  __u8 ends;         /* enum service_end */
  __u8 default_rank; /* of requests whose rule names no class */
  __u8 strict;   /* 1: requests may have to wait; else whatever is not understood passes, see is_strict() */
  __u8 reserves; /* 1: a class has a reserve */
  __u8 protocol; /* enum protocol */
  __u8 h2c;      /* enum h2c */
  __u8 proxies;  /* 1: there are proxies that are trusted to say who their clients are */
  __u8 adaptive; /* 1: the room's control has the limit */
  __u16 above;   /* slot + 1 of the room of the pool that it is in; 0: none */
  __u8 weight;   /* its share of that pool, at least 1 */
  __u8 between;  /* enum pool_order */
  __u32 stall[MAX_RANKS]; /* 2^20 ns, by rank: how long clients may keep a worker waiting; 0: as long as they
                             like */
  __u32 share;            /* nodes of the pool that the service may always have */
  __u32 common;           /* nodes in use in all from which on it gets none beyond its share */
  __u32 flow_share;       /* the same of flows */
  __u32 flow_common;
  __u32 classes; /* bit: slot of a class in rank */
  struct rank rank[MAX_RANKS];
  __u16 member[MAX_MEMBERS]; /* of a pool: slot + 1 of the rooms in it; 0 behind the last */
  __u32 requests;            /* of a connection; 0: as many as it likes */
  __u8 brief;                /* 1: flows may be kept in short form: nothing but who is in service matters */
  __u8 labels;               /* a set of enum label_way */
  __u8 of_priority[SOCKET_PRIORITIES]; /* rank + 1 of the only class whose sockets have that SO_PRIORITY; 0:
                                          none */
  __u8 spare[42];                      /* 0 */
};

#define ROOM_CELLS 8

_Static_assert(sizeof(struct room_config) == 64 * ROOM_CELLS, "room_config takes whole cells");

/* A device that frames reach by way of another, told by their destination. */
struct upper_device {
  __u32 lower; /* interface index of the other */
  __u8 mac[6]; /* of the device above */
  __u8 pad[2]; /* 0 */
};
