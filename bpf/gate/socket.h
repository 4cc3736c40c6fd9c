/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the stack knows of a connection. */
#pragma once
#include "compat/cast.h"
#include "gate/work.h"

static __always_inline void make_tuple(struct bpf_sock_tuple *t, const struct flow_key *k) {
  if (!k->v6) {
    t->ipv4.saddr = bpf_htonl(k->peer[0] >> 32);
    t->ipv4.daddr = bpf_htonl(k->local[0] >> 32);
    t->ipv4.sport = bpf_htons(k->peer_port);
    t->ipv4.dport = bpf_htons(k->local_port);
    return;
  }
  for (int i = 0; i < 2; i++) {
    t->ipv6.saddr[2 * i] = bpf_htonl(k->peer[i] >> 32);
    t->ipv6.saddr[2 * i + 1] = bpf_htonl((__u32)k->peer[i]);
    t->ipv6.daddr[2 * i] = bpf_htonl(k->local[i] >> 32);
    t->ipv6.daddr[2 * i + 1] = bpf_htonl((__u32)k->local[i]);
  }
  t->ipv6.sport = bpf_htons(k->peer_port);
  t->ipv6.dport = bpf_htons(k->local_port);
}

/* Connections in an accept queue that are some. */
#define QUEUED 8

/* Reads the listener that a connection is to be accepted from. */
static __always_inline void read_listener(struct endpoint *out, const void *listener, bool direct) {
  struct sock *sk = KERNEL_OBJECT(direct, listener, struct sock);
  __u32 backlog = KERNEL_FIELD(direct, sk, sk_ack_backlog);
  out->crowded = backlog > KERNEL_FIELD(direct, sk, sk_max_ack_backlog); /* as sk_acceptq_is_full() */
  out->queued = backlog >= QUEUED;
  out->orphaned = KERNEL_FIELD(direct, sk, __sk_common.skc_state) != BPF_TCP_LISTEN;
}

/* For how long a timestamp that was seen makes earlier ones old, seconds. */
#define TIMESTAMP_AGE (24 * 24 * 3600)

/* Reads which timestamps an established socket takes: tcp_paws_check(). */
static __always_inline void read_recent(struct endpoint *out, struct tcp_sock *t, bool direct) {
  __u32 now = bpf_ktime_get_ns() / 1000000000, recent = KERNEL_FIELD(direct, t, rx_opt.ts_recent);
  out->times = recent && now - KERNEL_FIELD(direct, t, rx_opt.ts_recent_stamp) < TIMESTAMP_AGE;
  out->recent = recent - 1;
}

/* The same of a request socket, which newer kernels also have look at the echo: tcp_check_req(). */
static __always_inline void read_handshake(struct endpoint *out, struct tcp_request_sock *r, bool direct) {
  out->recent = KERNEL_FIELD(direct, r, req.req.ts_recent);
  out->times = out->recent != 0;
  if (!bpf_core_field_exists(r->snt_tsval_first))
    return;
  out->echo = KERNEL_FIELD(direct, r, snt_tsval_first);
  out->echoes = KERNEL_FIELD(direct, r, snt_tsval_last) - out->echo + 1;
}

/* Whether the client spoke last. The kernel notes when either did in jiffies; of what came within one, the
 * client's was the last if nothing was sent since, not even an acknowledgement. */
static __always_inline bool spoke_last(const struct endpoint *e, __u32 since, bool acknowledged,
                                       bool answered) {
  return !e->silent && (!answered || (__s32)since > 0 || (!since && !acknowledged));
}

/* Whether an established socket is about to be none, of which its flow was told already: its client, or a
 * timer, has ended the connection, or a process is closing it. */
static __always_inline bool is_ending(struct sock *sk, bool direct) {
  return KERNEL_FIELD(direct, sk, sk_err) || KERNEL_FIELD(direct, sk, sk_shutdown) == SHUTDOWN_BOTH;
}

