/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Makes the JA4 fingerprint of a ClientHello (RFC 8446, 4.1.2): which ciphers, extensions and signature
 * algorithms its client offers, in whatever order it does, by which its TLS library is known again. Like
 * http.h it calls no helper, and is compiled natively and compared with plain Go.
 *
 * What servers may read differently has no fingerprint: lengths that do not add up, and an extension that is
 * read here and comes twice. Nor has what offers more than there is room for. */
#pragma once
#include "abi/match.h"
#include "parse/sha256.h"
#include "parse/tls.h"

#define JA4_DIGITS 12 /* of a hash */
#define JA4_CIPHERS_AT 11
#define JA4_EXTENSIONS_AT 24
#define JA4_MOST 128 /* ciphers, extensions and signature algorithms, of each */

enum ja4_list {
  JA4_CIPHERS,
  JA4_EXTENSIONS, /* but SNI and ALPN */
  JA4_SIGNATURES,
  JA4_SPARE, /* half of a sort is there */
  JA4_LISTS
};

/* What a ClientHello says, and where in it the bytes read so far end; all zero before the first. */
struct ja4_reader {
  struct tls_hello frame;
  __u16 item;             /* bytes to come that are skipped; or a type, before the number behind it */
  __u16 left;             /* bytes to come of a list, or of an extension */
  __u16 number;           /* the one at hand */
  __u16 version;          /* that stands at the beginning */
  __u16 newest;           /* of supported_versions; 0: none */
  __u16 extensions;       /* all of them */
  __u8 place;             /* enum ja4_place */
  __u8 next;              /* enum ja4_place behind what is skipped */
  __u8 at;                /* bytes of a number that were read */
  __u8 flags;             /* enum ja4_flag */
  __u8 first, last;       /* bytes of the first protocol */
  __u16 count[JA4_LISTS]; /* of what is in the lists */
  __u8 pad[2];            /* 0 */
};

struct ja4 {
  struct ja4_reader r;
  __u16 list[JA4_LISTS][JA4_MOST];
  __u16 bin[16]; /* of a sort: where the next of each digit goes */
  struct sha256 hash;
};

enum ja4_flag {
  JA4_SNI = 1, /* there was an extension */
  JA4_ALPN = 2,
  JA4_SIGNED = 4,
  JA4_VERSIONS = 8,
};

enum ja4_place {
  JA4_AT_VERSION,
  JA4_AT_CIPHERS, /* in the length of what has it in two bytes */
  JA4_AT_CIPHER,
  JA4_AT_EXTENSIONS,
  JA4_AT_TYPE, /* in an extension's type */
  JA4_AT_SIZE,
  JA4_AT_PROTOCOLS,
  JA4_AT_SIGNATURES,
  JA4_AT_SIGNATURE,
  JA4_AT_SUPPORTED, /* in a version */
  JA4_AT_SESSION,   /* from here on: in numbers of one byte */
  JA4_AT_COMPRESSION,
  JA4_AT_PROTOCOL,
  JA4_AT_FIRST, /* in the first protocol */
  JA4_AT_SUPPORTEDS,
  JA4_AT_SKIP,
  JA4_AT_END,
  JA4_AT_LOST,
};

#define JA4_EXT_SNI 0
#define JA4_EXT_SIGNATURES 13
#define JA4_EXT_ALPN 16
#define JA4_EXT_VERSIONS 43
#define JA4_RANDOM 32

/* Values that clients offer to see whether servers mind (RFC 8701). */
static __always_inline bool ja4_is_grease(__u16 v) { return (v & 0x0f0f) == 0x0a0a && v >> 8 == (v & 0xff); }

/* The functions below are called behind a number and return the next place. */

static __always_inline int ja4_skip(struct ja4_reader *r, __u16 size, int next) {
  if (size > r->frame.left)
    return JA4_AT_LOST;
  r->item = size;
  r->next = next;
  return size ? JA4_AT_SKIP : next;
}

