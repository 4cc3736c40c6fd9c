/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads what an application says of its client in an answer's head: Narthex-Class: gold; for=10m. Calls no
 * helper. */
#pragma once
#include "abi/types.h"

struct label {
  __u32 class; /* hash of the class's name, FNV-1a */
  __u32 lasts; /* seconds for which it is the client's, LABEL_LASTS at most; 0: the connection's alone */
};

/* Where the bytes of Narthex-Class read so far end: a class, and parameters as those of media types (RFC
 * 9110, 5.6.6), of which `for` matters. */
enum label_at {
  LABEL_BEGINS,
  LABEL_CLASS,
  LABEL_BEHIND,    /* the class */
  LABEL_PARAMETER, /* before a parameter */
  LABEL_F,
  LABEL_FO,
  LABEL_FOR,
  LABEL_NUMBER,
  LABEL_UNIT,  /* behind the number, and its unit */
  LABEL_OTHER, /* in any other parameter */
};

/* FNV-1a (Fowler, Noll and Vo). */
#define LABEL_BASIS 2166136261U
#define LABEL_PRIME 16777619U

#define LABEL_LASTS (720U * 3600)

static __always_inline bool label_space(__u8 b) { return b == ' ' || b == '\t'; }

/* So many seconds times a unit, as many as there may be at most. */
static __always_inline __u32 label_lasts(__u32 n, __u32 unit) {
  return n > LABEL_LASTS / unit ? LABEL_LASTS : n * unit;
}

/* The byte behind a number of seconds, minutes or hours, if it is not a digit. */
static __always_inline int label_unit(struct label *l, __u8 b) {
  if (b == 'm' || b == 'h')
    l->lasts = label_lasts(l->lasts, b == 'm' ? 60 : 3600);
  else if (b != 's' && !label_space(b))
    l->lasts = 0;
  return l->lasts ? LABEL_UNIT : LABEL_OTHER;
}

static __always_inline int label_number(struct label *l, __u8 b) {
  __u32 digit = b - '0';
  if (digit > 9)
    return label_unit(l, b);
  l->lasts = label_lasts(l->lasts, 10);
  l->lasts = l->lasts < LABEL_LASTS ? l->lasts + digit : l->lasts;
  return LABEL_NUMBER;
}

/* A byte of a parameter's name, of which `for` matters. */
static __always_inline int label_name(struct label *l, int at, __u8 b) {
  if (at == LABEL_FOR && b == '=') {
    l->lasts = 0;
    return LABEL_NUMBER;
  }
  __u8 next = at == LABEL_PARAMETER ? 'f' : at == LABEL_F ? 'o' : at == LABEL_FO ? 'r' : 0;
  return (b | 0x20) == next ? at + 1 : LABEL_OTHER;
}

/* A byte of the class. */
static __always_inline int label_class(struct label *l, __u8 b) {
  l->class = (l->class ^ b) * LABEL_PRIME;
  return LABEL_CLASS;
}

/* Where the next byte leads to. */
static __always_inline int label_next(struct label *l, int at, __u8 b) {
  bool space = label_space(b);
  if (b == ';')
    return LABEL_PARAMETER;
  switch (at) {
  case LABEL_BEGINS:
    return space ? LABEL_BEGINS : label_class(l, b);
  case LABEL_CLASS:
    return space ? LABEL_BEHIND : label_class(l, b);
  case LABEL_BEHIND: /* what is no parameter makes it another name than any class has */
    if (space)
      return at;
    label_class(l, 0);
    return label_class(l, b);
  case LABEL_PARAMETER:
    if (space)
      return at;
    return label_name(l, at, b);
  case LABEL_F:
  case LABEL_FO:
  case LABEL_FOR:
    return label_name(l, at, b);
  case LABEL_NUMBER:
    return label_number(l, b);
  case LABEL_UNIT:
    if (!space)
      l->lasts = 0;
    return space ? LABEL_UNIT : LABEL_OTHER;
  }
  return LABEL_OTHER;
}
