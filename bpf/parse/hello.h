/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads in a ClientHello (RFC 8446, 4.1.2) which server its client asks for (server_name, RFC 6066)
 * and which protocols it would speak with it (ALPN, RFC 7301). Like http.h it calls no helper, and is
 * compiled natively and compared with plain Go.
 *
 * What servers may read differently has no names: lengths that do not add up, an extension or a
 * host name that comes twice. */
#pragma once
#include "parse/tls.h"

#define HELLO_NAME 256 /* bytes, of which a name takes one less at most */

/* What a ClientHello says, and where in it the bytes read so far end; all zero before the first.
 * What it says is valid once it has ended. */
struct tls_names {
  struct tls_hello frame;
  __u16 sni;       /* bytes of the name; 0: none */
  __u16 alpn;      /* bytes of the protocols */
  __u16 item;      /* bytes to come that are skipped or copied; or a type, before the number behind it */
  __u16 extension; /* bytes of an extension that do not belong to what is being read of it */
  __u16 number;    /* the one at hand */
  __u8 flags;      /* enum hello_flag */
  __u8 place;      /* enum hello_place */
  __u8 next;       /* enum hello_place behind what is skipped */
  __u8 at;         /* bytes of a number that were read, and of what comes first in the message */
  __u8 pad[2];     /* 0 */
  __u8 name[HELLO_NAME];      /* as it came; no byte of it is NUL */
  __u8 protocols[HELLO_NAME]; /* as they came: each a length, in a byte, and its bytes */
};

enum hello_flag {
  HELLO_MALFORMED = 1,
  HELLO_ECH = 2, /* encrypted_client_hello (RFC 9849), or its grease: the name may not be the one asked for */
  HELLO_CUT = 4, /* protocols were left out, for which there was no place */
  HELLO_SNI = 8, /* there was an extension */
  HELLO_ALPN = 16,
};

enum hello_place {
  HELLO_AT_BEGINNING, /* in version and random */
  HELLO_AT_SESSION,   /* in the length of what has it in one byte */
  HELLO_AT_COMPRESSION,
  HELLO_AT_NAME_TYPE,
  HELLO_AT_PROTOCOL,
  HELLO_AT_CIPHERS, /* in the length of what has it in two */
  HELLO_AT_EXTENSIONS,
  HELLO_AT_TYPE, /* in an extension's type */
  HELLO_AT_SIZE,
  HELLO_AT_NAMES, /* in the length of server_name's list */
  HELLO_AT_NAME_SIZE,
  HELLO_AT_PROTOCOLS, /* in that of ALPN's list */
  HELLO_AT_SKIP,      /* in what is skipped */
  HELLO_AT_COPY,      /* in the name */
  HELLO_AT_COPY_PROTOCOL,
  HELLO_AT_END,
  HELLO_AT_LOST,
};

#define HELLO_BEGINNING 34 /* bytes of version and random */
#define HELLO_EXT_SNI 0
#define HELLO_EXT_ALPN 16
#define HELLO_EXT_ECH 0xfe0d
#define HELLO_HOST_NAME 0
#define HELLO_NAME_HEADER 3 /* bytes before a name: its type and, in two, its length */

/* The functions below are called behind a number and return the next place. */

static __always_inline int hello_skip(struct tls_names *n, __u16 size, int next) {
  if (size > n->frame.left)
    return HELLO_AT_LOST;
  n->item = size;
  n->next = next;
  return size ? HELLO_AT_SKIP : next;
}

/* A list fills the extension, and is not empty. */
static __always_inline int hello_list(struct tls_names *n, int next) {
  if (n->extension < 3 || n->number != n->extension - 2)
    return HELLO_AT_LOST;
  n->extension -= 2;
  return next;
}

static __always_inline int hello_once(struct tls_names *n, __u8 flag, int next) {
  if (n->flags & flag)
    return HELLO_AT_LOST;
  n->flags |= flag;
  return next;
}

