/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The SYN of a connection to a service with a waiting room. */
#pragma once
#include "gate/brief.h"

/* Takes options out of a SYN that would open ways past the gate: a second subflow (MPTCP,
 * RFC 8684), a connection that is established at once (TFO, RFC 7413). */
#define OPTION_FAST_OPEN 34
#define OPTION_MPTCP 30

/* TFO from before it had a number of its own (RFC 6994), which the kernel still takes. */
#define OPTION_EXPERIMENT 254
#define EXPERIMENT_FAST_OPEN 0xf989

/* Of the options in w->chunk, of so many bytes, makes the one at a place into no operations, if it opens
 * ways; w->used: 1 then. Returns where the next is; 0: there are no more. */
__noinline int strip_option(struct work *w, __u32 at, __u32 size) {
  if (!w || at + 1 >= size || size > MAX_OPTIONS)
    return 0;
  __u8 *o = w->chunk.byte;
  __u8 kind = o[at & 63], length = o[(at + 1) & 63];
  if (kind == 1)
    return at + 1;
  if (kind == 0 || length < 2)
    return 0;
  __u32 number = o[(at + 2) & 63] << 8 | o[(at + 3) & 63];
  bool opens = kind == OPTION_EXPERIMENT ? length >= 4 && number == EXPERIMENT_FAST_OPEN
                                         : kind == OPTION_MPTCP || kind == OPTION_FAST_OPEN;
  w->used |= opens;
  for (__u32 i = 0; opens && i < MAX_OPTIONS; i++) {
    if (i >= length || at + i >= size)
      break;
    o[text_opaque(at + i) & 63] = 1; /* no operation */
  }
  return at + length;
}

/* Takes them out of those in w->chunk, which are so many bytes from `start` on. */
__noinline int strip_options(struct __sk_buff *skb, struct work *w, __u32 start, __u32 size) {
  __u8 before_it[MAX_OPTIONS];
  __u32 at = 0;
  if (!w)
    return 0;
  size = BOUND(size, MAX_OPTIONS);
  w->used = 0;
  __builtin_memcpy(before_it, w->chunk.byte, MAX_OPTIONS);
  for (int i = 0; i < MAX_OPTIONS; i++) {
    at = strip_option(w, at, size);
    if (!at)
      break;
  }
  if (!w->used)
    return 0;
  __s64 diff = bpf_csum_diff((void *)before_it, MAX_OPTIONS, (void *)w->chunk.byte, MAX_OPTIONS, 0);
  if (bpf_skb_store_bytes(skb, start, w->chunk.byte, AMOUNT(size, MAX_OPTIONS), 0) ||
      bpf_l4_csum_replace(skb, w->s.l4 + 16, 0, diff, 0))
    count_reason(REASON_CLONE_FAULT, false, false);
  return 0;
}

/* Not 0: one of eight bytes is that one. */
static __always_inline __u64 has_byte(__u64 bytes, __u8 byte) {
  bytes ^= HTTP_EACH(byte);
  return (bytes - HTTP_EACH(1)) & ~bytes & HTTP_EACH(0x80);
}

/* Few SYNs have a byte that could be the kind of such an option. */
static __always_inline bool may_open_ways(const struct work *w) {
  const http_u64 *options = (const http_u64 *)w->chunk.byte;
  __u64 may = 0;
  for (int i = 0; i < MAX_OPTIONS / 8; i++)
    may |= has_byte(options[i], OPTION_MPTCP) | has_byte(options[i], OPTION_FAST_OPEN) |
           has_byte(options[i], OPTION_EXPERIMENT);
  return may;
}

static __always_inline void strip_syn(struct __sk_buff *skb, struct work *w) {
  __u32 start = w->s.l4 + sizeof(struct tcphdr), size = BOUND(w->s.data - start, MAX_OPTIONS);
  __builtin_memset(w->chunk.byte, 0, MAX_OPTIONS);
  if (w->s.data <= start || !size || bpf_skb_load_bytes(skb, start, w->chunk.byte, AMOUNT(size, MAX_OPTIONS)))
    return;
  if (may_open_ways(w))
    strip_options(skb, w, start, size);
}

/* Whether a flow that does not wait is left of a connection that is no more. A SYN cookie's may be on its way
 * to the listener, perhaps again, or is put before it again as long as there is a slot with it. One that the
 * listener has dropped comes again, if its client does, and takes its turn as if it had not come before. */
