/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What user space sets before loading. Constants to the verifier: code that a setting
 * makes unreachable is removed. */
#pragma once

/* Number of source sets less one; a power of two less one. */
volatile const __u32 source_set_mask = 0;

/* Requests that can be held at once, at most MAX_SLOTS. */
volatile const __u32 slot_count = 0;

/* Bytes of a frame that a slot holds at most: from 2,048 to MAX_SLOT_SIZE. */
volatile const __u32 slot_size = 2048;

/* Number of seats less one; a power of two less one. */
volatile const __u32 seat_mask = 0;

/* Marks of our own packets; random, the lower 12 bits are 0. */
volatile const __u32 gate_mark = 0;

/* Cookie of the network namespace that is attached to. */
volatile const __u64 net_cookie = 0;

/* Flows that there can be in long form. */
volatile const __u32 flow_count = 1;

/* CPUs that may take a place each at the same moment. */
volatile const __u32 cpu_count = 1;

/* 1: the kernel has bpf_rdonly_cast() and bpf_cast_to_kern_ctx(). */
volatile const __u8 has_casts = 1;

/* 1: keys and values of maps may be in any memory that a function is given, not only in its stack,
 * in packets and in maps. */
volatile const __u8 has_memory_keys = 1;
