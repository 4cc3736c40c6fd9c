/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Maps that more than one file uses. User space sets max_entries before loading where
 * the size is said to depend on something. All are pinned and adopted by name. */
#pragma once
#include "abi/types.h"

/* The policy in force. Key 0; value: an array of struct page, the policy image. Written by user
 * space, which replaces the whole image; read once per packet, which so sees one policy
 * and not half of another. Empty until the first is published: everything passes. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
  __uint(max_entries, 1);
  __type(key, __u32);
  __array(values, struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_INNER_MAP);
    __uint(max_entries, 1);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(struct page));
  });
} policy_image SEC(".maps");

/* Key: interface index; value: bits of the interface groups that it belongs to. Written
 * by user space before it attaches; read for a SYN to a service that has a group. Never
 * full: user space sizes it for the interfaces a host can have and says so beyond. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 65536);
  __type(key, __u32);
  __type(value, __u64);
} interface_groups SEC(".maps");

/* Key: index of an interface with a gate, to which packets of ours may be sent for that. Written by user
 * space when the programs are attached, deleted before they are detached. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 65536);
  __type(key, __u32);
  __type(value, __u8);
} gates SEC(".maps");

/* Devices that are policed themselves above one that is, with a hardware address of their
 * own: macvlan. Frames also reach them from their siblings, which the lower device does not
 * see. Key: the lower device and the address; value: nothing. Written by user space; read
 * for SYNs if the image says that there are any. When full, user space says so. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 4096);
  __type(key, struct upper_device);
  __type(value, __u8);
} upper_devices SEC(".maps");

/* What is said to clients that are refused. Key: part of the texts. Written by user space before an image
 * refers to it; which half that is not in use. Read when a request is refused. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 2 * ANSWERS_SIZE / ANSWER_STRIDE);
  __type(key, __u32);
  __type(value, struct answer_part);
} answers SEC(".maps");

/* Ports of services that have a waiting room, and maybe of others: a first look that costs
 * little. Key: port / 64; value: bit port % 64. Written by user space before an image names
 * the service. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1024);
  __type(key, __u32);
  __type(value, __u64);
} gate_ports SEC(".maps");

/* Key: slot of a class; value: who owns it. User space alone. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, CLASS_SLOTS);
  __type(key, __u32);
  __type(value, struct class_slot);
} class_slots SEC(".maps");

/* Key: slot; value: the rule that owns rule_counts[slot] and rule_buckets[2·slot], [2·slot+1].
 * Written and read by user space alone, so that the next daemon finds levels and counters by
 * name. Sized like rule_counts. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct rule_slot);
} rule_slots SEC(".maps");

/* Key: slot of service_counts; value: the service that owns it. User space alone. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct service_slot);
} service_slots SEC(".maps");

/* What user space wants the next daemon to know: overrides by path, the policy's hash.
 * When full, user space refuses a further override. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __uint(max_entries, 4096);
  __type(key, struct note);
  __type(value, struct note);
} journal SEC(".maps");
