/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads IP addresses in text (RFC 4291, 2.2; RFC 3986's IPv4address) as Go's net/netip does, and
 * walks lists of them. Like http.h it calls no helper, and is compiled natively and compared. */
#pragma once
#include "parse/http.h"
#include "parse/text.h"

/* IPv4 addresses mapped into IPv6 (RFC 4291, 2.5.5.2) are IPv4 here. */
struct address {
  __u64 word[2]; /* host byte order; as in struct packet an IPv4 address is the upper half of the first */
  __u8 v6;
  __u8 pad[7]; /* 0 */
};

/* Bytes of an address with a port and the blanks around it at most; longer ones are none. */
#define ADDRESS_MAX_TEXT 128

/* Where in an address the bytes read so far end. All zero before the first, or with
 * ADDRESS_AT_FIRST if it must be bare. */
struct address_reader {
  __u64 word[2];   /* groups of IPv6, the last in the lowest bits: all, or those behind "::" */
  __u64 before[2]; /* those before "::", the first in the highest bits */
  __u32 octets;    /* of IPv4, the last in the lowest bits */
  __u32 decimal;   /* the number at hand; above 255: no octet. In a port: that */
  __u16 group;     /* the number at hand as a group */
  __u8 place;      /* enum address_place */
  __u8 digits;     /* of the number at hand */
  __u8 group_count;
  __u8 octet_count;
  __u8 bracket; /* 1: it is in brackets */
  __u8 gap;     /* 1: there was "::" */
  __u8 bare;    /* 1: it is IPv4 that is not embedded in IPv6 */
  __u8 pad[3];  /* 0 */
};

enum address_place {
  ADDRESS_AT_START,    /* before it; blanks may come */
  ADDRESS_AT_FIRST,    /* where nothing but the address may come */
  ADDRESS_AT_HALF_GAP, /* behind a colon that begins it */
  ADDRESS_AT_GAP,      /* behind "::" */
  ADDRESS_AT_NEXT,     /* behind a colon or a dot */
  ADDRESS_AT_NUMBER,   /* in a group or an octet */
  ADDRESS_AT_BRACKET,  /* behind "]" */
  ADDRESS_AT_PORT,     /* before a port */
  ADDRESS_AT_DIGITS,   /* in it */
  ADDRESS_AT_BLANK,    /* behind it all */
  ADDRESS_AT_LOST,
};

#define ADDRESS_GROUPS 8
#define ADDRESS_NO_OCTET 256

/* The functions below read a byte in one place and return the next. */

static __always_inline int address_digit(struct address_reader *r, __u8 b) {
  __u32 digit = http_hex(b);
  if (digit > 15 || r->digits == 4)
    return ADDRESS_AT_LOST;
  if (digit > 9 || (r->digits && !r->decimal)) /* no octet has a leading zero */
    r->decimal = ADDRESS_NO_OCTET;
  else
    r->decimal = r->decimal * 10 + digit;
  r->group = r->group << 4 | digit;
  r->digits++;
  return ADDRESS_AT_NUMBER;
}

static __always_inline int address_port_digit(struct address_reader *r, __u8 b) {
  if (b < '0' || b > '9')
    return ADDRESS_AT_LOST;
  r->decimal = r->decimal * 10 + (b - '0');
  return r->decimal > 0xffff ? ADDRESS_AT_LOST : ADDRESS_AT_DIGITS;
}

static __always_inline void address_next_number(struct address_reader *r) {
  r->decimal = 0;
  r->group = 0;
  r->digits = 0;
}

static __always_inline bool address_push_group(struct address_reader *r, __u32 group) {
  if (r->group_count >= ADDRESS_GROUPS)
    return false;
  r->group_count++;
  r->word[0] = r->word[0] << 16 | r->word[1] >> 48;
  r->word[1] = r->word[1] << 16 | group;
  return true;
}

static __always_inline bool address_push_octet(struct address_reader *r) {
  if (r->decimal >= ADDRESS_NO_OCTET)
    return false;
  r->octets = r->octets << 8 | r->decimal;
  r->octet_count++;
  return true;
}

/* A dot ends the first three octets. */
static __always_inline int address_dot(struct address_reader *r) {
  if (!r->octet_count)
    r->bare = !r->group_count && !r->gap && !r->bracket;
  bool fits =
      r->bare || (r->gap ? r->group_count <= ADDRESS_GROUPS - 2 : r->group_count == ADDRESS_GROUPS - 2);
  if (!fits || r->octet_count == 3 || !address_push_octet(r))
    return ADDRESS_AT_LOST;
  address_next_number(r);
  return ADDRESS_AT_NEXT;
}

/* The number at hand ends the address. */
static __always_inline bool address_last_number(struct address_reader *r) {
  if (!r->octet_count)
    return address_push_group(r, r->group);
  if (r->octet_count != 3 || !address_push_octet(r))
    return false;
  return r->bare || (address_push_group(r, r->octets >> 16) && address_push_group(r, r->octets & 0xffff));
}

/* A colon ends a group, or goes between an address and its port. */
static __always_inline int address_colon(struct address_reader *r) {
  int next = ADDRESS_AT_NEXT;
  if (r->octet_count) {
    if (!r->bare || !address_last_number(r))
      return ADDRESS_AT_LOST;
    next = ADDRESS_AT_PORT;
  } else if (!address_push_group(r, r->group)) {
    return ADDRESS_AT_LOST;
  }
  address_next_number(r);
  return next;
}

/* "::": what was read so far goes to the front. */
static __always_inline int address_gap(struct address_reader *r) {
  if (r->gap)
    return ADDRESS_AT_LOST;
  r->gap = 1;
  __u32 shift = 16 * (ADDRESS_GROUPS - r->group_count); /* of nothing, by 128 */
  if (shift >= 64) {
    r->before[0] = r->word[1] << ((shift - 64) & 63);
    r->before[1] = 0;
  } else {
    r->before[0] = r->word[0] << (shift & 63) | (r->word[1] >> 1) >> ((63 - shift) & 63);
    r->before[1] = r->word[1] << (shift & 63);
  }
  r->word[0] = 0;
  r->word[1] = 0;
  return ADDRESS_AT_GAP;
}

/* The address ends, but for its port. */
static __always_inline int address_ends(struct address_reader *r, int place, int next) {
  if (place == ADDRESS_AT_NUMBER ? !address_last_number(r) : place != ADDRESS_AT_GAP)
    return ADDRESS_AT_LOST;
  bool whole = r->bare || (r->gap ? r->group_count < ADDRESS_GROUPS : r->group_count == ADDRESS_GROUPS);
  return whole ? next : ADDRESS_AT_LOST;
}

/* In the address itself. */
static __always_inline int address_inside(struct address_reader *r, int place, __u8 b) {
  if (b == ':') {
    switch (place) {
    case ADDRESS_AT_FIRST:
      return ADDRESS_AT_HALF_GAP;
    case ADDRESS_AT_NUMBER:
      return address_colon(r);
    case ADDRESS_AT_GAP:
      return ADDRESS_AT_LOST;
    }
    return r->octet_count ? ADDRESS_AT_LOST : address_gap(r);
  }
  if (place == ADDRESS_AT_NUMBER && b == '.')
    return address_dot(r);
  if (r->bracket ? b == ']' : http_is_space(b))
    return address_ends(r, place, r->bracket ? ADDRESS_AT_BRACKET : ADDRESS_AT_BLANK);
  return place == ADDRESS_AT_HALF_GAP ? ADDRESS_AT_LOST : address_digit(r, b);
}

/* Behind it. */
static __always_inline int address_behind(struct address_reader *r, int place, __u8 b) {
  if (place == ADDRESS_AT_PORT)
    return address_port_digit(r, b);
  if (http_is_space(b))
    return ADDRESS_AT_BLANK;
  if (place == ADDRESS_AT_BRACKET && b == ':') {
    address_next_number(r);
    return ADDRESS_AT_PORT;
  }
  return place == ADDRESS_AT_DIGITS ? address_port_digit(r, b) : ADDRESS_AT_LOST;
}

/* Reads a byte and returns the place behind it. Global, so that the verifier looks at it once. */
__noinline int address_step(struct address_reader *r, __u32 byte) {
  if (!r)
    return ADDRESS_AT_LOST;
  __u8 b = byte;
  int place = r->place;
  if (place == ADDRESS_AT_START) {
    if (http_is_space(b))
      return place;
    place = ADDRESS_AT_FIRST;
    if (b == '[') {
      r->bracket = 1;
      r->place = place;
      return place;
    }
  }
  place = place < ADDRESS_AT_BRACKET ? address_inside(r, place, b) : address_behind(r, place, b);
  r->place = place;
  return place;
}

static __always_inline bool address_is_inside(int place) {
  return place == ADDRESS_AT_GAP || place == ADDRESS_AT_NUMBER;
}

/* What IPv6 address it is, or which IPv4 address is mapped into it. */
static __always_inline void address_from(struct address *to, __u64 high, __u64 low) {
  bool mapped = !high && low >> 32 == 0xffff;
  to->word[0] = mapped ? low << 32 : high;
  to->word[1] = mapped ? 0 : low;
  to->v6 = !mapped;
}

/* There are no more bytes. Tells if they were an address. */
__noinline int address_finish(struct address_reader *r, struct address *to) {
  if (!r || !to)
    return 0;
  int place = r->place;
  if (address_is_inside(place) && !r->bracket)
    place = address_ends(r, place, ADDRESS_AT_BLANK);
  if (place != ADDRESS_AT_BRACKET && place != ADDRESS_AT_DIGITS && place != ADDRESS_AT_BLANK)
    return 0;
  address_from(to, r->before[0] | r->word[0], r->before[1] | r->word[1]);
  if (r->bare) {
    to->word[0] = (__u64)r->octets << 32;
    to->v6 = 0;
  }
  return 1;
}

/* Reads the address that the text is between two places: IPv4 or IPv6 without a zone, IPv4 with
 * a port, or IPv6 in brackets and maybe with one; blanks around it. Tells if it is one. */
__noinline int read_address(const struct text *t, __u32 begin, __u32 end, struct address *to) {
  if (!t || !to || end > MAX_TEXT || begin > end || end - begin > ADDRESS_MAX_TEXT)
    return 0;
  struct address_reader r = {};
  for (int i = 0; i < ADDRESS_MAX_TEXT && begin < end; i++) {
    if (address_step(&r, text_byte(t, begin)) == ADDRESS_AT_LOST)
      return 0;
    begin++;
  }
  return address_finish(&r, to);
}

/* A list whose elements have commas between them, as in X-Forwarded-For, from its end. `first` is
 * where it begins; `rest`, where it ends before the first look. */
struct forwarded {
  __u32 first;
  __u32 rest;  /* what is still to be looked at ends here */
  __u32 begin; /* of an element, without the blanks around it */
  __u32 end;
};

#define FORWARDED_TURN 32
#define FORWARDED_TURNS (MAX_TEXT / FORWARDED_TURN)

/* A turn of forwarded_last(). Tells if there is no more to be done. */
__noinline int forwarded_turn(const struct text *t, struct forwarded *f) {
  if (!t || !f)
    return 1;
  for (int i = 0; i < FORWARDED_TURN; i++) {
    if (f->rest <= f->first)
      return 1;
    f->rest--;
    __u8 b = text_byte(t, f->rest);
    if (b == ',' && f->begin < f->end)
      return 1;
    if (b == ',' || http_is_space(b))
      continue;
    if (f->begin == f->end)
      f->end = f->rest + 1;
    f->begin = f->rest;
  }
  return 0;
}

/* Some turns of it: one loop within another is less to the verifier than one of as many turns. */
#define FORWARDED_ROUND 16

__noinline int forwarded_round(const struct text *t, struct forwarded *f) {
  for (int i = 0; i < FORWARDED_ROUND; i++)
    if (forwarded_turn(t, f))
      return 1;
  return 0;
}

/* Goes on to the last element before those it was at, and tells if there is one. Empty ones do
 * not count (RFC 9110, 5.6.1.2). */
static __always_inline bool forwarded_last(const struct text *t, struct forwarded *f) {
  f->begin = 0;
  f->end = 0;
  if (f->rest > MAX_TEXT)
    return false;
  for (int i = 0; i < FORWARDED_TURNS / FORWARDED_ROUND; i++)
    if (forwarded_round(t, f))
      break;
  return f->begin < f->end;
}
