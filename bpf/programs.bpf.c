/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Narthex's programs, and nothing else. docs/architecture.md says what stands where. */
#include "headers/kernel.h"

#include "headers/bpf/bpf_helpers.h"

#include "headers/bpf/bpf_endian.h"

#include "abi/btf.h"
#include "gate/daemon.h"
#include "gate/egress.h"
#include "gate/ingress.h"
#include "gate/sockets.h"
#include "syn/hooks.h"

SEC("xdp.frags")
int narthex_xdp_syn(struct xdp_md *ctx) { return xdp_syn(ctx); }

SEC("tcx/ingress")
int narthex_tcx_syn(struct __sk_buff *skb) { return tcx_syn(skb); }

/* These go on in each other: of one kind, for all that they are attached to different sides. */
SEC("tc")
int narthex_gate_in(struct __sk_buff *skb) { return gate_ingress(skb); }

SEC("tc")
int narthex_gate_decide(struct __sk_buff *skb) { return gate_decide(skb); }

SEC("tc")
int narthex_gate_fingerprint(struct __sk_buff *skb) { return gate_fingerprint(skb); }

SEC("tc")
int narthex_gate_out(struct __sk_buff *skb) { return gate_egress(skb); }

SEC("tc")
int narthex_gate_attend(struct __sk_buff *skb) { return gate_attend(skb); }

SEC("tc")
int narthex_gate_tick(struct __sk_buff *skb) { return gate_tick(skb); }

SEC("tc")
int narthex_gate_reset(struct __sk_buff *skb) { return gate_reset(skb); }

SEC("tc")
int narthex_gate_steer(struct __sk_buff *skb) { return gate_steer(skb); }

SEC("tc")
int narthex_gate_sweep(struct __sk_buff *skb) { return gate_sweep(skb); }

SEC("tc")
int narthex_gate_use(struct __sk_buff *skb) { return gate_use(skb); }

SEC("tp_btf/inet_sock_set_state")
int narthex_sock_state(__u64 *ctx) { return sock_state(ctx); }

SEC("tp_btf/inet_sock_set_state")
int narthex_sock_missed(__u64 *ctx) { return sock_missed(ctx); }

SEC("tp_btf/tcp_destroy_sock")
int narthex_sock_release(__u64 *ctx) { return sock_release(ctx); }

SEC("iter/tcp")
int narthex_sock_older(struct bpf_iter__tcp *ctx) { return sock_older(ctx); }

SEC("sockops")
int narthex_sockops(struct bpf_sock_ops *ops) { return sock_ops(ops); }

/* "Dual BSD/GPL" is how the kernel spells the licence of the SPDX line. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";