/* Adds the number at hand to a list. */
static __always_inline int ja4_add(struct ja4 *j, int list, int place) {
  __u16 n = j->r.count[list];
  if (ja4_is_grease(j->r.number))
    return place;
  if (n >= JA4_MOST)
    return JA4_AT_LOST;
  j->list[list][n & (JA4_MOST - 1)] = j->r.number;
  j->r.count[list] = n + 1;
  return place;
}

/* An item of a list of numbers was read: of two bytes, like all of them. */
static __always_inline int ja4_behind(struct ja4_reader *r, int place, int next) {
  r->left -= 2;
  return r->left ? place : next;
}

/* A list of numbers begins that has the number at hand as its length, and fills so many bytes. */
static __always_inline int ja4_list(struct ja4_reader *r, __u32 fills, int place, int next) {
  if (r->number & 1 || r->number != fills)
    return JA4_AT_LOST;
  r->left = r->number;
  return r->left ? place : next;
}

static __always_inline int ja4_ciphers(struct ja4_reader *r) {
  return r->number > r->frame.left ? JA4_AT_LOST : ja4_list(r, r->number, JA4_AT_CIPHER, JA4_AT_COMPRESSION);
}

static __always_inline int ja4_once(struct ja4_reader *r, __u8 flag, __u32 least, int next) {
  if (r->flags & flag || r->left < least)
    return JA4_AT_LOST;
  r->flags |= flag;
  return next;
}

/* An extension's type was read. */
static __always_inline int ja4_type(struct ja4 *j) {
  struct ja4_reader *r = &j->r;
  r->item = r->number;
  if (ja4_is_grease(r->number))
    return JA4_AT_SIZE;
  r->extensions++;
  if (r->number == JA4_EXT_SNI || r->number == JA4_EXT_ALPN)
    return JA4_AT_SIZE;
  return ja4_add(j, JA4_EXTENSIONS, JA4_AT_SIZE);
}

/* An extension begins. */
static __always_inline int ja4_extension(struct ja4_reader *r, __u16 type) {
  if (r->number > r->frame.left)
    return JA4_AT_LOST;
  r->left = r->number;
  switch (type) {
  case JA4_EXT_SNI:
    if (r->flags & JA4_SNI)
      return JA4_AT_LOST;
    r->flags |= JA4_SNI;
    break;
  case JA4_EXT_ALPN:
    return ja4_once(r, JA4_ALPN, 4, JA4_AT_PROTOCOLS);
  case JA4_EXT_SIGNATURES:
    return ja4_once(r, JA4_SIGNED, 2, JA4_AT_SIGNATURES);
  case JA4_EXT_VERSIONS:
    return ja4_once(r, JA4_VERSIONS, 1, JA4_AT_SUPPORTEDS);
  }
  return ja4_skip(r, r->left, JA4_AT_TYPE);
}

/* The list of protocols begins. */
static __always_inline int ja4_protocols(struct ja4_reader *r) {
  r->left -= 2;
  return r->number == r->left ? JA4_AT_PROTOCOL : JA4_AT_LOST;
}

/* The first protocol begins; those behind it do not matter. */
static __always_inline int ja4_protocol(struct ja4_reader *r) {
  r->left--;
  if (!r->number || r->number > r->left)
    return JA4_AT_LOST;
  r->item = r->number;
  r->left -= r->number;
  r->first = 0;
  return JA4_AT_FIRST;
}

/* A byte of the first protocol. None of them is 0 in what is written here, see ja4_protocol_of(). */
static __always_inline int ja4_first(struct ja4_reader *r, __u8 b, bool begins) {
  if (begins)
    r->first = b;
  r->last = b;
  r->item--;
  return r->item ? JA4_AT_FIRST : ja4_skip(r, r->left, JA4_AT_TYPE);
}

static __always_inline int ja4_supported(struct ja4_reader *r) {
  if (!ja4_is_grease(r->number) && r->number > r->newest)
    r->newest = r->number;
  return ja4_behind(r, JA4_AT_SUPPORTED, JA4_AT_TYPE);
}

