/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Connections between two requests give way to new ones where flows run out. What has to be known of them is
 * remembered with their sockets: they are followed again from their next request on. */
#pragma once
#include "gate/decide/turn.h"

/* With the socket of a connection: struct parked. It ends with the socket. What it says holds as long as the
 * stack has nothing beyond. */
struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, struct parked);
} parked_sockets SEC(".maps");

/* Seats that are looked at at once, and how often for a flow. */
#define SEAT_WAYS 8
#define SEAT_ROUNDS 4

/* Whether the server has said all of the answer to the flow's last request, as far as is known. */
static __always_inline bool is_answered(const struct flow *f) {
  const struct http_answer *a = &f->reply;
  return a->state == ANSWER_UNKNOWN || (a->state == ANSWER_ENDS && !before(f->sent, a->read));
}

/* Whether all that has to be known of a flow is where its next request begins: none is under way, nor the
 * answer to the last, and its client is who its source says. Where nothing is held back, nothing has to be
 * known. */
static __always_inline bool may_give_way(const struct flow *f, bool lenient) {
  const __u32 never = FLOW_NEW | FLOW_COOKIE | FLOW_TUNNEL | FLOW_PROXIED, unknown = FLOW_HEAD | FLOW_CHUNKS;
  bool http = f->protocol == PROTOCOL_HTTP;
  if (f->node || f->flags & never)
    return false;
  if (lenient)
    return f->state == FLOW_IDLE || f->state == FLOW_SERVED;
  return f->state == FLOW_IDLE && !(f->flags & (http ? unknown | FLOW_LOST : unknown)) &&
         !(f->named & NAMED_CLIENT) && (http ? is_answered(f) : f->rank == f->home);
}

/* The number + 1 of a free seat of so many from a number on; 0: none. */
__noinline int free_seat(__u32 first, __u32 ways) {
  for (__u32 i = 0; i < SEAT_WAYS && i < ways; i++) {
    const struct seat *s = seat_at(first + i);
    if (s && !s->id)
      return first + i + 1;
  }
  return 0;
}

/* Takes a seat for w->flow. */
static __always_inline void take_seat(struct work *w, __u32 seat) {
  struct seat *s = seat ? seat_at(seat - 1) : NULL;
  bool mine = s && __sync_val_compare_and_swap(&s->id, 0, w->flow.id) == 0;
  if (mine)
    set_key(&s->key, w->key.peer, w->key.local, w->key.peer_port, w->key.local_port, w->key.v6);
  w->flow.seat = mine ? seat : 0;
}

/* Makes the flow of a seat w->look's, if it may give way, and has asked for nothing since before
 * w->look.deadline. */
__noinline int look_at_seat(struct work *w, __u32 number) {
  struct scene sc;
  struct seat *s = seat_at(number);
  if (!w || !s || !s->id)
    return 0;
  const struct flow *f = find_by_key(&flows, &s->key);
  if (!f || f->id != s->id) {
    s->id = 0;
    return 0;
  }
  if (f->since >= w->look.deadline || !open_scene(&sc, f->room) || !may_give_way(f, is_lenient(&sc)))
    return 0;
  w->look.key = s->key;
  w->look.id = f->id;
  w->look.received = f->next;
  w->look.deadline = f->since;
  return 0;
}

/* Notes with the socket of a connection where its next request begins, provided that the stack has just what
 * is before. False: it has not. Where there is no socket any more, nothing has to be noted. */
