/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Memory of a program's run. A clone that is sent meets the programs again before the send
 * returns, so that a CPU has several runs at once, one within another. */
#pragma once
#include "compat/verifier.h"
#include "observe/events.h"
#include "room/flow.h"

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
  __u32 text;   /* offset in the map answers */
  __u32 length; /* bytes of it; 0: none */
  __u8 flags;
  __u8 to_server;
  __u16 window; /* as the header says it: in units of the connection's scale */
  __u32 turns;  /* 1: the frame is as its client sent it, and goes back */
  __u32 beyond; /* 1: what has come beyond others is told as well (SACK): */
  __u32 left;   /* sequence numbers, of its first byte */
  __u32 right;  /* and behind its last */
};

/* What the client of a rejected connection still has to be told. Host byte order. A text that takes several
 * segments goes in flights that grow with what the client acknowledges (RFC 5681, 3.1). */
struct farewell {
  __u32 seq;     /* of our answer */
  __u32 end;     /* behind it and its FIN */
  __u32 client;  /* behind what the client had sent */
  __u32 text;    /* offset of what is between the two, in the map answers */
  __u32 sent;    /* behind what was sent last */
  __u32 heard;   /* what the client has acknowledged */
  __u32 base;    /* as many bytes may be in flight as it has acknowledged from here on */
  __u32 spoken;  /* behind what the client has sent since */
  __u16 reset;   /* 1: there is no text, and it is told by a reset */
  __u8 scale;    /* bits by which the client's windows are scaled */
  __u8 repeated; /* 1: what is behind `heard` was sent again */
  __u32 kept;    /* so many of its last bytes are not acknowledged while something is left to be said */
};

/* What a rejection needs to know of the request. */
struct rejected {
  struct flow_key key;
  struct timestamps times;
  __u32 l3;
  __u32 l4;  /* of the client's segment */
  __u32 seq; /* of the request's first byte */
  __u32 end; /* behind its last */
  __u32 ack;
  __u32 ifindex;
  __u32 text;   /* offset in the map answers */
  __u32 length; /* bytes of it that the client is told; 0: none */
  __u8 reset;   /* the client is told nothing, by a reset */
  __u8 no_peer; /* the stack has no socket to be reset */
  __u8 pad[2];  /* 0 */
};

/* What the stack knows of a connection. */
struct endpoint {
  __u32 state;    /* BPF_TCP_…; 0: there is none */
  __u32 sequence; /* of the next byte that the stack has not got from the client */
  __u32 answer;   /* of the next byte that the stack will send */
  __u32 window;   /* bytes that it would take from the client */
  __u32 crowded;  /* the accept queue is full */
  __u32 queued;   /* some wait in it to be accepted */
  __u32 orphaned; /* request socket: its listener listens no more */
  __u32 silent;   /* established: its client has said nothing yet */
  __u32 written;  /* behind what the server has said */
  __u32 acked;    /* established: of the next byte that the client has not acknowledged */
  __u32 gap;      /* established: the stack has bytes of the client beyond others that it has not */
  __u32 beyond;   /* gap: sequence number of the first of those; find_beyond() sets it */
  __u32 times;    /* segments have timestamps, and the stack drops those with: */
  __u32 recent;   /* a value before this */
  __u32 echoes;   /* an echo that is neither 0 nor one of so many */
  __u32 echo;     /* from this on; echoes 0: any will do */
  __u32 owes;     /* established: the client spoke last */
  __u32 ending;   /* established: it is being ended, and takes no more from its client */
};

/* Whether the endpoint's numbers are known: its connection takes data from the client. */
static __always_inline bool takes_data(const struct endpoint *e) {
  return e->state == BPF_TCP_ESTABLISHED || e->state == BPF_TCP_CLOSE_WAIT ||
         e->state == BPF_TCP_NEW_SYN_RECV;
}

