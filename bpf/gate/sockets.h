/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What happens to the server's sockets: their end, and what is set on them. */
#pragma once
#include "compat/jiffies.h"
#include "gate/socket.h"
#include "observe/counters.h"
#include "policy/image.h"
#include "room/above.h"
#include "room/brief.h"
#include "room/connections.h"
#include "room/ghosts.h"

/* Of SYN-ACKs, ms. */
#define USUAL_TIMEOUT 1000

static __always_inline bool is_mapped(const struct in6_addr *a) {
  return !a->in6_u.u6_addr32[0] && !a->in6_u.u6_addr32[1] && a->in6_u.u6_addr32[2] == bpf_htonl(0xffff);
}

static __always_inline void key_address(__u64 to[2], const struct in6_addr *a) {
  to[0] = word(a->in6_u.u6_addr32[0], a->in6_u.u6_addr32[1]);
  to[1] = word(a->in6_u.u6_addr32[2], a->in6_u.u6_addr32[3]);
}

/* A socket's port, also when it has given it back: then skc_num is 0 already. */
static __always_inline __u16 port_of(const struct sock *sk) {
  bool direct = has_casts;
  struct inet_sock *i = KERNEL_OBJECT(direct, sk, struct inet_sock);
  return bpf_ntohs(KERNEL_FIELD(direct, i, inet_sport));
}

static __always_inline void socket_key(struct flow_key *k, const struct sock *sk) {
  const struct sock_common *c = &sk->__sk_common;
  __builtin_memset(k, 0, sizeof(*k));
  k->peer_port = bpf_ntohs(c->skc_dport);
  k->local_port = port_of(sk);
  if (c->skc_family == AF_INET || is_mapped(&c->skc_v6_daddr)) {
    k->peer[0] = word(c->skc_daddr, 0);
    k->local[0] = word(c->skc_rcv_saddr, 0);
    return;
  }
  k->v6 = 1;
  key_address(k->peer, &c->skc_v6_daddr);
  key_address(k->local, &c->skc_v6_rcv_saddr);
}

/* Whether the server works on the flow's request, or waits for its body. */
static __always_inline bool has_request(const struct flow *f) {
  return f->state == FLOW_SERVED || (f->state == FLOW_PAUSED && f->places);
}

/* The client has reset the connection of a request in service, which goes on being counted; of one that has
 * paused, by limits alone. */
static __always_inline void leave_ghost(struct flow *f, __u64 id, __u64 cookie) {
  struct room *r = room_of(f->room);
  struct pool *p = the_pool();
  if (!r)
    return;
  struct ghost g = {.room = f->room};
  bool haunts = false;
  bpf_spin_lock(&r->lock);
  if (f->id == id && has_request(f)) {
    g.class = f->class;
    g.epoch = f->state == FLOW_SERVED ? f->epoch : r->epoch - EPOCHS;
    g.line = f->line;
    g.owner = f->owner;
    g.since = f->since;
    g.places = f->places;
    f->places = 0;
    f->state = FLOW_IDLE;
    haunts = true;
  }
  bpf_spin_unlock(&r->lock);
  if (!haunts)
    return;
  if (bpf_map_update_elem(&ghosts, &cookie, &g, BPF_ANY))
    leave_places(p, g.places);
  else
    __sync_fetch_and_add(&p->ghosts, 1);
}

/* The server has closed its side, and is done with the request. Its FIN may come much later, behind bytes
 * that the client does not acknowledge. */
static __always_inline void end_with_server(struct flow *f, __u64 id) {
  struct room *r = room_of(f->room);
  struct pool *p = the_pool();
  __u64 now = bpf_ktime_get_ns();
  if (!r)
    return;
  bpf_spin_lock(&r->lock);
  if (f->id == id && f->state == FLOW_SERVED)
    end_service(r, p, f, now);
  bpf_spin_unlock(&r->lock);
}

/* What ends a connection: the server has closed it, or the stack is done with it. Of what is said, the kernel
 * tells the state that the socket is about to have, or has. */
static __always_inline bool ends_anything(int state) {
  return state == BPF_TCP_CLOSE || state == BPF_TCP_FIN_WAIT1 || state == BPF_TCP_LAST_ACK;
}

