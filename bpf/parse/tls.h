/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds where the ClientHello ends with which a TLS connection begins (RFC 8446, 4.1.2 and 5.1; all
 * versions since SSL 3.0 frame it alike). Like http.h it calls no helper, and is compiled natively
 * and compared with plain Go. */
#pragma once
#include "parse/http.h"

/* Where in the ClientHello the bytes read so far end; all zero before the first. Kept between
 * segments, which may cut it anywhere. What is in the message is not read yet. */
struct tls_hello {
  __u32 left;   /* bytes of the message to come; of use once its header has been read */
  __u16 record; /* bytes of the record's content to come */
  __u8 place;   /* enum tls_place */
  __u8 header;  /* bytes of the message's header that were read */
};

enum tls_place {
  TLS_AT_TYPE, /* before a record */
  TLS_AT_MAJOR,
  TLS_AT_MINOR,
  TLS_AT_LENGTH,
  TLS_AT_LENGTH_LOW,
  TLS_AT_CONTENT, /* in it: at least a byte of it is to come */
  TLS_AT_END,
  TLS_AT_LOST,
};

#define TLS_HANDSHAKE 22
#define TLS_CLIENT_HELLO 1
#define TLS_MAX_RECORD (1 << 14)
#define TLS_HEADER 4 /* bytes before the message: its type and, in three, its length */

/* How many of the next n bytes of the connection need not be read: they count as if they had
 * been. A record's last byte is always read, for it may end the ClientHello. */
static __always_inline __u32 tls_skip(struct tls_hello *h, __u32 n) {
  if (h->place != TLS_AT_CONTENT || h->header < TLS_HEADER)
    return 0;
  if (n >= h->record)
    n = h->record - 1;
  h->record -= n;
  h->left -= n < h->left ? n : h->left;
  return n;
}

/* A byte of a record's content. Records cut the message anywhere; what is behind it in its last
 * record goes with it. */
static __always_inline int tls_content(struct tls_hello *h, __u8 b) {
  if (h->header == 0 && b != TLS_CLIENT_HELLO)
    return TLS_AT_LOST;
  if (h->header < TLS_HEADER) {
    if (h->header)
      h->left = h->left << 8 | b;
    h->header++;
  } else if (h->left) {
    h->left--;
  }
  h->record--;
  if (h->record)
    return TLS_AT_CONTENT;
  return h->header == TLS_HEADER && !h->left ? TLS_AT_END : TLS_AT_TYPE;
}

static __always_inline int tls_byte(struct tls_hello *h, __u8 b) {
  switch (h->place) {
  case TLS_AT_TYPE:
    return b == TLS_HANDSHAKE ? TLS_AT_MAJOR : TLS_AT_LOST;
  case TLS_AT_MAJOR:
    return b == 3 ? TLS_AT_MINOR : TLS_AT_LOST;
  case TLS_AT_MINOR:
    return TLS_AT_LENGTH;
  case TLS_AT_LENGTH:
    h->record = b << 8;
    return TLS_AT_LENGTH_LOW;
  case TLS_AT_LENGTH_LOW:
    h->record |= b;
    return h->record && h->record <= TLS_MAX_RECORD ? TLS_AT_CONTENT : TLS_AT_LOST;
  case TLS_AT_CONTENT:
    return tls_content(h, b);
  }
  return h->place;
}

/* Steps of one turn, of which each uses at least a byte. */
#define TLS_TURN 8
#define TLS_TURNS (HTTP_CHUNK / TLS_TURN)

/* One turn of tls_scan(), which is global like http_turn(). */
__noinline int tls_turn(struct tls_hello *h, const struct http_chunk *c, __u32 pos, __u32 length) {
  if (!h || !c)
    return 0;
  struct http_reader r = http_begin(NULL, c, pos, length);
  for (int i = 0; i < TLS_TURN && h->place < TLS_AT_END && !http_used_up(&r); i++) {
    __u32 skipped = tls_skip(h, length - r.pos);
    if (!skipped) {
      h->place = tls_byte(h, http_byte(&r));
      skipped = 1;
    }
    http_advance(&r, skipped);
  }
  return h->place << HTTP_PLACE_SHIFT | (__u16)r.pos;
}

/* Goes on by the first `length` bytes of the chunk. `used` is how many of them were read: all, or
 * those up to the end of the record in which the ClientHello ends, or to what makes it lost,
 * which is no ClientHello. Returns enum http_step. */
static __always_inline int tls_scan(struct tls_hello *h, const struct http_chunk *c, __u32 length,
                                    __u32 *used) {
  *used = 0;
  if (length > HTTP_CHUNK)
    return HTTP_LOST;
  __u32 pos = 0, place = h->place;
  for (int i = 0; i < TLS_TURNS && pos < length && place < TLS_AT_END; i++) {
    __u32 turn = tls_turn(h, c, pos, length);
    pos = turn & 0xffff;
    place = turn >> HTTP_PLACE_SHIFT;
  }
  *used = pos;
  if (place == TLS_AT_END)
    return HTTP_END;
  return place == TLS_AT_LOST || pos < length ? HTTP_LOST : HTTP_MORE;
}