/* A number of one byte was read, or one of two bytes in front of a list. */
static __always_inline int ja4_length(struct ja4_reader *r, int place) {
  switch (place) {
  case JA4_AT_CIPHERS:
    return ja4_ciphers(r);
  case JA4_AT_EXTENSIONS:
    return r->number == r->frame.left ? JA4_AT_TYPE : JA4_AT_LOST;
  case JA4_AT_PROTOCOLS:
    return ja4_protocols(r);
  case JA4_AT_SIGNATURES:
    return ja4_list(r, r->left - 2, JA4_AT_SIGNATURE, JA4_AT_TYPE);
  case JA4_AT_SESSION:
    return ja4_skip(r, r->number, JA4_AT_CIPHERS);
  case JA4_AT_COMPRESSION:
    return ja4_skip(r, r->number, JA4_AT_EXTENSIONS);
  case JA4_AT_PROTOCOL:
    return ja4_protocol(r);
  case JA4_AT_SUPPORTEDS:
    return ja4_list(r, r->left - 1, JA4_AT_SUPPORTED, JA4_AT_TYPE);
  }
  return JA4_AT_LOST;
}

/* A number was read, before which there may have been a type. */
static __always_inline int ja4_number(struct ja4 *j, int place) {
  struct ja4_reader *r = &j->r;
  switch (place) {
  case JA4_AT_VERSION:
    r->version = r->number;
    return ja4_skip(r, JA4_RANDOM, JA4_AT_SESSION);
  case JA4_AT_CIPHER:
    place = ja4_add(j, JA4_CIPHERS, place);
    return place == JA4_AT_LOST ? place : ja4_behind(r, place, JA4_AT_COMPRESSION);
  case JA4_AT_TYPE:
    return ja4_type(j);
  case JA4_AT_SIZE:
    return ja4_extension(r, r->item);
  case JA4_AT_SIGNATURE:
    place = ja4_add(j, JA4_SIGNATURES, place);
    return place == JA4_AT_LOST ? place : ja4_behind(r, place, JA4_AT_TYPE);
  case JA4_AT_SUPPORTED:
    return ja4_supported(r);
  }
  return ja4_length(r, place);
}

/* A byte of the message behind its header. */
static __always_inline int ja4_byte(struct ja4 *j, int place, __u8 b) {
  struct ja4_reader *r = &j->r;
  if (place == JA4_AT_SKIP) {
    r->item--;
    return r->item ? place : r->next;
  }
  if (place == JA4_AT_FIRST) {
    bool begins = r->item == r->number;
    return ja4_first(r, b, begins);
  }
  r->number = r->at ? r->number << 8 | b : b;
  r->at++;
  if (place < JA4_AT_SESSION && r->at < 2)
    return place;
  r->at = 0;
  return ja4_number(j, place);
}

/* The message has ended. */
static __always_inline int ja4_ends(const struct ja4_reader *r, int place) {
  bool whole = !r->at && (place == JA4_AT_EXTENSIONS || place == JA4_AT_TYPE);
  return whole ? JA4_AT_END : JA4_AT_LOST;
}

/* How many of the next bytes of the connection need not be read. */
static __always_inline __u32 ja4_skips(struct ja4_reader *r, __u32 most) {
  if (r->place != JA4_AT_SKIP)
    return 0;
  if (most >= r->item)
    most = r->item - 1; /* the last is read, for it ends what is skipped */
  most = tls_skip(&r->frame, most);
  r->item -= most;
  return most;
}

/* Reads a byte, or skips some. Returns how many. Global, so that the verifier looks at it once. */
__noinline int ja4_step(struct ja4 *j, const struct http_chunk *c, __u32 pos, __u32 length) {
  if (!j || !c || pos >= length)
    return 1;
  struct http_reader r = http_begin(NULL, c, pos, length);
  struct tls_hello *frame = &j->r.frame;
  __u32 skipped = ja4_skips(&j->r, length - pos);
  if (skipped)
    return skipped;
  bool inside = frame->place == TLS_AT_CONTENT && frame->header == TLS_HEADER && frame->left;
  __u8 b = http_byte(&r);
  int place = j->r.place;
  frame->place = tls_byte(frame, b);
  if (inside)
    place = ja4_byte(j, place, b);
  if (place < JA4_AT_END && frame->header == TLS_HEADER && !frame->left)
    place = ja4_ends(&j->r, place);
  if (frame->place == TLS_AT_LOST)
    place = JA4_AT_LOST;
  j->r.place = place;
  return 1;
}

