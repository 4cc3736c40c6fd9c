/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Waiting rooms, their lists, and what waits. */
#pragma once
#include "abi/flow.h"
#include "abi/policy.h"

/* Buckets of a histogram: i counts durations of 2^i µs and more; the last, all beyond. */
#define HISTOGRAM 32

/* Lists of a class. Each is in the order of arrival. */
enum list {
  LIST_KEPT = 0, /* further requests of connections that the server has */
  LIST_NEW = 1,  /* of connections that it still has to accept */
  LIST_LEN
};

/* Turns of a class's calendar; a power of two, of which the bits of a word are the numbers. Beside them is
 * the turn of known sources, before all others. */
#define TURNS 32

/* The lines that have the same turn, as a list of the nodes at their fronts. */
struct turn {
  __u32 head; /* 0: none */
  __u32 tail;
};

/* Requests of flows in short form, which were all let in at once. */
struct brief_counts {
  __u64 begun;
  __u64 served;
  __u64 service_sum; /* ns */
  __u64 service[HISTOGRAM];
};

/* What a room has of one class. */
struct class_room {
  /* What each request touches comes first, in one cache line. */
  __u32 head[LIST_LEN]; /* nodes that wait longest; 0: none */
  __u32 tail[LIST_LEN];
  __u32 waiting;
  __u32 in_service;
  __u32 credit;  /* reserve: percent points of admissions that are due to it */
  __u32 lines;   /* in which somebody waits */
  __s64 clock;   /* virtual time: what each line could have had since the class exists */
  __u64 mean;    /* ns: of the times in service, the last 1,000 or so; 0: none */
  __u32 first;   /* turn before which there is nobody, counted on without end */
  __u32 turns;   /* bit: place in `turn`; it has somebody */
  __u32 most;    /* line with the most that wait, as far as is known; 0: none */
  __u32 charged; /* of those in service, so many are counted in the room above */
  __u64 arrived;
  __u64 admitted; /* at once */
  __u64 served;
  __u64 service_sum; /* ns */
  __u64 would_hold;
  __u64 held;
  __u64 released;
  __u64 gave_up;
  __u64 lost;
  __u32 told;         /* of those that wait, likewise */
  __u16 above;        /* slot + 1 of the room that has counted them; 0: none */
  __u16 pad;          /* 0 */
  __u64 late;         /* ns: since when the one that waits longest has waited for the target; 0: it has not */
  __u64 lasts;        /* ~0: it has for long, and the target bounds how long anybody waits; or 0 */
  __u64 paused;       /* times that a request left service because the stack had not got it, or its body */
  __u64 rejected[16]; /* by enum reject */
  __u64 wait_sum;     /* ns */
  __u64 service[HISTOGRAM];
  __u64 wait[HISTOGRAM];
  __u64 ahead;                 /* of those that were released, of known sources */
  struct turn turn[1 + TURNS]; /* of known sources; of all others, by their place in `turns` */
  struct brief_counts brief;   /* not under the lock, but atomically; not part of what is above */
  __u64 bytes_in;              /* of requests that the server has acknowledged; atomically, too */
  __u64 bytes_out;             /* that it has sent, without those that it sent again; likewise */
};

/* In service are counted by the epoch in which they entered, so that what never ends can be
 * told from what is new and be given up, at no cost per request. */
#define EPOCHS 8

/* A request whose client has reset the connection while the server was working. */
struct ghost {
  __u32 room;  /* slot of the service */
  __u32 class; /* slot */
  __u32 epoch; /* in which it entered service */
  __u32 line;  /* that pays for it, as in struct flow */
  __u32 owner;
  __u32 pad;    /* 0 */
  __u64 since;  /* ns: in service since */
  __u64 places; /* as in struct flow */
};

