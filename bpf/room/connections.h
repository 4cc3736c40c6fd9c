/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Places of connections whose rule bounds how many there are at once. */
#pragma once
#include "compat/keys.h"
#include "room/places.h"

/* A connection that has a place, and no socket yet. */
struct opening {
  __u64 places; /* as in struct flow; 0: they were given back, or are its socket's */
  __u64 since;  /* ns: when it was last known to be there */
  __u32 answer; /* the server's first sequence number behind its SYN, which tells it from others of its key */
  __u32 ifindex; /* on which it came */
};

/* For how long one is there of which the stack has nothing but the SYN cookie that it has sent, or of which a
 * segment is on its way, ns. */
#define OPENING_AGE 5000000000ULL

/* From the ACK that ends the handshake until there is a socket. Written by the gate; the daemon has those
 * given up of which nothing is left. When full, the ACK is refused. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 65536);
  __type(key, struct flow_key);
  __type(value, struct opening);
} openings SEC(".maps");

/* Of a socket: the places that it has until it ends, as in struct flow. Written by sockops. */
struct {
  __uint(type, BPF_MAP_TYPE_SK_STORAGE);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, int);
  __type(value, __u64);
} socket_places SEC(".maps");

/* Takes places away from whom they are of: no two take the same. */
static __always_inline __u64 take_over(__u64 *places) { return __sync_lock_test_and_set(places, 0); }

/* Has an opening give its places back. */
static __always_inline void end_opening(const struct flow_key *key, struct opening *o) {
  leave_places(the_pool(), take_over(&o->places));
  delete_by_key(&openings, key);
}
