/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sizes for verifiers that learn nothing from a comparison with 0. */
#pragma once
#include "../headers/kernel.h"

/* A size from 1 to `most`: what it is, if it is that. */
#define AMOUNT(n, most)                                                                                      \
  ({                                                                                                         \
    __u32 size_ = (n), one_ = 1;                                                                             \
    asm volatile("" : "+r"(size_), "+r"(one_));                                                              \
    size_ = size_ < one_ ? one_ : size_;                                                                     \
    asm volatile("" : "+r"(size_));                                                                          \
    size_ > (most) ? (most) : size_;                                                                         \
  })
