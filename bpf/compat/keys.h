/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Keys of connections, and what maps have under them. A key may be anywhere. */
#pragma once
#include "abi/config.h"
#include "abi/flow.h"
#include "headers/bpf/bpf_helpers.h"
#include "parse/packet.h"

/* Structs are set field by field, not by assignment of a compound literal: that would take
 * stack, of which programs have 512 bytes for all functions that call each other. */
static __always_inline void set_key(struct flow_key *k, const __u64 peer[2], const __u64 local[2],
                                    __u16 peer_port, __u16 local_port, __u8 v6) {
  k->peer[0] = peer[0];
  k->peer[1] = peer[1];
  k->local[0] = local[0];
  k->local[1] = local[1];
  k->peer_port = peer_port;
  k->local_port = local_port;
  k->v6 = v6;
  k->pad[0] = k->pad[1] = k->pad[2] = 0;
}

static __always_inline void incoming_key(struct flow_key *k, const struct packet *p) {
  set_key(k, p->src, p->dst, p->sport, p->dport, p->v6);
}

static __always_inline void outgoing_key(struct flow_key *k, const struct packet *p) {
  set_key(k, p->dst, p->src, p->dport, p->sport, p->v6);
}

/* Where keys may not be in a map they are copied, by functions of their own, so that the copies are in no
 * other's stack. The others are inlined: of a map that is known when a program is loaded the kernel calls the
 * very function, and no pointer to it. */
static __attribute__((noinline, unused)) void *find_by_copy(void *map, const struct flow_key *key) {
  struct flow_key copy = *key;
  return bpf_map_lookup_elem(map, &copy);
}

static __always_inline void *find_by_key(void *map, const struct flow_key *key) {
  return has_memory_keys ? bpf_map_lookup_elem(map, key) : find_by_copy(map, key);
}

static __attribute__((noinline, unused)) long delete_by_copy(void *map, const struct flow_key *key) {
  struct flow_key copy = *key;
  return bpf_map_delete_elem(map, &copy);
}

static __always_inline long delete_by_key(void *map, const struct flow_key *key) {
  return has_memory_keys ? bpf_map_delete_elem(map, key) : delete_by_copy(map, key);
}

static __attribute__((noinline, unused)) long put_by_copy(void *map, const struct flow_key *key,
                                                          const void *value, __u64 how) {
  struct flow_key copy = *key;
  return bpf_map_update_elem(map, &copy, value, how);
}

/* Puts a value under a key; `how`: BPF_ANY, or BPF_NOEXIST. The value has to be in the stack, or in a map. */
static __always_inline long put_by_key(void *map, const struct flow_key *key, const void *value, __u64 how) {
  return has_memory_keys ? bpf_map_update_elem(map, key, value, how) : put_by_copy(map, key, value, how);
}
