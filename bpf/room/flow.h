/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is known of a connection, and the changes of its state. */
#pragma once
#include "compat/keys.h"
#include "parse/http.h"
#include "parse/proxy.h"
#include "parse/response.h"
#include "parse/segment.h"
#include "parse/tls.h"
#include "room/epochs.h"
#include "room/lists.h"
#include "room/places.h"

/* Changed under the lock of its room by who finds there the id it knows: an entry that was
 * deleted can be another connection's at once. */
struct flow {
  __u64 id;     /* never used again; 0: the entry is being deleted */
  __u64 since;  /* ns: waits, or is in service, since */
  __u32 next;   /* the client's sequence number at which the next request begins; while
                 * FLOW_HEAD or FLOW_CHUNKS: behind what was read; FLOW_LOST: behind what has passed */
  __u32 start;  /* the client's of the first byte of the request */
  __u32 body;   /* behind what was read of it: its head, and its chunks */
  __u32 answer; /* the server's from which on its bytes answer the request */
  __u32 sent;   /* the server's behind what it has sent */
  __u32 got;    /* the client's behind what of its bytes is counted */
  __u32 node;   /* of the slot with its request; 0: none */
  __u32 epoch;  /* when in service; see enter() */
  __u16 room;   /* slot of the service */
  __u16 flags;  /* enum flow_flag */
  __u8 class;   /* slot */
  __u8 state;   /* enum flow_state */
  __u8 socket_priority;
  __u8 ends;     /* enum service_end */
  __u8 rank;     /* in the policy of that generation */
  __u8 protocol; /* enum protocol */
  __u8 watched;  /* 1: it is in the ring of flows to be looked at again */
  __u8 moves;    /* 1: bytes of its body, or of it again, have passed since it was looked at */
  __u8 home;     /* rank of its connection, which its next request begins with */
  __u8 named;    /* enum flow_named */
  __u8 lacks;    /* looks at which the stack lacked bytes that were read, one after the other */
  __u8 withheld; /* 1: the stack has bytes of the request that waits, or was taken back, but for the first */
  __u8 flights;  /* of tls and tcp: how often the client has spoken after the server, 255 at most */
  __u8 early;    /* 1: bytes behind `next` may be kept; see gate/early.h */
  __u8 spare[2]; /* 0 */
  __u32 seen_priority; /* SO_PRIORITY and SO_MARK that its socket had, with LABELS_SOCKET */
  __u32 seen_mark;
  __u32 seat;         /* its number + 1; 0: none */
  __u32 unread_since; /* 2^20 ns: when bytes have passed while nothing was held back; 0: all has been followed
                         since */
  __u32 rule;         /* the request rule that its request was found to match; NO_MATCH: none */
  struct address client;
  struct proxy_head proxy; /* the bytes read of that header */
  __u32 generation;
  __u32 mark;       /* SO_MARK of its socket; 0: none */
  __u32 progress;   /* what the stack had got of the client, and the client of the server, when it was last
                       looked at; a sum */
  __u32 progressed; /* 2^20 ns: when that was last another than before */
  struct http_answer reply; /* to its last request. Written by who sees the server's bytes, and when a request
                               takes its turn */
  __u32 asked;              /* requests that have taken their turn */
  __u32 ifindex;            /* on which it came */
  __u32 line;               /* that pays for its request in service; 0: none */
  __u32 owner;              /* of that line: the upper bits of line_set.way */
  __u64 places;             /* that limits have given to its request; see leave_places() */
  __u64 earns;              /* hash of the source that a good answer to its request makes known; 0: none */
  union {                   /* the bytes read of its head */
    struct http_head head;
    struct tls_hello hello;
  };
};

/* What is known of who the client behind a proxy is. */
enum flow_named {
  NAMED_CLIENT = 1,    /* flow.client is who it says the client is */
  NAMED_HERE = 2,      /* the request at hand begins with it */
  NAMED_FORWARDED = 4, /* flow.client is who X-Forwarded-For of the request says, unless NAMED_CLIENT */
};

/* Connections that have sent a request, until their socket ends. Written and read by the
 * programs. When full, those give way that are between two requests; if there are none, requests of further
 * connections are rejected. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1);
  __type(key, struct flow_key);
  __type(value, struct flow);
} flows SEC(".maps");

/* Key: number. Of each flow, found without its key. Written by who makes or deletes the flow. Sized for twice
 * as many as there are flows, so that one of a few is free. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct seat);
} seats SEC(".maps");

static __always_inline struct seat *seat_at(__u32 number) {
  number &= seat_mask;
  return bpf_map_lookup_elem(&seats, &number);
}

/* Counts a flow that was made, or deleted (n: −1). */
static __always_inline void count_flow(struct room *r, struct pool *p, __u32 n) {
  __sync_fetch_and_add(&r->flows, n);
  __sync_fetch_and_add(&p->flows, n);
}

/* Whether flows run out for the room, which has its share of them. */
static __always_inline bool lacks_flows(const struct room *r, const struct pool *p,
                                        const struct room_config *c) {
  return p->flows >= c->flow_common && r->flows >= c->flow_share;
}

/* Whether places in the table are left for flows in short form alone. */
static __always_inline bool are_reserved(const struct pool *p) {
  return p->briefs && p->flows + p->briefs >= flow_count;
}

/* The number of the seat that was left last, which a CPU has at hand and is likely to be free: a guess. */
__u32 left_seat;

static __always_inline void leave_seat(__u32 seat, __u64 id) {
  struct seat *s = seat ? seat_at(seat - 1) : NULL;
  if (!s || s->id != id)
    return;
  s->id = 0;
  left_seat = seat - 1;
}

