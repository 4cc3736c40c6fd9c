/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads the header of HAProxy's PROXY protocol, versions 1 and 2, with which a connection may begin:
 * where it ends, and whose connection it says it is. Like http.h it calls no helper, and is
 * compiled natively and compared with plain Go. */
#pragma once
#include "parse/address.h"

/* Where in the header the bytes read so far end; all zero before the first. */
struct proxy_head {
  __u16 size;  /* bytes that were read */
  __u16 left;  /* bytes to come, once their number has been read */
  __u8 place;  /* enum proxy_place */
  __u8 pad[3]; /* 0 */
};

enum proxy_place {
  PROXY_AT_START,
  PROXY_AT_NAME, /* in version 1's first word and the space behind it */
  PROXY_AT_LINE, /* in the rest of its line */
  PROXY_AT_LF,
  PROXY_AT_SIGNATURE, /* in version 2's */
  PROXY_AT_VERSION,
  PROXY_AT_FAMILY,
  PROXY_AT_LENGTH,
  PROXY_AT_LENGTH_LOW,
  PROXY_AT_BLOCK, /* in addresses and what else it has: at least a byte of it is to come */
  PROXY_AT_END,
  PROXY_AT_LOST,
};

#define PROXY_LINE 107 /* bytes of version 1 at most */
#define PROXY_FIXED 16 /* bytes of version 2 before its block */
#define PROXY_MAX_BLOCK 2048
#define PROXY_NAME_SIZE 6
#define PROXY_SIGNATURE_SIZE 12

static const __u8 proxy_name[8] = "PROXY ";
static const __u8 proxy_signature[16] = "\r\n\r\n\0\r\nQUIT\n";

/* A byte of version 1's line. */
static __always_inline int proxy_line_byte(const struct proxy_head *h, int place, __u8 b) {
  if (place == PROXY_AT_LF)
    return b == '\n' ? PROXY_AT_END : PROXY_AT_LOST;
  if (h->size + 1 >= PROXY_LINE || (b < ' ' && b != '\r'))
    return PROXY_AT_LOST;
  return b == '\r' ? PROXY_AT_LF : PROXY_AT_LINE;
}

static __always_inline int proxy_length(struct proxy_head *h, __u8 b) {
  h->left = h->left << 8 | b;
  if (h->left > PROXY_MAX_BLOCK)
    return PROXY_AT_LOST;
  return h->left ? PROXY_AT_BLOCK : PROXY_AT_END;
}

/* Reads a byte in one place and returns the next. */
static __always_inline int proxy_byte(struct proxy_head *h, int place, __u8 b) {
  switch (place) {
  case PROXY_AT_START:
    if (b != proxy_name[0] && b != proxy_signature[0])
      return PROXY_AT_LOST;
    return b == proxy_name[0] ? PROXY_AT_NAME : PROXY_AT_SIGNATURE;
  case PROXY_AT_NAME:
    if (b != proxy_name[h->size & 7])
      return PROXY_AT_LOST;
    return h->size == PROXY_NAME_SIZE - 1 ? PROXY_AT_LINE : PROXY_AT_NAME;
  case PROXY_AT_SIGNATURE:
    if (b != proxy_signature[h->size & 15])
      return PROXY_AT_LOST;
    return h->size == PROXY_SIGNATURE_SIZE - 1 ? PROXY_AT_VERSION : PROXY_AT_SIGNATURE;
  case PROXY_AT_VERSION:
    return b >> 4 == 2 ? PROXY_AT_FAMILY : PROXY_AT_LOST;
  case PROXY_AT_FAMILY:
    return PROXY_AT_LENGTH;
  case PROXY_AT_LENGTH:
    h->left = b;
    return PROXY_AT_LENGTH_LOW;
  case PROXY_AT_LENGTH_LOW:
    return proxy_length(h, b);
  case PROXY_AT_BLOCK: /* its last byte; see proxy_skip() */
    return PROXY_AT_END;
  }
  return proxy_line_byte(h, place, b);
}

/* How many of the next n bytes of the connection need not be read: all of the block but its last. */
static __always_inline __u32 proxy_skip(struct proxy_head *h, __u32 n) {
  if (h->place != PROXY_AT_BLOCK)
    return 0;
  if (n >= h->left)
    n = h->left - 1;
  h->left -= n;
  h->size += n;
  return n;
}