#define JA4_TURN 32
#define JA4_TURNS (HTTP_CHUNK / JA4_TURN)

/* A turn of ja4_read(): goes on from `pos`, and returns how far it came. */
__noinline int ja4_turn(struct ja4 *j, const struct http_chunk *c, __u32 pos, __u32 length) {
  if (!j || !c)
    return 0;
  for (int i = 0; i < JA4_TURN && pos < length && j->r.place < JA4_AT_END; i++)
    pos += (__u16)ja4_step(j, c, pos, length);
  return pos;
}

/* Goes on with a ClientHello by the first `length` bytes of the chunk, with all of them or until it
 * has ended. Returns enum http_step; once that was not HTTP_MORE, it stays. */
__noinline int ja4_read(struct ja4 *j, const struct http_chunk *c, __u32 length) {
  if (!j || !c || length > HTTP_CHUNK)
    return HTTP_LOST;
  __u32 pos = 0;
  for (int i = 0; i < JA4_TURNS && pos < length; i++)
    pos = ja4_turn(j, c, pos, length);
  if (j->r.place == JA4_AT_END)
    return HTTP_END;
  return j->r.place == JA4_AT_LOST ? HTTP_LOST : HTTP_MORE;
}

static __always_inline __u16 *ja4_item(struct ja4 *j, __u32 list, __u32 i) {
  return &j->list[text_opaque(list) & (JA4_LISTS - 1)][text_opaque(i) & (JA4_MOST - 1)];
}

static __always_inline __u32 ja4_bin(__u16 v, __u32 shift) { return v >> (shift & 15) & 15; }

/* Counts how many of a list have each digit of four bits. */
__noinline int ja4_count(struct ja4 *j, __u32 list, __u32 shift, __u32 n) {
  for (__u32 i = 0; j && i < JA4_MOST && i < n; i++)
    j->bin[ja4_bin(*ja4_item(j, list, i), shift)]++;
  return 0;
}

/* Puts a list elsewhere in the order of such a digit, of which it is counted where each begins. */
__noinline int ja4_arrange(struct ja4 *j, __u32 from, __u32 to, __u32 shift, __u32 n) {
  for (__u32 i = 0; j && i < JA4_MOST && i < n; i++) {
    __u16 v = *ja4_item(j, from, i), *at = &j->bin[ja4_bin(v, shift)];
    *ja4_item(j, to, *at) = v;
    ++*at;
  }
  return 0;
}

/* Sorts a list by a digit, and has it elsewhere then. */
__noinline int ja4_sort_by(struct ja4 *j, __u32 from, __u32 to, __u32 shift, __u32 n) {
  if (!j)
    return 0;
  for (int i = 0; i < 16; i++)
    j->bin[i] = 0;
  ja4_count(j, from, shift, n);
  __u16 before = 0;
  for (int i = 0; i < 16; i++) {
    __u16 here = j->bin[i];
    j->bin[i] = before;
    before += here;
  }
  return ja4_arrange(j, from, to, shift, n);
}

/* Sorts a list, in steps that grow with its length alone, whatever a client sends. */
static __always_inline void ja4_sort(struct ja4 *j, __u32 list) {
  for (__u32 shift = 0; shift < 16; shift += 8) {
    ja4_sort_by(j, list, JA4_SPARE, shift, j->r.count[list]);
    ja4_sort_by(j, JA4_SPARE, list, shift + 4, j->r.count[list]);
  }
}

/* Without a branch, which would be two ways for each digit to the verifier. */
static __always_inline __u8 ja4_digit(__u32 v) {
  v &= 15;
  return '0' + v + ((9 - v) >> 31) * ('a' - '9' - 1);
}

/* Writes a list into the text that is hashed, behind so many bytes, with a comma behind each of its numbers.
 * Returns where it ends. */