/* What user space has decided for a service, by what it sees of the server. */
struct control {
  __u64 until;           /* ns: it holds until then */
  __u32 limit;           /* requests in service at once; 0: unlimited */
  __u32 safe;            /* the same from then on */
  __u32 level;           /* enum when: of overload, for rules that ask for it or less */
  __u32 sheds;           /* 1: not all of what follows are KEEP_ALL */
  __u32 keep[MAX_RANKS]; /* SYNs that are let in, by rank of their class: so many of KEEP_ALL */
  __u32 strangers;       /* the same of sources whose class only their requests tell */
  __u32 marks;           /* enum control_mark */
};

enum control_mark {
  CONTROL_PROVISIONAL = 1, /* nothing is known of the server yet, and the limit counts as has_limit() says */
  CONTROL_CLOSES = 2,      /* the server is asked to close each connection behind its answer */
  CONTROL_GIVEN_UP = 4,    /* meanwhile nothing is held by what a class may have in service */
};

#define KEEP_ALL 65536

/* The waiting room of a service, or what is known of a pool: nothing is in its lists, and in_service, waiting
 * and the same of classes are those of its members' rooms, as far as tell_class() has told, and of places
 * that are held for a moment. */
struct room {
  struct bpf_spin_lock lock; /* guards all of it, and the state of its flows and nodes */
  __u32 in_service;
  __u32 waiting;
  __u32 waiting_classes; /* bit: class slot */
  __u32 kept_classes;    /* the same; somebody waits in LIST_KEPT */
  __u32 due_classes;     /* bit: class slot; its reserve is due */
  __u32 due_head;        /* nodes that are to be rejected; 0: none */
  __u32 due_tail;
  __u32 epoch;     /* number of the current one */
  __u32 looked;    /* jiffies: when the queues were last looked at for what is due */
  __u32 stuck;     /* jiffies: when a release last found no room in the accept queue, which keeps LIST_NEW */
  __u32 limit;     /* requests in service at once, as of the last turn; 0: unlimited */
  __u32 gathering; /* heads that come in pieces */
  __u32 gather_head; /* their nodes, the oldest first; 0: none */
  __u32 gather_tail;
  __u32 flows;       /* not under the lock, but atomically */
  __u16 above;       /* as in its configuration, as of the last turn */
  __u8 weight;       /* likewise */
  __u8 pooled;       /* 1: there is a room above that counts what is here, or has until now */
  __u64 epoch_began; /* ns */
  __u32 untold;      /* bit: class slot of which the room above may not know all */
  __u32 charged;     /* of all classes */
  __u32 told;
  __u32 left;         /* requests that left service lately */
  __u32 late_classes; /* bit: class slot whose `late` is not 0 */
  __u32 brief;     /* in service beside in_service: flows in short form. Not under the lock, but atomically */
  __u64 took;      /* ns that their places were in use for, and those of others meanwhile */
  __u64 accounted; /* ns: when charged was last another */
  __u64 used;      /* ns of place in all */
  __u64 due;       /* the same divided by its weight: its virtual time; who has least is next. Of a pool that
                      shares there is beside it that of its members: */
  __u64 at;
  struct control control;             /* written by narthex_gate_steer alone, but for what has run out */
  __u32 entered[EPOCHS][CLASS_SLOTS]; /* in service, by epoch of entry and class slot */
  struct class_room class[CLASS_SLOTS];
};

enum node_state {
  NODE_FREE = 0,
  NODE_WAITING = 1,   /* in the list of its class */
  NODE_DUE = 2,       /* in the list of those that are to be rejected, or put before the stack again */
  NODE_TAKEN = 3,     /* in no list: being put in, released or rejected */
  NODE_GATHERING = 4, /* in the list of heads that come in pieces */
  NODE_KEPT = 5       /* in no list: kept by its flow until the stack has it */
};

/* Lists that a node can be in at once. */
enum chain {
  BY_ARRIVAL = 0, /* of its class; or of what is due, or of heads that come in pieces */
  IN_LINE = 1,    /* of its source, in its class; where values divide that, only the front of each value's */
  IN_TURN = 2,    /* at the front of its line: of a turn of its class */
  OF_VALUE = 3,   /* of those of its line with the same value */
  CHAIN_LEN
};

