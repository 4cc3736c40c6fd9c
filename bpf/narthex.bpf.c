/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Narthex's data path. docs/architecture.md says what stands where. */
#include "headers/kernel.h"

#include "headers/bpf/bpf_helpers.h"

#include "headers/bpf/bpf_endian.h"

#include "hooks/egress.h"
#include "hooks/ingress.h"
#include "hooks/sock.h"
#include "hooks/syn.h"

SEC("xdp.frags")
int narthex_xdp_syn(struct xdp_md *ctx) { return xdp_syn(ctx); }

SEC("tcx/ingress")
int narthex_tcx_syn(struct __sk_buff *skb) { return tcx_syn(skb); }

SEC("tcx/ingress")
int narthex_gate_in(struct __sk_buff *skb) { return gate_ingress(skb); }

SEC("tcx/egress")
int narthex_gate_out(struct __sk_buff *skb) { return gate_egress(skb); }

/* How often a tick attends to a room: as many requests as this times MAX_KICKS. */
#define TICK_ROUNDS 16

__noinline int attend_fully(struct __sk_buff *skb, __u32 slot) {
  for (int i = 0; i < TICK_ROUNDS; i++)
    if (attend(skb, slot) < MAX_KICKS)
      return 0;
  return 0;
}

/* Run by the daemon, on no packet of anybody's. */
SEC("tc")
int narthex_gate_tick(struct __sk_buff *skb) {
  struct image im;
  struct work *w = enter_run();
  if (w) {
    for (int i = 0; i < TICK_ROUNDS && look_round(skb, w) == MAX_LOOKS; i++)
      ;
    leave_run();
  }
  const struct header *h = open_image(&im);
  if (!h)
    return TCX_NEXT;
  for (__u32 slot = 0; slot < MAX_SERVICES && slot < h->room_count; slot++)
    attend_fully(skb, slot);
  return TCX_NEXT;
}

/* Run by the daemon: cb[0] is the slot of a service, cb[1] that of a class, which starts anew. */
SEC("tc")
int narthex_gate_reset(struct __sk_buff *skb) {
  struct room *r = room_of(skb->cb[0]);
  if (r)
    reset_class(r, skb->cb[1]);
  return TCX_NEXT;
}

/* Run by the daemon on a struct control in place of a frame: cb[0] is the slot of the service that it is for.
 */
SEC("tc")
int narthex_gate_steer(struct __sk_buff *skb) {
  struct control c;
  struct scene sc;
  if (!open_scene(&sc, skb->cb[0]) || bpf_skb_load_bytes(skb, 0, &c, sizeof(c)))
    return TCX_DROP;
  __u64 now = bpf_ktime_get_ns();
  bpf_spin_lock(&sc.room->lock);
  sc.room->control = c;
  sc.room->limit = limit_of(sc.room, sc.config, now);
  advance(sc.room, sc.config, now);
  bpf_spin_unlock(&sc.room->lock);
  return TCX_NEXT;
}

/* Run by the daemon on a flow's key in place of a frame: forgets the flow if its connection is
 * no more. */
SEC("tc")
int narthex_gate_sweep(struct __sk_buff *skb) {
  struct work *w = enter_run();
  if (!w)
    return TCX_NEXT;
  if (!bpf_skb_load_bytes(skb, 0, &w->key, sizeof(w->key)))
    forget_old(skb, w);
  leave_run();
  return TCX_NEXT;
}

SEC("tp_btf/inet_sock_set_state")
int narthex_sock_state(__u64 *ctx) {
  if (!ends_anything(ctx))
    return 0;
  note_change(ctx);
  return sock_state(ctx);
}

SEC("tp_btf/inet_sock_set_state")
int narthex_sock_missed(__u64 *ctx) { return ends_anything(ctx) && !was_noted(ctx) ? sock_state(ctx) : 0; }

SEC("cgroup/sock_release")
int narthex_sock_release(struct bpf_sock *sk) { return sock_release(sk); }

SEC("sockops")
int narthex_sockops(struct bpf_sock_ops *ops) { return sock_ops(ops); }

/* "Dual BSD/GPL" is how the kernel spells the licence of the SPDX line. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Types that appear in no map's definition, named so that they are in the BTF from which
 * Go's are generated. */
const struct page *const btf_page __attribute__((unused));
const enum reason *const btf_reason __attribute__((unused));
const enum action *const btf_action __attribute__((unused));
const enum reject *const btf_reject __attribute__((unused));
const enum service_end *const btf_service_end __attribute__((unused));
const enum protocol *const btf_protocol __attribute__((unused));
const struct slot *const btf_slot __attribute__((unused));
const struct match *const btf_match __attribute__((unused));
const struct match_entry *const btf_match_entry __attribute__((unused));
const struct match_field *const btf_match_field __attribute__((unused));
const struct match_node *const btf_match_node __attribute__((unused));
const struct pattern *const btf_pattern __attribute__((unused));
const struct request_guard *const btf_request_guard __attribute__((unused));
const struct roots *const btf_roots __attribute__((unused));
const enum rule_kind *const btf_rule_kind __attribute__((unused));
const enum over *const btf_over __attribute__((unused));
const enum when *const btf_when __attribute__((unused));
const enum event_kind *const btf_event_kind __attribute__((unused));
const enum mirror_fate *const btf_mirror_fate __attribute__((unused));
const struct event *const btf_event __attribute__((unused));