static __always_inline bool is_over(const struct flow *f, int state, __u64 now) {
  if (state == BPF_TCP_LISTEN)
    return !(f->flags & FLOW_COOKIE) || (!f->node && !f->moves && now - f->since >= ON_ITS_WAY);
  return state == 0 || state == BPF_TCP_TIME_WAIT;
}

/* Whether the request of a SYN cookie may be on its way to the listener, perhaps again, or is put before it
 * again: whoever looks at the flow when its time comes sees when that ends. */
static __always_inline bool is_arriving(const struct flow *f, __u64 now) {
  if (!(f->flags & FLOW_COOKIE) || f->state != FLOW_SERVED)
    return false;
  return now - f->since < ON_ITS_WAY || (f->watched && (f->node || f->moves));
}

/* Whether no socket is left of a connection. */
static __always_inline bool is_gone(int state) {
  return state == 0 || state == BPF_TCP_LISTEN || state == BPF_TCP_TIME_WAIT;
}

/* Ends a short form whose connection is no more, by way of the long one. */
static __always_inline void end_old_brief(struct work *w, struct brief_flow *b) {
  struct pool *p = the_pool();
  if (!lengthen(w, b) && b->since == BRIEF_GONE && p) /* another CPU deletes it, or could not */
    delete_brief(p, &w->key);
}

/* A new connection begins where the table may still have one whose end was missed. Returns whether it had
 * one. */
__noinline int forget_old(struct __sk_buff *skb, struct work *w) {
  struct endpoint sock = {};
  if (!w)
    return 0;
  struct brief_flow *b = find_brief(&w->key);
  if (b && is_gone(find_socket(skb, &w->key, &sock)))
    end_old_brief(w, b);
  struct flow *f = find_by_key(&flows, &w->key);
  if (!f)
    return b != NULL;
  __u64 id = f->id;
  if (!id) /* another CPU deletes it, or could not */
    delete_by_key(&flows, &w->key);
  if (!id || f->state == FLOW_HELD || f->state == FLOW_GATHERING)
    return 1;
  int state = find_socket(skb, &w->key, &sock);
  __u64 now = bpf_ktime_get_ns();
  if (is_arriving(f, now) && state == BPF_TCP_LISTEN)
    return 1;
  if (is_gone(state))
    delete_flow(&w->key, f, NULL, id, now);
  return 1;
}

/* Answers the SYN of a connection that exists as a stack does (RFC 5961, 4). A client that has forgotten the
 * connection resets it, and its next SYN begins another; to any other client the answer is a repetition.
 * `sent`, `got`: the sequence numbers that the server and the client go on with; `length`: of the frame in
 * the connection's slot. Returns a verdict. */
static __always_inline int tell_expected(struct __sk_buff *skb, struct work *w, __u32 sent, __u32 got,
                                         __u32 length) {
  count_reason(REASON_FORGED, true, false);
  w->s.ack = sent;
  return acknowledge(skb, w, got, length);
}

/* Whether the connection has a request socket. The kernel gives one up for another SYN within its window.
 * Sets w->socket to it. */
static __always_inline bool has_request_socket(struct __sk_buff *skb, struct work *w) {
  struct bpf_sock *sk = look_up(skb, &w->key);
  if (!sk)
    return false;
  bool has = sk->state == BPF_TCP_NEW_SYN_RECV;
  bpf_sk_release(sk);
  return has && find_socket(skb, &w->key, &w->socket) == BPF_TCP_NEW_SYN_RECV;
}

/* Keeps a connection that waits from being ended by a SYN. Of a SYN cookie that is held, or on its way to the
 * listener, nothing would be left beside a new request socket. Returns a verdict. */
__noinline int keep_waiting(struct __sk_buff *skb, struct work *w, __u32 known) {
  if (!w)
    return TCX_NEXT;
  const struct flow *f = known ? find_by_key(&flows, &w->key) : NULL;
  bool waits = f && (f->state == FLOW_HELD || f->state == FLOW_GATHERING);
  bool opens = waits && f->flags & (FLOW_NEW | FLOW_COOKIE);
  const struct slot *slot = opens ? slot_of(f->node) : NULL;
  if (f && !slot && is_arriving(f, bpf_ktime_get_ns()))
    return drop(REASON_FORGED);
  bool cookie = slot && f->flags & FLOW_COOKIE;
  if (!cookie && (!has_request_socket(skb, w) || w->s.seq + 1 == w->socket.sequence))
    return TCX_NEXT;
  w->flow.flags = f ? f->flags : 0;
  return slot ? tell_expected(skb, w, slot->acknowledged, slot->sequence, slot->length)
              : tell_expected(skb, w, w->socket.answer, w->socket.sequence, w->s.data);
}
