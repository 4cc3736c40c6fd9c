/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What happens to the server's sockets: their end, and what is set on them. */
#pragma once
#include "../lib/classify.h"
#include "../lib/socket.h"

/* Requests in service whose client has reset the connection. Key: cookie of the server's
 * socket. Written when the socket is reset, deleted when the server closes it. The least
 * recently used is evicted: it leaves service at its deadline. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 4096);
  __type(key, __u64);
  __type(value, struct haunted);
} ghosts SEC(".maps");

static __always_inline bool is_mapped(const struct in6_addr *a) {
  return !a->in6_u.u6_addr32[0] && !a->in6_u.u6_addr32[1] && a->in6_u.u6_addr32[2] == bpf_htonl(0xffff);
}

static __always_inline void key_address(__u64 to[2], const struct in6_addr *a) {
  to[0] = word(a->in6_u.u6_addr32[0], a->in6_u.u6_addr32[1]);
  to[1] = word(a->in6_u.u6_addr32[2], a->in6_u.u6_addr32[3]);
}

/* A socket's port, also when it has given it back: then skc_num is 0 already. */
static __always_inline __u16 port_of(const struct sock *sk) {
  const struct inet_sock *i = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct inet_sock));
  return bpf_ntohs(i->inet_sport);
}

static __always_inline void socket_key(struct flow_key *k, const struct sock *sk) {
  const struct sock_common *c = &sk->__sk_common;
  *k = (struct flow_key){.peer_port = bpf_ntohs(c->skc_dport), .local_port = port_of(sk)};
  if (c->skc_family == AF_INET || is_mapped(&c->skc_v6_daddr)) {
    k->peer[0] = word(c->skc_daddr, 0);
    k->local[0] = word(c->skc_rcv_saddr, 0);
    return;
  }
  k->v6 = 1;
  key_address(k->peer, &c->skc_v6_daddr);
  key_address(k->local, &c->skc_v6_rcv_saddr);
}

/* Ends a flow with its socket. A request in service whose client has reset the connection
 * goes on being counted. */
static __always_inline void end_with_socket(const struct flow_key *key, struct flow *f, bool was_reset,
                                            __u64 cookie) {
  struct room *r = room_of(f->room);
  struct pool *p = the_pool();
  if (!r || !p)
    return;
  struct haunted h = {.room = f->room};
  __u64 now = bpf_ktime_get_ns(), id = f->id;
  bool haunts = false;
  bpf_spin_lock(&r->lock);
  if (was_reset && f->id == id && f->state == FLOW_SERVED && !(f->flags & FLOW_ANSWERED) && cookie) {
    h.number = haunt(r, f->class, f->epoch, cookie, now);
    f->state = FLOW_IDLE;
    haunts = true;
  }
  bpf_spin_unlock(&r->lock);
  if (haunts)
    bpf_map_update_elem(&ghosts, &cookie, &h, BPF_ANY);
  delete_flow(key, f, id, now);
}

/* tp_btf/inet_sock_set_state: sk, old state, new state. */
static __always_inline int sock_state(__u64 *ctx) {
  const struct sock *sk = (void *)ctx[0];
  if ((int)ctx[2] != BPF_TCP_CLOSE || !is_gate_port(port_of(sk)))
    return 0;
  if (sk->__sk_common.skc_net.net->net_cookie != net_cookie)
    return 0;
  struct flow_key key;
  socket_key(&key, sk);
  struct flow *f = bpf_map_lookup_elem(&flows, &key);
  if (f)
    end_with_socket(&key, f, sk->sk_err != 0, bpf_get_socket_cookie((void *)ctx[0]));
  return 0;
}

/* cgroup/sock_release: a process has closed a socket. */
static __always_inline int sock_release(void *ctx) {
  __u64 cookie = bpf_get_socket_cookie(ctx);
  struct haunted *h = bpf_map_lookup_elem(&ghosts, &cookie);
  if (!h)
    return 1;
  struct room *r = room_of(h->room);
  if (!r)
    return 1;
  struct ghost *g = &r->ghost[h->number % GHOSTS];
  bpf_spin_lock(&r->lock);
  if (g->cookie == cookie)
    lay(r, g);
  bpf_spin_unlock(&r->lock);
  bpf_map_delete_elem(&ghosts, &cookie);
  return 1;
}

/* sockops: a connection is established at the server's side. */
static __always_inline int sock_established(struct bpf_sock_ops *ops) {
  if (ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB || !is_gate_port(ops->local_port) ||
      bpf_get_netns_cookie(ops) != net_cookie)
    return 1;
  struct flow_key key = {.peer_port = bpf_ntohl(ops->remote_port), .local_port = ops->local_port};
  if (ops->family == AF_INET ||
      (!ops->remote_ip6[0] && !ops->remote_ip6[1] && ops->remote_ip6[2] == bpf_htonl(0xffff))) {
    key.peer[0] = word(ops->remote_ip4, 0);
    key.local[0] = word(ops->local_ip4, 0);
  } else {
    key.v6 = 1;
    key.peer[0] = word(ops->remote_ip6[0], ops->remote_ip6[1]);
    key.peer[1] = word(ops->remote_ip6[2], ops->remote_ip6[3]);
    key.local[0] = word(ops->local_ip6[0], ops->local_ip6[1]);
    key.local[1] = word(ops->local_ip6[2], ops->local_ip6[3]);
  }
  struct flow *f = bpf_map_lookup_elem(&flows, &key);
  if (!f)
    return 1;
  int priority = f->socket_priority, mark = f->mark;
  if (priority)
    bpf_setsockopt(ops, SOL_SOCKET, SO_PRIORITY, &priority, sizeof(priority));
  if (mark)
    bpf_setsockopt(ops, SOL_SOCKET, SO_MARK, &mark, sizeof(mark));
  return 1;
}
