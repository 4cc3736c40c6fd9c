/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is known of connections, by their keys, which may be anywhere. */
#pragma once
#include "abi/config.h"
#include "abi/types.h"
#include "headers/bpf/bpf_helpers.h"

/* Functions of their own, so that the copies are in no other's stack. */
static __attribute__((noinline)) void *find_by_copy(void *map, const struct flow_key *key) {
  struct flow_key copy = *key;
  return bpf_map_lookup_elem(map, &copy);
}

static __attribute__((noinline)) long delete_by_copy(void *map, const struct flow_key *key) {
  struct flow_key copy = *key;
  return bpf_map_delete_elem(map, &copy);
}

static __attribute__((noinline)) long put_by_copy(void *map, const struct flow_key *key, const void *value) {
  struct flow_key copy = *key;
  return bpf_map_update_elem(map, &copy, value, BPF_ANY);
}

static __always_inline void *find_by_key(void *map, const struct flow_key *key) {
  if (has_memory_keys)
    return bpf_map_lookup_elem(map, key);
  return find_by_copy(map, key);
}

static __always_inline long delete_by_key(void *map, const struct flow_key *key) {
  if (has_memory_keys)
    return bpf_map_delete_elem(map, key);
  return delete_by_copy(map, key);
}

/* The value has to be in the stack, or in a map. */
static __always_inline long put_by_key(void *map, const struct flow_key *key, const void *value) {
  if (has_memory_keys)
    return bpf_map_update_elem(map, key, value, BPF_ANY);
  return put_by_copy(map, key, value);
}