/* Whether a socket was ended by its client, or for what that has not acknowledged. */
static __always_inline bool has_failed(const void *socket) {
  bool direct = has_casts;
  struct sock *sk = KERNEL_OBJECT(direct, socket, struct sock);
  return KERNEL_FIELD(direct, sk, sk_err);
}

/* The client has reset the connection of a request in service since then, of a flow in short form that was
 * claimed: as leave_ghost(). */
static __always_inline void haunt_brief(const struct brief_flow *b, struct pool *p, __u64 since,
                                        __u64 cookie) {
  struct room *r = room_of(b->room);
  struct ghost g = {.room = b->room, .class = b->class, .since = since};
  if (!r)
    return;
  bpf_spin_lock(&r->lock);
  g.epoch = enter_from_brief(r, g.class);
  bpf_spin_unlock(&r->lock);
  forget_brief(r, g.class);
  if (!bpf_map_update_elem(&ghosts, &cookie, &g, BPF_ANY))
    __sync_fetch_and_add(&p->ghosts, 1);
}

/* find_brief() with a key in the stack. */
static __always_inline struct brief_flow *brief_of(const struct flow_key *key) {
  const struct pool *p = the_pool();
  return p && p->briefs ? bpf_map_lookup_elem(&brief_flows, key) : NULL;
}

/* Claims the short form of a connection that ends. False: its request has begun or ended meanwhile. */
static __always_inline bool close_brief(struct brief_flow *b, struct pool *p, struct room *r, bool failed,
                                        __u64 cookie) {
  __u64 since = b->since;
  if (since && since != BRIEF_GONE && !failed)
    return end_brief(r, b, since, BRIEF_GONE);
  if (!claim_brief(b, since))
    return false;
  if (since)
    haunt_brief(b, p, since, cookie);
  return true;
}

/* As follow_change(), of a flow in short form. */
static __always_inline void follow_brief(void *ctx, const struct flow_key *key, const void *sk, int state) {
  struct pool *p = the_pool();
  struct brief_flow *b = brief_of(key);
  struct room *r = b ? room_of(b->room) : NULL;
  if (!p || !r)
    return;
  if (state != BPF_TCP_CLOSE) {
    __u64 since = b->since;
    if (since && since != BRIEF_GONE)
      end_brief(r, b, since, 0);
    return;
  }
  bool failed = has_failed(sk);
  __u64 cookie = bpf_get_socket_cookie(ctx);
  if (!close_brief(b, p, r, failed, cookie) && !close_brief(b, p, r, failed, cookie))
    return;
  if (!bpf_map_delete_elem(&brief_flows, key))
    __sync_fetch_and_add(&p->briefs, -1);
}

/* The socket of a connection comes to one of those states. `ctx` has its cookie. */
static __always_inline void follow_change(void *ctx, const struct flow_key *key, const void *sk, int state) {
  follow_brief(ctx, key, sk, state);
  struct flow *f = bpf_map_lookup_elem(&flows, key);
  if (!f)
    return;
  __u64 id = f->id;
  __u32 slot = f->room;
  bool closes = state != BPF_TCP_CLOSE;
  bool served = f->state == FLOW_SERVED; /* else the server has no request, or has answered it */
  if (served && closes)
    end_with_server(f, id);
  else if (has_request(f) && has_failed(sk))
    leave_ghost(f, id, bpf_get_socket_cookie(ctx));
  if (!closes)
    delete_flow(key, f, NULL, id, bpf_ktime_get_ns());
  tell_above(slot);
}

/* A change of a socket's state. */
struct state_change {
  __u64 sk;
  __u64 state;
};

/* Key 0; value: the last change that narthex_sock_state has begun with on this CPU. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct state_change);
} state_changes SEC(".maps");

/* A tracing program is left out where it would run within itself: when a packet comes in while it runs for a
 * process that closes a socket. So it is attached twice, as two programs: at least one of them sees each
 * change. The first notes what it has seen, the second sees to what it has not. */
static __always_inline void note_change(const __u64 *ctx) {
  __u32 zero = 0;
  struct state_change *c = bpf_map_lookup_elem(&state_changes, &zero);
  if (c)
    *c = (struct state_change){ctx[0], ctx[2]};
}

static __always_inline bool was_noted(const __u64 *ctx) {
  __u32 zero = 0;
  const struct state_change *c = bpf_map_lookup_elem(&state_changes, &zero);
  return c && c->sk == ctx[0] && c->state == ctx[2];
}

