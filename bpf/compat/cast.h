/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reading the kernel's own objects: sockets and packets. */
#pragma once
#include "abi/config.h"

#include "headers/bpf/bpf_core_read.h"

/* Both are of 6.2; a kernel without them gets has_casts = 0, and no call to them is reached. */
extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym __weak;
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;

/* An object's address as a number: the verifier lets nobody add to what it takes for a socket or
 * for a program's context. A packet's context is its sk_buff: the verifier rewrites what is read of it. */
static __always_inline void *address_of(const void *object) {
  void *address = NULL;
  bpf_probe_read_kernel(&address, sizeof(address), &object);
  return address;
}

/* An object as a type of the kernel's. `direct`: has_casts, which a function reads once. */
#define KERNEL_OBJECT(direct, object, type)                                                                  \
  ((type *)((direct) ? bpf_rdonly_cast(object, bpf_core_type_id_kernel(type)) : address_of(object)))

/* A field of what KERNEL_OBJECT() gave: read where it is, or a copy of it. Of what cannot be read, 0. */
#define KERNEL_FIELD(direct, object, field)                                                                  \
  ({                                                                                                         \
    typeof((object)->field) value_ = 0;                                                                      \
    if (direct)                                                                                              \
      value_ = (object)->field;                                                                              \
    else                                                                                                     \
      bpf_probe_read_kernel(&value_, sizeof(value_), &(object)->field);                                      \
    value_;                                                                                                  \
  })