__noinline int ja4_write(struct ja4 *j, __u32 list, __u32 at) {
  if (!j)
    return 0;
  __u8 *text = j->hash.text;
  __u32 n = j->r.count[list & (JA4_LISTS - 1)];
  for (__u32 i = 0; i < JA4_MOST && i < n; i++) {
    __u16 v = *ja4_item(j, list, i);
    text[text_opaque(at) & (SHA256_TEXT - 1)] = ja4_digit(v >> 12);
    text[text_opaque(at + 1) & (SHA256_TEXT - 1)] = ja4_digit(v >> 8);
    text[text_opaque(at + 2) & (SHA256_TEXT - 1)] = ja4_digit(v >> 4);
    text[text_opaque(at + 3) & (SHA256_TEXT - 1)] = ja4_digit(v);
    text[text_opaque(at + 4) & (SHA256_TEXT - 1)] = ',';
    at += 5;
  }
  return at;
}

/* Writes the first digits of a text's hash, of which the last byte is left out; of none, zeros. */
static __always_inline void ja4_hash(struct ja4 *j, __u32 length, __u8 *to) {
  j->hash.state[0] = j->hash.state[1] = 0;
  if (length)
    sha256(&j->hash, length - 1);
  for (int i = 0; i < JA4_DIGITS; i++)
    to[i] = ja4_digit(j->hash.state[i / 8] >> (28 - i % 8 * 4));
}

/* What all clients of one kind have alike, whatever they name and in whatever order. */
__noinline int ja4_hashes(struct ja4 *j, struct ja4_print *to) {
  if (!j || !to)
    return 0;
  ja4_sort(j, JA4_CIPHERS);
  ja4_hash(j, ja4_write(j, JA4_CIPHERS, 0), to->text + JA4_CIPHERS_AT);
  ja4_sort(j, JA4_EXTENSIONS);
  __u32 n = ja4_write(j, JA4_EXTENSIONS, 0);
  if (j->r.count[JA4_SIGNATURES]) { /* their extension is before them */
    j->hash.text[text_opaque(n - 1) & (SHA256_TEXT - 1)] = '_';
    n = ja4_write(j, JA4_SIGNATURES, n);
  }
  ja4_hash(j, n, to->text + JA4_EXTENSIONS_AT);
  return 0;
}

static __always_inline void ja4_number_of(__u32 n, __u8 *to) {
  n = n > 99 ? 99 : n;
  to[0] = '0' + n / 10;
  to[1] = '0' + n % 10;
}

static __always_inline void ja4_version_of(const struct ja4_reader *r, __u8 *to) {
  __u16 v = r->flags & JA4_VERSIONS ? r->newest : r->version;
  bool known = v >= 0x0300 && v <= 0x0304;
  to[0] = !known ? '0' : v == 0x0300 ? 's' : '1';
  to[1] = !known ? '0' : v == 0x0300 ? '3' : '0' - 1 + (v & 7);
}

static __always_inline bool ja4_is_plain(__u8 b) {
  __u8 low = b | 0x20;
  return (b >= '0' && b <= '9') || (low >= 'a' && low <= 'z');
}

static __always_inline void ja4_protocol_of(const struct ja4_reader *r, __u8 *to) {
  bool plain = ja4_is_plain(r->first) && ja4_is_plain(r->last);
  bool none = !(r->flags & JA4_ALPN);
  to[0] = none ? '0' : plain ? r->first : ja4_digit(r->first >> 4);
  to[1] = none ? '0' : plain ? r->last : ja4_digit(r->last);
}

/* Writes the fingerprint of a ClientHello that has ended. */
static __always_inline void ja4_finish(struct ja4 *j, struct ja4_print *to) {
  const struct ja4_reader *r = &j->r;
  to->text[0] = 't';
  ja4_version_of(r, to->text + 1);
  to->text[3] = r->flags & JA4_SNI ? 'd' : 'i';
  ja4_number_of(r->count[JA4_CIPHERS], to->text + 4);
  ja4_number_of(r->extensions, to->text + 6);
  ja4_protocol_of(r, to->text + 8);
  to->text[JA4_CIPHERS_AT - 1] = to->text[JA4_EXTENSIONS_AT - 1] = '_';
  ja4_hashes(j, to);
}