/* Counts what a segment of the server says: that its stack has the client's bytes up to a sequence number,
 * and so many bytes of its own that it has not said before. Without the lock. */
static __always_inline void count_bytes(struct class_room *c, __u32 *got, __u32 ack, __u32 out) {
  if (before(*got, ack)) {
    __sync_fetch_and_add(&c->bytes_in, ack - *got);
    *got = ack;
  }
  __sync_fetch_and_add(&c->bytes_out, out);
}

/* Whether the answer goes on in what is to be read of it. */
static __always_inline bool is_read_on(const struct http_answer *a) {
  return a->state == ANSWER_HEAD || a->state == ANSWER_CHUNKS;
}

/* Whether the flow may take a turn: its last request is over, was given up, or has paused. */
static __always_inline bool is_free(const struct room *r, const struct flow *f) {
  return f->state == FLOW_IDLE || f->state == FLOW_PAUSED ||
         (f->state == FLOW_SERVED && is_forgotten(r, f->epoch));
}

/* Has the flow's source pay for the place that its request has had. Under the lock. */
static __always_inline void pay(struct room *r, struct pool *p, struct flow *f, __u64 now) {
  charge(class_of(r, f->class), p, f->line, f->owner, elapsed(f->since, now));
  f->line = 0;
}

/* Gives back the places that limits have given to the flow's request. Under the lock. */
static __always_inline void return_places(struct pool *p, struct flow *f) {
  leave_places(p, f->places);
  f->places = 0;
}

/* Ends the service of the flow's request. What is no HTTP has the places of limits until its connection ends:
 * rules decide on it once. Under the lock. */
static __always_inline void end_service(struct room *r, struct pool *p, struct flow *f, __u64 now) {
  if (leave(r, f->class, f->epoch))
    count_service(class_of(r, f->class), elapsed(f->since, now));
  pay(r, p, f, now);
  if (f->protocol == PROTOCOL_HTTP)
    return_places(p, f);
  f->state = FLOW_IDLE;
}

/* Has the flow's request, which the stack has dropped, take its turn as if it had not come, when it
 * comes again. Under the lock. */
static __always_inline void retract(struct room *r, struct pool *p, struct flow *f, bool half_open) {
  if (leave(r, f->class, f->epoch))
    class_of(r, f->class)->paused++;
  return_places(p, f);
  f->state = FLOW_IDLE;
  f->asked--;
  f->reply = (struct http_answer){.state = ANSWER_ENDS, .read = f->answer};
  f->next = f->body = f->start;
  f->flags = half_open ? FLOW_NEW | (f->flags & FLOW_COOKIE) : 0;
}

/* Parts the flow from its node. Returns it if it is to be freed, or 0. Under the lock. */
static __always_inline __u32 part_node(struct room *r, struct pool *p, struct flow *f) {
  __u32 node = f->node;
  struct node_link *l = link_of(p, node);
  f->node = 0;
  /* A node that is taken is in the hands of another CPU, which finds the flow gone. One whose
   * slot is being written waits for its turn, and finds the same. */
  if (!node || l->state == NODE_TAKEN || l->busy)
    return 0;
  withdraw(r, p, node);
  return node;
}

/* Ends the flow, but for its node, if it has one. Under the lock. */
static __always_inline void close_flow(struct room *r, struct pool *p, struct flow *f, __u64 now) {
  f->id = 0;
  if (f->state == FLOW_SERVED)
    end_service(r, p, f, now);
  if (f->state == FLOW_HELD)
    class_of(r, f->class)->gave_up++;
  return_places(p, f);
  f->state = FLOW_IDLE;
}

/* Ends the flow whatever its state. Returns a node that is to be freed, or 0. Under the lock. */
static __always_inline __u32 end_flow(struct room *r, struct pool *p, struct flow *f, __u64 now) {
  close_flow(r, p, f, now);
  return part_node(r, p, f);
}

/* Whether the stack has nothing of the connection but the SYN cookie that it has sent. */
static __always_inline bool is_only_cookie(const struct flow *f) {
  return (f->flags & (FLOW_COOKIE | FLOW_NEW)) == (FLOW_COOKIE | FLOW_NEW);
}

/* Whether the flow is the one that was seen, and has not gone on since. */
static __always_inline bool is_as_seen(const struct flow *f, const struct flow *seen) {
  if (f->flags & FLOW_COOKIE && f->moves != seen->moves)
    return false;
  return seen->id && f->id == seen->id && f->state == seen->state && f->node == seen->node;
}

/* Takes a flow out of the table whose id was made 0. */
static __always_inline void forget_flow(struct room *r, struct pool *p, const struct flow_key *key,
                                        __u32 seat, __u64 id) {
  count_flow(r, p, -1);
  leave_seat(seat, id);
  delete_by_key(&flows, key);
}

/* Deletes a flow that is as it was seen, or only still has its id. False: another CPU was
 * faster. */
__noinline int delete_flow(const struct flow_key *key, struct flow *f, const struct flow *seen, __u64 id,
                           __u64 now) {
  if (!key || !f)
    return false;
  struct room *r = room_of(f->room);
  struct pool *p = the_pool();
  if (!r || !id)
    return false;
  __u32 node = 0, seat = f->seat;
  bool mine = false;
  bpf_spin_lock(&r->lock);
  if (seen ? is_as_seen(f, seen) : f->id == id) {
    node = end_flow(r, p, f, now);
    mine = true;
  }
  bpf_spin_unlock(&r->lock);
  if (node)
    free_node(p, node);
  if (mine)
    forget_flow(r, p, key, seat, id);
  return mine;
}