/* Reads the socket of a connection that is established. */
static __always_inline void read_established(struct endpoint *out, const void *sk, bool direct) {
  out->ending = is_ending(KERNEL_OBJECT(direct, sk, struct sock), direct);
  struct tcp_sock *t = KERNEL_OBJECT(direct, sk, struct tcp_sock);
  read_recent(out, t, direct);
  out->sequence = KERNEL_FIELD(direct, t, rcv_nxt);
  out->answer = KERNEL_FIELD(direct, t, snd_nxt);
  __u32 wup = KERNEL_FIELD(direct, t, rcv_wup);
  out->window = wup + KERNEL_FIELD(direct, t, rcv_wnd) - out->sequence;
  out->silent = !KERNEL_FIELD(direct, t, bytes_received);
  out->written = KERNEL_FIELD(direct, t, write_seq);
  out->acked = KERNEL_FIELD(direct, t, snd_una);
  out->gap = KERNEL_FIELD(direct, t, out_of_order_queue.rb_node) != NULL;
  struct inet_connection_sock *c = KERNEL_OBJECT(direct, sk, struct inet_connection_sock);
  __u32 since = KERNEL_FIELD(direct, c, icsk_ack.lrcvtime) - KERNEL_FIELD(direct, t, lsndtime);
  out->owes = spoke_last(out, since, wup == out->sequence, KERNEL_FIELD(direct, t, bytes_sent));
}

/* Reads the socket. Casts, because the helpers for it refuse the request sockets of MPTCP
 * listeners, and the verifier the way to the listener. */
static __always_inline void read_socket(struct endpoint *out, struct bpf_sock *sk) {
  bool direct = has_casts;
  out->state = sk->state;
  if (out->state == BPF_TCP_LISTEN)
    read_listener(out, sk, direct);
  if (out->state == BPF_TCP_ESTABLISHED || out->state == BPF_TCP_CLOSE_WAIT)
    read_established(out, sk, direct);
  if (out->state != BPF_TCP_NEW_SYN_RECV)
    return;
  struct tcp_request_sock *r = KERNEL_OBJECT(direct, sk, struct tcp_request_sock);
  out->sequence = KERNEL_FIELD(direct, r, rcv_isn) + 1;
  out->answer = out->written = KERNEL_FIELD(direct, r, snt_isn) + 1;
  read_handshake(out, r, direct);
  read_listener(out, KERNEL_FIELD(direct, r, req.req.__req_common.skc_listener), direct);
}

/* A bit field of what KERNEL_OBJECT() gave. */
#define KERNEL_BITS(object, field) BPF_CORE_READ_BITFIELD_PROBED(object, field)

/* Scales of windows that are not known, as with SYN cookies: the server's shifts all of it away. */
#define UNKNOWN_SCALE 31

/* What both sides of a socket have agreed on: by how many bits windows are scaled that the server's says,
 * and, shifted, the client's; and whether what has come beyond others may be told. */
#define OWN_SCALE 31
#define PEER_SCALE 5
#define AGREED_SACK (1 << 10)
static __always_inline __u32 read_agreed(struct bpf_sock *sk) {
  bool direct = has_casts;
  if (sk->state == BPF_TCP_ESTABLISHED || sk->state == BPF_TCP_CLOSE_WAIT) {
    struct tcp_sock *t = KERNEL_OBJECT(direct, sk, struct tcp_sock);
    __u32 sack = KERNEL_BITS(t, rx_opt.sack_ok) & 1 ? AGREED_SACK : 0;
    return KERNEL_BITS(t, rx_opt.rcv_wscale) | KERNEL_BITS(t, rx_opt.snd_wscale) << PEER_SCALE | sack;
  }
  if (sk->state != BPF_TCP_NEW_SYN_RECV)
    return UNKNOWN_SCALE;
  struct tcp_request_sock *r = KERNEL_OBJECT(direct, sk, struct tcp_request_sock);
  return KERNEL_BITS(r, req.rcv_wscale) | KERNEL_BITS(r, req.snd_wscale) << PEER_SCALE;
}

static __always_inline struct bpf_sock *look_up(struct __sk_buff *skb, const struct flow_key *k) {
  struct bpf_sock_tuple tuple = {};
  make_tuple(&tuple, k);
  if (k->v6)
    return bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
  return bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
}