__noinline int park(struct __sk_buff *skb, struct work *w, __u32 any) {
  if (!w)
    return 0;
  struct bpf_sock *sk = look_up(skb, &w->look.key);
  if (!sk)
    return 1;
  struct endpoint *e = &w->socket;
  *e = (struct endpoint){};
  read_socket(e, sk);
  bool open = e->state == BPF_TCP_ESTABLISHED || e->state == BPF_TCP_CLOSE_WAIT;
  bool stands = open && (any || e->sequence == w->look.received);
  struct parked *p = NULL;
  if (stands)
    p = bpf_sk_storage_get(&parked_sockets, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
  if (p) {
    p->next = e->sequence;
    p->is = 1;
  }
  bpf_sk_release(sk);
  return p || e->state == BPF_TCP_LISTEN || e->state == BPF_TCP_TIME_WAIT;
}

/* Deletes the flow of w->look, if it still may give way, and its connection can go on without it. */
__noinline int give_way(struct __sk_buff *skb, struct work *w) {
  struct scene sc;
  struct flow *f = w ? find_by_key(&flows, &w->look.key) : NULL;
  if (!f || f->id != w->look.id || !open_scene(&sc, f->room))
    return 0;
  bool lenient = is_lenient(&sc), idle = f->state == FLOW_IDLE, mine = false;
  bool parked = idle && park(skb, w, f->protocol != PROTOCOL_HTTP);
  __u32 seat = f->seat;
  __u64 now = bpf_ktime_get_ns();
  bpf_spin_lock(&sc.room->lock);
  if (f->id == w->look.id && f->next == w->look.received && may_give_way(f, lenient)) {
    mine = parked || lenient;
    if (mine)
      close_flow(sc.room, sc.pool, f, now); /* it has no node */
    else
      f->since = now; /* it is another's turn */
  }
  bpf_spin_unlock(&sc.room->lock);
  if (!mine)
    return 0;
  forget_flow(sc.room, sc.pool, &w->look.key, seat, w->look.id);
  count_reason(REASON_PARKED, false, false);
  return 1;
}

/* Has the one of some flows give way that has asked for nothing for longest. */
__noinline int one_gives_way(struct __sk_buff *skb, struct work *w, __u32 first) {
  if (!w)
    return 0;
  w->look.id = 0;
  w->look.deadline = ~0ULL;
  for (__u32 i = 0; i < SEAT_WAYS; i++)
    look_at_seat(w, first + i);
  return w->look.id && give_way(skb, w);
}

/* Tries some seats for w->flow. */
__noinline int try_seats(struct __sk_buff *skb, struct work *w, __u32 scarce) {
  if (!w)
    return 0;
  __u32 first = bpf_get_prandom_u32() & seat_mask & ~(SEAT_WAYS - 1U), seat = free_seat(left_seat, 1);
  if (!seat)
    seat = free_seat(first, SEAT_WAYS);
  if (scarce || !seat) {
    if (!one_gives_way(skb, w, first))
      return 0;
    seat = free_seat(first, SEAT_WAYS);
  }
  take_seat(w, seat);
  return 1;
}

/* Finds w->flow a seat, and has another flow give way if there is none, or `scarce`: if there is no place in
 * the table for it. False: there is no place. */
__noinline int make_way(struct __sk_buff *skb, struct work *w, __u32 scarce) {
  if (!w)
    return 0;
  w->flow.seat = 0;
  for (int i = 0; i < SEAT_ROUNDS; i++) {
    if (try_seats(skb, w, scarce))
      return 1;
  }
  return !scarce;
}

/* Puts w->flow into the table, where nothing else is of its connection. False: there is something, or no
 * place. */
__noinline int put_flow(struct __sk_buff *skb, struct work *w, __u32 scarce) {
  struct work *own = w ? work_in_map(w) : NULL;
  struct room *r = w ? room_of(w->flow.room) : NULL;
  struct pool *p = the_pool();
  if (!own || !r || !p || find_by_key(&flows, &w->key) || !make_way(skb, w, scarce || are_reserved(p)))
    return 0;
  if (!bpf_map_update_elem(&flows, &own->key, &own->flow, BPF_NOEXIST)) {
    count_flow(r, p, 1);
    return 1;
  }
  leave_seat(w->flow.seat, w->flow.id);
  return 0;
}

/* Whether the connection's flow has given way, and the stack has had nothing of its client since. */
__noinline int is_parked(struct __sk_buff *skb, struct work *w) {
  struct bpf_sock *sk = w ? look_up(skb, &w->key) : NULL;
  if (!sk)
    return 0;
  const struct parked *p = bpf_sk_storage_get(&parked_sockets, sk, NULL, 0);
  bool parked = p && p->is && p->next == w->socket.sequence;
  bpf_sk_release(sk);
  return parked;
}

/* Data of a connection whose flow has given way. What it is said to begin with is a request, whatever it
 * looks like: nothing of it has gone by. */
static __always_inline int on_parked(struct __sk_buff *skb, struct work *w) {
  const struct endpoint *sock = &w->socket;
  const struct segment *s = &w->s;
  if (before(sock->sequence, s->seq))
    return drop(REASON_GAP);
  if (before(s->seq, sock->sequence))
    return before(sock->sequence, s->seq + s->length) ? pass_until(skb, w, sock->sequence) : TCX_NEXT;
  if (w->flow.protocol == PROTOCOL_HTTP && before(s->ack, sock->written))
    return drop(REASON_PIPELINED);
  if (before(sock->written, s->ack))
    return drop(REASON_FORGED);
  return is_outdated(skb, w) ? drop(REASON_OUTDATED) : STEP_FIRST_REQUEST;
}
