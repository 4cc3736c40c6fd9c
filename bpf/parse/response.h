/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads what the gate needs of the head of an HTTP/1.x response. Calls no helper. Responses
 * come from the server, which is trusted: unlike a request's head this one need not be read
 * in one way only, but quickly, for every response is. */
#pragma once
#include "parse/http.h"

struct http_answer {
  __u16 status; /* 0: no HTTP/1.x status line */
  bool closes;  /* HTTP/1.0 without keep-alive, or Connection: close, as far as was read */
  bool keeps;   /* Connection: keep-alive, likewise */
  bool framed;  /* it says how long its body is, likewise */
  bool ended;   /* the head ended within the bytes, as far as they were read */
};

#define WORD(a, b, c, d, e, f, g, h)                                                                         \
  ((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 | (__u64)(e) << 32 |                   \
   (__u64)(f) << 40 | (__u64)(g) << 48 | (__u64)(h) << 56)

/* Eight bytes from an offset. Little endian, as the words above. */
static __always_inline __u64 word_at(const struct http_chunk *c, __u32 at) {
  __u64 word = 0;
  asm volatile("" : "+r"(at)); /* the comparison is the verifier's, too */
  if (at <= HTTP_CHUNK - 8)
    __builtin_memcpy(&word, &c->byte[at], 8);
  return word;
}

/* Makes letters lower case. Other bytes change, too, but not into letters. */
#define LOWER 0x2020202020202020ULL

/* The first byte of the word, in memory, that is a line feed: its number; 8: none. The word's
 * bytes that are are found as in "Hacker's Delight" (Warren, 2012), 6-1. */
static __always_inline __u32 find_line_feed(__u64 word) {
  __u64 x = word ^ 0x0a0a0a0a0a0a0a0aULL;
  __u64 hit = (x - 0x0101010101010101ULL) & ~x & 0x8080808080808080ULL;
  __u32 at = 0;
  if (!hit)
    return 8;
  hit &= -hit; /* the lowest; those above it may be wrong */
  at += !!(hit & 0xffffffff00000000ULL) * 4;
  at += !!(hit & 0xffff0000ffff0000ULL) * 2;
  at += !!(hit & 0xff00ff00ff00ff00ULL);
  return at;
}

enum connection { CONNECTION_NONE, CONNECTION_CLOSE, CONNECTION_KEEP, CONNECTION_FRAMED, CONNECTION_END };

/* What the header line that begins at an offset, which is below the length, says of the
 * connection, by how the value begins. CONNECTION_END: it is the line that ends the head; CONNECTION_FRAMED:
 * it is one of those that say how long a body is (Content-Length, Transfer-Encoding). */
static __always_inline int read_line(const struct http_chunk *c, __u32 at, __u32 length) {
  __u64 name = word_at(c, at);
  if ((name & 0xff) == '\r' || (name & 0xff) == '\n')
    return CONNECTION_END;
  __u64 rest = word_at(c, at + 8); /* "on: clos", "on:close" or "on: keep" */
  name |= LOWER;
  if (name != WORD('c', 'o', 'n', 'n', 'e', 'c', 't', 'i')) {
    bool length = name == WORD('c', 'o', 'n', 't', 'e', 'n', 't', '-') &&
                  ((rest | LOWER) & 0xffffffffffffULL) == WORD('l', 'e', 'n', 'g', 't', 'h', 0, 0);
    bool coding = name == WORD('t', 'r', 'a', 'n', 's', 'f', 'e', 'r') &&
                  (rest | LOWER) == WORD('-', 'e', 'n', 'c', 'o', 'd', 'i', 'n');
    return length || coding ? CONNECTION_FRAMED : CONNECTION_NONE;
  }
  if (((rest | 0x2020) & 0xffffff) != WORD('o', 'n', ':', 0, 0, 0, 0, 0))
    return CONNECTION_NONE;
  __u32 space = (rest >> 24 & 0xff) == ' ';
  at += 11 + space;
  __u64 value = word_at(c, at); /* behind the length is what another frame left there */
  if (((value | LOWER) & 0xffffffffffULL) == WORD('c', 'l', 'o', 's', 'e', 0, 0, 0))
    return at + 5 <= length ? CONNECTION_CLOSE : CONNECTION_NONE;
  if ((value | (LOWER & ~WORD(0, 0, 0, 0, 0x20, 0, 0, 0))) != WORD('k', 'e', 'e', 'p', '-', 'a', 'l', 'i'))
    return CONNECTION_NONE;
  return at + 8 <= length ? CONNECTION_KEEP : CONNECTION_NONE;
}

/* Where a response is being read. */
struct response_cursor {
  __u32 at;
  __u32 length; /* bytes of the chunk */
  __u32 says;   /* enum connection: of the last line that says something */
  __u32 ended;  /* 1: the head has */
  __u32 framed; /* 1: it says how long the body is */
};

/* Moves on behind the next line feed in the word at the cursor. False: there is none in it. */
static __always_inline bool pass_feed(struct response_cursor *r, const struct http_chunk *c) {
  __u32 feed = find_line_feed(word_at(c, r->at));
  r->at += feed + (feed < 8);
  return feed < 8;
}

/* Steps in one turn. */
#define STEPS 24

/* Reads on for some steps. False: there is no more to read. Global, and with its place in
 * memory, of which the verifier remembers nothing: each step is the same to it. */
__noinline int response_turn(struct response_cursor *r, const struct http_chunk *c) {
  if (!r || !c)
    return 0;
  for (int i = 0; i < STEPS; i++) {
    if (r->at >= r->length)
      return 0;
    if (!pass_feed(r, c))
      continue;
    if (r->at >= r->length)
      return 0;
    int says = read_line(c, r->at, r->length);
    if (says == CONNECTION_END) {
      r->ended = 1;
      return 0;
    }
    if (says == CONNECTION_FRAMED)
      r->framed = 1;
    else if (says != CONNECTION_NONE)
      r->says = says;
  }
  return 1;
}

/* Turns that read a whole chunk: a step passes two bytes or more, for an empty line is the
 * last. */
#define MAX_TURNS (HTTP_CHUNK / 2 / STEPS + 1)

/* Reads the beginning of a response, of so many bytes. Lines and values that begin in the
 * last seven of the chunk go unread. */
static __always_inline void read_response(struct http_answer *a, const struct http_chunk *c, __u32 length) {
  a->status = 0;
  a->closes = a->keeps = false;
  a->ended = a->framed = false;
  __u64 version = word_at(c, 0);
  if (length < 12 || (version & 0xffffffffffffffULL) != WORD('H', 'T', 'T', 'P', '/', '1', '.', 0))
    return;
  __u32 hundreds = c->byte[9] - '0', tens = c->byte[10] - '0', ones = c->byte[11] - '0';
  if (hundreds > 9 || tens > 9 || ones > 9)
    return;
  a->status = hundreds * 100 + tens * 10 + ones;
  if (!a->status)
    return;
  struct response_cursor r = {.at = 12, .length = length};
  for (int i = 0; i < MAX_TURNS && response_turn(&r, c); i++)
    ;
  a->ended = r.ended;
  a->framed = r.framed;
  a->keeps = r.says == CONNECTION_KEEP;
  a->closes = r.says == CONNECTION_NONE ? version >> 56 == '0' : r.says == CONNECTION_CLOSE;
}
