/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers, sizes and indexes as the verifiers of all kernels can follow them. */
#pragma once
#include "headers/kernel.h"

/* The number itself. The verifier goes on separately with each value that a number is known to have; by an
 * unknown one that is added and taken away it is made to forget which. */
static __always_inline __u64 forget(__u64 number, __u64 unknown) {
  number ^= unknown;
  asm volatile("" : "+r"(number));
  return number ^ unknown;
}

/* Makes the verifier know a bound that holds anyway. */
#define BOUND(x, most)                                                                                       \
  ({                                                                                                         \
    __u32 bounded = (x);                                                                                     \
    asm volatile("" : "+r"(bounded));                                                                        \
    bounded > (most) ? (most) : bounded;                                                                     \
  })

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

/* The value of an array of one entry, by its address and without a look-up: pointToValues() in user space has
 * the load of the map load that address. The compiler knows nothing of the result, so that a lock is released
 * by the pointer by which it was taken. */
#ifndef ONLY_VALUE
#define ONLY_VALUE(type, map)                                                                                \
  ({                                                                                                         \
    type *value_ = (void *)&map;                                                                             \
    asm volatile("" : "+r"(value_));                                                                         \
    value_;                                                                                                  \
  })
#endif