#define PROXY_TURN 8
#define PROXY_TURNS (PROXY_LINE / PROXY_TURN + 1) /* no chunk takes more */

/* A turn of proxy_scan(), which is global like http_turn(). */
__noinline int proxy_turn(struct proxy_head *h, const struct http_chunk *c, __u32 pos, __u32 length) {
  if (!h || !c)
    return 0;
  struct http_reader r = http_begin(NULL, c, pos, length);
  for (int i = 0; i < PROXY_TURN && h->place < PROXY_AT_END && !http_used_up(&r); i++) {
    __u32 skipped = proxy_skip(h, length - r.pos);
    if (!skipped) {
      h->place = proxy_byte(h, h->place, http_byte(&r));
      h->size++;
      skipped = 1;
    }
    http_advance(&r, skipped);
  }
  return h->place << HTTP_PLACE_SHIFT | (__u16)r.pos;
}

/* Goes on by the first `length` bytes of the chunk. `used` is how many of them were read: all, or
 * those up to the end of the header, or to what makes it lost, which is no such header. Returns
 * enum http_step. */
static __always_inline int proxy_scan(struct proxy_head *h, const struct http_chunk *c, __u32 length,
                                      __u32 *used) {
  *used = 0;
  if (length > HTTP_CHUNK)
    return HTTP_LOST;
  __u32 pos = 0, place = h->place;
  for (int i = 0; i < PROXY_TURNS && pos < length && place < PROXY_AT_END; i++) {
    __u32 turn = proxy_turn(h, c, pos, length);
    pos = turn & 0xffff;
    place = turn >> HTTP_PLACE_SHIFT;
  }
  *used = pos;
  if (place == PROXY_AT_END)
    return HTTP_END;
  return place == PROXY_AT_LOST || pos < length ? HTTP_LOST : HTTP_MORE;
}

/* What a header says of the connection's client. */
enum proxy_client {
  PROXY_MALFORMED = -1,
  PROXY_OWN = 0, /* nothing: it is who the connection comes from */
  PROXY_ADDRESS = 1,
};

/* A version 1 line behind its family. */
struct proxy_line {
  struct address_reader reader;
  struct address src;
  __u32 port;
  __u8 field;  /* enum proxy_field */
  __u8 digits; /* of the port */
  __u8 v6;
  __u8 pad; /* 0 */
};

enum proxy_field { PROXY_SRC, PROXY_DST, PROXY_SPORT, PROXY_DPORT, PROXY_DONE, PROXY_BAD };

static __always_inline void proxy_next_address(struct proxy_line *l) {
  l->reader = (struct address_reader){.place = ADDRESS_AT_FIRST};
}

/* An address has ended. */
static __always_inline int proxy_address_ends(struct proxy_line *l) {
  struct address a = {};
  bool whole = address_is_inside(l->reader.place) && address_finish(&l->reader, &a);
  if (!whole || l->reader.bare == l->v6)
    return PROXY_BAD;
  if (l->field == PROXY_SRC)
    l->src = a;
  proxy_next_address(l);
  return l->field + 1;
}

/* A byte of a port, which has no leading zeros. */
static __always_inline int proxy_port(struct proxy_line *l, __u8 b) {
  if (b == (l->field == PROXY_SPORT ? ' ' : '\r')) {
    __u8 digits = l->digits;
    l->digits = 0;
    l->port = 0;
    return digits ? l->field + 1 : PROXY_BAD;
  }
  if (b < '0' || b > '9' || (l->digits && !l->port))
    return PROXY_BAD;
  l->digits++;
  l->port = l->port * 10 + (b - '0');
  return l->port > 0xffff ? PROXY_BAD : l->field;
}

/* Reads a byte and returns the field behind it. Global, so that the verifier looks at it once. */
__noinline int proxy_step(struct proxy_line *l, __u32 byte) {
  if (!l)
    return PROXY_BAD;
  __u8 b = byte;
  int field = l->field;
  if (field >= PROXY_SPORT)
    field = proxy_port(l, b);
  else if (b == ' ')
    field = proxy_address_ends(l);
  else if (address_step(&l->reader, b) == ADDRESS_AT_LOST)
    field = PROXY_BAD;
  l->field = field;
  return field;
}