/* Finds the socket that a connection's segments go to. */
__noinline int find_socket(struct __sk_buff *skb, const struct flow_key *k, struct endpoint *out) {
  if (!k || !out)
    return 0;
  *out = (struct endpoint){};
  struct bpf_sock *sk = look_up(skb, k);
  if (!sk)
    return 0;
  read_socket(out, sk);
  bpf_sk_release(sk);
  return out->state;
}

/* How deep the tree may be of the segments that a socket keeps beyond others. */
#define MAX_DEPTH 32

/* The leftmost node of a tree. NULL: it is empty, or too deep. */
static __always_inline struct rb_node *leftmost(struct rb_node *node) {
  for (int i = 0; i < MAX_DEPTH && node; i++) {
    struct rb_node *left = NULL;
    bpf_probe_read_kernel(&left, sizeof(left), &node->rb_left);
    if (!left)
      return node;
    node = left;
  }
  return NULL;
}

/* The sequence number of a segment that a socket keeps: the first field of struct tcp_skb_cb. */
static __always_inline __u32 sequence_of(struct rb_node *node) {
  __u32 seq = 0;
  void *skb = (void *)node - bpf_core_field_offset(struct sk_buff, rbnode);
  bpf_probe_read_kernel(&seq, sizeof(seq), skb + bpf_core_field_offset(struct sk_buff, cb));
  return seq;
}

/* Sets w->socket.beyond to where the bytes begin that the stack has beyond a gap. Returns whether that is
 * known: another CPU may change the tree meanwhile. */
__noinline int find_beyond(struct __sk_buff *skb, struct work *w) {
  struct bpf_sock *sk = w && w->socket.gap ? look_up(skb, &w->key) : NULL;
  if (!sk)
    return 0;
  bool direct = has_casts;
  struct tcp_sock *t = KERNEL_OBJECT(direct, sk, struct tcp_sock);
  struct rb_node *node = NULL;
  if (sk->state == BPF_TCP_ESTABLISHED || sk->state == BPF_TCP_CLOSE_WAIT)
    node = leftmost(KERNEL_FIELD(direct, t, out_of_order_queue.rb_node));
  __u32 seq = node ? sequence_of(node) : 0;
  bpf_sk_release(sk);
  w->socket.beyond = seq;
  return node && before(w->socket.sequence, seq);
}

/* The socket that sends a segment; NULL where it is not known. */
static __always_inline struct tcp_sock *sender_of(struct __sk_buff *skb) {
  struct bpf_sock *sk = (void *)skb->sk;
  return sk ? bpf_skc_to_tcp_sock(sk) : NULL;
}

/* What both sides of a connection have agreed on, as read_agreed() has it. */
__noinline int find_agreed(struct __sk_buff *skb, const struct flow_key *k) {
  if (!k)
    return UNKNOWN_SCALE;
  struct bpf_sock *sk = look_up(skb, k);
  if (!sk)
    return UNKNOWN_SCALE;
  __u32 agreed = read_agreed(sk);
  bpf_sk_release(sk);
  return agreed;
}

/* Whether the segment acknowledges a SYN cookie of the listener that it goes to. */
__noinline int is_cookie(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return 0;
  __u32 l3 = BOUND(w->s.l3, MAX_HEADERS), l4 = BOUND(w->s.l4, MAX_HEADERS);
  __u32 ip_size = w->s.p.v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
  void *ip = &w->chunk, *tcp = (void *)&w->chunk + 64;
  if (bpf_skb_load_bytes(skb, l3, ip, ip_size) || bpf_skb_load_bytes(skb, l4, tcp, sizeof(struct tcphdr)))
    return 0;
  struct bpf_sock *sk = look_up(skb, &w->key);
  if (!sk)
    return 0;
  bool valid = sk->state == BPF_TCP_LISTEN &&
               bpf_tcp_check_syncookie(sk, ip, ip_size, tcp, sizeof(struct tcphdr)) == 0;
  bpf_sk_release(sk);
  return valid;
}