/* An extension begins, `type` and size of which have been read. */
static __always_inline int hello_extension(struct tls_names *n, __u16 type) {
  __u16 size = n->number;
  if (size > n->frame.left)
    return HELLO_AT_LOST;
  n->extension = size;
  if (type == HELLO_EXT_SNI)
    return hello_once(n, HELLO_SNI, HELLO_AT_NAMES);
  if (type == HELLO_EXT_ALPN)
    return hello_once(n, HELLO_ALPN, HELLO_AT_PROTOCOLS);
  if (type == HELLO_EXT_ECH)
    n->flags |= HELLO_ECH;
  return hello_skip(n, size, HELLO_AT_TYPE);
}

/* A name begins. Those that are no host's are none that anybody knows. */
static __always_inline int hello_name(struct tls_names *n, __u16 type) {
  __u32 size = n->number;
  if (n->extension < HELLO_NAME_HEADER + size)
    return HELLO_AT_LOST;
  n->extension -= HELLO_NAME_HEADER + size;
  int next = n->extension ? HELLO_AT_NAME_TYPE : HELLO_AT_TYPE;
  if (type != HELLO_HOST_NAME)
    return hello_skip(n, size, next);
  if (n->sni || !size || size >= HELLO_NAME)
    return HELLO_AT_LOST;
  hello_skip(n, size, next);
  return HELLO_AT_COPY;
}

/* A protocol begins. */
static __always_inline int hello_protocol(struct tls_names *n) {
  __u32 size = n->number, at = n->alpn;
  if (!size || n->extension < 1 + size)
    return HELLO_AT_LOST;
  n->extension -= 1 + size;
  hello_skip(n, size, n->extension ? HELLO_AT_PROTOCOL : HELLO_AT_TYPE);
  if (at + 1 + size > HELLO_NAME) {
    n->flags |= HELLO_CUT;
    return HELLO_AT_SKIP;
  }
  n->protocols[at & (HELLO_NAME - 1)] = size;
  n->alpn = at + 1;
  return HELLO_AT_COPY_PROTOCOL;
}

/* A number was read, before which there may have been a type. */
static __always_inline int hello_number(struct tls_names *n, int place, __u16 type) {
  switch (place) {
  case HELLO_AT_SESSION:
    return hello_skip(n, n->number, HELLO_AT_CIPHERS);
  case HELLO_AT_CIPHERS:
    return hello_skip(n, n->number, HELLO_AT_COMPRESSION);
  case HELLO_AT_COMPRESSION:
    return hello_skip(n, n->number, HELLO_AT_EXTENSIONS);
  case HELLO_AT_EXTENSIONS:
    return n->number == n->frame.left ? HELLO_AT_TYPE : HELLO_AT_LOST;
  case HELLO_AT_TYPE:
    n->item = n->number;
    return HELLO_AT_SIZE;
  case HELLO_AT_SIZE:
    return hello_extension(n, type);
  case HELLO_AT_NAMES:
    return hello_list(n, HELLO_AT_NAME_TYPE);
  case HELLO_AT_NAME_TYPE:
    n->item = n->number;
    return HELLO_AT_NAME_SIZE;
  case HELLO_AT_NAME_SIZE:
    return hello_name(n, type);
  case HELLO_AT_PROTOCOLS:
    return hello_list(n, HELLO_AT_PROTOCOL);
  case HELLO_AT_PROTOCOL:
    return hello_protocol(n);
  }
  return HELLO_AT_LOST;
}

/* A byte of what is copied or skipped. */
static __always_inline int hello_item(struct tls_names *n, int place, __u8 b) {
  if (place == HELLO_AT_COPY) {
    n->name[n->sni & (HELLO_NAME - 1)] = b;
    n->sni++;
    if (!b)
      return HELLO_AT_LOST;
  } else if (place == HELLO_AT_COPY_PROTOCOL) {
    n->protocols[n->alpn & (HELLO_NAME - 1)] = b;
    n->alpn++;
  }
  n->item--;
  return n->item ? place : n->next;
}