static __always_inline bool proxy_is(const struct http_chunk *c, __u32 at, __u64 eight) {
  return *(const http_u64 *)(c->byte + at) == eight;
}

#define PROXY_TCP 11 /* bytes of "PROXY TCP4 " */

/* The line says nothing: "UNKNOWN", and anything behind it up to the end of the line. */
static __always_inline bool proxy_is_unknown(const struct http_chunk *c, __u32 length) {
  __u8 behind = c->byte[13];
  return length > 13 && proxy_is(c, 5, HTTP_EIGHT(' ', 'U', 'N', 'K', 'N', 'O', 'W', 'N')) &&
         (behind == ' ' || behind == '\r');
}

/* Version 1. */
static __always_inline int proxy_text(const struct http_chunk *c, __u32 length, struct address *to) {
  if (proxy_is_unknown(c, length))
    return PROXY_OWN;
  __u8 family = c->byte[9];
  bool tcp = length > PROXY_TCP && proxy_is(c, 1, HTTP_EIGHT('R', 'O', 'X', 'Y', ' ', 'T', 'C', 'P')) &&
             (family == '4' || family == '6') && c->byte[10] == ' ';
  if (!tcp)
    return PROXY_MALFORMED;
  struct proxy_line l = {.v6 = family == '6'};
  proxy_next_address(&l);
  int field = PROXY_SRC;
  for (__u32 at = PROXY_TCP; at < PROXY_LINE - 1 && at < length && field < PROXY_DONE; at++)
    field = proxy_step(&l, c->byte[at]);
  if (field != PROXY_DONE)
    return PROXY_MALFORMED;
  *to = l.src;
  return PROXY_ADDRESS;
}

#define PROXY_LOCAL 0x20
#define PROXY_COMMAND 0x21 /* version 2, PROXY */
#define PROXY_TCP4 0x11
#define PROXY_TCP6 0x21
#define PROXY_MAX_FAMILY 3   /* AF_UNIX */
#define PROXY_MAX_PROTOCOL 2 /* DGRAM */

static __always_inline __u64 proxy_word(const struct http_chunk *c, __u32 at) {
  return __builtin_bswap64(*(const http_u64 *)(c->byte + at));
}

/* Version 2. What is of another family or protocol is not of this connection. */
static __always_inline int proxy_binary(const struct http_chunk *c, __u32 length, struct address *to) {
  if (length < PROXY_FIXED || c->byte[12] == PROXY_LOCAL)
    return length < PROXY_FIXED ? PROXY_MALFORMED : PROXY_OWN;
  __u8 family = c->byte[13];
  if (c->byte[12] != PROXY_COMMAND || family >> 4 > PROXY_MAX_FAMILY || (family & 15) > PROXY_MAX_PROTOCOL)
    return PROXY_MALFORMED;
  if (family != PROXY_TCP4 && family != PROXY_TCP6)
    return PROXY_OWN;
  __u32 block = c->byte[14] << 8 | c->byte[15], addresses = family == PROXY_TCP4 ? 12 : 36;
  if (block < addresses || length < PROXY_FIXED + addresses)
    return PROXY_MALFORMED;
  if (family == PROXY_TCP6) {
    address_from(to, proxy_word(c, PROXY_FIXED), proxy_word(c, PROXY_FIXED + 8));
    return PROXY_ADDRESS;
  }
  to->word[0] = proxy_word(c, PROXY_FIXED) >> 32 << 32;
  to->word[1] = 0;
  to->v6 = 0;
  return PROXY_ADDRESS;
}

/* Reads whose connection the header says it is that the first `length` bytes of the chunk begin
 * with. They have all of it, or of version 2 at least the addresses; that it is such a header
 * is known by proxy_scan(). Returns enum proxy_client; `to` is of use with PROXY_ADDRESS. */
__noinline int proxy_address(const struct http_chunk *c, __u32 length, struct address *to) {
  if (!c || !to || length > HTTP_CHUNK)
    return PROXY_MALFORMED;
  return c->byte[0] == proxy_name[0] ? proxy_text(c, length, to) : proxy_binary(c, length, to);
}