struct neighbours {
  __u32 next; /* nodes; 0: none */
  __u32 prev;
};

/* Place of a held request in the lists of its room. Its number is that of its slot; 0 is no
 * node. */
struct node_link {
  __u64 since; /* ns: waits since */
  struct neighbours in[CHAIN_LEN];
  __u16 room;    /* slot of the service */
  __u8 class;    /* slot */
  __u8 state;    /* enum node_state */
  __u8 reject;   /* enum reject, when doomed */
  __u8 busy;     /* its slot is being written: leave it to who does that */
  __u8 again;    /* doomed, but to be put before the stack again */
  __u8 list;     /* enum list */
  __u16 group;   /* of sources that its client is in */
  __u8 pad[2];   /* 0 */
  __u32 ifindex; /* on which its request came: there its connection's socket is found */
  __u32 line;    /* number of its line + 1; 0: none */
  __u32 value;   /* the same of those of its line with the same value; 0: they are not told apart */
};

/* The requests of one source in one class of a room that wait, or of these the ones with the same value,
 * which have neither times nor turns. */
struct line {
  __s64 start; /* virtual time of the class: what it has had so far, and so when it is next */
  __u32 head;  /* nodes; 0: none */
  __u32 tail;
  __u32 waiting;
  __u32 turn; /* place in class_room.turns, if somebody waits; of a known source: nothing */
  __u32 most; /* of its values the one with the most that wait, as far as is known; 0: none */
  __u32 pad;  /* 0 */
};

#define LINE_WAYS 8
#define LINE_SETS 8192

/* Whose the lines are of one set: bits of a hash, and in the lowest LINE_USE how many nodes they have. Lines
 * without any are taken for others. */
struct line_set {
  __u64 way[LINE_WAYS];
};

#define LINE_USE 0xfffff

/* Bit of the hash: the line is of a known source. */
#define LINE_KNOWN (1ULL << 32)

/* Places that limits have given, by whom they are of: as lines, with bits of a hash and how many. Who gives
 * one back needs no lock. */
#define PLACE_SETS 8192
#define PLACES (PLACE_SETS * LINE_WAYS) /* the number of one is 16 bits; 0 is none */

#define MAX_SLOTS 65535     /* a power of two less one: a mask */
#define MAX_SLOT_SIZE 16064 /* what bpf_skb_change_tail() makes of a packet at most */

/* Groups of sources, told by a hash of their prefix. */
#define SOURCE_GROUPS 4096

struct pool {
  struct bpf_spin_lock lock; /* guards what comes before line, and links that are free */
  __u32 free;                /* first free node; 0: none */
  __u32 fresh;               /* nodes that were in use already: those beyond are free, too */
  __u32 used;
  __u32 flows;                    /* in use, of all rooms; not under the lock, but atomically */
  __u32 used_by[MAX_SERVICES];    /* of the nodes in use, by slot of the service */
  __u32 used_from[SOURCE_GROUPS]; /* and by group of sources */
  __u32 ghosts;                   /* entries of the map; not under the lock, but atomically */
  __u32 briefs;                   /* likewise */
  struct line_set set[LINE_SETS];
  struct line line[LINE_SETS * LINE_WAYS]; /* each guarded by its room */
  struct line_set place[PLACE_SETS];
  struct node_link link[MAX_SLOTS + 1];
};

/* What of a slot's frame is right as it is, lengths and checksums. */
enum seal {
  SEAL_NONE = 0,
  SEAL_IP = 1, /* the IP header's */
  SEAL_ALL = 2 /* TCP's, too */
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
  __u8 sealed;  /* enum seal */
  __u8 proxied; /* 1: a trusted proxy has said whose request it is, which `from` is */
  __u8 from_v6; /* 1: `from` is an IPv6 address */
  __u8 pad[1];  /* 0 */
  __u32 by;     /* slot of the rule that has decided before it waited; NO_RULE: none */
  __u32 passed; /* behind what has come of the request and is here or, flow.withheld, with the stack */
  __s64 debt;   /* ns: of its bucket then */
  __u64 from[2];
};