/* A byte of the message behind its header. */
static __always_inline int hello_byte(struct tls_names *n, int place, __u8 b) {
  if (place >= HELLO_AT_SKIP)
    return hello_item(n, place, b);
  n->at++;
  if (place == HELLO_AT_BEGINNING) {
    if (n->at < HELLO_BEGINNING)
      return place;
    n->at = 0;
    return HELLO_AT_SESSION;
  }
  n->number = n->number << 8 | b;
  if (place >= HELLO_AT_CIPHERS && n->at < 2)
    return place;
  if (place < HELLO_AT_CIPHERS)
    n->number = b;
  n->at = 0;
  return hello_number(n, place, n->item);
}

/* The message has ended. */
static __always_inline int hello_ends(struct tls_names *n, int place) {
  bool whole = !n->at && (place == HELLO_AT_EXTENSIONS || place == HELLO_AT_TYPE);
  return whole ? HELLO_AT_END : HELLO_AT_LOST;
}

/* How many of the next bytes of the connection need not be read. */
static __always_inline __u32 hello_skips(struct tls_names *n, __u32 most) {
  if (n->place != HELLO_AT_SKIP)
    return 0;
  if (most >= n->item)
    most = n->item - 1; /* the last is read, for it ends what is skipped */
  most = tls_skip(&n->frame, most);
  n->item -= most;
  return most;
}

/* Reads a byte, or skips some. Returns how many. Global, so that the verifier looks at it once. */
__noinline int hello_step(struct tls_names *n, const struct http_chunk *c, __u32 pos, __u32 length) {
  if (!n || !c || pos >= length)
    return 1;
  struct http_reader r = http_begin(NULL, c, pos, length);
  __u32 skipped = hello_skips(n, length - pos);
  if (skipped)
    return skipped;
  struct tls_hello *frame = &n->frame;
  bool inside = frame->place == TLS_AT_CONTENT && frame->header == TLS_HEADER && frame->left;
  __u8 b = http_byte(&r);
  int place = n->place;
  frame->place = tls_byte(frame, b);
  if (inside)
    place = hello_byte(n, place, b);
  if (place < HELLO_AT_END && frame->header == TLS_HEADER && !frame->left)
    place = hello_ends(n, place);
  if (frame->place == TLS_AT_LOST)
    place = HELLO_AT_LOST;
  n->place = place;
  return 1;
}

#define HELLO_TURN 32
#define HELLO_TURNS (HTTP_CHUNK / HELLO_TURN)

/* A turn of hello_names(): goes on from `pos`, and returns how far it came. */
__noinline int hello_turn(struct tls_names *n, const struct http_chunk *c, __u32 pos, __u32 length) {
  if (!n || !c)
    return 0;
  for (int i = 0; i < HELLO_TURN && pos < length && n->place < HELLO_AT_END; i++)
    pos += (__u16)hello_step(n, c, pos, length);
  return pos;
}

static __always_inline int hello_lost(struct tls_names *n) {
  n->place = HELLO_AT_LOST;
  n->flags |= HELLO_MALFORMED;
  n->sni = 0;
  n->alpn = 0;
  return HTTP_LOST;
}

/* Goes on with a ClientHello by the first `length` bytes of the chunk, with all of them or until it
 * has ended. Returns enum http_step; once that was not HTTP_MORE, it stays. */
__noinline int hello_names(struct tls_names *n, const struct http_chunk *c, __u32 length) {
  if (!n || !c)
    return HTTP_LOST;
  if (length > HTTP_CHUNK)
    return hello_lost(n);
  __u32 pos = 0;
  for (int i = 0; i < HELLO_TURNS && pos < length; i++)
    pos = hello_turn(n, c, pos, length);
  if (n->place == HELLO_AT_END)
    return HTTP_END;
  return n->place == HELLO_AT_LOST ? hello_lost(n) : HTTP_MORE;
}
