/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sizes and indexes for the verifiers of old kernels, such as 6.1, which learn nothing from a comparison with
 * 0. */
#pragma once
#include "../headers/kernel.h"

/* A size from 1 to `most`: what it is, if it is that. */
#define AMOUNT(n, most)                                                                                      \
  ({                                                                                                         \
    __u64 size_ = (__u32)(n), one_ = 1;                                                                      \
    asm volatile("" : "+r"(size_), "+r"(one_));                                                              \
    size_ = size_ < one_ ? one_ : size_;                                                                     \
    asm volatile("" : "+r"(size_));                                                                          \
    size_ > (most) ? (most) : size_;                                                                         \
  })

/* The lesser part of an index, to be added to the greater: compilers make an or of that, by which such
 * verifiers lose the bounds of both. */
#define ADDED(part)                                                                                          \
  ({                                                                                                         \
    __u64 part_ = (part);                                                                                    \
    asm volatile("" : "+r"(part_));                                                                          \
    part_;                                                                                                   \
  })