/* tp_btf/inet_sock_set_state: sk, old state, new state. For sockets that do not call sockops. */
static __always_inline int trace_change(__u64 *ctx) {
  const struct sock *sk = (void *)ctx[0];
  struct flow_key key;
  if (!is_gate_port(port_of(sk)) || sk->__sk_common.skc_net.net->net_cookie != net_cookie)
    return 0;
  socket_key(&key, sk);
  follow_change((void *)ctx[0], &key, sk, ctx[2]);
  return 0;
}

static __always_inline int sock_state(__u64 *ctx) {
  if (!ends_anything(ctx[2]))
    return 0;
  note_change(ctx);
  return trace_change(ctx);
}

static __always_inline int sock_missed(__u64 *ctx) {
  return ends_anything(ctx[2]) && !was_noted(ctx) ? trace_change(ctx) : 0;
}

/* iter/tcp. Says a byte for each socket of a server that is older than sockops: nothing but the tracepoints
 * tells of its end. */
static __always_inline int sock_older(struct bpf_iter__tcp *ctx) {
  const char older = 1;
  struct sock_common *c = ctx->sk_common;
  const struct tcp_sock *t = c ? bpf_skc_to_tcp_sock(c) : NULL;
  if (!t || c->skc_state == BPF_TCP_LISTEN || c->skc_state == BPF_TCP_CLOSE || !is_gate_port(c->skc_num) ||
      c->skc_net.net->net_cookie != net_cookie)
    return 0;
  if (!(t->bpf_sock_ops_cb_flags & BPF_SOCK_OPS_STATE_CB_FLAG))
    bpf_seq_write(ctx->meta->seq, &older, sizeof(older));
  return 0;
}

/* tp_btf/tcp_destroy_sock: sk. The socket ends: the process has closed it, or the listener has ended from
 * whose accept queue nobody has taken it. The kernel has soft interrupts off, so that this does not run
 * within itself. */
static __always_inline int sock_release(__u64 *ctx) {
  struct pool *p = the_pool();
  __u64 *places = bpf_sk_storage_get(&socket_places, (void *)ctx[0], NULL, 0);
  if (places)
    leave_places(p, take_over(places));
  if (!p->ghosts)
    return 0;
  if (!is_gate_port(port_of((void *)ctx[0])))
    return 0;
  __u64 cookie = bpf_get_socket_cookie((void *)ctx[0]);
  const struct ghost *g = bpf_map_lookup_elem(&ghosts, &cookie);
  if (!g)
    return 0;
  __u32 slot = g->room;
  end_ghost(g);
  tell_above(slot);
  if (!bpf_map_delete_elem(&ghosts, &cookie))
    __sync_fetch_and_add(&p->ghosts, -1);
  return 0;
}

/* Volatile, for no two words may be read as one. */
static __always_inline void ops_packet(struct packet *p, const volatile struct bpf_sock_ops *ops) {
  p->sport = bpf_ntohl(ops->remote_port);
  p->dport = ops->local_port;
  p->has_ports = 1;
  p->v6 = ops->family == AF_INET6 &&
          (ops->remote_ip6[0] || ops->remote_ip6[1] || ops->remote_ip6[2] != bpf_htonl(0xffff));
  if (!p->v6) {
    p->src[0] = word(ops->remote_ip4, 0);
    p->dst[0] = word(ops->local_ip4, 0);
    return;
  }
  p->src[0] = word(ops->remote_ip6[0], ops->remote_ip6[1]);
  p->src[1] = word(ops->remote_ip6[2], ops->remote_ip6[3]);
  p->dst[0] = word(ops->local_ip6[0], ops->local_ip6[1]);
  p->dst[1] = word(ops->local_ip6[2], ops->local_ip6[3]);
}

struct socket_setting {
  int priority; /* SO_PRIORITY; 0: none */
  int mark;     /* SO_MARK; 0: none */
};

/* Counts a connection of a service, unless both ends are on this machine. */
static __always_inline void count_connection(const struct packet *p, __u32 slot) {
  bool loops = !p->v6 && p->src[0] >> 56 == 127;
  if (loops || (p->src[0] == p->dst[0] && p->src[1] == p->dst[1]))
    return;
  __u64 *n = bpf_map_lookup_elem(&connection_counts, &slot);
  if (n)
    ++*n;
}

