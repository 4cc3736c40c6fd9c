/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Narthex's data path. docs/architecture.md says what stands where. */
#include "headers/kernel.h"

#include "headers/bpf/bpf_helpers.h"

#include "headers/bpf/bpf_endian.h"

#include "hooks/syn.h"

SEC("xdp.frags")
int narthex_xdp_syn(struct xdp_md *ctx) { return xdp_syn(ctx); }

SEC("tcx/ingress")
int narthex_tcx_syn(struct __sk_buff *skb) { return tcx_syn(skb); }

/* "Dual BSD/GPL" is how the kernel spells the licence of the SPDX line. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Types that appear in no map's definition, named so that they are in the BTF from which
 * Go's are generated. */
const struct page *const btf_page __attribute__((unused));
const enum reason *const btf_reason __attribute__((unused));
const enum action *const btf_action __attribute__((unused));