/* What a look at a flow leads to. */
struct finding {
  __u32 slot_end;  /* of the request in the slot that it keeps */
  __u32 has;       /* the client's sequence number up to which the stack has its bytes */
  bool due;        /* it leads to something */
  bool arrived;    /* it has a socket of its own */
  bool received;   /* it has all that is in the slot, or will never have it */
  bool silent;     /* neither side has said anything since the last look */
  bool missing;    /* its client has sent nothing since the last look, for which there is room */
  bool half_open;  /* it is still to make a socket of it */
  bool crowded;    /* and no place for a socket */
  bool gap;        /* it has bytes beyond others that it has not */
  bool mute;       /* its client has said nothing to it yet */
  bool retracted;  /* the request is taken to have never come */
  bool progressed; /* either side has got something since the last look */
  bool stalled;    /* the connection is to be ended: its client keeps a worker waiting */
  __u32 stall;     /* how long it may, 2^20 ns; 0: as long as it likes. Before look_at() */
  bool waited_for; /* others wait for a place like the one that it has. Likewise */
  __u32 written;   /* as of struct endpoint */
  __u32 acked;
};

/* What a run knows. A field is valid from where its comment says to the run's end, and is another run's
 * leavings before. */
struct work {
  struct segment s; /* always; in kicks: never */
  /* From decide_segment() and watch_segment() on; in kicks from when a slot is found. */
  struct flow_key key;
  __u8 proxied; /* 1: the connection is a trusted proxy's; from read_rules() on, 0 before */
  __u8 demoted; /* 1: its rule puts it into the lowest class; from apply_rules() on, 0 before */
  __u8 read;    /* 1: what rules ask of it was read: STEP_READ was taken */
  __u8 fate;    /* enum mirror_fate: what its rule has made of it; likewise */
  __u32 why;    /* enum reject: why its rule, or what was read, rejects it; 0: it does not */
  __u32 by;     /* slot of the rule that has decided; NO_RULE: none */
  __s64 debt;   /* ns: of its bucket, with `by` */
  __u64 waited; /* ns: with EVENT_RELEASE and EVENT_REJECT, of a request that waited; else 0 */
  __u8 crowded; /* 1: the accept queue is full that the connection is for; 0 where that was not looked at */
  __u8 printed; /* 1: print is its fingerprint; from narthex_gate_fingerprint on, 0 before */
  __u16 row;    /* of what is said if the request is rejected: that of its rule, if that rejects it */
  /* With a flow in the table from first_step() on; without, from on_untracked() on. */
  struct flow flow; /* as it will be; room: MAX_SERVICES before */
  __u32 next;       /* flow.next as it was seen */
  __u16 flags;      /* flow.flags as they were seen */
  __u8 named;       /* 1: `from` is who a trusted proxy says, and not one itself; with proxied */
  __u8 labelled;    /* rank + 1 of the class that the next requests are of; 0: as before. In on_answer() */
  struct packet
      from;  /* who sends the request: the packet's source, or who a proxy says; from read_rules() on */
  int step;  /* where the run goes on in another program: a step, or the verdict; from go_on() on */
  __u32 due; /* a set of enum need: what is to be seen to behind the verdict; in kicks: never */
  /* Each function that uses these sets them first, or says that its caller has. */
  struct ja4_print print; /* with printed */
  __u8 pad3[4];           /* 0 */
  __u64 now;
  __u64 places;            /* that limits have given to the request: in apply_rule() */
  __u64 earns;             /* as in struct flow: with a turn */
  struct http_chunk chunk; /* bytes at hand */
  __u32 used;              /* bytes up to the head's end: behind follow() */
  struct {
    __u32 at;   /* offset in the frame */
    __u32 left; /* bytes of the segment from there on */
  } reading;    /* where it goes on */
  struct {
    __u64 sum;
    __u32 at; /* offset in the frame */
    __u32 left;
  } sum; /* of a frame's bytes, as far as it is had */
  struct {
    __u64 last;   /* eight bytes */
    __u64 inside; /* 1: in the value of Accept */
    __u64 html;   /* 1: which has text/html */
    __u64 end;    /* of the bytes in chunk */
  } accept;       /* in takes_page() */
  struct {
    __u32 text;           /* offset in the map answers */
    __u32 length;         /* bytes; 0: a reset */
  } say;                  /* to who is refused: behind choose_answer() */
  struct endpoint socket; /* behind find_socket() */
  struct http_head began; /* what was read of the request before this segment: from read_request() on */
  __u32 keep;             /* bytes of the segment's data that are the request's: with a turn */
  __u32 kept;             /* of these, those that are in the slot: behind fill_slot() */
  __u32 withheld;         /* of these, those that wait, while the others go to the stack; 0: all. From
                             decide_segment() on */
  __u32 grown; /* bytes of the slot with the head, which is claimed; 0: the head is in the segment. With a
                  turn */
  __u32 says;  /* 1: the segment has what the server had not said before: in watch_segment() */
  __u32 told;  /* 1: the stack knows what the segment acknowledges, and says no more: with a turn */
  __u32 watch; /* 1: its flow is to be looked at again: behind a turn */
  struct finding found; /* in look_round() */
  struct watch look;    /* with `watch`, and in look_round() */
  struct {
    __u32 ifindex;
    __u32 flags;            /* BPF_F_INGRESS or 0 */
  } out;                    /* where the packet goes: with TCX_REDIRECT */
  struct rejected rejected; /* behind note_rejected() */
  struct emission emission; /* in emit() */
  struct farewell farewell; /* behind note_farewell(), and in answer_closed() */
  struct event event;       /* in report() */
  struct brief_flow brief;  /* in begin_brief() */
};

