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
int narthex_sock_state(__u64 *ctx) { return sock_state(ctx); }

SEC("cgroup/sock_release")
int narthex_sock_release(struct bpf_sock *sk) { return sock_release(sk); }

SEC("sockops")
int narthex_sockops(struct bpf_sock_ops *ops) { return sock_established(ops); }

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