/* What the policy says of a connection whose first request is not known yet. */
static __always_inline void read_setting(struct socket_setting *to, const struct packet *p) {
  struct image im;
  const struct header *h = open_image(&im);
  const struct service *service = h ? find_service(&im, h, p) : NULL;
  if (!service || !service->gate)
    return;
  count_connection(p, service->slot);
  const struct room_config *c = room_config(&im, h, service->slot);
  const struct rule *rule = find_rule(&im, service, c, p, listed_in(h, p));
  if (!c || (rule && rule->action == ACTION_PASS))
    return;
  __u32 rank = source_rank(c, rule, p);
  to->priority = c->rank[rank].socket_priority;
  to->mark = socket_mark(c, rank);
}

/* sockops: how long a SYN-ACK is waited for before it is sent again. The kernel gives up a connection whose
 * SYN-ACK it cannot send again, the queue being full, as in a flood: none is to be sent while a request may
 * wait. Who has lost it sends his SYN again after a second, and gets another at once. */
static __always_inline void syn_ack_timeout(struct bpf_sock_ops *ops) {
  struct image im;
  const struct header *h = open_image(&im);
  __u32 timeout = h && h->longest_wait > USUAL_TIMEOUT ? jiffies_in(h->longest_wait) : 0;
  if (timeout)
    ops->reply = timeout;
}

/* Moves the places of a connection into its socket's storage. Without memory for that they are given back:
 * our fault, which is counted. */
static __always_inline void keep_in_socket(struct bpf_sock_ops *ops, const struct flow_key *key) {
  struct opening *o = bpf_map_lookup_elem(&openings, key);
  struct bpf_sock *sk = (void *)(long)ops->sk;
  if (!o || !sk)
    return;
  __u64 *places = bpf_sk_storage_get(&socket_places, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
  if (places)
    *places = take_over(&o->places);
  else
    count_reason(REASON_MAP_FAULT, false, false);
  end_opening(key, o);
}

/* sockops: a connection is established at the server's side. Its socket is to tell of its states from now on,
 * besides what others have asked for. */
static __always_inline void sock_established(struct bpf_sock_ops *ops, const struct packet *p,
                                             const struct flow_key *key) {
  struct socket_setting set = {};
  bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
  keep_in_socket(ops, key);
  struct flow *f = bpf_map_lookup_elem(&flows, key);
  const struct brief_flow *b = f ? NULL : brief_of(key);
  if (f) {
    f->seen_priority = f->socket_priority;
    f->seen_mark = f->mark;
    set = (struct socket_setting){.priority = f->socket_priority, .mark = f->mark};
    count_connection(p, f->room);
  } else if (b) {
    set = (struct socket_setting){.priority = b->socket_priority, .mark = b->mark};
    count_connection(p, b->room);
  } else {
    read_setting(&set, p);
  }
  if (set.priority)
    bpf_setsockopt(ops, SOL_SOCKET, SO_PRIORITY, &set.priority, sizeof(set.priority));
  if (set.mark)
    bpf_setsockopt(ops, SOL_SOCKET, SO_MARK, &set.mark, sizeof(set.mark));
}

/* Whether sockops is to do anything. */
static __always_inline bool concerns_gate(const struct bpf_sock_ops *ops) {
  return ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB ||
         (ops->op == BPF_SOCK_OPS_STATE_CB && ends_anything(ops->args[1])) ||
         (ops->op == BPF_SOCK_OPS_TIMEOUT_INIT && ops->state == BPF_TCP_NEW_SYN_RECV);
}

static __always_inline int sock_ops(struct bpf_sock_ops *ops) {
  struct packet p = {};
  struct flow_key key;
  if (!concerns_gate(ops) || !is_gate_port(ops->local_port) || bpf_get_netns_cookie(ops) != net_cookie)
    return 1;
  if (ops->op == BPF_SOCK_OPS_TIMEOUT_INIT) {
    syn_ack_timeout(ops);
    return 1;
  }
  ops_packet(&p, ops);
  incoming_key(&key, &p);
  /* A socket that is about to be in another state is still found by who looks for it: is_ending(). */
  if (ops->op == BPF_SOCK_OPS_STATE_CB)
    follow_change(ops, &key, (void *)(long)ops->sk, ops->args[1]);
  else
    sock_established(ops, &p, &key);
  return 1;
}