/* Up to where the server has sent, as far as is known. The socket counts a segment only when it comes back
 * from sending it, and by then its client may have answered. w->flow must be in the table, w->socket be
 * looked up. */
static __always_inline __u32 last_sent(const struct work *w) {
  return before(w->socket.answer, w->flow.sent) ? w->flow.sent : w->socket.answer;
}

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

/* Number of the run at hand, 0 of the outermost. */
static __always_inline __u32 run_level(void) {
  __u32 zero = 0;
  const __u32 *depth = bpf_map_lookup_elem(&nesting, &zero);
  return depth ? *depth - 1 : MAX_NESTING;
}

/* The run that another program has begun. */
static __always_inline struct work *current_run(void) {
  __u32 level = run_level();
  return bpf_map_lookup_elem(&works, &level);
}

static __always_inline void leave_run(void) {
  __u32 zero = 0;
  __u32 *depth = bpf_map_lookup_elem(&nesting, &zero);
  if (depth)
    --*depth;
}

/* The run's own memory, from where it may be put into maps. */
static __always_inline struct work *work_in_map(struct work *w) {
  if (has_memory_keys)
    return w;
  return current_run();
}

/* Tells what became of the request of w->flow. */
__noinline int report(struct work *w, __u32 kind, __u32 reason, __u32 shadow) {
  if (!w)
    return 0;
  __u64 now = heard_at(kind < EVENT_HOLD);
  if (!now || (kind >= EVENT_HOLD && bpf_get_prandom_u32() % EVENT_SAMPLE))
    return 0;
  struct event *e = &w->event;
  e->time = now;
  e->key = w->key;
  e->local_v6 = w->key.v6;
  if (w->proxied) {
    e->key.peer[0] = w->from.src[0];
    e->key.peer[1] = w->from.src[1];
    e->key.peer_port = 0;
    e->key.v6 = w->from.v6;
  }
  e->kind = kind;
  e->shadow = shadow;
  e->class = w->flow.class;
  e->service = w->flow.room;
  e->rule = w->by;
  e->reason = reason;
  e->debt = w->debt;
  e->waited = w->waited;
  e->print[0] = 0;
  if (w->printed)
    __builtin_memcpy(e->print, w->print.text, sizeof(e->print));
  tell(e);
  return 0;
}

/* What is known of a request at first, for telling of it. */
static __always_inline void clear_attribution(struct work *w) {
  w->by = NO_RULE;
  w->debt = 0;
  w->waited = 0;
  w->proxied = 0;
  w->demoted = 0;
  w->read = 0;
  w->fate = MIRROR_PASS;
  w->why = 0;
  w->row = ROW_OVERLOAD;
  w->printed = 0;
}
